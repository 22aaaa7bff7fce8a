// Exchanged parameters, on host and GPU.
#pragma once

#include <gradsieve/cuda.cuh>
#include <gradsieve/cuda/moments.cuh>
#include <gradsieve/cuda/parameters.cuh>
#include <gradsieve/parameters.hpp>
