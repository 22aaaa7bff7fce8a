// How near is a step to the speed of memory? bench/CMakeLists.txt compiles this once for each selector
// (GRADSIEVE_BENCH_SELECTOR) and format of gradients (GRADSIEVE_BENCH_TYPE), as that takes its time.
#include "cuda_steps.cuh"

namespace bench {
namespace {

using gs::bfloat16;
using gs::float16;
using value = GRADSIEVE_BENCH_TYPE;
using selector = gs::GRADSIEVE_BENCH_SELECTOR;
constexpr bool wide = std::is_same_v<value, float>;

constexpr promise limits() {
  if (std::is_same_v<selector, gs::laplacian>) return {.most = 1.25};
  if (std::is_same_v<selector, gs::hierarchical>) return {.least = 0.79};
  return {};
}

void add_row(std::string const& family, setting const& at) {
  add_step<value>(family, GRADSIEVE_BENCH_NAME, gs::recipe{.density = at.density, .selector = selector{}}, limits(),
                  at);
}

void add_sweep() {
  for (auto const n : sizes({1 << 16, 1 << 18, 1 << 20, 1 << 22, bucket, 1 << 24, 1 << 26, 1 << 28, 1 << 30},
                            {1 << 16, 1 << 20, bucket, 1 << 26}))
    for (double const density : {0.0001, 0.001, 0.01, 0.1}) {
      bool const few = wide ? density >= 0.001 : density == 0.001 && (n == 1 << 26 || !chosen.n.empty());
      if (chosen.quick && !few) continue;
      setting at{.n = n, .density = density, .dtype = dtype_name<value>};
      add_row("step", at);
      add_row("cold", at);
      at.run = "graph";
      if (n <= 1 << 24) add_row("step", at);
    }
}

/// Data that are not kind: ties, hints that are wrong by a factor of two, scales that differ, entries that crowd.
void add_adverse() {
  for (auto const n : sizes({bucket, 1 << 26, 1 << 28}, {1 << 26}))
    for (double const density : {0.001, 0.01})
      for (auto const* law : {"equal", "zeros90", "doubling", "layers", "dense_end", "bf16"})
        if (!chosen.quick || density == 0.001) add_row("step", {.n = n, .density = density, .law = law});
}

/// The residual as bfloat16: 8 bytes an element to move instead of the floor's 12.
void add_narrow() {
  for (auto const n : sizes({bucket, 1 << 26, 1 << 28}, {1 << 26}))
    for (double const density : {0.001, 0.01}) {
      if (chosen.quick && density != 0.001) continue;
      gs::recipe const recipe{.density = density, .residual = gs::in_bfloat16{gs::error_feedback{}}};
      add_step<float>("step", "radix_bf16_residual", recipe, limits(), {.n = n, .density = density});
    }
}

part const steps{[] {
  if (chosen.quick && std::is_same_v<selector, gs::hierarchical>) return;
  add_sweep();
  if (wide) add_adverse();
  if (wide && std::is_same_v<selector, gs::radix>) add_narrow();
}};

}  // namespace
}  // namespace bench
