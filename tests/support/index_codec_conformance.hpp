// What every index codec must do: indices there and back, within its room, and safe against any bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/gradsieve.hpp>

#include "codec_conformance.hpp"

namespace index_codec_conformance {

namespace gs = gradsieve;
using codec_conformance::bytes;
using codec_conformance::surrounded;
using conformance::findings;
using conformance::guarded;
using indices_type = std::vector<gs::index_type>;

/// One run of the suite.
template <gs::index_codec Codec>
class suite {
 public:
  explicit suite(Codec codec) : codec_{codec} {}

  [[nodiscard]] std::string run() {
    for (std::uint64_t const n : {0u, 1u, 2u, 64u, 500u, 20'000u}) {
      if (sanitized && n > 1000) continue;
      for (auto const& indices : codec_conformance::index_lists(n)) attempt(n, indices, n <= 500);
    }
    // indices of all widths, where the codec's room does not grow with n
    for (std::uint64_t const n : {std::uint64_t{1} << 24, (std::uint64_t{1} << 32) - 1}) {
      auto const last = static_cast<gs::index_type>(n - 1);
      if (codec_.max_bytes(n, 100) > 20'000) break;
      attempt(n, {}, false);
      attempt(n, {last}, true);
      attempt(n, {0, last}, true);
      indices_type doubling{0};
      for (std::uint64_t at = 1; at < n; at *= 2) doubling.push_back(static_cast<gs::index_type>(at));
      attempt(n, doubling, true);
      attempt(n, {last - 3, last - 2, last}, true);
    }
    return found_.text();
  }

 private:
  void attempt(std::uint64_t n, indices_type const& indices, bool damage) {
    found_.in("n ", n, ", ", indices.size(), " indices");
    auto const layers = gs::layout::flat(n);
    std::vector<std::uint32_t> const bins(layers.count(), 50);
    found_.attempt([&] {
      there_and_back({.n = n, .layout_hash = layers.hash(), .layers = &layers, .bins = bins}, indices, damage);
    });
  }

  void there_and_back(gs::message_info const& info, indices_type const& indices, bool damage) {
    auto const most = codec_.max_bytes(info.n, indices.size());
    found_.expect(codec_.max_bytes(info.n, indices.size() / 2) <= most, "max_bytes() is larger for fewer indices");
    guarded<std::byte> to{most, std::byte{0x5A}};
    auto const size = codec_.encode(info, indices, to.span());
    found_.expect(size <= most, "encode() returns ", size, ", max_bytes() is ", most);
    found_.expect(to.untouched_outside(), "encode() writes outside of max_bytes()");
    auto const end = static_cast<std::ptrdiff_t>(std::min(size, most));
    bytes part{to.span().begin(), to.span().begin() + end};

    indices_type got;
    std::uint64_t read = 0;
    auto const refusal = decoded(info, part, indices.size(), got, read);
    found_.expect(refusal.empty() && got == indices, "decode() gives other indices than encode() was given");
    found_.expect(read == size, "decode() has read ", read, " bytes, encode() wrote ", size);
    auto longer = part;
    longer.resize(longer.size() + 40, std::byte{0xFF});  // values come behind the indices
    decoded(info, longer, indices.size(), got, read);
    found_.expect(got == indices && read == size, "with other bytes behind its own, decode() has read ", read,
                  " bytes of ", size, ", or gives other indices");
    if (!damage) return;
    codec_conformance::for_each_damage(part, [&](std::string const& how, bytes const& other) {
      for (auto const count : {indices.size(), indices.size() / 2 + 1}) try_bytes(info, how, other, count);
    });
  }

  /// What decode() throws as corrupt_message; nothing if it takes the bytes.
  std::string decoded(gs::message_info const& info, std::span<std::byte const> from, std::size_t count,
                      indices_type& got, std::uint64_t& read, gs::index_type fill = 0xABAB'ABABu) {
    guarded<gs::index_type> out{count, fill};
    std::string refusal;
    got.clear();
    try {
      read = codec_.decode(info, from, out.span());
      got = {out.span().begin(), out.span().end()};
      found_.expect(read <= from.size(), "decode() has read ", read, " bytes of ", from.size());
    } catch (gs::corrupt_message const& error) {
      refusal = error.what();
    }
    found_.expect(out.untouched_outside(), "decode() writes outside of its room");
    return refusal;
  }

  void try_bytes(gs::message_info const& info, std::string const& how, bytes const& other, std::size_t count) {
    try {
      indices_type got, again;
      std::uint64_t read = 0, read_again = 0;
      auto const refusal = decoded(info, surrounded{other, std::byte{0}}.span(), count, got, read);
      auto const second = decoded(info, surrounded{other, std::byte{0xFF}}.span(), count, again, read_again, 7);
      found_.expect(refusal == second && got == again && (!refusal.empty() || read == read_again), "bytes ", how, ", ",
                    count, " indices: decode() reads beyond their end, or leaves indices unwritten");
    } catch (std::exception const& error) {
      found_.expect(false, "bytes ", how, ": decode() throws '", error.what(), "', which is no corrupt_message");
    }
  }

  Codec codec_;
  findings found_;
};

/// Returns what is wrong with an index codec, a line each; nothing if it does what the concept says. Local.
template <gs::index_codec Codec>
[[nodiscard]] std::string run(Codec const& codec) {
  return suite<Codec>{codec}.run();
}

}  // namespace index_codec_conformance
