// Published methods for comparison, on host and GPU. The selectors need no device part of their own.
#pragma once

#include <gradsieve/cuda.cuh>
#include <gradsieve/published.hpp>
#include <gradsieve/published/qsgd.cuh>
#include <gradsieve/published/shared_choice.cuh>
