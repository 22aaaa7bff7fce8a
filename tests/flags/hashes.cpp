// Prints what a few recipes give on three ranks, as hashes: for each instruction set of this processor, which must not
// matter, in builds whose flags must not matter.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/comm/threads.hpp>
#include <gradsieve/core/random.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/parameters.hpp>

namespace gs = gradsieve;

namespace {

class hash {
 public:
  void add(std::span<std::byte const> bytes) {
    for (auto const each : bytes) value_ = (value_ ^ std::to_integer<std::uint64_t>(each)) * 0x0000'0100'0000'01B3u;
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF2'9CE4'8422'2325u;
};

template <class T>
using bits_of = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;

/// Numbers of many magnitudes, subnormal ones of T among them, and a few that are none.
template <class T>
std::vector<T> gradient(std::uint64_t n, int rank, std::uint64_t step) {
  std::vector<T> values(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    auto const bits = gs::mix(i ^ gs::mix(step ^ gs::mix(static_cast<std::uint64_t>(rank))));
    auto const sign = static_cast<std::uint32_t>(bits >> 63) << 31;
    auto const exponent = 127u - static_cast<std::uint32_t>(bits % 27);  // 1 to 2^-26
    values[i] = gs::from_float<T>(
        gs::bit_cast<float>(sign | exponent << 23 | static_cast<std::uint32_t>(bits >> 40 & 0x7F'FFFFu)));
    if (bits % 101 == 0) values[i] = gs::bit_cast<T>(static_cast<bits_of<T>>(~bits_of<T>{0} >> 1));  // NaN
  }
  return values;
}

/// What rank 0 holds after a few steps of three ranks, and its residual.
template <class T, class Recipe>
std::uint64_t steps(gs::simd limit, Recipe const& recipe) {
  gs::layout const layers{{"a", 3000}, {"bias", 100}, {"b", 9000}};
  hash all;
  gs::threads::run(3, [&](gs::threads::communicator_ref comm) {
    gs::compressor compressor{gs::host{.threads = 1, .simd_limit = limit}, layers, recipe};
    for (std::uint64_t step = 0; step < 6; ++step) {
      auto update = gradient<T>(layers.size(), comm.rank(), step);
      auto const left_out = compressor.exchange(comm, std::span{update}).non_finite;
      if (comm.rank() == 0) all.add(std::as_bytes(std::span{update}));
      if (comm.rank() == 0) all.add(std::as_bytes(std::span{&left_out, 1}));
    }
    if (comm.rank() == 0) all.add(compressor.state());
  });
  return all.value();
}

/// Factors, norm and clipped gradient of second_moments, and what exchanged parameters come to.
template <class Recipe>
std::uint64_t parameters(gs::simd limit, Recipe const& recipe, float momentum) {
  gs::layout const layers{{"a", 60'000}, {"bias", 100}, {"b", 9000}};
  gs::host const where{.threads = 1, .simd_limit = limit};
  hash all;
  gs::threads::run(3, [&](gs::threads::communicator_ref comm) {
    gs::second_moments moments{where, layers, {.density = 1.0}};
    std::vector<float> own(layers.size(), 0.5f);
    gs::parameter_exchange exchange{gs::compressor{where, layers, recipe}, own, {.momentum = momentum}};
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto change = gradient<float>(layers.size(), comm.rank(), step);
      for (float& x : change) x = gs::is_finite(x) ? x : 0.0f;
      moments.measure(comm, change);
      moments.clip(change, 1.0f);
      for (std::size_t i = 0; i < own.size(); ++i) own[i] = gs::add(own[i], change[i]);
      exchange.exchange_parameters(comm, own);
      if (comm.rank() != 0) continue;
      float const norm = moments.norm();
      double const unsent = exchange.compressor().residual_norm();
      all.add(std::as_bytes(std::span{&norm, 1}));
      all.add(std::as_bytes(std::span{&unsent, 1}));
      all.add(std::as_bytes(std::span{own}));
    }
    if (comm.rank() == 0) all.add(moments.state());
    if (comm.rank() == 0) all.add(exchange.state());
  });
  return all.value();
}

/// What a tile sums up to, in a pass of its own and while it is accumulated.
std::uint64_t sums(gs::simd limit) {
  namespace kernels = gs::host_kernels;
  auto const level = std::min(kernels::best_simd(), limit);
  auto values = gradient<float>(kernels::tile_size - 19, 0, 7);
  for (float& x : values) x = gs::is_finite(x) ? x : 0.0f;
  std::vector<float> state(values.size());
  kernels::candidate_list none;
  kernels::pending_list nothing;
  kernels::statistics both[2];
  both[0] = kernels::run<kernels::measure_tile>(level, std::as_const(values).data(), values.size());
  kernels::run<kernels::accumulate_tile>(level, gs::error_feedback{}, std::array<float*, 1>{state.data()},
                                         std::as_const(values).data(), 1.0f, values.size(), std::uint64_t{0},
                                         std::size_t{512}, gs::key_type{0}, &none, &nothing, &both[1]);
  hash all;
  for (auto const& each : both) {
    all.add(std::as_bytes(std::span{&each.sum_abs, 1}));
    all.add(std::as_bytes(std::span{&each.sum_squares, 1}));
  }
  return all.value();
}

}  // namespace

int main(int argc, char** argv) {
  // A density that is not a number, which no compiler can see.
  std::uint64_t const bits = argc > 1 ? static_cast<std::uint64_t>(argv[1][0]) : 0x7FF8'0000'0000'0000u;
  bool refused = false;
  try {
    gs::density_schedule{gs::bit_cast<double>(bits)}.check();
  } catch (gs::invalid_argument const&) {
    refused = true;
  }
  if (!refused) return 1;
  for (auto const limit : {gs::simd::portable, gs::simd::avx2, gs::simd::avx512}) {
    gs::recipe const fading{.density = 0.05,
                            .residual = gs::error_feedback{.decay = 0.9f},
                            .codec = gs::packed{.indices = gs::delta{}, .values = gs::fp16{}}};
    gs::recipe const shared_out{.density = 0.05,
                                .partitioner = gs::deft{},
                                .residual = gs::momentum_correction{.momentum = 0.7f, .clip = 3.0f}};
    gs::recipe const cut{
        .density = 0.05, .codec = gs::packed{.values = gs::ternary{}}, .exchange = gs::reduce_scatter{}};
    gs::recipe const owned{.density = 0.05};
    std::printf("%016llx %016llx %016llx %016llx %016llx %016llx\n", static_cast<unsigned long long>(sums(limit)),
                static_cast<unsigned long long>(parameters(limit, owned, 0.0f)),
                static_cast<unsigned long long>(parameters(limit, owned, 0.7f)),
                static_cast<unsigned long long>(steps<gs::float16>(limit, fading)),
                static_cast<unsigned long long>(steps<float>(limit, shared_out)),
                static_cast<unsigned long long>(steps<float>(limit, cut)));
  }
  return 0;
}
