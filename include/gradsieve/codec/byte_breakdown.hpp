// The bytes of a message by kind of layer.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/report.hpp>
#include <gradsieve/core/selection.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The bytes of a header, and the elements of each kind of layer: layers with equal bin lengths are one kind, the
/// ranges in `passthrough` (4 bytes per element) another. @pre info.layers, info.bins
[[nodiscard]] inline byte_breakdown breakdown_of_layers(message_info const& info, std::span<range const> passthrough) {
  auto const& layers = *info.layers;
  auto const falls = [](range const& a, range const& b) { return b.offset < a.offset; };
  auto const second = std::ranges::adjacent_find(passthrough, falls);  // two ordered lists: the end of the first one
  auto const size =
      second == passthrough.end() ? passthrough.size() : static_cast<std::size_t>(second - passthrough.begin()) + 1;
  std::array lists{passthrough.first(size), passthrough.subspan(size)};
  byte_breakdown result;
  auto skipped = info.skipped;
  for (std::size_t l = 0; l < layers.count(); ++l) {
    if (!skipped.empty() && layers[l].size > 0 && skipped.front().offset == layers.offset(l)) {
      skipped = skipped.subspan(1);
      continue;
    }
    std::uint64_t passes = 0;
    for (auto& list : lists) {
      while (!list.empty() && list.front().offset + list.front().size <= layers.offset(l)) list = list.subspan(1);
      for (auto const& each : list) {
        if (each.offset >= layers.offset(l + 1)) break;
        passes += smaller(each.offset + each.size, layers.offset(l + 1)) - larger(each.offset, layers.offset(l));
      }
    }
    if (passes < layers[l].size) result.of(info.bins[l]).elements += layers[l].size - passes;
    if (passes > 0) {
      result.of(0).elements += passes;
      result.of(0).bytes += 4 * static_cast<double>(passes);
    }
  }
  result.share_out(static_cast<double>(message_header::bytes));
  return result;
}

/// The breakdown of a message with the library's header and entries of equal cost. @pre info.layers, info.bins
[[nodiscard]] inline byte_breakdown breakdown_by_entries(message_info const& info, selection_view const in,
                                                         std::span<range const> passthrough,
                                                         std::span<std::byte const> message) {
  std::uint64_t const payload =
      message.size() - smaller<std::uint64_t>(message.size(), message_header::bytes + in.passthrough.size_bytes());
  auto result = breakdown_of_layers(info, passthrough);
  if (in.indices.empty()) result.share_out(static_cast<double>(payload));
  for_each_layer(info, in.indices, [&](std::size_t l, std::size_t first, std::size_t last) {
    auto& kind = result.of(info.bins[l]);
    auto const count = static_cast<double>(last - first);
    kind.entries += last - first;
    kind.bytes += static_cast<double>(payload) * count / static_cast<double>(in.indices.size());
  });
  return result;
}

/// The codec's breakdown of its message; breakdown_by_entries() if only the selector's bins have kinds of layers.
template <class Selector, class Codec>
[[nodiscard]] byte_breakdown byte_breakdown_of(Selector const& chosen, Codec const& how, message_info const& info,
                                               selection_view const in, std::span<range const> passthrough,
                                               std::span<std::byte const> message) {
  byte_breakdown result;
  if constexpr (accounting_codec<Codec>) result = how.breakdown(info, in, passthrough, message);
  if (result.kind_count == 0 &&
      with_chosen(chosen, []<class One>(One const&) { return layer_bin_selector<One>; })) {
    auto const index_codec = result.index_codec;
    result = breakdown_by_entries(info, in, passthrough, message);
    result.index_codec = index_codec;
  }
  return result;
}

}  // namespace gradsieve::detail
