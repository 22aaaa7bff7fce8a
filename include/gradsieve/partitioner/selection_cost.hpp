// The cost of selecting from a fragment, by which DEFT packs fragments.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/core/whole_sums.hpp>

namespace gradsieve {

/// Time of selecting k of n entries as fixed + per_element * n + per_selected * k, in any unit. All zero: the
/// published n * log2 k. measure_selection_cost() fits it to a machine. All ranks hold the same, and get the same number
/// for a fragment from any build: what costs more is packed first.
struct selection_cost {
  static constexpr char const* name = "selection_cost";
  static constexpr auto fields() {
    constexpr auto finite = between(0, std::numeric_limits<double>::max());
    return std::tuple{field<&selection_cost::fixed>{"fixed", finite},
                      field<&selection_cost::per_element>{"per_element", finite},
                      field<&selection_cost::per_selected>{"per_selected", finite}};
  }
  double fixed = 0;         ///< of each selection
  double per_element = 0;   ///< of each of n elements
  double per_selected = 0;  ///< of each of k entries

  /// The cost of selecting k of n; the logarithm to 2^-11.
  [[nodiscard]] double operator()(std::uint64_t n, index_type k) const noexcept {
    auto const elements = static_cast<double>(n);
    if (*this == selection_cost{}) {
      constexpr std::uint64_t zero = std::uint64_t{256} << 20;  // log2_units() of 1
      auto const log2 = k < 2 ? zero : log2_units(magnitude_key(static_cast<float>(k)));
      return exact::multiply(elements, std::max(1.0, static_cast<double>(log2 - zero) * 0x1p-20));
    }
    return exact::add(exact::add(fixed, exact::multiply(per_element, elements)),
                      exact::multiply(per_selected, static_cast<double>(k)));
  }

  friend bool operator==(selection_cost const&, selection_cost const&) = default;
  friend std::ostream& operator<<(std::ostream& out, selection_cost const& it) {
    plain_output const plain{out};
    if (it == selection_cost{}) return out << "n log2 k";
    return out << shortest{it.fixed} << " + " << shortest{it.per_element} << " n + " << shortest{it.per_selected}
               << " k";
  }
};

}  // namespace gradsieve
