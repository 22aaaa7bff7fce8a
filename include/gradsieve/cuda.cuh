// The core on host and GPU: all policies of a training step. A program that names its policies compiles faster with
// cuda/compressor.cuh and their headers. Transports are in comm/, one header each.
#pragma once

#include <gradsieve/cuda/averager.cuh>
#include <gradsieve/cuda/compressor.cuh>
#include <gradsieve/cuda/exchange/coded_all_reduce.cuh>
#include <gradsieve/cuda/staged.cuh>
#include <gradsieve/gradsieve.hpp>
