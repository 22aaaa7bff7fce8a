// What every codec of whole messages must do: there and back, within its room, and safe against any bytes. Its parts
// have suites of their own: index_codec_conformance.hpp, value_codec_conformance.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/codec/checked.hpp>
#include <gradsieve/codec/message.hpp>
#include <gradsieve/gradsieve.hpp>

#include "conformance.hpp"
#include "sanitized.hpp"

namespace codec_conformance {

namespace gs = gradsieve;
using conformance::findings;
using conformance::guarded;
using conformance::same_bits;
using bytes = std::vector<std::byte>;

/// Lists of indices below n: none, one, all, every other, runs, and random ones.
inline std::vector<std::vector<gs::index_type>> index_lists(std::uint64_t n) {
  std::vector<std::vector<gs::index_type>> all(1);
  if (n == 0) return all;
  auto const last = static_cast<gs::index_type>(n - 1);
  all.push_back({0});
  all.push_back({last});
  if (n == 1) return all;
  all.push_back({0, last});
  auto const add = [&](auto const& takes) {
    all.emplace_back();
    for (gs::index_type i = 0; i <= last; ++i)
      if (takes(i)) all.back().push_back(i);
  };
  add([](gs::index_type) { return true; });
  add([](gs::index_type i) { return i % 2 == 1; });
  add([&](gs::index_type i) { return i >= n / 3 && i < n / 2; });
  for (std::uint64_t const one_of : {2u, 10u, 200u}) {
    data::generator random{one_of};
    add([&](gs::index_type) { return random.below(one_of) == 0; });
  }
  return all;
}

/// Kinds of values to code.
inline constexpr char const* kinds[] = {"usual values", "subnormal values", "large values", "zeros and largest values"};

/// `count` values of a kind, none beyond `largest`: the compressor clamps them.
inline std::vector<float> values_of(int kind, std::size_t count, float largest) {
  data::generator random{static_cast<std::uint64_t>(kind) + 1};
  std::vector<float> values(count);
  for (float& x : values) {
    float const extremes[] = {0.0f, -0.0f, largest, -largest};
    double const usual[] = {random.laplace(), random.gauss() * 0x1p-140, random.gauss() * 1e30};
    x = kind == 3 ? extremes[random.below(4)] : std::clamp(static_cast<float>(usual[kind]), -largest, largest);
  }
  return values;
}

/// Calls f(name, bytes) for what is nearly `message`: shorter, longer, with other bits, and nothing like it.
template <class F>
void for_each_damage(bytes const& message, F const& f) {
  auto const strides = [](std::size_t count) { return std::max<std::size_t>(1, count / (sanitized ? 15 : 150)); };
  for (std::size_t size = 0; size < message.size(); size += strides(message.size()))
    f("cut to " + std::to_string(size) + " bytes",
      bytes(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(size)));
  for (std::size_t const more : {1u, 8u}) {
    auto longer = message;
    longer.resize(longer.size() + more, std::byte{1});
    f("with " + std::to_string(more) + " bytes more", longer);
  }
  for (std::size_t bit = 0; bit < 8 * message.size(); bit += strides(8 * message.size())) {
    auto other = message;
    other[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    f("with bit " + std::to_string(bit) + " turned", other);
  }
  data::generator random{message.size()};
  for (std::size_t const size : {1u, 4u, 16u, 60u, 500u}) {
    bytes any(size);
    for (auto& each : any) each = static_cast<std::byte>(random.bits() & 0xFFu);
    f("of " + std::to_string(size) + " random bytes", any);
  }
}

/// A part of a longer memory, so that a reader that goes beyond it reads what `around` says.
class surrounded {
 public:
  surrounded(bytes const& inner, std::byte around) : all_(inner.size() + 2 * margin, around), size_{inner.size()} {
    std::ranges::copy(inner, all_.begin() + margin);
  }
  [[nodiscard]] std::span<std::byte const> span() const { return std::span{all_}.subspan(margin, size_); }

 private:
  static constexpr std::ptrdiff_t margin = 16384;
  bytes all_;
  std::size_t size_;
};

/// One run of the suite.
template <gs::codec Codec>
class suite {
 public:
  explicit suite(Codec codec) : codec_{codec} {}

  [[nodiscard]] std::string run() {
    every(gs::layout{});
    every(gs::layout{{"one", 1}});
    every(gs::layout{{"a", 70}, {"empty", 0}, {"b", 200}, {"c", 1}, {"d", 1000}});
    if (!sanitized) every(gs::layout{{"large", 20'000}});
    return found_.text();
  }

 private:
  struct content {
    std::vector<gs::index_type> indices;
    std::vector<float> values, passthrough;
    [[nodiscard]] gs::selection_view view() const { return {indices, values, passthrough}; }
    [[nodiscard]] bool same(content const& other) const {
      return indices == other.indices && same_bits(values, other.values) && same_bits(passthrough, other.passthrough);
    }
  };

  [[nodiscard]] float largest() const {
    if constexpr (gs::limited_codec<Codec>)
      return codec_.largest();
    else
      return gs::largest_value<float>;
  }

  void every(gs::layout const& layers) {
    std::vector<std::uint32_t> bins;
    for (std::size_t i = 0; i < layers.count(); ++i) bins.push_back(i % 2 == 0 ? 50 : 300);
    for (std::uint64_t const passthrough : {0u, 5u}) {
      gs::message_info const info{.n = layers.size(),
                                  .layout_hash = layers.hash(),
                                  .passthrough = passthrough,
                                  .layers = &layers,
                                  .bins = bins,
                                  .step = 3,
                                  .rank = 1};
      bool damage = layers.count() == 5;
      for (auto const& indices : index_lists(layers.size()))
        for (int kind = 0; kind < 4; ++kind) {
          found_.in("n ", info.n, ", ", indices.size(), " entries, ", passthrough, " elements that pass through, ",
                    kinds[kind]);
          content const from{indices, values_of(kind, indices.size(), largest()),
                             values_of(kind, passthrough, gs::largest_value<float>)};
          found_.attempt([&] { there_and_back(info, from, damage && kind == 0); });
        }
    }
  }

  void there_and_back(gs::message_info const& info, content from, bool damage) {
    if constexpr (gs::quantises<Codec>) {
      codec_.quantise(info, from.indices, from.values);
      found_.expect(std::ranges::all_of(from.values, [](float x) { return gs::is_finite(x); }),
                    "quantise() makes a value infinite");
      auto again = from;
      codec_.quantise(info, again.indices, again.values);
      found_.expect(again.same(from), "quantise() changes values that it has rounded");
    }
    auto const message = encoded(info, from, from.indices.size());
    found_.expect(encoded(info, from, from.indices.size() + 9) == message, "a larger room makes another message");
    content got;
    found_.expect(decoded(info, message, from.indices.size(), got).empty() && got.same(from),
                  "decode() gives another selection than encode() was given");
    if constexpr (gs::bounded_codec<Codec>) {
      auto const most = codec_.most_entries(std::span{message}, message.size());
      found_.expect(most >= from.indices.size(), "most_entries() is ", most);
    }
    if (!damage) return;
    if (!from.indices.empty())
      found_.expect(!decoded(info, message, from.indices.size() - 1, got).empty(),
                    "decode() returns entries for which there is no room");
    for_each_damage(message, [&](std::string const& how, bytes other) {
      try_bytes(info, how, other, from.indices.size());
      if (reseal(message, other)) try_bytes(info, how + ", the checksum right", other, from.indices.size());
    });
  }

  bytes encoded(gs::message_info const& info, content const& from, std::uint64_t count) {
    auto const most = codec_.max_bytes(info.n, count, from.passthrough.size());
    guarded<std::byte> to{most, std::byte{0x5A}};
    auto const size = codec_.encode(info, from.view(), to.span());
    found_.expect(size <= most, "encode() returns ", size, ", max_bytes() for ", count, " entries is ", most);
    found_.expect(to.untouched_outside(), "encode() writes outside of max_bytes()");
    auto const end = static_cast<std::ptrdiff_t>(std::min(size, most));
    return {to.span().begin(), to.span().begin() + end};
  }

  /// What decode() throws as corrupt_message; nothing, and `got`, if it takes the message.
  std::string decoded(gs::message_info const& info, std::span<std::byte const> from, std::uint64_t room, content& got) {
    guarded<gs::index_type> indices{room, 0xABAB'ABABu};
    guarded<float> values{room, -77.0f}, passthrough{info.passthrough, -77.0f};
    std::string refusal;
    try {
      auto const view =
          gs::detail::decode_checked(codec_, info, from, {indices.span(), values.span(), passthrough.span()});
      bool good = view.indices.size() == view.values.size() && view.indices.size() <= room &&
                  view.passthrough.size() == info.passthrough;
      for (std::size_t i = 0; good && i < view.indices.size(); ++i)
        good = view.indices[i] < info.n && (i == 0 || view.indices[i - 1] < view.indices[i]) &&
               gs::is_finite(view.values[i]);
      found_.expect(good, "decode() returns a selection that is none");
      got = {{view.indices.begin(), view.indices.end()},
             {view.values.begin(), view.values.end()},
             {view.passthrough.begin(), view.passthrough.end()}};
    } catch (gs::corrupt_message const& error) {
      refusal = error.what();
    }
    found_.expect(indices.untouched_outside() && values.untouched_outside() && passthrough.untouched_outside(),
                  "decode() writes outside of its room");
    return refusal;
  }

  void try_bytes(gs::message_info const& info, std::string const& how, bytes const& other, std::uint64_t room) {
    try {
      content got, again;
      auto const refusal = decoded(info, surrounded{other, std::byte{0}}.span(), room, got);
      found_.expect(decoded(info, surrounded{other, std::byte{0xFF}}.span(), room, again) == refusal && again.same(got),
                    "a message ", how, ": decode() reads beyond its end");
    } catch (std::exception const& error) {
      found_.expect(false, "a message ", how, ": decode() throws '", error.what(), "', which is no corrupt_message");
    }
  }

  /// Makes the library's checksum right again, if the message had one. Whether it is of use.
  static bool reseal(bytes const& message, bytes& other) {
    if (message.size() < gs::message_header::bytes || other.size() < gs::message_header::bytes) return false;
    try {
      gs::wire::check_seal(message);
    } catch (gs::corrupt_message const&) {
      return false;
    }
    gs::wire::store_one(std::span{other}.subspan(40), std::uint64_t{0});
    gs::wire::store_one(std::span{other}.subspan(40), gs::wire::checksum(other));
    return true;
  }

  Codec codec_;
  findings found_;
};

/// Returns what is wrong with a codec, a line each; nothing if it does what the concept says. Local.
template <gs::codec Codec>
[[nodiscard]] std::string run(Codec const& codec) {
  return suite<Codec>{codec}.run();
}

}  // namespace codec_conformance
