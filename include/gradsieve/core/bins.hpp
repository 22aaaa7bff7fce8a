// Bins: short runs of consecutive elements that never cross a layer border.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fingerprint.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/core/text.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// The bin lengths of layers: the first rule whose pattern matches the layer (see layout::plain()) decides; without a
/// match, `otherwise`. The last bin of a layer may be shorter. A field of selectors with bins.
/// Source: AdaComp (Chen et al. 2018), 50 for convolutions, 500 for fully connected and recurrent layers.
struct bin_lengths {
  static constexpr std::uint32_t longest = 16383;  ///< the most elements in a bin

  /// One layer pattern and its bin length.
  struct rule {
    char pattern[28] = "";     ///< '*' stands for any characters, '?' for one
    std::uint32_t length = 0;  ///< 0: no rule
    friend bool operator==(rule const&, rule const&) = default;
  };

  std::array<rule, 8> rules = {{{"*conv*", 50}}};  ///< the first that matches decides
  std::uint32_t otherwise = 500;                   ///< length if no rule matches

  /// The length of a layer's bins.
  [[nodiscard]] std::uint32_t operator()(layer const& each) const {
    for (auto const& one : rules)
      if (one.length > 0 && fits(one.pattern, each)) return one.length;
    return otherwise;
  }

  /// The length of each layer's bins, in layout order, as message_info::bins holds them. Allocates.
  [[nodiscard]] std::vector<std::uint32_t> of(layout const& layers) const {
    std::vector<std::uint32_t> lengths;
    for (auto const& each : layers.plain()) lengths.push_back((*this)(each));
    return lengths;
  }

  /// @throws invalid_argument for a rule, except the default one, that matches no layer, unless the layout is a part.
  void check_names(layout const& layers) const {
    auto const plain = layers.plain();
    for (auto const& one : rules) {
      if (one.length == 0 || one == bin_lengths{}.rules[0]) continue;
      layers.require_fit(std::ranges::any_of(plain, [&](layer const& each) { return fits(one.pattern, each); }),
                         one.pattern, "bins");
    }
  }

  /// Checks all rules. @throws invalid_argument for a length outside [1, longest], and for a pattern without a final 0.
  void check() const {
    auto const check_one = [](std::uint32_t length) {
      if (length < 1 || length > longest)
        throw invalid_argument("gradsieve: a bin's length is " + std::to_string(length) + ", expected 1 to " +
                               std::to_string(longest));
    };
    check_one(otherwise);
    for (auto const& one : rules) {
      if (one.length > 0) check_one(one.length);
      if (std::ranges::find(one.pattern, '\0') == std::end(one.pattern))
        throw invalid_argument("gradsieve: a bin's rule has a pattern of " + std::to_string(sizeof one.pattern) +
                               " characters or more");
    }
  }

  /// The rules in use, followed by empty ones.
  [[nodiscard]] constexpr std::array<rule, 8> counting() const noexcept {
    std::array<rule, 8> found{};
    std::size_t next = 0;
    for (auto const& one : rules)
      if (one.length > 0) found[next++] = one;
    return found;
  }

  /// Adds the rules in use. @pre check()
  void add_to(fingerprint& to) const noexcept {
    for (auto const& one : counting()) {
      to.add(std::string_view{one.pattern});
      to.add(one.length);
    }
    to.add(otherwise);
  }

  /// True if the rules in use are equal.
  friend constexpr bool operator==(bin_lengths const& a, bin_lengths const& b) noexcept {
    return a.counting() == b.counting() && a.otherwise == b.otherwise;
  }
  friend std::ostream& operator<<(std::ostream& out, bin_lengths const& it) {
    plain_output const plain{out};
    out << "bins{";
    for (auto const& one : it.rules)
      if (one.length > 0) out << one.pattern << ' ' << shortest{one.length} << ", ";
    return out << shortest{it.otherwise} << '}';
  }
};

}  // namespace gradsieve
