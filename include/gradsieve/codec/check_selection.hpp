// Checks whether a message can hold a caller's selection.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Whether two spans have memory in common.
[[nodiscard]] inline bool shares_memory(std::span<std::byte const> a, std::span<std::byte const> b) noexcept {
  std::less<std::byte const*> const before;  // orders pointers to different arrays as well
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) && before(b.data(), a.data() + a.size());
}

/// Checks a selection before it is encoded, so that every receiver accepts the message and decodes these values.
/// `passthrough`: the ranges of the layers that pass through, in order.
/// Cost: one pass over the entries, and one search for each of those ranges. For a lossy codec also a copy of the
/// values, which allocates.
/// @throws invalid_argument if the lists differ in length, there are more than `capacity` entries, or the number of
/// passthrough elements is wrong; if indices do not increase below n, or lie in a layer that passes through; if values
/// are not finite, or the codec would round them.
template <class Codec>
void check_selection(Codec const& how, message_info const& info, std::span<range const> passthrough,
                     selection_view const in, std::uint64_t capacity) {
  auto const refuse = [](std::string const& text) { throw invalid_argument("gradsieve: selection " + text); };
  auto const count = in.indices.size();
  if (count != in.values.size())
    refuse("has " + std::to_string(count) + " indices and " + std::to_string(in.values.size()) + " values");
  if (count > capacity)
    refuse("has " + std::to_string(count) + " entries, the recipe sends at most " + std::to_string(capacity));
  if (in.passthrough.size() != info.passthrough)
    refuse("has " + std::to_string(in.passthrough.size()) + " elements that pass through, the layout has " +
           std::to_string(info.passthrough));
  if (std::ranges::adjacent_find(in.indices, std::ranges::greater_equal{}) != in.indices.end())
    refuse("has indices that do not rise strictly");
  if (count > 0 && in.indices.back() >= info.n)
    refuse("has index " + std::to_string(in.indices.back()) + ", which is not below " + std::to_string(info.n));
  for (auto const& each : passthrough)
    if (auto const at = std::ranges::lower_bound(in.indices, each.offset);
        at != in.indices.end() && *at < each.offset + each.size)
      refuse("has index " + std::to_string(*at) + " of a layer that passes through");
  auto const finite = [](float value) { return is_finite(value); };
  if (!std::ranges::all_of(in.values, finite) || !std::ranges::all_of(in.passthrough, finite))
    refuse("has a value that is not finite");
  if constexpr (quantises<Codec>) {
    std::vector<float> rounded(in.values.begin(), in.values.end());
    how.quantise(info, in.indices, std::span{rounded});
    auto const bits = [](float value) { return gradsieve::bit_cast<std::uint32_t>(value); };
    if (!std::ranges::equal(in.values, rounded, {}, bits, bits))
      refuse("has a value that the codec would round: use what compress() returned, or quantise() it");
  }
}

}  // namespace gradsieve::detail
