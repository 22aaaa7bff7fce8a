// Weight deltas, on host and GPU.
#pragma once

#include <gradsieve/cuda/delta/decoder.cuh>
#include <gradsieve/cuda/delta/encoder.cuh>
#include <gradsieve/delta.hpp>
