// Weight deltas: what changed between two versions of a model, lossless. Depends on the core.
#pragma once

#include <gradsieve/delta/decoder.hpp>
#include <gradsieve/delta/encoder.hpp>
