// The core on the host: all policies of a training step. A program that names its policies compiles faster with
// compressor.hpp and their headers. Transports are in comm/, one header each. Nodes of several ranks, plans, recipes as
// text and published methods have headers of their own: two_level.hpp, plan.hpp, run_time.hpp, published.hpp.
#pragma once

#include <gradsieve/averager.hpp>
#include <gradsieve/codec/binned.hpp>
#include <gradsieve/codec/index/fixed_width.hpp>
#include <gradsieve/codec/packed.hpp>
#include <gradsieve/codec/value/automatic_values.hpp>
#include <gradsieve/codec/value/block_scaled.hpp>
#include <gradsieve/codec/value/half.hpp>
#include <gradsieve/codec/value/sign.hpp>
#include <gradsieve/codec/value/ternary.hpp>
#include <gradsieve/compressor.hpp>
#include <gradsieve/exchange/reduce_scatter.hpp>
#include <gradsieve/host/workspace.hpp>
#include <gradsieve/layer_states.hpp>
#include <gradsieve/mean_factor.hpp>
#include <gradsieve/partitioner/cyclic.hpp>
#include <gradsieve/partitioner/deft.hpp>
#include <gradsieve/partitioner/layerwise.hpp>
#include <gradsieve/partitioner/measure.hpp>
#include <gradsieve/partitioner/micro.hpp>
#include <gradsieve/residual/filtered.hpp>
#include <gradsieve/residual/in_bfloat16.hpp>
#include <gradsieve/residual/momentum_correction.hpp>
#include <gradsieve/residual/none.hpp>
#include <gradsieve/selector/adacomp.hpp>
#include <gradsieve/selector/chunked.hpp>
#include <gradsieve/selector/fixed_threshold.hpp>
#include <gradsieve/selector/hierarchical.hpp>
#include <gradsieve/selector/laplacian.hpp>
