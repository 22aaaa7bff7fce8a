// Clusters with several ranks per node: dense sums within a node, a recipe's exchange between nodes.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/compressor.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/arguments.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/node_share.hpp>
#include <gradsieve/core/passthrough_layers.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/skipped_layers.hpp>
#include <gradsieve/host/node_exchange.hpp>
#include <gradsieve/mean_factor.hpp>
#include <gradsieve/step/parts.hpp>
#include <gradsieve/step/recipe.hpp>
#include <gradsieve/step/stages.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Two communicators of one rank: one of the ranks of its node, and one of the ranks with the same position in other
/// nodes. All nodes have equally many ranks. With MPI, mpi::nodes creates both. With NCCL 2.18 or newer, split a
/// communicator of all ranks: `ncclCommSplit(all, node, rank, &inside, nullptr)` and `ncclCommSplit(all, place, rank,
/// &across, nullptr)`; with older versions call ncclCommInitRank with an id per node and one per position.
template <communicator Inside, communicator Across>
struct two_level {
  Inside inside;  ///< the ranks of this node
  Across across;  ///< one rank of each node

  [[nodiscard]] int size() const { return inside.size() * across.size(); }  ///< ranks of all nodes
  [[nodiscard]] int rank() const { return across.rank() * inside.size() + inside.rank(); }  ///< numbered node by node
};
/// Deduces both types.
template <class Inside, class Across>
two_level(Inside, Across) -> two_level<Inside, Across>;

/// As mean_factor(comm, weight), among the ranks of all nodes. On a device both communicators are through_device. Ranks
/// that begin an exchange meanwhile are not found, and all may wait.
template <communicator Inside, communicator Across>
[[nodiscard]] float mean_factor(two_level<Inside, Across> const& ranks, double weight) {
  auto const node = detail::sum_of_weights(ranks.inside, detail::checked_weight(weight), [](std::size_t) {});
  auto const sum = detail::sum_of_weights(ranks.across, node, [](std::size_t r) {
    detail::refuse_weight("a rank of node", r);
  });
  return detail::share_of(weight, sum, ranks.size());
}

namespace detail {

/// The compressor of a recipe; run_time/any_compressor.hpp has that of an any_recipe.
template <class Space, class Recipe>
struct compressor_of {
  using type = compressor<Space, Recipe>;
};

}  // namespace detail

/// A compressor for nodes with several ranks. A step has three parts: a dense reduce-scatter within the node, which
/// leaves on each rank the mean of one part of the gradient; a compressor's exchange of that part with the ranks that
/// have the same position in the other nodes; an all-gather within the node. Each rank selects from its part, 1 / ranks
/// of the elements, so the traffic between nodes does not depend on the number of ranks per node.
///
/// The result is the mean over the nodes of what they sent. A node's gradient is the mean of its ranks' gradients,
/// summed as binary32 in the order of the inner transport (threads: by rank), and rounded once for float16 and
/// bfloat16. All ranks end with the same bits; with `reduce_scatter` across nodes only the ranks of one node do: they
/// have their shard of each part, and zeros elsewhere. At density 1 the result equals a dense_mean across nodes of a
/// dense_mean within them; a dense_mean of all ranks sums in another order and may differ in the last bits. A sum
/// within a node that exceeds binary32 is infinite; an element that is not finite on one rank is left out for its node.
/// A layer that lies in two parts counts as one layer in each: for its budget, its scale, and `passthrough.up_to`.
/// When not: with one rank per node, or if links within a node are no faster than those between nodes; use a compressor
/// of all ranks.
/// Cost: within the node, a reduce-scatter of binary32 (an all_reduce if the transport has no reduce_scatter), an
/// all-gather of the gradient's format, and two collectives of 28 bytes on the host, or one of 4 bytes on a device;
/// between nodes, that of a compressor for n / ranks elements.
/// Memory: the compressor's for a part; n / ranks floats; for 16-bit formats, and if n is not a multiple of the ranks,
/// also a copy of the gradient as binary32.
///
/// Failures on the host: if a rank fails, all ranks of its node throw. If it fails before the sum within the node, all
/// ranks of all nodes throw; this step's gradients do not enter the residuals of its node, but those of the other nodes
/// do. If the exchange at one position fails, the other ranks of the nodes discard the step too: their part of the
/// gradient stays in the residual, and their step count is one ahead of the failed ranks'. On a device, a failure in
/// the stream is thrown by the report of every rank of the node, or by the next call. The failed part of the gradient
/// is then not valid; call discard_step() on every rank (it has no effect where the exchange failed). A rank that
/// throws at once leaves the others waiting, as with a compressor.
/// @include two_level.cpp
template <space Space, class Recipe>
class two_level_compressor {
  using node_part = typename Space::node_exchange;
  static_assert(node_exchange<node_part, Space>, "this space's node_exchange lacks a member: see the concept");

 public:
  /// The compressor that exchanges this rank's part.
  using compressor_type = typename detail::compressor_of<Space, Recipe>::type;
  using report_type = std::remove_cvref_t<decltype(std::declval<node_part const&>().report(
      std::declval<typename compressor_type::report_type const&>()))>;  ///< step_report, or a device_node_report

  /// A compressor for this rank's part. `layers`, of the whole gradient, and the recipe are equal on all ranks. Local.
  /// @throws invalid_argument, device_error as compressor's constructor.
  template <class Inside, class Across>
  two_level_compressor(Space where, layout layers, Recipe recipe, two_level<Inside, Across> const& ranks)
      : part_{layers.size(), detail::world_of(ranks.inside), ranks.inside.rank()},
        layers_{std::move(layers)},
        recipe_hash_{recipe.hash()},
        compressor_{where, part_.cut(layers_), std::move(recipe)},
        node_{where, part_} {
    check_names(compressor_.recipe(), layers_);  // the part's compressor cannot check them
  }

  /// As compressor::exchange(), for all ranks of all nodes. The report is that of this rank's part and counts the bytes
  /// between nodes. Collective. Allocates in the first step, and in the first one with another format. @throws also
  /// invalid_argument if the node has other ranks than at construction; mismatch if ranks of a node differ in layout or
  /// recipe; communication_error if another rank of the node has failed.
  ///
  /// Skipped layers are layers of the whole gradient: they are summed within the node, and stay in the residuals of its
  /// ranks. On a device they are compared between nodes, but not between ranks of one node.
  template <class Inside, class Across, class Gradient>
  report_type exchange(two_level<Inside, Across> const& ranks, Gradient&& gradient, skipped_layers const skipped = {}) {
    run(ranks, detail::writable<Gradient>(node_part::gradient_of(gradient, layers())), skipped, {});
    return report();
  }

  /// As compressor::fail(): takes part in an exchange() of the other ranks as a failed rank. On the host only.
  template <class Inside, class Across, class Gradient>
    requires std::same_as<Space, host>
  void fail(two_level<Inside, Across> const& ranks, Gradient&& gradient) {
    try {
      auto const unused = detail::writable<Gradient&>(node_part::gradient_of(gradient, layers()));
      run(ranks, unused, {}, detail::held_failure::by_caller());
    } catch (detail::held_failure::called_for const&) {
    }
  }

  /// The report of the last step, of this rank's part.
  [[nodiscard]] report_type report() const { return node_.report(alive().compressor_.report()); }

  void discard_step() { compressor_.discard_step(); }  ///< as compressor::discard_step(); call it on every rank
  void rescale(float factor) { compressor_.rescale(factor); }  ///< as compressor::rescale()
  /// As compressor::state(), of this rank's part: for the same position in a node with as many ranks.
  [[nodiscard]] std::vector<std::byte> state() { return compressor_.state(); }
  void restore(std::span<std::byte const> bytes) { compressor_.restore(bytes); }  ///< as compressor::restore()

  /// The compressor of this rank's part: its residual, its step, its layers. Do not call its exchange().
  [[nodiscard]] compressor_type& part_compressor() { return alive(), compressor_; }
  /// @copydoc part_compressor()
  [[nodiscard]] compressor_type const& part_compressor() const { return alive().compressor_; }

  [[nodiscard]] node_share const& part() const { return alive().part_; }  ///< the part that this rank exchanges
  [[nodiscard]] layout const& layers() const { return alive().layers_; }  ///< the layers of the whole gradient
  [[nodiscard]] Recipe const& recipe() const { return compressor_.recipe(); }  ///< of the exchange across nodes
  /// As compressor::passing(), of the whole gradient.
  [[nodiscard]] std::vector<layer> passing() const { return gradsieve::passing(layers_, recipe().passthrough); }
  /// As compressor::describe(), of the whole gradient.
  [[nodiscard]] std::string describe() const { return detail::describe_recipe(recipe(), layers_); }

 private:
  two_level_compressor const& alive() const {
    if (!here_) throw invalid_argument("gradsieve: this compressor was moved from");
    return *this;
  }

  template <class Inside, class Across, class T>
  void run(two_level<Inside, Across> const& ranks, gradient_ref<T> const gradient, skipped_layers const skipped,
           detail::held_failure failure) {
    static_assert(has_all_reduce<Inside, Space, float> && has_all_reduce<Inside, Space, std::uint32_t> &&
                      has_all_gather<Inside, Space>,
                  "two_level: the communicator within a node needs all_reduce for float and std::uint32_t, and "
                  "all_gather, in this space");
    static_assert(detail::stream_ordered_fits<Inside>,
                  "this communicator's stream_ordered must be a static constexpr bool");
    static_assert(!Space::stream_ordered || stream_ordered_communicator<Inside>,
                  "two_level: the communicator within a node does not work in stream order: pass it as "
                  "staged{comm}");
    typename node_part::arithmetic const exact;
    auto const check = [&] {
      if (ranks.inside.size() != part_.ranks || ranks.inside.rank() != part_.rank)
        throw invalid_argument("gradsieve: rank " + std::to_string(ranks.inside.rank()) + " of a node of " +
                               std::to_string(ranks.inside.size()) + ", this compressor is rank " +
                               std::to_string(part_.rank) + "'s of a node of " + std::to_string(part_.ranks));
      node_.template reserve<has_reduce_scatter<Inside, Space, float>>(gradient, layers_);
      skipped.check(layers_.count());
      part_.cut(layers_, skipped, skipped_);
    };
    if constexpr (node_part::holds_failures)
      failure.attempt(check);
    else
      check();
    constexpr std::uint64_t format = sizeof(T) + (std::same_as<T, bfloat16> ? 1 : 0);  // float16 and bfloat16 differ
    node_.meet(ranks.inside, layers_.identity() ^ layers_.size() * format, recipe_hash_, skipped.hash(), failure);
    failure.attempt([&] { node_.average(ranks.inside, gradient); });
    auto const values = node_.template values<T>();
    if (failure) {
      try {  // passes the failure to the other nodes
        compressor_.fail(ranks.across, values);
      } catch (...) {  // this rank throws its own
      }
    } else {
      failure.attempt([&] { compressor_.exchange(ranks.across, values, skipped_layers{skipped_}); });
    }
    node_.collect(ranks.inside, gradient, failure, compressor_);
  }

  detail::presence here_;
  node_share part_;
  layout layers_;
  std::uint64_t recipe_hash_;
  std::vector<unsigned char> skipped_;  // layers of this part in this step; empty: none
  compressor_type compressor_;
  node_part node_;
};

}  // namespace gradsieve
