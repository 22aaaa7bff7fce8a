// Deprecated, for one version: the name before plan.hpp and overlap.hpp.
#pragma once

#include <gradsieve/overlap.hpp>
#include <gradsieve/plan.hpp>
