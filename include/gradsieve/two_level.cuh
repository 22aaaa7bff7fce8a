// Several ranks per node, on host and GPU.
#pragma once

#include <gradsieve/cuda/compressor.cuh>
#include <gradsieve/cuda/exchange/node_exchange.cuh>
#include <gradsieve/two_level.hpp>
