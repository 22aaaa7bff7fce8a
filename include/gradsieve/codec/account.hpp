// Where the bytes of a message went, by kind of layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/codec/layer_scale.hpp>
#include <gradsieve/codec/message.hpp>
#include <gradsieve/layout.hpp>
#include <gradsieve/report.hpp>
#include <gradsieve/selection.hpp>

namespace gradsieve {

/// The elements of each kind of layers, `length_of(layer)` being the length of their bins, and of what passes through:
/// the ranges in `dense`, at 4 bytes an element; and a header's bytes.
template <class LengthOf>
[[nodiscard]] message_account account_of_layers(layout const& layers, std::span<range const> dense,
                                                LengthOf const& length_of) noexcept {
  message_account result;
  for (auto const& each : layers) result.of(length_of(each)).elements += each.size;
  std::size_t l = 0;
  for (auto const& each : dense) {  // two lists, either in order
    if (each.offset < layers.offset(l)) l = 0;
    while (layers.offset(l + 1) <= each.offset) ++l;
    std::uint64_t const end = each.offset + each.size;
    for (std::size_t m = l; m < layers.count() && layers.offset(m) < end; ++m) {
      auto const both = smaller(end, layers.offset(m + 1)) - larger(each.offset, layers.offset(m));
      result.of(length_of(layers[m])).elements -= both;
      result.of(0).elements += both;
      result.of(0).bytes += 4 * static_cast<double>(both);
    }
  }
  result.share_out(static_cast<double>(message_header::bytes));
  return result;
}

/// The account of any codec's message, with entries that all cost the same. @pre info.layers
template <class LengthOf>
[[nodiscard]] message_account account_by_entries(message_info const& info, std::span<index_type const> indices,
                                                 std::span<range const> dense, std::span<std::byte const> message,
                                                 LengthOf const& length_of) noexcept {
  std::uint64_t const own_dense = wire::load_one<std::uint64_t>(message.subspan(message_header::dense_at));
  std::uint64_t const payload = message.size() - message_header::bytes - 4 * own_dense;
  auto result = account_of_layers(*info.layers, dense, length_of);
  if (indices.empty()) result.share_out(static_cast<double>(payload));
  for_each_layer(info, indices, [&](std::size_t l, std::size_t first, std::size_t last) {
    auto& kind = result.of(length_of((*info.layers)[l]));
    kind.entries += last - first;
    kind.bytes +=
        static_cast<double>(payload) * static_cast<double>(last - first) / static_cast<double>(indices.size());
  });
  return result;
}

/// What a codec tells of its message; of kinds of layers where it does not, and the selector has them, by
/// account_by_entries().
template <class Selector, class Codec>
[[nodiscard]] message_account account_of(Selector const& chosen, Codec const& how, message_info const& info,
                                         selection_view const in, std::span<range const> dense,
                                         std::span<std::byte const> message) {
  message_account result;
  if constexpr (requires { how.account(info, in, dense, message); }) result = how.account(info, in, dense, message);
  if constexpr (requires { requires Selector::bins_within_layers; }) {
    if (result.kind_count > 0) return result;
    auto const* const indices = result.indices;
    result = account_by_entries(info, in.indices, dense, message,
                                [&](layer const& each) { return chosen.bin_length(each); });
    result.indices = indices;
  }
  return result;
}

}  // namespace gradsieve
