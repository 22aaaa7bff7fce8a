// Recipes chosen at run time, on host and GPU.
#pragma once

#include <gradsieve/cuda.cuh>
#include <gradsieve/published.cuh>
#include <gradsieve/run_time.hpp>
#include <gradsieve/run_time/device_codec.cuh>
#include <gradsieve/run_time/device_exchange.cuh>
#include <gradsieve/run_time/device_steps.cuh>
