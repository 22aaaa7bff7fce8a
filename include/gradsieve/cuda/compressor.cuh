// A compressor on a device, the recipe with its default policies, and all partitioners' default exchanges. Include the
// other policies that you name, for reduce_scatter exchange/reduce_scatter.cuh, for host transports staged.cuh.
#pragma once

#include <gradsieve/cuda/exchange/leader.cuh>
#include <gradsieve/cuda/step.cuh>
#include <gradsieve/step/compressor_class.hpp>
