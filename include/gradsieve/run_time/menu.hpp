// The policies that a program offers by name.
#pragma once

#include <cstddef>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/published.hpp>
#include <gradsieve/run_time/any_policy.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// The partitioner's own exchange, in a recipe that is chosen at run time.
struct of_partitioner {
  static constexpr char const* name = "of_partitioner";
  friend bool operator==(of_partitioner const&, of_partitioner const&) = default;
};

/// The registry: every policy that a recipe text can name. A program that needs fewer defines a menu of its own with
/// shorter lists, each with its default first; the exchanges of its partitioners belong to its list, and raw32 to its
/// indices. A menu with `template <class Selector, class Partitioner, class Residual> static constexpr bool offers()`
/// compiles only recipes for which that is true and refuses others. Compile time on the host grows with the number of
/// residual stores times formats, and a little with all else; on a device with selectors times residual stores, up to
/// three times with kinds of partitioners.
struct full_menu {
  using selectors = type_list<radix, hierarchical, laplacian, trimmed, threshold_search, ldte, sidco, random_k,
                              fixed_threshold, chunked, adacomp>;  ///< selectors
  using partitioners = type_list<whole, layerwise, deft, cyclic, micro>;  ///< partitioners
  using residuals = type_list<error_feedback, none, momentum_correction, filtered>;  ///< residual stores
  using indices = type_list<automatic, raw32, delta, elias_fano, bitmap, fixed_width>;  ///< index codecs of packed
  using values = type_list<fp32, fp16, bf16, int8, int4, int2, ternary, sign, qsgd>;  ///< value codecs of packed
  using exchanges =
      type_list<gather, index_union, leader, shared_choice, reduce_scatter, coded_all_reduce>;  ///< exchanges
  using formats = type_list<float, float16, bfloat16>;  ///< formats of gradients
};

namespace detail {

template <class Menu, class Selector, class Partitioner, class Residual>
constexpr bool offers() {
  if constexpr (requires { Menu::template offers<Selector, Partitioner, Residual>(); })
    return Menu::template offers<Selector, Partitioner, Residual>();
  else
    return true;
}

/// True if no two codecs of a list have the same id, by which messages name them.
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
              "two codecs have the same id: take the next one that no codec of its list has; of values 9 was sbc's");

}  // namespace detail

}  // namespace gradsieve
