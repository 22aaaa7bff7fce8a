// Everything for the host but the adapters to a transport, which are included one by one from comm/.
#pragma once

#include <gradsieve/averager.hpp>
#include <gradsieve/codec/binned.hpp>
#include <gradsieve/codec/index/fixed_width.hpp>
#include <gradsieve/codec/packed.hpp>
#include <gradsieve/codec/value/half.hpp>
#include <gradsieve/codec/value/ternary.hpp>
#include <gradsieve/compressor.hpp>
#include <gradsieve/host/workspace.hpp>
#include <gradsieve/layer_states.hpp>
#include <gradsieve/partitioner/cyclic.hpp>
#include <gradsieve/partitioner/deft.hpp>
#include <gradsieve/partitioner/layerwise.hpp>
#include <gradsieve/partitioner/measure.hpp>
#include <gradsieve/residual/filtered.hpp>
#include <gradsieve/residual/in_bfloat16.hpp>
#include <gradsieve/residual/momentum_correction.hpp>
#include <gradsieve/residual/none.hpp>
#include <gradsieve/selector/adacomp.hpp>
#include <gradsieve/selector/chunked.hpp>
#include <gradsieve/selector/hierarchical.hpp>
#include <gradsieve/selector/laplacian.hpp>
