// A value codec of one's own: a plain struct, no base class. Four workers solve a least-squares problem with it.
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <random>
#include <span>
#include <vector>

namespace gs = gradsieve;

/// Whole steps from -127 to 127, a byte each, behind the size of a step. What rounding takes off stays in the residual.
struct linear8 {
  static constexpr std::uint16_t id = 32'768;  // ids below are the library's

  [[nodiscard]] std::uint64_t max_bytes(std::uint64_t count) const { return 4 + count; }
  [[nodiscard]] std::uint64_t bytes(gs::message_info, std::span<gs::index_type const> at) const {
    return 4 + at.size();
  }

  /// A power of two: values that were rounded to its multiples give the same step again, so that encode() loses nothing
  /// that quantise() has not told the residual.
  static float step_of(std::span<float const> values) {
    float most = 0;
    for (float const x : values) most = std::max(most, std::fabs(x));
    return most == 0 ? 1 : std::max(std::exp2(std::ceil(std::log2(most / 127))), 0x1p-149f);
  }
  void quantise(gs::message_info, std::span<gs::index_type const>, std::span<float> values) const noexcept {
    float const step = step_of(values);
    for (float& x : values) x = std::round(x / step) * step;
  }
  void encode(gs::message_info, std::span<gs::index_type const>, std::span<float const> values,
              std::span<std::byte> to) const {
    float const step = step_of(values);
    gs::wire::store_one(to, step);
    for (std::size_t i = 0; i < values.size(); ++i)
      to[4 + i] = static_cast<std::byte>(static_cast<std::int8_t>(std::round(values[i] / step)));
  }
  void decode(gs::message_info, std::span<gs::index_type const>, std::span<std::byte const> from,
              std::span<float> values) const {
    auto const step = gs::wire::load_one<float>(from);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(static_cast<std::int8_t>(from[4 + i])) * step;
  }

  friend bool operator==(linear8 const&, linear8 const&) = default;
  friend std::ostream& operator<<(std::ostream& out, linear8 const&) { return out << "linear8"; }
};
static_assert(gs::value_codec<linear8>);  // the contract, checked at the definition

int main() {
  constexpr std::size_t dimensions = 400;
  constexpr std::size_t rows = 300;
  auto const recipe = gs::recipe{.density = 0.1, .codec = gs::packed{.values = linear8{}}};
  bool good = true;

  gs::threads::run(4, [&](auto comm) {
    // This worker's rows of a problem that has an exact answer: every weight is 1.
    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    std::normal_distribution<float> normal;
    std::vector<float> a(rows * dimensions);
    for (float& x : a) x = normal(random);
    std::vector<float> weights(dimensions), gradient(dimensions);
    auto reducer = gs::compressor{gs::host{.threads = 1}, gs::layout::flat(dimensions), recipe};

    for (int step = 0; step <= 300; ++step) {
      double loss = 0;
      std::fill(gradient.begin(), gradient.end(), 0.0f);
      for (std::size_t r = 0; r < rows; ++r) {
        auto const row = std::span{a}.subspan(r * dimensions, dimensions);
        float error = 0;
        for (std::size_t i = 0; i < dimensions; ++i) error += row[i] * (weights[i] - 1);
        loss += static_cast<double>(error) * static_cast<double>(error) / rows;
        for (std::size_t i = 0; i < dimensions; ++i) gradient[i] += row[i] * error / rows;
      }
      auto const report = reducer.exchange(comm, gradient);  // the mean over the workers, of what they sent
      for (std::size_t i = 0; i < dimensions; ++i) weights[i] -= 0.05f * gradient[i];
      if (comm.rank() == 0 && step % 50 == 0)
        std::cout << "step " << step << ": loss " << loss << ", sent " << report.bytes_sent << " of "
                  << report.bytes_dense << " bytes\n";
      if (comm.rank() == 0 && step == 300) good = loss < 0.01 && report.bytes_sent < report.bytes_dense / 8;
    }
  });
  return good ? 0 : 1;
}
