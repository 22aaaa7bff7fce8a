// A compressor whose recipe is chosen by name at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/report.hpp>
#include <gradsieve/two_level.hpp>

#include "../../communicator.hpp"
#include "../../recipes.hpp"
#include "any_codec.hpp"
#include "policy_options.hpp"

namespace example {

/// What NaN and infinity in a gradient do: count as zero, make the exchange throw, or come out as NaN on every rank.
enum class bad_values { skip, fail, propagate };

/// A recipe by name and the numbers that go with it.
struct compression {
  named_policies policies;
  any_codec codec;
  bool names_codec = false;  ///< whether the recipe does
  policy_options options;    ///< of all its policies, with their values
  gs::warm_up density;       ///< one number where there are no steps
  names passthrough;         ///< patterns of layers that pass through
  std::uint64_t up_to = 0;   ///< elements of layers that pass through, whatever they are called
  gs::layout model;          ///< all layers that patterns are about; empty: those of the compressor
  bad_values on_non_finite = bad_values::skip;
  std::function<void(std::string const&)> warn;  ///< tells the user, from any thread; may be empty
  bool undo = false;    ///< whether what is pending before a step is kept, so that it can be undone
  bool shards = false;  ///< a rank wants the mean of its own shard alone, see gs::reduce_scatter
};

/// The ranks of a node, and those of one place in their nodes.
template <class Space>
using nodes_of = gs::two_level<communicator_of<Space>, communicator_of<Space>>;

/// Whom a compressor exchanges with: with all ranks alike, or by gs::two_level.
template <class Space>
using peers_of = std::variant<communicator_of<Space>, nodes_of<Space>>;

/// gs::compressor or gs::two_level_compressor in a space, without its recipe's type; see there.
template <class Space>
class any_compressor {
 public:
  virtual ~any_compressor() = default;
  /// `skipped`: layers whose update the caller will not use.
  virtual void exchange(peers_of<Space> const& peers, std::span<float> gradient, gs::skipped_layers skipped) = 0;
  virtual void exchange(peers_of<Space> const& peers, std::span<gs::float16> gradient, gs::skipped_layers skipped) = 0;
  virtual void exchange(peers_of<Space> const& peers, std::span<gs::bfloat16> gradient, gs::skipped_layers skipped) = 0;
  virtual gs::step_report report() = 0;  ///< of the last exchange; on a device this waits for it
  virtual void discard_step() = 0;
  virtual void rescale(float factor) = 0;
  virtual double residual_norm() = 0;
  virtual std::span<float const> residual() = 0;  ///< in memory of the space; with nodes of this rank's part
  virtual std::vector<std::byte> state() = 0;
  virtual void restore(std::span<std::byte const> bytes) = 0;
  virtual void absorb(std::span<std::byte const> bytes) = 0;
  [[nodiscard]] virtual gs::layout const& layers() const = 0;  ///< of the whole gradient
};

/// Policies and a codec by '+', in any order: "laplacian+deft+bf16". What is left open: radix, whole (layerwise with
/// adacomp), error_feedback, and packed with automatic indices and fp32 (with adacomp binned). For a device, where
/// messages have a fixed size: packed with fixed_width indices and fp32, and with deft and cyclic coo.
/// @throws usage_error, for an option too that none of the policies has.
[[nodiscard]] compression parse_compression(std::string const& recipe, policy_options const& options,
                                            bool on_device = false);

/// Selectors, partitioners and residuals that are built together: "radix+whole+error_feedback" and so on.
[[nodiscard]] names built_recipes();

/// A compressor for exchanges with such peers. @throws what gs::compressor and gs::two_level_compressor do; usage_error
/// for shards with a partitioner whose exchange sums up values, or with nodes.
[[nodiscard]] std::unique_ptr<any_compressor<gs::host>> make_compressor(gs::host where, compression const& chosen,
                                                                        gs::layout const& layers,
                                                                        peers_of<gs::host> const& peers);

}  // namespace example
