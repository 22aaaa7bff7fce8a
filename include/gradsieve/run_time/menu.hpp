// The policies that a program offers by name.
#pragma once

#include <cstddef>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/published.hpp>
#include <gradsieve/run_time/any_policy.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// In a recipe that is chosen at run time: the exchange of its partitioner.
struct of_partitioner {
  static constexpr char const* name = "of_partitioner";
  friend bool operator==(of_partitioner const&, of_partitioner const&) = default;
};

/// The registry: every policy that a recipe text can name. A program that needs fewer defines a menu of its own with
/// shorter lists, each with its default first; the exchanges of its partitioners belong to its list, and raw32 to its
/// indices. A menu with `template <class Selector, class Partitioner, class Residual> static constexpr bool offers()`
/// compiles those alone for which that is true; recipes of others are refused.
/// Compile time on the host grows with the number of residual stores times formats, and a little with all else. On a
/// device it grows with selectors times residual stores, up to three times with kinds of partitioners.
struct full_menu {
  /// Selectors.
  using selectors = type_list<radix, hierarchical, laplacian, trimmed, threshold_search, ldte, sidco, one_sign,
                              random_k, fixed_threshold, chunked, adacomp>;
  /// Partitioners.
  using partitioners = type_list<whole, layerwise, deft, cyclic, micro>;
  /// Residual stores.
  using residuals = type_list<error_feedback, none, momentum_correction, filtered>;
  /// Index codecs of packed.
  using indices = type_list<automatic, raw32, delta, elias_fano, bitmap, fixed_width>;
  /// Value codecs of packed.
  using values = type_list<fp32, fp16, bf16, int8, int4, int2, ternary, sign, sbc, qsgd>;
  /// Exchanges.
  using exchanges = type_list<gather, index_union, leader, shared_choice, reduce_scatter>;
  /// Formats of gradients.
  using formats = type_list<float, float16, bfloat16>;
};

namespace detail {

/// Whether a menu offers these together.
template <class Menu, class Selector, class Partitioner, class Residual>
constexpr bool offers() {
  if constexpr (requires { Menu::template offers<Selector, Partitioner, Residual>(); })
    return Menu::template offers<Selector, Partitioner, Residual>();
  else
    return true;
}

/// Whether each codec of a list has an id of its own, by which messages name it.
template <class... Codecs>
[[nodiscard]] constexpr bool have_ids_of_their_own(type_list<Codecs...>) {
  unsigned const ids[] = {Codecs::id...};
  for (std::size_t i = 0; i < sizeof...(Codecs); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (ids[i] == ids[j]) return false;
  return true;
}
static_assert(have_ids_of_their_own(type_list<coo, packed<>, binned>{}) &&
                  have_ids_of_their_own(full_menu::indices{}) && have_ids_of_their_own(full_menu::values{}),
              "two codecs have the same id: take the next one that no codec of its list has");

}  // namespace detail

}  // namespace gradsieve
