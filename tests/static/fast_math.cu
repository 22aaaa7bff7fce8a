// Instantiates kernels that compute values, for a look at what --use_fast_math makes of them. Compiled only. Left out
// are selectors that compute with parameters of their own, and with logarithms, which are CUDA's.
#include <gradsieve/comm/self.hpp>
#include <gradsieve/cuda.cuh>
#include <gradsieve/parameters.cuh>
#include <gradsieve/published/qsgd.cuh>

#include <span>

namespace gs = gradsieve;

template <class Codec, class Exchange = gs::gather>
using coded = gs::recipe<gs::radix, gs::whole, gs::error_feedback, Codec, Exchange>;

using usual = gs::recipe<>;
using norms = gs::recipe<gs::radix, gs::deft, gs::momentum_correction>;
using bins = gs::recipe<gs::adacomp, gs::layerwise>;
using narrow = gs::recipe<gs::radix, gs::whole, gs::in_bfloat16<gs::momentum_correction>>;
using filtered = gs::recipe<gs::radix, gs::whole, gs::filtered>;
using ternary = coded<gs::packed<gs::raw32, gs::ternary>>;
using halves = coded<gs::packed<gs::fixed_width, gs::fp16>>;
using integers = coded<gs::packed<gs::elias_fano, gs::int4>>;
using signs = coded<gs::packed<gs::raw32, gs::sign>>;
using levels = coded<gs::packed<gs::raw32, gs::qsgd>>;
using unions = coded<gs::packed<gs::raw32, gs::bf16>, gs::index_union>;
using scattered = coded<gs::coo, gs::coded_all_reduce>;

/// Of one recipe, a step for each format.
template <class Recipe, class... Value>
void steps(gs::compressor<gs::device, Recipe>& one) {
  (one.exchange(gs::self{}, std::span<Value>{}), ...);
}
template void steps<usual, float, gs::float16, gs::bfloat16>(gs::compressor<gs::device, usual>&);
template void steps<norms, float>(gs::compressor<gs::device, norms>&);
template void steps<bins, float>(gs::compressor<gs::device, bins>&);
template void steps<narrow, gs::float16>(gs::compressor<gs::device, narrow>&);
template void steps<filtered, float>(gs::compressor<gs::device, filtered>&);
template void steps<ternary, float>(gs::compressor<gs::device, ternary>&);
template void steps<halves, float>(gs::compressor<gs::device, halves>&);
template void steps<integers, float>(gs::compressor<gs::device, integers>&);
template void steps<signs, float>(gs::compressor<gs::device, signs>&);
template void steps<levels, float>(gs::compressor<gs::device, levels>&);
template void steps<unions, float>(gs::compressor<gs::device, unions>&);
template void steps<scattered, float>(gs::compressor<gs::device, scattered>&);

void others(gs::averager<gs::device>& mean, gs::second_moments<gs::device>& moments, std::span<float> values,
            gs::parameter_exchange<gs::compressor<gs::device, usual>>& parameters) {
  mean.apply({}, values);
  moments.measure(gs::self{}, values);
  moments.clip(values, 1);
  parameters.exchange_parameters(gs::self{}, values);
}
