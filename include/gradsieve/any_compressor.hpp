// Deprecated, for one version: the name before run_time.hpp.
#pragma once

#include <gradsieve/run_time.hpp>
