// Names such as "radix+deft+momentum" to the library's policies, for programs that take recipes by name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/published.hpp>

#include "command_line.hpp"

namespace example {

namespace gs = gradsieve;

inline names const selector_names{"radix",   "hierarchical", "laplacian",        "adacomp",
                                  "chunked", "trimmed",      "threshold_search", "ldte",
                                  "sidco",   "one_sign",     "random_k",         "fixed_threshold"};
inline names const partitioner_names{"whole", "layerwise", "deft", "cyclic", "micro"};
inline names const residual_names{"none", "error_feedback", "momentum", "filtered"};
inline names const sharing_names{"by_layer", "by_fragment"};  // as deft_sharing

// In the order of selector_names, partitioner_names and residual_names.
using any_selector =
    std::variant<gs::radix, gs::hierarchical, gs::laplacian, gs::adacomp, gs::chunked, gs::trimmed,
                 gs::threshold_search, gs::ldte, gs::sidco, gs::one_sign, gs::random_k, gs::fixed_threshold>;
using any_partitioner = std::variant<gs::whole, gs::layerwise, gs::deft, gs::cyclic, gs::micro>;

using any_residual = std::variant<gs::none, gs::error_feedback, gs::momentum_correction, gs::filtered>;

/// Selectors to compare with: with `whole` and `error_feedback` only.
template <class Selector>
inline constexpr bool stands_alone =
    !(std::is_same_v<Selector, gs::radix> || std::is_same_v<Selector, gs::hierarchical> ||
      std::is_same_v<Selector, gs::laplacian> || std::is_same_v<Selector, gs::adacomp>);

/// Whether programs have a compressor of these policies. Each is compiled, so that there are all of the first three
/// selectors with the first three partitioners and residuals, and a few of the others.
template <class Selector, class Partitioner, class Residual>
constexpr bool is_built() {
  using namespace gs;
  constexpr bool plain = std::is_same_v<Residual, error_feedback>;
  if constexpr (std::is_same_v<Selector, adacomp>) return std::is_same_v<Partitioner, layerwise> && plain;
  if constexpr (stands_alone<Selector>) return std::is_same_v<Partitioner, whole> && plain;
  if constexpr (std::is_same_v<Partitioner, micro>)
    return (std::is_same_v<Selector, radix> || std::is_same_v<Selector, laplacian>) && plain;
  if constexpr (std::is_same_v<Partitioner, cyclic>)
    return (std::is_same_v<Selector, radix> && !std::is_same_v<Residual, none>) ||
           (std::is_same_v<Selector, laplacian> && plain);
  return !std::is_same_v<Residual, filtered>;
}

/// What a name leaves open, and the numbers of the policies that have any.
struct policy_defaults {
  std::string selector = "radix";
  std::string partitioner = "whole";
  std::string residual = "error_feedback";
  double momentum = 0.9;
  double beta = 0.5;
  std::uint32_t bins = 0;  ///< elements of AdaComp's bins in every layer; 0: its own
  gs::fixed_threshold threshold{};
  gs::deft deft{};
};

struct named_policies {
  any_selector selector;
  any_partitioner partitioner;
  any_residual residual;

  /// Momentum correction keeps the momentum in the compressor: the optimiser must not apply it again.
  [[nodiscard]] bool carries_momentum() const { return std::holds_alternative<gs::momentum_correction>(residual); }

  /// Whether ranks send indices and values apart, and values are summed on their way: see gs::separable_codec.
  [[nodiscard]] bool sums_values() const {
    return std::visit([](auto const& it) { return !std::remove_cvref_t<decltype(it)>::default_exchange::traits.encodes; },
                      partitioner);
  }

  /// AdaComp's bins say how much is sent, and the density is no more than a limit.
  [[nodiscard]] bool adapts() const { return std::holds_alternative<gs::adacomp>(selector); }

  /// body(selector, partitioner, residual), of a combination that is built.
  template <class Body>
  decltype(auto) visit(Body const& body) const {
    using result = decltype(body(gs::radix{}, gs::whole{}, gs::error_feedback{}));
    return std::visit(
        [&](auto s, auto p, auto r) -> result {
          if constexpr (is_built<decltype(s), decltype(p), decltype(r)>())
            return body(s, p, r);
          else
            throw std::logic_error("parse_policies() lets no such combination pass");
        },
        selector, partitioner, residual);
  }
};

/// One of a family of policies by its name, of which a recipe may name one.
template <class Variant>
class family {
 public:
  family(std::string what, names const& choices, std::string const& initial)
      : what_{std::move(what)}, choices_{choices} {
    take(initial, initial);
    named_ = false;
  }

  /// True if the token is of this family.
  bool take(std::string const& token, std::string const& recipe) {
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      if (choices_[i] != token) continue;
      if (std::exchange(named_, true)) throw usage_error("recipe '" + recipe + "' names two " + what_);
      chosen_ = i;
      return true;
    }
    return false;
  }

  [[nodiscard]] Variant policy() const { return make(std::make_index_sequence<std::variant_size_v<Variant>>{}); }

 private:
  template <std::size_t... Is>
  [[nodiscard]] Variant make(std::index_sequence<Is...>) const {
    return std::array<Variant, sizeof...(Is)>{Variant{std::in_place_index<Is>}...}[chosen_];
  }

  std::string what_;
  names const& choices_;
  std::size_t chosen_ = 0;
  bool named_ = false;
};

/// The policies that a recipe names, by '+' and in any order.
/// @throws usage_error for a name that there is not, two of one family, and what is not built.
[[nodiscard]] inline named_policies parse_policies(std::string const& recipe, policy_defaults const& open = {}) {
  auto selector = family<any_selector>{"selectors", selector_names, open.selector};
  auto partitioner = family<any_partitioner>{"partitioners", partitioner_names, open.partitioner};
  auto residual = family<any_residual>{"residuals", residual_names, open.residual};
  for (auto const& token : split(recipe, '+'))
    if (!selector.take(token, recipe) && !partitioner.take(token, recipe) && !residual.take(token, recipe))
      throw usage_error("recipe '" + recipe + "': '" + token + "' is none of " + joined(selector_names) + "; " +
                        joined(partitioner_names) + "; " + joined(residual_names));
  auto chosen = named_policies{selector.policy(), partitioner.policy(), residual.policy()};
  if (auto* const correction = std::get_if<gs::momentum_correction>(&chosen.residual))
    correction->momentum = static_cast<float>(open.momentum);
  if (auto* const filter = std::get_if<gs::filtered>(&chosen.residual)) filter->beta = static_cast<float>(open.beta);
  if (auto* const shares = std::get_if<gs::deft>(&chosen.partitioner)) *shares = open.deft;
  if (auto* const hard = std::get_if<gs::fixed_threshold>(&chosen.selector)) *hard = open.threshold;
  if (auto* const bins = std::get_if<gs::adacomp>(&chosen.selector)) {
    if (open.bins > 0) bins->bins = {.rules = {}, .otherwise = open.bins};
    if (std::holds_alternative<gs::whole>(chosen.partitioner)) chosen.partitioner = gs::layerwise{};
  }
  bool const built =
      std::visit([](auto s, auto p, auto r) { return is_built<decltype(s), decltype(p), decltype(r)>(); },
                 chosen.selector, chosen.partitioner, chosen.residual);
  if (!built)
    throw usage_error(
        "recipe '" + recipe +
        "': cyclic and filtered are in radix+cyclic, laplacian+cyclic, radix+cyclic+momentum and "
        "radix+cyclic+filtered only; micro is in radix+micro and laplacian+micro; adacomp and chunked "
        "stand alone, as trimmed, threshold_search, ldte, sidco, one_sign, random_k and fixed_threshold do");
  return chosen;
}

}  // namespace example
