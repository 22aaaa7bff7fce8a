// The positions of a plan's groups in a flat gradient.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fingerprint.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/plan/plan.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The layers of one group, in the layout's order, and their positions in the gradient.
struct group_layers {
  layout layers;
  std::vector<range> pieces;         ///< neighbours joined, without empty layers
  std::vector<std::size_t> members;  ///< numbers of the layers in the layout

  [[nodiscard]] std::size_t first() const noexcept { return pieces.empty() ? 0 : pieces.front().offset; }

  /// Elements of the group's buffer; 0 if the group is one piece and can stay in place.
  [[nodiscard]] std::size_t packed_size() const noexcept { return pieces.size() > 1 ? layers.size() : 0; }

  /// Calls copy(a piece of the gradient, its place in `packed`) for all pieces; in `packed` they are contiguous.
  template <class T, class Copy>
  void for_each_piece(std::type_identity_t<gradient_ref<T>> const gradient, std::span<T> packed,
                      Copy const& copy) const {
    std::size_t at = 0;
    for (auto const& each : pieces)
      gradient.for_each_run(each.offset, each.size, [&](std::span<T> const run) {
        copy(run, packed.subspan(at, run.size()));
        at += run.size();
      });
  }
};

/// A plan, whose layers are in ready order, mapped to a layout.
class group_map {
 public:
  group_map() = default;

  /// `ready_order[i]` is the layout's number of the plan's layer i; empty: the last layer is ready first. @throws
  /// invalid_argument unless it is a permutation and the layers' bytes, of `value_bytes` per element, are the plan's.
  group_map(layout const& layers, plan const& chosen, std::vector<std::size_t> ready_order, std::size_t value_bytes)
      : order_{std::move(ready_order)}, place_(layers.count(), layers.count()) {
    auto const count = layers.count();
    if (order_.empty()) {
      order_.resize(count);
      std::iota(order_.rbegin(), order_.rend(), std::size_t{0});
    }
    if (order_.size() != count || chosen.count() != count)
      throw invalid_argument("gradsieve: the layout has " + std::to_string(count) + " layers, the ready order " +
                             std::to_string(order_.size()) + ", the plan " + std::to_string(chosen.count()));
    for (std::size_t i = 0; i < count; ++i) {
      auto const at = order_[i];
      if (at >= count || place_[at] != count)
        throw invalid_argument("gradsieve: the ready order names layer " + std::to_string(at) +
                               (at >= count ? ", the layout has " + std::to_string(count) : " twice"));
      place_[at] = i;
      if (layers[at].size * value_bytes != chosen.bytes_of(i))
        throw invalid_argument("gradsieve: layer '" + layers[at].name + "' has " +
                               std::to_string(layers[at].size * value_bytes) + " bytes, the plan says " +
                               std::to_string(chosen.bytes_of(i)));
      ranges_.push_back({layers.offset(at), layers[at].size});
    }
    for (auto const& each : chosen.groups()) groups_.push_back(group_of(layers, each));
  }

  [[nodiscard]] std::size_t count() const noexcept { return place_.size(); }
  [[nodiscard]] std::vector<group_layers> const& groups() const noexcept { return groups_; }
  /// The plan's number of a layer of the layout.
  [[nodiscard]] std::size_t place_of(std::size_t layer) const noexcept { return place_[layer]; }
  [[nodiscard]] range const& range_of(std::size_t place) const noexcept { return ranges_[place]; }

  /// Checks that no rank has failed and that all ranks have equal layouts and orders. Collective. @throws `failure` if
  /// this rank has one; otherwise mismatch, on every rank.
  template <communicator Comm, class Space>
  static void require_equal(Space const& where, Comm const& comm, layout const& layers, group_map const& mine,
                            std::exception_ptr const& failure) {
    fingerprint order;
    for (auto const each : mine.order_) order.add(std::uint64_t{each});
    using word = std::array<std::uint64_t, 3>;
    word const own{layers.identity(), order.value(), failure ? 1u : 0u};
    std::vector<word> all(static_cast<std::size_t>(comm.size()));
    comm.all_gather(where, std::as_bytes(std::span{&own, 1}), std::as_writable_bytes(std::span{all}));
    if (failure) std::rethrow_exception(failure);
    for (std::size_t r = 0; r < all.size(); ++r) {
      auto const rank = "gradsieve: rank " + std::to_string(r);
      if (all[r][2] != 0) throw mismatch(rank + " could not set up its overlap");
      if (all[r][0] != all[0][0]) throw mismatch(rank + " and rank 0 differ in layout");
      if (all[r][1] != all[0][1]) throw mismatch(rank + " and rank 0 differ in ready order");
    }
  }

 private:
  [[nodiscard]] group_layers group_of(layout const& layers, plan_group const& chosen) const {
    std::vector<std::size_t> members(order_.begin() + static_cast<std::ptrdiff_t>(chosen.begin),
                                     order_.begin() + static_cast<std::ptrdiff_t>(chosen.end));
    std::sort(members.begin(), members.end());
    std::vector<layer> list;
    group_layers group;
    for (auto const at : members) {
      list.push_back(layers[at]);
      if (layers[at].size == 0) continue;
      if (!group.pieces.empty() && group.pieces.back().offset + group.pieces.back().size == layers.offset(at))
        group.pieces.back().size += layers[at].size;
      else
        group.pieces.push_back({layers.offset(at), layers[at].size});
    }
    group.layers = layers.part(std::move(list));
    group.members = std::move(members);
    return group;
  }

  std::vector<std::size_t> order_;  // numbers in the layout of the plan's layers
  std::vector<std::size_t> place_;  // numbers in the plan of the layout's layers
  std::vector<range> ranges_;       // of the plan's layers
  std::vector<group_layers> groups_;
};

}  // namespace gradsieve::detail
