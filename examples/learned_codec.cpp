// A value codec that learns while a model trains, from outside of the library: a linear autoencoder of the values that
// are sent. Four workers train on the digits with it, and with the library's codecs of about as many bytes.
// LGC (Abrahamyan et al. 2021) has a convolutional one; what a linear one can learn are principal components.
#include <gradsieve/codec/packed.hpp>
#include <gradsieve/codec/value/block_scaled.hpp>
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/compressor.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace gs = gradsieve;

/// Eight values in the order of their indices become four codes, and four codes eight values.
struct autoencoder {
  static constexpr std::size_t block = 8, codes = 4;
  std::array<std::array<float, block>, codes> rows{};   ///< orthonormal: they encode, and transposed decode
  std::array<std::array<double, block>, block> seen{};  ///< second moments of the blocks, the older the less

  autoencoder() {
    for (std::size_t c = 0; c < codes; ++c) rows[c][2 * c] = 1;
  }

  /// From an update that every rank has in the same bits, so that the ranks' weights agree and nothing is sent for it.
  void learn(std::span<float const> update) {
    std::vector<double> kept;
    for (float const x : update)
      if (x != 0) kept.push_back(static_cast<double>(x));
    for (auto& row : seen)
      for (double& moment : row) moment *= 0.95;
    for (std::size_t at = 0; at + block <= kept.size(); at += block)
      for (std::size_t i = 0; i < block; ++i)
        for (std::size_t j = 0; j < block; ++j) seen[i][j] += kept[at + i] * kept[at + j];
    auto next = rows;  // a step of subspace iteration: rows times the moments, made orthonormal again
    for (std::size_t c = 0; c < codes; ++c) {
      std::array<double, block> row{};
      for (std::size_t j = 0; j < block; ++j)
        for (std::size_t i = 0; i < block; ++i) row[j] += static_cast<double>(rows[c][i]) * seen[i][j];
      for (std::size_t pass = 0; pass < 2; ++pass)
        for (std::size_t before = 0; before < c; ++before) {
          double along = 0;
          for (std::size_t j = 0; j < block; ++j) along += row[j] * static_cast<double>(next[before][j]);
          for (std::size_t j = 0; j < block; ++j) row[j] -= along * static_cast<double>(next[before][j]);
        }
      double square = 0;
      for (double const x : row) square += x * x;
      if (!(square > 1e-60)) return;
      for (std::size_t j = 0; j < block; ++j) next[c][j] = static_cast<float>(row[j] / std::sqrt(square));
    }
    rows = next;
  }
};

/// Codes of eight bits with one power of two as the scale of all, in a byte; values behind the last block are binary32.
struct learned {
  static constexpr std::uint16_t id = 32'769;
  static constexpr std::size_t block = autoencoder::block, codes = autoencoder::codes;
  static inline autoencoder const untrained{};
  autoencoder const* by = &untrained;  ///< this rank's; it may learn between steps

  std::uint64_t max_bytes(std::uint64_t count) const { return 1 + count / block * codes + count % block * 4; }
  std::uint64_t bytes(gs::message_info, std::span<gs::index_type const> at) const { return max_bytes(at.size()); }
  float largest() const { return 1e30f; }

  float code_of(std::size_t c, std::span<float const> values) const noexcept {
    float sum = 0;
    for (std::size_t i = 0; i < block; ++i) sum += by->rows[c][i] * values[i];
    return sum;
  }
  /// The least exponent, from -127 to 110, with which the largest code takes at most 126.
  int exponent_of(std::span<float const> values) const noexcept {
    float most = 0;
    for (std::size_t at = 0; at + block <= values.size(); at += block)
      for (std::size_t c = 0; c < codes; ++c) most = std::max(most, std::abs(code_of(c, values.subspan(at, block))));
    return std::clamp(most > 0 ? std::ilogb(most / 126.5f) + 1 : -127, -127, 110);
  }
  void decode_block(std::span<std::byte const> from, int exponent, std::span<float> to) const {
    std::fill(to.begin(), to.end(), 0.0f);
    for (std::size_t c = 0; c < codes; ++c) {
      float const code = std::ldexp(static_cast<float>(std::to_integer<int>(from[c]) - 128), exponent);
      for (std::size_t i = 0; i < block; ++i) to[i] += code * by->rows[c][i];
    }
  }
  void encode_block(std::span<float const> values, int exponent, std::span<std::byte> to) const noexcept {
    for (std::size_t c = 0; c < codes; ++c)
      to[c] = static_cast<std::byte>(128 + std::lround(std::ldexp(code_of(c, values), -exponent)));
  }

  /// Rows are orthonormal: codes of decoded values are those codes again, to far less than half a unit.
  void quantise(gs::message_info, std::span<gs::index_type const>, std::span<float> values) const noexcept {
    int const exponent = exponent_of(values);
    std::array<std::byte, codes> coded{};
    for (std::size_t at = 0; at + block <= values.size(); at += block) {
      encode_block(values.subspan(at, block), exponent, coded);
      decode_block(coded, exponent, values.subspan(at, block));
    }
  }
  void encode(gs::message_info, std::span<gs::index_type const>, std::span<float const> from,
              std::span<std::byte> to) const {
    int const exponent = exponent_of(from);
    to[0] = static_cast<std::byte>(exponent + 128);
    std::size_t at = 0, place = 1;
    for (; at + block <= from.size(); at += block, place += codes)
      encode_block(from.subspan(at, block), exponent, to.subspan(place, codes));
    std::ranges::copy(std::as_bytes(from.subspan(at)), to.begin() + static_cast<std::ptrdiff_t>(place));
  }
  /// @throws gs::corrupt_message for what encode() does not write; `packed` refuses values that are not finite.
  void decode(gs::message_info, std::span<gs::index_type const>, std::span<std::byte const> from,
              std::span<float> to) const {
    int const exponent = std::to_integer<int>(from[0]) - 128;
    if (exponent < -127 || exponent > 110) throw gs::corrupt_message{"learned: the scale is out of range"};
    std::size_t at = 0, place = 1;
    for (; at + block <= to.size(); at += block, place += codes) {
      for (auto const code : from.subspan(place, codes))
        if (std::abs(std::to_integer<int>(code) - 128) > 127) throw gs::corrupt_message{"learned: a code of -128"};
      decode_block(from.subspan(place, codes), exponent, to.subspan(at, block));
    }
    std::ranges::copy(from.subspan(place), std::as_writable_bytes(to.subspan(at)).begin());
  }

  /// Ranks have weights of their own at different addresses, which a fingerprint must not see.
  void add_to(gs::fingerprint& to) const { to.add(id); }

  friend bool operator==(learned const&, learned const&) = default;
  friend std::ostream& operator<<(std::ostream& out, learned const&) { return out << "learned"; }
};
static_assert(gs::value_codec<learned> && gs::quantises<learned> && gs::limited_codec<learned>);

constexpr std::size_t pixels = 64, classes = 10;

/// Softmax regression: adds a sample's gradient times `scale`; returns its loss.
double learn(std::span<float const> weights, std::span<float const> image, std::size_t digit, float scale,
             std::span<float> gradient) {
  std::array<float, classes> out{};
  for (std::size_t i = 0; i < weights.size(); ++i) out[i / pixels] += weights[i] * image[i % pixels];
  float const most = *std::ranges::max_element(out);
  float sum = 0;
  for (float& x : out) sum += x = std::exp(x - most);
  for (std::size_t i = 0; i < weights.size(); ++i)
    gradient[i] += scale * (out[i / pixels] / sum - (i / pixels == digit ? 1.0f : 0.0f)) * image[i % pixels];
  return -std::log(static_cast<double>(out[digit] / sum) + 1e-30);
}

struct samples {
  std::vector<float> images;
  std::vector<std::size_t> digits;
};

samples read(std::string const& path) {
  samples all;
  std::ifstream file{path};
  std::array<int, pixels + 1> row{};
  for (char comma = 0; file >> row[0];) {
    for (std::size_t i = 1; i < row.size(); ++i) file >> comma >> row[i];
    for (std::size_t i = 0; i < pixels; ++i) all.images.push_back(static_cast<float>(row[i]) / 16);
    all.digits.push_back(static_cast<std::size_t>(row.back()));
  }
  return all;
}

struct outcome {
  double loss = 0;   ///< of the last tenth of the steps
  double bytes = 0;  ///< sent by a rank in a step
  double lost = 0;   ///< of the squares of the last tenth's updates, when they are coded once more
  bool alike = true;
};

/// The share of the update's squares that the codec takes off; infinite if a receiver does not get what is left.
template <class Values>
double lost_of(Values const& how, std::span<float const> update) {
  std::vector<gs::index_type> at;
  std::vector<float> values;
  for (std::size_t i = 0; i < update.size(); ++i)
    if (update[i] != 0) at.push_back(static_cast<gs::index_type>(i)), values.push_back(update[i]);
  auto coded = values;
  gs::message_info const info{.n = update.size()};
  if constexpr (gs::quantises<Values>) how.quantise(info, at, coded);
  std::vector<std::byte> message(how.bytes(info, at));
  std::vector<float> received(at.size());
  how.encode(info, at, coded, message);
  how.decode(info, at, message, received);
  if (received != coded) return INFINITY;
  double all = 1e-30, off = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    all += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    off += std::pow(static_cast<double>(values[i] - coded[i]), 2);
  }
  return off / all;
}

template <class Values>
auto recipe_with(Values const& values) {
  return gs::recipe{.density = 0.1, .codec = gs::packed{.values = values}};
}

template <class Values>
outcome train(samples const& data, Values const& values, bool learns) {
  constexpr int workers = 4, batch = 128, steps = 200;
  outcome result;
  std::vector<std::vector<float>> models(workers, std::vector<float>(pixels * classes));
  auto const layers = gs::layout{{"weight", pixels * classes}};
  gs::threads::run(workers, [&](auto comm) {
    auto& weights = models[static_cast<std::size_t>(comm.rank())];
    autoencoder own;
    auto how = values;
    if constexpr (requires { how.by; }) how.by = &own;
    auto reducer = gs::compressor{gs::host{.threads = 1}, layers, recipe_with(how)};
    std::vector<float> gradient(weights.size());
    for (int step = 0; step < steps; ++step) {
      std::ranges::fill(gradient, 0.0f);
      double loss = 0;
      for (int i = comm.rank(); i < batch; i += workers) {
        auto const n = static_cast<std::size_t>(step * batch + i) % data.digits.size();
        auto const image = std::span{data.images}.subspan(n * pixels, pixels);
        loss += learn(weights, image, data.digits[n], 1.0f * workers / batch, gradient);
      }
      auto const report = reducer.exchange(comm, gradient);
      for (std::size_t i = 0; i < gradient.size(); ++i) weights[i] -= 0.3f * gradient[i];
      if (learns) own.learn(gradient);
      std::array sums{loss / batch, static_cast<double>(report.bytes_sent) / workers};
      comm.all_reduce(gs::host{}, std::span<double>{sums}, gs::reduction::sum);
      if (comm.rank() != 0) continue;
      result.bytes += sums[1] / steps;
      if (step < steps - steps / 10) continue;
      result.loss += sums[0] / (steps / 10);
      result.lost += lost_of(how, gradient) / (steps / 10);
    }
  });
  for (auto const& model : models) result.alike = result.alike && model == models[0];
  return result;
}

/// Random bytes are refused or give some values; nothing is written elsewhere, which sanitizers see.
bool survives_any_bytes() {
  std::mt19937 random{7};
  std::vector<gs::index_type> at(21);
  std::vector<float> values(at.size());
  int refused = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    std::vector<std::byte> bytes(learned{}.max_bytes(at.size()));
    for (auto& each : bytes) each = static_cast<std::byte>(random());
    if (trial == 0) bytes[0] = std::byte{0};
    try {
      learned{}.decode({}, at, bytes, values);
    } catch (gs::corrupt_message const&) {
      ++refused;
    }
  }
  return refused > 0 && refused < 1000;
}

int main(int argc, char** argv) {
  auto const data = read(argc > 1 ? argv[1] : GRADSIEVE_EXAMPLE_DATA "/digits.csv");
  if (data.digits.empty()) return std::cerr << "learned_codec: no digits in that file\n", 1;
  bool good = survives_any_bytes();
  auto const show = [&](char const* name, outcome const& it) {
    std::cout << name << ',' << it.bytes << ',' << it.loss << ',' << it.lost << '\n';
    good = good && it.alike && it.loss < 1 && it.lost < 1;
    return it;
  };
  std::cout << "values,bytes,loss,lost\n";
  auto const exact = show("fp32", train(data, gs::fp32{}, false));
  show("int8", train(data, gs::int8{}, false));
  show("int4", train(data, gs::int4{}, false));
  show("autoencoder untrained", train(data, learned{}, false));
  auto const ours = show("autoencoder", train(data, learned{}, true));
  return good && ours.bytes < exact.bytes ? 0 : 1;
}
