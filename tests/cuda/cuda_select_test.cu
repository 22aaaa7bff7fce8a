// Exact selection on a device: the host's entries, to the bit, whatever the data.
#include <doctest/doctest.h>

#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/functional.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu.cuh"

using namespace gpu;

namespace own {

/// Keeps what is above 0.3, or above the largest half of the budget if that is more.
struct lower {
  template <class Workspace>
  [[nodiscard]] GRADSIEVE_HD gs::key_type predict(Workspace& work, gs::accumulator_ref const acc,
                                                  gs::index_type k) const {
    return gs::detail::sampled_lower_bound(work, acc, k).key;
  }
  [[nodiscard]] GRADSIEVE_HD gs::candidate_choice choose(gs::accumulator_ref const, gs::candidates const& found,
                                                         gs::index_type k) const noexcept {
    return gs::detail::has_largest(found, k) ? gs::candidate_choice::largest((k + 1) / 2)
                                             : gs::candidate_choice::none();
  }
  [[nodiscard]] GRADSIEVE_HD gs::threshold settle(gs::accumulator_ref const, gs::candidates const&, gs::index_type,
                                                  gs::threshold const at) const {
    return {gs::smaller(at.key, gs::magnitude_key(0.3f)), 0};
  }
  [[maybe_unused]] friend bool operator==(lower const&, lower const&) = default;
};

}  // namespace own

namespace {

struct to_key {
  __host__ __device__ gs::key_type operator()(float x) const { return gs::magnitude_key(x); }
};

/// Fast numbers for large sizes: Laplace by a hash of the place.
std::vector<float> hashed(std::uint64_t n, std::uint64_t step) {
  std::vector<float> values(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    auto const bits = gs::mix(gs::mix(step) + i);
    auto const size = static_cast<float>((bits >> 40) + 1) * 0x1p-24f;
    values[i] = (bits & 1) != 0 ? size * size * size : -size * size * size;
  }
  return values;
}

}  // namespace

TEST_CASE("small: radix on every law") {
  for (auto const law : data::all_laws)
    for (double const density : {0.001, 0.1}) {
      CAPTURE(data::name(law));
      CAPTURE(density);
      auto const recipe = gs::recipe{.density = density};
      CHECK(same_as_host(recipe, gs::layout::flat(9001), 3,
                         [&](std::uint64_t step) { return data::make(law, 9001, step + 1); }));
    }
}

TEST_CASE("small: every size and density, on aligned and misaligned gradients") {
  for (std::uint64_t const n : {0, 1, 3, 4, 31, 4095, 4096, 4097, 12'290})
    for (double const density : {0.0, 0.01, 0.5, 1.0}) {
      CAPTURE(n);
      CAPTURE(density);
      auto const make = [&](std::uint64_t step) { return data::make(data::law::laplace, n, step + 1); };
      CHECK(same_as_host(gs::recipe{.density = density}, gs::layout::flat(n), 2, make));
      CHECK(same_as_host(gs::recipe{.density = density}, gs::layout::flat(n), 2, make, 1));
    }
}

TEST_CASE("small: formats of 16 bits") {
  for (auto const law : {data::law::laplace, data::law::two_values, data::law::denormals, data::law::mostly_zeros}) {
    CAPTURE(data::name(law));
    auto const make = [&](std::uint64_t step) { return data::make(law, 10'007, step + 1); };
    CHECK(same_as_host<gs::float16>(gs::recipe{.density = 0.02}, gs::layout::flat(10'007), 3, make));
    CHECK(same_as_host<gs::bfloat16>(gs::recipe{.density = 0.02}, gs::layout::flat(10'007), 3, make, 3));
  }
}

TEST_CASE("a warm threshold that is wrong: scales that jump") {
  std::uint64_t const n = 40'000;
  CHECK(same_as_host(gs::recipe{.density = 0.01}, gs::layout::flat(n), 6, [&](std::uint64_t step) {
    auto values = data::make(data::law::gauss, n, step + 1);
    for (float& x : values) x *= step % 2 == 0 ? 1.0f : 1e-3f * static_cast<float>(step * step * step);
    return values;
  }));
}

TEST_CASE("candidates that several blocks share: those of one segment, of some, equal ones and others close by") {
  std::uint64_t const n = 150'001;
  auto const flat = gs::layout::flat(n);
  auto const three = gs::layout{data::equal_layers(n, 3)};
  auto const make = [&](std::uint64_t step) { return hashed(n, step); };
  auto const ties = [&](std::uint64_t step) {  // 64 different magnitudes
    auto values = hashed(n, step);
    for (float& x : values) x = std::floor(x * 32.0f) / 32.0f;
    return values;
  };
  auto const close = [&](std::uint64_t step) {  // all in a few bins of the search
    auto values = hashed(n, step);
    for (float& x : values) x = (x < 0 ? -1.0f : 1.0f) + x * 0x1p-12f;
    return values;
  };
  auto const far = [&](std::uint64_t step) {  // the largest are far above the rest
    auto values = hashed(n, step);
    for (std::uint64_t i = 0; i < n; ++i) values[i] *= i % 4 == 0 ? 0x1p20f : 1.0f;
    return values;
  };
  gs::recipe const radix{.density = 0.2};
  CHECK(same_as_host(radix, flat, 3, make));
  CHECK(same_as_host(radix, flat, 2, ties));
  CHECK(same_as_host(radix, flat, 2, close));
  CHECK(same_as_host(radix, flat, 2, far));
  CHECK(same_as_host(gs::recipe{.density = 0.5, .partitioner = gs::layerwise{}}, three, 2, make));
  CHECK(same_as_host(gs::recipe{.density = 0.5, .partitioner = gs::layerwise{}}, three, 2, ties));
  auto const uneven = gs::layout{{{"a", 400}, {"b", 61'000}, {"c", 9'600}, {"d", 34'000}, {"e", 1}, {"f", 45'000}}};
  gs::laplacian const exact{.count = gs::count_mode::exact};
  for (double const density : {0.2, 0.9}) {
    CHECK(same_as_host(gs::recipe{.density = density, .partitioner = gs::layerwise{}}, uneven, 3, make));
    CHECK(same_as_host(gs::recipe{.density = density, .selector = exact, .partitioner = gs::layerwise{}}, uneven, 3,
                       make));
  }
  CHECK(same_as_host(gs::recipe{.density = 0.2, .selector = gs::laplacian{}}, flat, 3, make));
  for (gs::layout const& layers : {flat, uneven})
    CHECK(same_as_host(gs::recipe{.density = 0.5, .selector = own::lower{}, .partitioner = gs::layerwise{}}, layers, 2,
                       make));
  CHECK(same_as_host(gs::recipe{.density = 0.2, .selector = exact}, flat, 3, make));
  CHECK(same_as_host(gs::recipe{.density = 0.2, .selector = gs::hierarchical{}}, flat, 2, make));
  CHECK(same_as_host(gs::recipe{.density = 0.2, .selector = gs::chunked{}}, flat, 2, make));
  CHECK(same_as_host(gs::recipe{.density = 0.2, .residual = gs::none{}}, flat, 2, make));
}

TEST_CASE("the largest by a stable sort of Thrust's are those that radix sends") {
  std::uint64_t const n = 40'000;
  stream const own;
  gs::device const where{own};
  for (double const density : {0.001, 0.2}) {
    gs::compressor device{where, gs::layout::flat(n), gs::recipe{.density = density, .residual = gs::none{}}};
    thrust::device_vector<float> const gradient = data::make(data::law::two_values, n, 1);
    entries const got{where, device.compress(gradient)};
    thrust::device_vector<gs::key_type> keys(n);
    thrust::device_vector<gs::index_type> places(n);
    thrust::transform(gradient.begin(), gradient.end(), keys.begin(), to_key{});
    thrust::sequence(places.begin(), places.end());
    thrust::stable_sort_by_key(keys.begin(), keys.end(), places.begin(), thrust::greater<gs::key_type>{});
    thrust::sort(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(got.indices.size()));
    std::vector<gs::index_type> expected(got.indices.size());
    thrust::copy_n(places.begin(), expected.size(), expected.begin());
    CHECK(got.indices == expected);
    CHECK(got.indices.size() == gs::budget_of(density, n));
  }
}

TEST_CASE("large: every selector and residual, with many blocks") {
  unsigned const bits = 20;
  if (bits >= most_bits()) {
    MESSAGE("skipped: GRADSIEVE_TEST_MOST has to be above " << bits);
    return;
  }
  std::uint64_t const n = (std::uint64_t{1} << bits) + 5;
  auto const make = [&](std::uint64_t step) { return hashed(n, step); };
  auto const flat = gs::layout::flat(n);
  gs::laplacian const exact{.count = gs::count_mode::exact};
  CHECK(same_as_host(gs::recipe{.selector = exact}, flat, 2, make));
  CHECK(same_as_host(gs::recipe{.selector = gs::laplacian{}}, flat, 2, make));
  CHECK(same_as_host(gs::recipe{.selector = gs::hierarchical{}}, flat, 2, make));
  CHECK(same_as_host(gs::recipe{.selector = gs::chunked{}}, flat, 2, make));
  CHECK(same_as_host(gs::recipe{.selector = gs::adacomp{}, .partitioner = gs::layerwise{}}, flat, 2, make));
  CHECK(same_as_host(gs::recipe{.partitioner = gs::deft{}}, gs::layout{data::equal_layers(n, 12)}, 2, make));
  CHECK(same_as_host(gs::recipe{.residual = gs::momentum_correction{}}, flat, 2, make));
  CHECK(same_as_host(gs::recipe{.residual = gs::filtered{}}, flat, 2, make));
  CHECK(same_as_host(gs::recipe{.residual = gs::none{}}, flat, 2, make));
}

TEST_CASE("large sizes") {
  for (unsigned bits : {17u, 20u, 24u, 27u, 30u}) {
    if (bits > most_bits()) {
      MESSAGE("skipped: 2^" << bits << " elements; GRADSIEVE_TEST_MOST names the largest power of two");
      continue;
    }
    std::uint64_t const n = (std::uint64_t{1} << bits) + 5;
    CAPTURE(n);
    CHECK(same_as_host(gs::recipe{.density = 0.01}, gs::layout::flat(n), 2,
                       [&](std::uint64_t step) { return hashed(n, step); }));
    if (bits != 20 && bits <= 24)
      CHECK(same_as_host(gs::recipe{.density = 0.001}, gs::layout::flat(n), 2,
                         [&](std::uint64_t) { return std::vector<float>(n, 0.25f); }));
  }
}
