// What every value codec must do: values there and back, as they were rounded.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/gradsieve.hpp>

#include "codec_conformance.hpp"
#include "sanitized.hpp"

namespace value_codec_conformance {

namespace gs = gradsieve;
using codec_conformance::bytes;
using codec_conformance::surrounded;
using conformance::findings;
using conformance::guarded;
using conformance::same_bits;

/// One run of the suite.
template <gs::value_codec Codec>
class suite {
 public:
  explicit suite(Codec codec) : codec_{codec} {}

  [[nodiscard]] std::string run() {
    gs::layout const layers{{"a", 70}, {"empty", 0}, {"b", 200}, {"c", 1}, {"d", 1000}, {"e", 70}};
    std::vector<std::uint32_t> const bins(layers.count(), 50);
    gs::message_info const info{
        .n = layers.size(), .layout_hash = layers.hash(), .layers = &layers, .bins = bins, .step = 3, .rank = 1};
    for (auto const& indices : codec_conformance::index_lists(layers.size()))
      for (int kind = 0; kind < 4; ++kind) {
        found_.in(indices.size(), " values, ", codec_conformance::kinds[kind]);
        found_.attempt(
            [&] { every(info, indices, codec_conformance::values_of(kind, indices.size(), largest()), kind == 0); });
      }
    return found_.text();
  }

 private:
  [[nodiscard]] float largest() const {
    if constexpr (gs::limited_codec<Codec>)
      return codec_.largest();
    else
      return gs::largest_value<float>;
  }

  void every(gs::message_info const& info, std::vector<gs::index_type> const& indices, std::vector<float> values,
             bool damage) {
    if constexpr (gs::quantises<Codec>) {
      codec_.quantise(info, indices, values);
      found_.expect(std::ranges::all_of(values, [](float x) { return gs::is_finite(x); }),
                    "quantise() makes a value infinite");
      auto again = values;
      codec_.quantise(info, indices, again);
      found_.expect(same_bits(again, values), "quantise() changes values that it has rounded");
    }
    auto const most = codec_.max_bytes(values.size());
    auto const size = codec_.bytes(info, indices);
    found_.expect(size <= most, "bytes() is ", size, ", max_bytes() is ", most);
    guarded<std::byte> to{size, std::byte{0x5A}};
    codec_.encode(info, indices, values, to.span());
    found_.expect(to.untouched_outside(), "encode() writes outside of bytes()");
    bytes const part{to.span().begin(), to.span().end()};
    guarded<std::byte> other{size, std::byte{0xA5}};
    codec_.encode(info, indices, values, other.span());
    found_.expect(std::ranges::equal(part, other.span()), "encode() leaves bytes unwritten");

    std::vector<float> got;
    found_.expect(decoded(info, indices, part, got, -77.0f).empty() && same_bits(got, values),
                  "decode() gives other values than encode() was given");
    if constexpr (gs::counting_value_codec<Codec>)
      found_.expect(codec_.most_count(size) >= values.size(), "most_count(", size, ") is ", codec_.most_count(size));
    if constexpr (gs::elementwise_values<Codec>) {
      found_.expect(codec_.value_bytes() * values.size() == size, "value_bytes() is ", codec_.value_bytes());
      guarded<std::byte> alone{size, std::byte{0x5A}};
      codec_.encode(info, {}, values, alone.span());
      found_.expect(std::ranges::equal(part, alone.span()), "encode() reads indices, and value_bytes() is there");
    }
    if (!damage) return;
    data::generator random{values.size()};
    for (int i = sanitized ? 50 : 0; i < 60; ++i) {  // as many bytes as announced; of any content
      auto any = part;
      for (auto& each : any)
        if (i >= 55 || random.below(any.size()) < 2) each = static_cast<std::byte>(random.bits() & 0xFFu);
      try_bytes(info, indices, any);
    }
  }

  /// What decode() throws as corrupt_message; nothing if it takes the bytes.
  std::string decoded(gs::message_info const& info, std::vector<gs::index_type> const& indices,
                      std::span<std::byte const> from, std::vector<float>& got, float fill) {
    guarded<float> out{indices.size(), fill};
    std::string refusal;
    got.clear();
    try {
      codec_.decode(info, indices, from, out.span());
      got = {out.span().begin(), out.span().end()};
    } catch (gs::corrupt_message const& error) {
      refusal = error.what();
    }
    found_.expect(out.untouched_outside(), "decode() writes outside of its room");
    return refusal;
  }

  void try_bytes(gs::message_info const& info, std::vector<gs::index_type> const& indices, bytes const& any) {
    try {
      std::vector<float> got, again;
      auto const refusal = decoded(info, indices, surrounded{any, std::byte{0}}.span(), got, -77.0f);
      auto const second = decoded(info, indices, surrounded{any, std::byte{0xFF}}.span(), again, 88.0f);
      found_.expect(refusal == second && same_bits(got, again),
                    "other bytes: decode() reads beyond their end, or leaves values unwritten");
    } catch (std::exception const& error) {
      found_.expect(false, "other bytes: decode() throws '", error.what(), "', which is no corrupt_message");
    }
  }

  Codec codec_;
  findings found_;
};

/// Returns what is wrong with a value codec, a line each; nothing if it does what the concept says. Local.
template <class Codec>
[[nodiscard]] std::string run(Codec const& codec) {
  return suite<Codec>{codec}.run();
}

}  // namespace value_codec_conformance
