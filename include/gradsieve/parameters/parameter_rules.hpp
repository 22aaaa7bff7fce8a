// Options of a parameter_exchange, and which compressors it supports.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/exchange/reduce_scatter.hpp>
#include <gradsieve/residual/none.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Options of a parameter_exchange.
struct parameter_options {
  /// The factor, in [0, 1], of a rank's unsent changes in its own parameters. 0: ranks train on the common parameters,
  /// and see their own changes late; 1: each rank sees all of its changes, and is further away from the others. Empty:
  /// 0.5, or 1 for a single rank. Where a change had a factor above 1, at most one over it.
  std::optional<float> weight{};

  /// @throws invalid_argument unless the weight is in [0, 1].
  void check() const {
    if (weight && !(is_finite(*weight) && *weight >= 0.0f && *weight <= 1.0f))
      throw invalid_argument("gradsieve: parameter_exchange's weight is not in [0, 1]");
  }

  /// The weight for this number of ranks, where the last change had this factor. @pre ranks > 0
  [[nodiscard]] constexpr float among(int ranks, float factor = 1) const noexcept {
    float const usual = weight.value_or(ranks == 1 ? 1.0f : 0.5f);
    return factor > 1 ? std::min(usual, divide(1.0f, factor)) : usual;
  }

  friend bool operator==(parameter_options const&, parameter_options const&) = default;
};

namespace detail {

/// Whether it can be a change's factor.
[[nodiscard]] constexpr bool is_factor(float factor) noexcept { return is_finite(factor) && factor >= 0; }

/// Whether a residual store drops everything that was not sent.
template <class Store>
[[nodiscard]] constexpr bool keeps_nothing() noexcept {
  if constexpr (wrapping_residual_store<Store>)
    return keeps_nothing<std::remove_cvref_t<decltype(std::declval<Store const&>().store)>>();
  else
    return std::same_as<Store, none>;
}

/// What the type of a compressor reveals of its recipe; nothing for an any_compressor.
template <class Compressor>
struct known_recipe {
  static constexpr std::size_t states = 1;
  static constexpr bool leaves_shards = false;
};
template <class Compressor>
requires requires { typename Compressor::residual_type; }
struct known_recipe<Compressor> {
  static constexpr std::size_t states = Compressor::residual_type::states;
  static constexpr bool leaves_shards = std::same_as<typename Compressor::exchange_type, reduce_scatter>;
};

/// The rules for a parameter_exchange's compressor. A compiler prints the sentence of a rule that is broken.
template <class Compressor>
struct parameter_rules {
  static constexpr bool fit = true;
  static constexpr bool is_two_level = requires(Compressor & it) { it.part_compressor(); };

  static_assert(!is_two_level,
                "parameter_exchange: a two_level_compressor holds the residual of a part only: use a compressor of all "
                "ranks");
  static_assert(known_recipe<Compressor>::states == 1,
                "parameter_exchange: recipe.residual keeps several states, and the optimizer has the momentum already: "
                "use error_feedback");
  static_assert(!known_recipe<Compressor>::leaves_shards,
                "parameter_exchange: reduce_scatter leaves each rank a shard of the mean, and common parameters need "
                "all of it: use gather or index_union");

  /// Whether the compressor's store drops what is not sent. @throws invalid_argument if an any_compressor's store keeps
  /// several states, or its exchange leaves shards.
  [[nodiscard]] static bool keeps_nothing(Compressor const& with) {
    if constexpr (requires { typename Compressor::residual_type; }) {
      return detail::keeps_nothing<typename Compressor::residual_type>();
    } else {
      std::visit(
          []<class Exchange>(Exchange const&) {
            if constexpr (std::same_as<Exchange, reduce_scatter>)
              throw invalid_argument(
                  "gradsieve: parameter_exchange: reduce_scatter leaves each rank a shard of the mean, and common "
                  "parameters need all of it: use gather or index_union");
          },
          with.recipe().chosen_exchange());
      return std::visit(
          []<class Store>(Store const&) {
            if (Store::states != 1)
              throw invalid_argument(std::string{"gradsieve: parameter_exchange: '"} + Store::name +
                                     "' keeps several states, and the optimizer has the momentum already: use "
                                     "error_feedback");
            return detail::keeps_nothing<Store>();
          },
          with.recipe().residual);
    }
  }
};

}  // namespace detail

}  // namespace gradsieve
