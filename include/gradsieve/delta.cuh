// Weight deltas, on host and GPU.
#pragma once

#include <gradsieve/delta.hpp>
#include <gradsieve/delta/decoder.cuh>
#include <gradsieve/delta/encoder.cuh>
