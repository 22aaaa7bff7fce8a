// Instantiates the kernels of a step, for the compiler's report on them: every format of a gradient, every residual
// store, every selector, every codec. Compiled only.
#include <gradsieve/comm/self.hpp>
#include <gradsieve/cuda.cuh>
#include <gradsieve/delta.cuh>
#include <gradsieve/published.cuh>

#include <cstddef>
#include <span>

namespace gs = gradsieve;

using usual = gs::recipe<>;
using statistics = gs::recipe<gs::laplacian, gs::deft>;
using momentum = gs::recipe<gs::hierarchical, gs::whole, gs::momentum_correction>;
using bins = gs::recipe<gs::adacomp, gs::layerwise>;
using chunks_kept = gs::recipe<gs::chunked>;
using narrow = gs::recipe<gs::radix, gs::whole, gs::in_bfloat16<>>;
using narrow_momentum = gs::recipe<gs::radix, gs::whole, gs::in_bfloat16<gs::momentum_correction>>;
using nothing_kept = gs::recipe<gs::radix, gs::whole, gs::none>;

template <class Codec, class Exchange = gs::gather>
using coded = gs::recipe<gs::radix, gs::whole, gs::error_feedback, Codec, Exchange>;
using ternary = coded<gs::packed<gs::raw32, gs::ternary>>;
using chunks = coded<gs::packed<gs::fixed_width, gs::fp16>>;
using integers = coded<gs::packed<gs::elias_fano, gs::int4>, gs::coded_all_reduce>;
using signs = coded<gs::packed<gs::raw32, gs::sign>>;
using levels = coded<gs::packed<gs::raw32, gs::qsgd>>;

/// Of one recipe, a step for each format.
template <class Recipe, class... Value>
void steps(gs::compressor<gs::device, Recipe>& one) {
  (one.exchange(gs::self{}, std::span<Value>{}), ...);
}
template void steps<usual, float, gs::float16, gs::bfloat16>(gs::compressor<gs::device, usual>&);
template void steps<statistics, float>(gs::compressor<gs::device, statistics>&);
template void steps<momentum, gs::float16>(gs::compressor<gs::device, momentum>&);
template void steps<bins, float, gs::bfloat16>(gs::compressor<gs::device, bins>&);
template void steps<chunks_kept, float>(gs::compressor<gs::device, chunks_kept>&);
template void steps<narrow, float>(gs::compressor<gs::device, narrow>&);
template void steps<narrow_momentum, float>(gs::compressor<gs::device, narrow_momentum>&);
template void steps<nothing_kept, float>(gs::compressor<gs::device, nothing_kept>&);
template void steps<ternary, float>(gs::compressor<gs::device, ternary>&);
template void steps<chunks, float>(gs::compressor<gs::device, chunks>&);
template void steps<integers, float>(gs::compressor<gs::device, integers>&);
template void steps<signs, float>(gs::compressor<gs::device, signs>&);
template void steps<levels, float>(gs::compressor<gs::device, levels>&);

/// Weight deltas, of one width of values.
template <class T>
void deltas(gs::device where, std::span<T> weights) {
  gs::delta_encoder encoder{where, gs::layout::flat(weights.size())};
  encoder.keep(weights);
  gs::delta_decoder{where, encoder.layers()}.apply(encoder.encode(weights), weights);
}
template void deltas<float>(gs::device, std::span<float>);
template void deltas<gs::bfloat16>(gs::device, std::span<gs::bfloat16>);
template void deltas<std::byte>(gs::device, std::span<std::byte>);
