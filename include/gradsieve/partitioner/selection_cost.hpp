// The cost of selecting from a fragment, by which DEFT packs fragments.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// The time of selecting k of n entries as fixed + per_element * n + per_selected * k, in any unit. All zero: the
/// published n * log2 k. measure_selection_cost() fits it to a machine. All ranks have the same cost, and compute the
/// same number for a fragment in any build; the most costly are packed first.
struct selection_cost {
  static constexpr char const* name = "selection_cost";
  static constexpr auto fields() {
    constexpr auto finite = between(0, std::numeric_limits<double>::max());
    return std::tuple{field<&selection_cost::fixed>{"fixed", finite},
                      field<&selection_cost::per_element>{"per_element", finite},
                      field<&selection_cost::per_selected>{"per_selected", finite}};
  }
  double fixed = 0;         ///< for each selection
  double per_element = 0;   ///< for each of n elements
  double per_selected = 0;  ///< for each of k entries

  /// The cost of selecting k of n.
  [[nodiscard]] double operator()(std::uint64_t n, index_type k) const noexcept {
    auto const elements = static_cast<double>(n);
    if (*this == selection_cost{}) return exact::multiply(elements, std::max(1.0, log2_of(k)));
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

 private:
  /// log2(k) with an error of 2^-30, 0 for 0: each squaring doubles the logarithm.
  [[nodiscard]] static double log2_of(index_type k) noexcept {
    if (k < 2) return 0;
    unsigned const whole = bit_width(k) - 1;
    std::uint64_t log2 = whole;
    std::uint64_t x = std::uint64_t{k} << (31 - whole);  // from 1 to below 2, in units of 2^-31
    for (int bit = 0; bit < 30; ++bit) {
      x = x * x >> 31;
      log2 = log2 << 1 | x >> 32;
      x >>= x >> 32;
    }
    return static_cast<double>(log2) * 0x1p-30;
  }
};

}  // namespace gradsieve
