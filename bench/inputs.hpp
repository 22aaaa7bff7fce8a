// Gradients by law, and the floor that every row is held against.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gradsieve/random.hpp>
#include <gradsieve/space/host_team.hpp>
#include <gradsieve/types.hpp>

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
  if (law == "equal") return 1.0f;
  if (law == "two_values") return static_cast<float>(sign * (gs::mix(i) % 100 == 0 ? 2.0 : 1.0));
  return static_cast<float>(-std::log(uniform(i)) * sign);
}

/// A gradient that is another one at each step, at the cost of one array: steps read it from different offsets.
/// Law "alternating": Laplace, every other step a thousand times as large.
template <class T>
class gradient_source {
 public:
  gradient_source(std::string_view law, std::size_t n, int threads)
      : copies_{law == "alternating" ? 2u : 1u}, n_{n}, values_(copies_ * (n + shifts)) {
    std::vector<float> pool(std::min<std::size_t>(n + shifts, std::size_t{1} << 20));
    for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = draw(law, i);
    gs::host_team const team{threads};
    for (std::size_t c = 0; c < copies_; ++c)
      team.run(n, [&](int worker) {
        auto const [begin, end] = team.part(n + shifts, worker);
        for (auto i = begin; i < end; ++i)
          values_[c * (n + shifts) + i] =
              gs::from_float<T>(pool[(i + (i >> 20) * 7919) % pool.size()] * (c == 1 ? 1000.0f : 1.0f));
      });
  }

  /// The next step's gradient.
  [[nodiscard]] std::span<T const> next() noexcept {
    ++step_;
    return std::span<T const>{values_.span()}.subspan(
        step_ % copies_ * (n_ + shifts) + gs::mix(step_) % (shifts / 64) * 64, n_);
  }

 private:
  static constexpr std::size_t shifts = std::size_t{1} << 16;
  std::size_t copies_;
  std::size_t n_;
  gs::host_buffer<T> values_;
  std::uint64_t step_ = 0;
};

/// The least a step must do: residual[i] += gradient[i]. 12 bytes an element with binary32 gradients, 10 with 16 bits.
template <class T>
class floor_loop {
 public:
  floor_loop(std::size_t n, int threads) : team_{threads}, residual_(n) {
    team_.run(n, [&](int worker) {
      auto const [begin, end] = team_.part(n, worker);
      std::fill(residual_.data() + begin, residual_.data() + end, 0.0f);
    });
  }

  void operator()(std::span<T const> gradient) noexcept {
    team_.run(gradient.size(), [&](int worker) {
      auto const [begin, end] = team_.part(gradient.size(), worker);
      float* const residual = residual_.data();
      T const* const from = gradient.data();
      GRADSIEVE_INDEPENDENT
      for (auto i = begin; i < end; ++i) residual[i] += gs::to_float(from[i]);
    });
  }

 private:
  gs::host_team team_;
  gs::host_buffer<float> residual_;
};

/// Seconds that a call takes.
template <class Body>
double seconds(Body const& body) {
  auto const start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace bench
