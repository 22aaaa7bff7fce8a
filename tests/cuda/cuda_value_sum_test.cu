// Sums of values of 16 bits on a device: the host's bits, in the update and in every rank's residual.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

#include <gradsieve/published.cuh>

#include "gpu.cuh"

using namespace gpu;

namespace {

auto const layers = steps::mixed_layers();
auto const n = layers.size();

auto laplace(int rank, std::uint64_t step) { return steps::gradient(n, rank, step); }

/// Values near the largest of fp16.
auto large(int rank, std::uint64_t step) {
  auto values = steps::gradient(n, rank, step);
  for (std::size_t i = 0; i < n; ++i) values[i] = i % 7 == step % 3 ? (i % 2 == 0 ? 60000.0f : -60000.0f) : values[i];
  return values;
}

template <class Values>
inline constexpr gs::packed<gs::raw32, Values> codec{};

}  // namespace

TEST_CASE("index_union with values of 16 bits") {
  auto const no_short_layers = gs::layout{{"a", 3000}, {"b", 2000}, {"c", 4000}};  // none is sent in full
  for (int const ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    same_on_ranks<float>(gs::recipe{.density = 0.03, .partitioner = gs::deft{}, .codec = codec<gs::bf16>},
                         no_short_layers, ranks, 4,
                         [](int rank, std::uint64_t step) { return steps::gradient(9000, rank, step); });
  }
  gs::recipe const of_whole{.density = 0.03, .codec = codec<gs::fp16>, .exchange = gs::index_union{}};
  same_on_ranks<gs::bfloat16>(of_whole, layers, 3, 4, laplace);
  same_on_ranks<gs::float16>(of_whole, layers, 2, 4, large);
}

TEST_CASE("leader with values of 16 bits, until everybody has led twice") {
  gs::recipe const recipe{.density = 0.03, .partitioner = gs::cyclic{}, .codec = codec<gs::fp16>};
  for (int const ranks : {1, 3}) same_on_ranks<float>(recipe, layers, ranks, 7, laplace);
  same_on_ranks<gs::float16>(recipe, layers, 2, 4, large);
}

TEST_CASE("shared_choice with values of 16 bits") {
  gs::recipe const recipe{
      .density = 0.03, .selector = gs::random_k{}, .codec = codec<gs::bf16>, .exchange = gs::shared_choice{}};
  same_on_ranks<float>(recipe, layers, 3, 4, laplace);
}
