// Gradients by law.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <gradsieve/core/random.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/workspace.hpp>

namespace bench {

namespace gs = gradsieve;

/// In (0, 1), by name.
inline double uniform(std::uint64_t name) { return (static_cast<double>(gs::mix(name) >> 11) + 0.5) * 0x1p-53; }

inline double gauss(std::uint64_t name) {
  return std::sqrt(-2 * std::log(uniform(2 * name))) * std::cos(6.283185307179586 * uniform(2 * name + 1));
}

/// Element `i` of a law; laplace where the law is not one of these.
inline float draw(std::string_view law, std::uint64_t i) {
  double const sign = gs::mix(~i) % 2 == 0 ? 1 : -1;
  if (law == "gauss") return static_cast<float>(gauss(i));
  if (law == "student3") {
    std::array const other{gauss(4 * i + 1), gauss(4 * i + 2), gauss(4 * i + 3)};
    double const square = (other[0] * other[0] + other[1] * other[1] + other[2] * other[2]) / 3;
    return static_cast<float>(gauss(4 * i) / std::sqrt(square));
  }
  if (law == "triangle") return static_cast<float>(uniform(2 * i) + uniform(2 * i + 1) - 1);
  if (law == "equal") return 1.0f;
  if (law == "two_values") return static_cast<float>(sign * (gs::mix(i) % 100 == 0 ? 2.0 : 1.0));
  return static_cast<float>(-std::log(uniform(i)) * sign);
}

/// Standard deviation of a law whose sums over steps are random walks; 0 for the others.
inline double deviation(std::string_view law) {
  if (law == "gauss") return 1;
  if (law == "student3") return std::sqrt(3.0);
  return law == "laplace" ? std::sqrt(2.0) : 0;
}

/// A gradient that is another one at each step, at the cost of one array: steps read it from different offsets.
/// Law "alternating": Laplace, every other step a thousand times as large.
template <class T>
class gradient_source {
 public:
  gradient_source(std::string_view law, std::size_t n, int threads, double scale = 1)
      : copies_{law == "alternating" ? 2u : 1u}, n_{n}, values_(copies_ * (n + shifts)) {
    std::vector<float> pool(std::bit_floor(std::min<std::size_t>(n + shifts, std::size_t{1} << 20)));
    for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<float>(scale * draw(law, i));
    gs::detail::host_team const team{threads};
    for (std::size_t c = 0; c < copies_; ++c)
      team.run(n, [&](int worker) {
        auto const [begin, end] = team.part(n + shifts, worker);
        for (auto i = begin; i < end; ++i)
          values_[c * (n + shifts) + i] =
              gs::from_float<T>(pool[(i + i / pool.size() * 7919) % pool.size()] * (c == 1 ? 1000.0f : 1.0f));
      });
  }

  /// The next step's gradient.
  [[nodiscard]] std::span<T const> next() noexcept {
    ++step_;
    return std::span<T const>{values_.span()}.subspan(
        step_ % copies_ * (n_ + shifts) + gs::mix(step_) % (shifts / 64) * 64, n_);
  }

  /// All that steps may read: more than n elements.
  [[nodiscard]] std::span<T> values() const noexcept { return values_.span(); }

 private:
  static constexpr std::size_t shifts = std::size_t{1} << 16;
  std::size_t copies_;
  std::size_t n_;
  gs::host_buffer<T> values_;
  std::uint64_t step_ = 0;
};

}  // namespace bench
