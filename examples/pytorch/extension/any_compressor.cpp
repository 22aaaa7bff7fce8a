// Every recipe's compressor is compiled here, without torch.
#include "erased.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <gradsieve/exchange/reduce_scatter.hpp>
#include <gradsieve/run_time.hpp>

namespace example {
namespace {

/// Takes the name out of `tokens` if it is one of the choices. @throws usage_error if there are two.
std::optional<std::size_t> take(names& tokens, names const& choices, std::string const& recipe) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < choices.size(); ++i)
    if (auto const count = std::erase(tokens, choices[i]); count > 0) {
      if (found || count > 1) throw usage_error("recipe '" + recipe + "' names two of " + joined(choices));
      found = i;
    }
  return found;
}

/// Any selector without bins.
using without_bins = gs::any_selector<gs::radix, gs::hierarchical, gs::laplacian, gs::trimmed, gs::threshold_search,
                                      gs::ldte, gs::sidco, gs::one_sign, gs::random_k, gs::fixed_threshold>;

}  // namespace

compression parse_compression(std::string const& recipe, policy_options const& options, bool on_device) {
  auto tokens = split(recipe, '+');
  auto const whole = take(tokens, {"coo", "binned"}, recipe);
  auto const indices = take(tokens, index_codec_names, recipe);
  auto const values = take(tokens, value_codec_names, recipe);
  if (whole && (indices || values))
    throw usage_error("recipe '" + recipe + "': coo and binned have indices and values of their own");
  if (tokens.empty()) tokens.push_back(policy_defaults{}.selector);
  compression chosen{};
  try {
    chosen.policies = parse_policies(joined(tokens, "+"));
  } catch (usage_error const& why) {
    throw usage_error(std::string{why.what()} + "; codecs are coo, binned, " + joined(index_codec_names) + "; " +
                      joined(value_codec_names));
  }
  auto const* const adaptive = std::get_if<gs::adacomp>(&chosen.policies.selector);
  if (whole == 1 && !adaptive) throw usage_error("recipe '" + recipe + "': binned goes with adacomp");
  bool const none = !whole && !indices && !values;
  if (whole == 1 || (none && adaptive && !on_device))
    chosen.codec = any_codec::binned();
  else if (!whole && !(none && on_device && chosen.policies.sums_values()))
    chosen.codec = any_codec::packed(indices.value_or(on_device ? fixed_width_place : 0), values.value_or(0));
  if (chosen.policies.sums_values() && !chosen.codec.sums())
    throw usage_error("recipe '" + recipe +
                      "': deft, cyclic and micro sum up values, so that their codec is coo, or has fp32, fp16 or bf16");
  chosen.names_codec = !none;
  option_setter set{options};
  std::visit(set, chosen.policies.selector);
  std::visit(set, chosen.policies.partitioner);
  std::visit(set, chosen.policies.residual);
  chosen.codec.change(set);
  set.finish(recipe);
  chosen.options = set.known();
  return chosen;
}

names built_recipes() {
  names all;
  for (std::size_t s = 0; s < selector_names.size(); ++s)
    for (std::size_t p = 0; p < partitioner_names.size(); ++p)
      for (std::size_t r = 0; r < residual_names.size(); ++r) {
        bool const built =
            std::visit([](auto a, auto b, auto c) { return is_built<decltype(a), decltype(b), decltype(c)>(); },
                       alternative<any_selector>(s), alternative<any_partitioner>(p), alternative<any_residual>(r));
        if (built) all.push_back(joined({selector_names[s], partitioner_names[p], residual_names[r]}, "+"));
      }
  return all;
}

std::unique_ptr<any_compressor<gs::host>> make_compressor(gs::host where, compression const& chosen,
                                                          gs::layout const& layers, peers_of<gs::host> const& peers) {
  using result = std::unique_ptr<any_compressor<gs::host>>;
  if (chosen.shards && std::holds_alternative<nodes_of<gs::host>>(peers))
    throw usage_error("gradsieve: shards are exchanged with ranks that are alike, not with nodes");
  return chosen.policies.visit(
      [&]<class Selector, class Partitioner, class Residual>(Selector const& selector, Partitioner const& partitioner,
                                                             Residual const& residual) -> result {
        auto const of = [&](auto const& one, auto const& exchange) {
          return recipe_of(chosen, one, partitioner, residual, chosen.codec, exchange);
        };
        auto const make = [&](auto const& one) -> result {
          if (!chosen.shards)
            return make_erased(where, layers, of(one, typename Partitioner::default_exchange{}), peers);
          if constexpr (std::is_same_v<typename Partitioner::default_exchange, gs::gather>)
            return make_plain(where, layers, of(one, gs::reduce_scatter{}));
          else
            throw usage_error("gradsieve: partitioner " + std::string{Partitioner::name} +
                              " shares out the selection among ranks and sums it up on all of them, where shards need "
                              "whole or layerwise");
        };
        if constexpr (gs::bin_selector<Selector>)
          return make(selector);
        else
          return make(without_bins{{selector}});  // so that a step is compiled once for all of them
      });
}

}  // namespace example
