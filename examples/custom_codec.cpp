// A value codec of your own: a plain struct, no base class. Four workers solve a least-squares problem with it.
#include <gradsieve/codec/packed.hpp>
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/compressor.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <random>
#include <span>
#include <vector>

namespace gs = gradsieve;

//! [codec]
/// The nearest power of two, a byte each. What rounding takes off stays in the residual.
struct powers_of_two {
  static constexpr std::uint16_t id = 32'768;  // ids below are the library's

  /// A sign and an exponent from -63 to 63; a value below that counts as zero.
  static std::byte byte_of(float x) {
    int const exponent = std::clamp(std::ilogb(x * 0.75f) + 1, -64, 63);
    return static_cast<std::byte>((x < 0 ? 128 : 0) | (exponent + 64));
  }
  static float value_of(std::byte b) {
    int const code = std::to_integer<int>(b);
    return code % 128 == 0 ? 0.0f : std::ldexp(code < 128 ? 1.0f : -1.0f, code % 128 - 64);
  }

  std::uint64_t max_bytes(std::uint64_t count) const { return count; }
  std::uint64_t bytes(gs::message_info, std::span<gs::index_type const> at) const { return at.size(); }
  void quantise(gs::message_info, std::span<gs::index_type const>, std::span<float> values) const noexcept {
    for (float& x : values) x = value_of(byte_of(x));
  }
  void encode(gs::message_info, std::span<gs::index_type const>, std::span<float const> from,
              std::span<std::byte> to) const {
    std::transform(from.begin(), from.end(), to.begin(), byte_of);
  }
  void decode(gs::message_info, std::span<gs::index_type const>, std::span<std::byte const> from,
              std::span<float> to) const {
    std::transform(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(to.size()), to.begin(), value_of);
  }

  friend bool operator==(powers_of_two const&, powers_of_two const&) = default;
  friend std::ostream& operator<<(std::ostream& out, powers_of_two const&) { return out << "powers_of_two"; }
};
static_assert(gs::value_codec<powers_of_two>);  // the contract, checked at the definition
//! [codec]

int main() {
  constexpr std::size_t dimensions = 400;
  constexpr std::size_t rows = 300;
  auto const recipe = gs::recipe{.density = 0.1, .codec = gs::packed{.values = powers_of_two{}}};
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
                  << report.baseline_bytes << " bytes\n";
      if (comm.rank() == 0 && step == 300) good = loss < 0.01 && report.bytes_sent < report.baseline_bytes / 8;
    }
  });
  return good ? 0 : 1;
}
