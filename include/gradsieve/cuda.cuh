// Everything for host and GPU but the transports, which are in comm/, one header each.
#pragma once

#include <gradsieve/cuda/averager.cuh>
#include <gradsieve/cuda/exchange.cuh>
#include <gradsieve/cuda/leader.cuh>
#include <gradsieve/cuda/node_exchange.cuh>
#include <gradsieve/cuda/reduce_scatter.cuh>
#include <gradsieve/cuda/report.cuh>
#include <gradsieve/cuda/staged.cuh>
#include <gradsieve/cuda/step.cuh>
#include <gradsieve/cuda/workspace.cuh>
#include <gradsieve/gradsieve.hpp>
