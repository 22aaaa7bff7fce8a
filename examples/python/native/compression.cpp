// Recipes by name, in the words of Python's users.
#include "compression.hpp"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <string>
#include <variant>

namespace example {
namespace {

/// Takes the name out of `tokens` if it is one of the choices. @throws usage_error if there are two.
std::optional<std::string> take(names& tokens, names const& choices, std::string const& recipe) {
  std::optional<std::string> found;
  for (auto const& choice : choices)
    if (auto const count = std::erase(tokens, choice); count > 0) {
      if (found || count > 1) throw usage_error("recipe '" + recipe + "' names two of " + joined(choices));
      found = choice;
    }
  return found;
}

/// Takes the codec out of `tokens`; the other names are in the recipe already. Returns whether there is one.
struct named_codec {
  std::optional<std::string> whole, indices, values;

  named_codec(names& tokens, std::string const& recipe)
      : whole{take(tokens, {"coo", "binned"}, recipe)},
        indices{take(tokens, index_codec_names, recipe)},
        values{take(tokens, value_codec_names, recipe)} {
    if (whole && (indices || values))
      throw usage_error("recipe '" + recipe + "': coo and binned have indices and values of their own");
  }
  [[nodiscard]] bool none() const { return !whole && !indices && !values; }

  void set(any_recipe& to, std::string const& recipe, bool on_device) const {
    bool const binned = whole == "binned";
    if (binned && !adapts(to)) throw usage_error("recipe '" + recipe + "': binned goes with adacomp");
    if (binned || (none() && adapts(to) && !on_device)) {
      to.codec = gs::codec_kind::binned;
    } else if (!whole && !(none() && on_device && sums_values(to))) {
      to.codec = gs::codec_kind::packed;
      if (on_device && sums_values(to))
        to.indices = gs::raw32{};
      else if (on_device)
        to.indices = gs::elias_fano{};
      if (indices) static_cast<void>(gs::recipe_text::read_one_of(menu::indices{}, {*indices, {}}, to.indices));
      if (values) static_cast<void>(gs::recipe_text::read_one_of(menu::values{}, {*values, {}}, to.values));
    }
    if (sums_values(to) && (to.codec == gs::codec_kind::binned || !to.coded().sends_apart()))
      throw usage_error(
          "recipe '" + recipe +
          "': deft, cyclic and micro sum up values, so that their codec is coo, or has fp32, fp16 or bf16");
  }
};

}  // namespace

compression parse_compression(std::string const& recipe, policy_options const& options, bool on_device) {
  auto tokens = split(recipe, '+');
  named_codec const codec{tokens, recipe};
  if (tokens.empty()) tokens.push_back(selector_names.front());
  compression chosen{};
  auto& made = chosen.recipe;
  try {
    made = parse_policies(joined(tokens, "+"));
  } catch (usage_error const& why) {
    throw usage_error(std::string{why.what()} + "; codecs are coo, binned, " + joined(index_codec_names) + "; " +
                      joined(value_codec_names));
  }
  codec.set(made, recipe, on_device);
  chosen.names_codec = !codec.none();
  chosen.names_values = codec.values && !codec.indices;
  option_setter set{options};
  std::visit(set, made.selector);
  std::visit(set, made.partitioner);
  std::visit(set, made.residual);
  std::visit(set, made.exchange);
  if (made.codec == gs::codec_kind::packed) {
    std::visit(set, made.indices);
    std::visit(set, made.values);
  }
  set.finish(recipe);
  chosen.options = set.known();
  return chosen;
}

void code_all(compression& chosen, std::string const& recipe, bool shards) {
  auto& made = chosen.recipe;
  if (!chosen.names_codec || std::holds_alternative<gs::coded_all_reduce>(made.exchange)) return;
  auto const refuse_if = [&](bool refused, char const* why) {
    if (refused)
      throw usage_error("gradsieve: recipe '" + recipe + "' names a codec, which density 1 does not use" + why);
  };
  refuse_if(!chosen.names_values, ": all elements are sent, without indices: name values alone, such as int4");
  if (std::holds_alternative<gs::fp32>(made.values)) return;  // as the all-reduce sends them
  refuse_if(shards, " with shards: all elements are sent in full, as binary32");
  refuse_if(made.exchange.index() != 0, " with an exchange that the recipe names: leave it out, or name coded_all_reduce");
  made.exchange = gs::coded_all_reduce{};
}

void leave_shards(compression& chosen) {
  std::visit(
      []<class P>(P const&) {
        if constexpr (!std::is_same_v<typename P::default_exchange, gs::gather>)
          throw usage_error("gradsieve: partitioner " + std::string{P::name} +
                            " shares out the selection among ranks and sums it up on all of them, where shards need "
                            "whole or layerwise");
      },
      chosen.recipe.partitioner);
  if (chosen.recipe.exchange.index() != 0)
    throw usage_error("gradsieve: shards are exchanged by reduce_scatter: the recipe may not name an exchange");
  chosen.recipe.exchange = gs::reduce_scatter{};
}

names offered_recipes() {
  names all;
  for_each_offer([&]<class S, class P, class R>(S const&, P const&, R const&) {
    using gs::recipe_text::short_name;
    all.push_back(joined({std::string{short_name<S>()}, std::string{short_name<P>()}, std::string{short_name<R>()}},
                         "+"));
  });
  return all;
}

}  // namespace example
