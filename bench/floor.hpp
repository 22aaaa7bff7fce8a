// The floor that every row is held against, and the clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/core/types.hpp>
#include <gradsieve/host/workspace.hpp>

namespace bench {

namespace gs = gradsieve;

/// residual[i] += gradient[i], in strips of a length that the compiler knows: it then vectorises at -O2 too.
struct accumulate_loop {
  static constexpr std::size_t strip = 512;

  template <gs::simd, class T>
  GRADSIEVE_INLINE static void run(float* residual, T const* gradient, std::size_t count) noexcept {
    for (; count >= strip; residual += strip, gradient += strip, count -= strip) add(residual, gradient, strip);
    add(residual, gradient, count);
  }

 private:
  template <class T>
  GRADSIEVE_INLINE static void add(float* residual, T const* gradient, std::size_t count) noexcept {
    GRADSIEVE_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) residual[i] += gs::to_float(gradient[i]);
  }
};

/// residual += gradient, shared out to a team. The least a step must do: 12 bytes an element with binary32 gradients,
/// 10 with 16 bits.
template <class T>
void accumulate(gs::detail::host_team const& team, float* residual, std::span<T const> gradient) noexcept {
  team.run(gradient.size(), [&](int worker) {
    auto const [begin, end] = team.part(gradient.size(), worker);
    gs::host_kernels::run<accumulate_loop>(gs::host_kernels::best_simd(), residual + begin, gradient.data() + begin,
                                           std::size_t{end - begin});
  });
}

/// Zeros, first written by the threads that will use them.
inline gs::host_buffer<float> zeros(gs::detail::host_team const& team, std::size_t n) {
  gs::host_buffer<float> values(n);
  team.run(n, [&](int worker) {
    auto const [begin, end] = team.part(n, worker);
    std::fill(values.data() + begin, values.data() + end, 0.0f);
  });
  return values;
}

/// Seconds that a call takes.
template <class Body>
double seconds(Body const& body) {
  auto const start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The value that a part of all values lies below; 0 if there are none.
inline double quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  auto const at = values.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

inline double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

}  // namespace bench
