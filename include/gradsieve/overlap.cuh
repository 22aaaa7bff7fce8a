// Runs a plan during the backward pass, on host and GPU.
#pragma once

#include <gradsieve/cuda.cuh>
#include <gradsieve/overlap.hpp>
#include <gradsieve/overlap/group_queue.cuh>
