// A recipe by name with its options, and whom its compressors exchange with.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>

#include <gradsieve/core/layout.hpp>
#include <gradsieve/run_time/any_communicator.hpp>
#include <gradsieve/run_time/any_compressor.hpp>

#include "../../recipes.hpp"
#include "policy_options.hpp"

namespace example {

/// What NaN and infinity in a gradient do: count as zero, make the exchange throw, or come out as NaN on every rank.
enum class bad_values { skip, fail, propagate };

/// A recipe by name and what goes with it.
struct compression {
  any_recipe recipe;         ///< with its density, the layers that pass through, and what NaN does
  bool names_codec = false;   ///< whether the recipe does
  bool names_values = false;  ///< whether its codec is values alone
  policy_options options;    ///< of all its policies, with their values
  gs::layout model;          ///< all layers that patterns are about; empty: those of the compressor
  bad_values on_non_finite = bad_values::skip;
  std::function<void(std::string const&)> warn;  ///< tells the user, from any thread; may be empty
  bool undo = false;  ///< whether what is pending before a step is kept, so that it can be undone

  /// Whether all elements are sent in every step, as they are.
  [[nodiscard]] bool sends_all() const {
    return !adapts(recipe) && !std::holds_alternative<gs::coded_all_reduce>(recipe.exchange) && recipe.density.ramp().final == 1 && recipe.density.ramp().steps == 0;
  }
};

/// The ranks of a node, and those of one place in their nodes.
template <class Space>
using nodes_of = gs::any_nodes<Space>;
template <class Space>
using communicator_of = gs::any_communicator_of<Space>;

/// Whom a compressor exchanges with: with all ranks alike, or by gs::two_level.
template <class Space>
using peers_of = std::variant<communicator_of<Space>, nodes_of<Space>>;

/// gradsieve::compiled and device_compressors.cu have what is compiled for it.
template <class Space>
using compressor_in = gs::any_compressor<menu, Space>;

inline names const index_codec_names = names_in(menu::indices{});
inline names const value_codec_names = names_in(menu::values{});

/// Policies and a codec by '+', in any order: "laplacian+deft+bf16". What is left open: radix, whole (layerwise with
/// adacomp), error_feedback, and packed with automatic indices and fp32 (with adacomp binned). For a device, where
/// messages have a fixed size: packed with elias_fano indices and fp32, and with deft and cyclic coo, or raw32.
/// @throws usage_error, for an option too that none of the policies has.
[[nodiscard]] compression parse_compression(std::string const& recipe, policy_options const& options,
                                            bool on_device = false);

/// With density 1, all elements are sent in the values that the recipe names, see gs::coded_all_reduce.
/// @throws usage_error where the recipe names more than these, and with shards
void code_all(compression& chosen, std::string const& recipe, bool shards);

/// From now on a rank wants the mean of its own shard alone, see gs::reduce_scatter. @throws usage_error with a
/// partitioner whose exchange sums up values
void leave_shards(compression& chosen);

/// Selectors, partitioners and residuals that are offered together: "radix+whole+error_feedback" and so on.
[[nodiscard]] names offered_recipes();

}  // namespace example
