// Clusters with several ranks a node: dense sums inside of a node, a recipe's exchange across nodes.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
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
#include <gradsieve/host/node_exchange.hpp>
#include <gradsieve/recipe.hpp>
#include <gradsieve/step.hpp>

namespace gradsieve {

/// Two communicators of one rank: of the ranks of its node, and of the ranks that have the same place in their nodes,
/// one a node. All nodes have equally many ranks. With MPI, mpi::nodes makes them. With NCCL from 2.18 on, of a
/// communicator of all ranks: ncclCommSplit(all, node, rank, &inside, nullptr), and ncclCommSplit(all, place, rank,
/// &across, nullptr); before that, ncclCommInitRank with an id for each node and one for each place.
template <communicator Inside, communicator Across>
struct two_level {
  Inside inside;
  Across across;

  /// Of all nodes together, numbered node by node.
  [[nodiscard]] int size() const { return inside.size() * across.size(); }
  [[nodiscard]] int rank() const { return across.rank() * inside.size() + inside.rank(); }
};
template <class Inside, class Across>
two_level(Inside, Across) -> two_level<Inside, Across>;

/// A compressor for nodes with several ranks, in three parts: a dense reduce-scatter inside of the node, from which
/// each rank has the mean of one part of the gradient; a compressor's exchange of that part with the ranks of equal
/// place in the other nodes; an all-gather inside. Selection, residual and messages are those of a part: what crosses
/// between nodes does not depend on the ranks in them, and a rank selects from 1 / ranks of the elements.
/// The result is the mean over nodes of what these sent, and a node's gradient is the mean of its ranks', summed in the
/// order of the inner transport (threads: by rank), as binary32, divided, and for float16 and bfloat16 rounded once.
/// All ranks end with the same bits; with `reduce_scatter` across, those of a node do: with its shard of each part, and
/// zeros elsewhere. At density 1 that is dense_mean across of dense_mean inside; the last bits differ
/// from a dense_mean of all ranks, as the sum has another order. An inner sum is plain: infinite beyond binary32, and
/// an element that is not finite on one rank is left out for its node.
/// When not: one rank a node, or links inside that are no faster than those across: take a compressor of all ranks.
/// Cost: inside, a reduce-scatter of binary32 and an all-gather of the gradient's format, where a transport has no
/// reduce_scatter an all_reduce; two meetings of 20 bytes on the host, one of 4 bytes on a device; across, that of a
/// compressor for n / ranks elements. Memory: the compressor's of a part; n / ranks floats; and for 16-bit formats, and
/// where n is not a multiple of the ranks, a copy of the gradient as binary32.
/// A layer that lies in two parts is one in each: its budget, its scale, and the size that `passthrough.up_to` looks at
/// are the parts'.
///
/// Failures, on the host: whoever fails, all ranks of its node throw; where a rank fails before the sum inside, all of
/// all nodes. A node is then what a rank is to a compressor: if one of its ranks fails before the sum, the node's
/// gradients of this step do not enter its residuals, those of other nodes do. If the exchange of one place fails, the
/// others take back what they have given up, with discard_step(); their part of the gradient stays in the residual,
/// and they have one step more behind them than those that failed.
/// On a device what fails in the stream is thrown by the report, of all ranks of the node, or by the next call. The
/// failed part of the gradient is of no use then; call discard_step() on every rank, which changes nothing where the
/// exchange had failed. A rank that throws at once leaves others waiting, as with a compressor.
template <space Space, class Recipe>
class two_level_compressor {
  using node_exchange = typename Space::node_exchange;

 public:
  using compressor_type = compressor<Space, Recipe>;
  using report_type = std::remove_cvref_t<decltype(std::declval<node_exchange const&>().report(
      std::declval<typename compressor_type::report_type const&>()))>;  ///< step_report, or a device_node_report

  /// `layers`, of the whole gradient, and the recipe are equal on all ranks. ranks: local.
  /// @throws as a compressor's constructor.
  template <class Inside, class Across>
  two_level_compressor(Space where, layout layers, Recipe recipe, two_level<Inside, Across> const& ranks)
      : part_{layers.size(), ranks.inside.size(), ranks.inside.rank()},
        layers_{std::move(layers)},
        recipe_hash_{recipe.hash()},
        compressor_{where, part_.cut(layers_), std::move(recipe)},
        node_{where, part_} {}

  /// As compressor::exchange(), for all ranks of all nodes; its report is of this rank's part, and counts the bytes
  /// that go across. Allocates in the first step, and the first with another format.
  /// @throws as compressor::exchange(); invalid_argument if the node has other ranks than at construction; mismatch if
  /// ranks of a node differ in layout or recipe; communication_error if another rank of the node has failed.
  template <class Inside, class Across, class Gradient>
  report_type exchange(two_level<Inside, Across> const& ranks, Gradient&& gradient) {
    run(ranks, node_exchange::span_of(gradient), {});
    return report();
  }

  /// As compressor::fail(): takes part in an exchange() of the other ranks as one that has failed. On the host only.
  template <class Inside, class Across, class Gradient>
    requires std::same_as<Space, host>
  void fail(two_level<Inside, Across> const& ranks, Gradient&& gradient) {
    try {
      run(ranks, node_exchange::span_of(gradient), held_failure::by_caller());
    } catch (held_failure::called_for const&) {
    }
  }

  /// Of the last step.
  [[nodiscard]] report_type report() const { return node_.report(compressor_.report()); }

  /// As compressor::discard_step(). Call it on every rank.
  void discard_step() { compressor_.discard_step(); }
  /// As compressor::rescale().
  void rescale(float factor) { compressor_.rescale(factor); }
  /// As compressor's, of this rank's part: for the same place in a node of as many ranks.
  [[nodiscard]] std::vector<std::byte> state() { return compressor_.state(); }
  void restore(std::span<std::byte const> bytes) { compressor_.restore(bytes); }

  /// What exchanges this rank's part: its residual, its step, its layers. Call no exchange() of it.
  [[nodiscard]] compressor_type& part_compressor() noexcept { return compressor_; }
  [[nodiscard]] compressor_type const& part_compressor() const noexcept { return compressor_; }

  /// Which part of the gradient that is.
  [[nodiscard]] node_share const& part() const noexcept { return part_; }
  /// Of the whole gradient.
  [[nodiscard]] layout const& layers() const noexcept { return layers_; }
  [[nodiscard]] Recipe const& recipe() const { return compressor_.recipe(); }

 private:
  template <class Inside, class Across, class T>
  void run(two_level<Inside, Across> const& ranks, std::span<T> gradient, held_failure failure) {
    static_assert(has_all_reduce<Inside, Space, float> && has_all_reduce<Inside, Space, std::uint32_t> &&
                      has_all_gather<Inside, Space>,
                  "two_level: the communicator inside of a node needs all_reduce for float and std::uint32_t, and "
                  "all_gather, in this space");
    static_assert(stream_ordered_fits<Inside>, "this communicator's stream_ordered must be a static constexpr bool");
    static_assert(!Space::stream_ordered || stream_ordered_communicator<Inside>,
                  "two_level: the communicator inside of a node does not work in stream order: hand it over as "
                  "staged{comm}");
    if (!here_) throw invalid_argument("gradsieve: this compressor was moved from");
    typename node_exchange::arithmetic const exact;
    auto const check = [&] {
      if (ranks.inside.size() != part_.ranks || ranks.inside.rank() != part_.rank)
        throw invalid_argument("gradsieve: rank " + std::to_string(ranks.inside.rank()) + " of a node of " +
                               std::to_string(ranks.inside.size()) + ", this compressor is rank " +
                               std::to_string(part_.rank) + "'s of a node of " + std::to_string(part_.ranks));
      check_gradient_size(gradient.size(), part_.n);
      node_.template reserve<T, has_reduce_scatter<Inside, Space, float>>();
    };
    if constexpr (node_exchange::holds_failures)
      failure.attempt(check);
    else
      check();
    constexpr std::uint64_t format = sizeof(T) + (std::same_as<T, bfloat16> ? 1 : 0);  // both halves have two bytes
    node_.meet(ranks.inside, layers_.hash() ^ layers_.size() * format, recipe_hash_, failure);
    failure.attempt([&] { node_.average(ranks.inside, gradient); });
    auto const values = node_.template values<T>();
    if (failure) {
      try {  // so that the other nodes learn of it
        compressor_.fail(ranks.across, values);
      } catch (...) {  // theirs; this rank throws its own
      }
    } else {
      failure.attempt([&] { compressor_.exchange(ranks.across, values); });
    }
    node_.collect(ranks.inside, gradient, failure, compressor_);
  }

  presence here_;
  node_share part_;
  layout layers_;
  std::uint64_t recipe_hash_;
  compressor_type compressor_;
  node_exchange node_;
};

}  // namespace gradsieve
