// A compressor on a device, and the recipe with its default policies. Include the other policies that you name. What
// else a device may need: exchanges that are no partitioner's default, leader.cuh, reduce_scatter.cuh; staged.cuh.
#pragma once

#include <gradsieve/compressor_class.hpp>
#include <gradsieve/cuda/exchange.cuh>
#include <gradsieve/cuda/step.cuh>
