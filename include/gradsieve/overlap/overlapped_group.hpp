// One group of an overlap: its exchange, its buffer, and its report.
#pragma once

#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/passthrough_layers.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/overlap/group_exchange.hpp>
#include <gradsieve/overlap/group_map.hpp>
#include <gradsieve/plan/planners/arrivals.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// A group that is exchanged in place, or in a buffer if its layers are not contiguous.
template <class Exchange, class Comm, class T, class Queue>
struct overlapped_group {
  using report_type = std::remove_cvref_t<decltype(std::declval<Exchange&>().exchange(std::declval<Comm const&>(),
                                                                                      std::declval<std::span<T>>()))>;
  Exchange exchange;
  group_layers const& where;
  typename Queue::template buffer<T> packed;
  std::optional<report_type> report;   ///< of the last step; none if it failed on this rank
  std::vector<unsigned char> skipped;  ///< buffer for the group's layers that a step skips

  /// Allocates the buffer. @throws what make(layout) throws. @pre `group` outlives this object
  template <class Make>
  overlapped_group(Make const& make, Queue const& queue, group_layers const& group)
      : exchange(make(group.layers)), where{group}, packed{queue.template allocate<T>(group.packed_size())} {
    skipped.reserve(group.members.size());
  }

  /// One group need not have a layer for each pattern of its recipe, but `all` layers must. @throws invalid_argument
  void check_names_in(layout const& all) const {
    if constexpr (requires { check_names(exchange.recipe(), all); }) check_names(exchange.recipe(), all);
  }

  /// Allocates a buffer for a gradient in pieces, in the first call, if the exchange does not accept pieces.
  void reserve(Queue const& queue, gradient_ref<T> const gradient) {
    if constexpr (!pieces_exchange<Exchange, Comm, T>)
      if (auto const n = where.layers.size(); packed.size() < n && !is_together(gradient))
        packed = queue.template allocate<T>(n);
  }

  /// `of_all`: the layout's skipped layers. Collective. @pre reserve() of this gradient @throws exceptions of
  /// exchange() or, for a cancelled step, of fail().
  void run(Queue const& queue, Comm const& comm, gradient_ref<T> const gradient, bool cancelled,
           skipped_layers const of_all) {
    report.reset();
    auto const n = where.layers.size();
    if (n == 0) return;  // on all ranks
    if (where.packed_size() == 0) {
      auto const part = gradient.part(where.first(), n);
      if (is_together(gradient)) return exchange_or_fail(comm, part.run(0), cancelled, of_all);
      if constexpr (pieces_exchange<Exchange, Comm, T>) return exchange_or_fail(comm, part, cancelled, of_all);
    }
    auto const copy = [&](std::span<T> from, std::span<T> to) {
      queue.copy(std::as_bytes(from), std::as_writable_bytes(to));
    };
    auto const whole = packed.span();
    if (!cancelled) where.for_each_piece(gradient, whole, copy);
    exchange_or_fail(comm, whole, cancelled, of_all);
    if (!cancelled) where.for_each_piece(gradient, whole, [&](auto piece, auto place) { copy(place, piece); });
  }

 private:
  /// True if the group's elements are contiguous.
  [[nodiscard]] bool is_together(gradient_ref<T> const gradient) const noexcept {
    auto const n = where.layers.size();
    return where.packed_size() == 0 && (n == 0 || gradient.part(where.first(), n).run(0).size() == n);
  }

  template <class Gradient>
  void exchange_or_fail(Comm const& comm, Gradient const gradient, [[maybe_unused]] bool cancelled,
                        skipped_layers const of_all) {
    if constexpr (failing_exchange<Exchange, Comm, T>)
      if (cancelled) return void(exchange.fail(comm, gradient));
    report.emplace(exchange_without(comm, gradient, of_all));
  }

  template <class Gradient>
  [[nodiscard]] decltype(auto) exchange_without(Comm const& comm, Gradient const gradient,
                                                [[maybe_unused]] skipped_layers const of_all) {
    if constexpr (skipping_exchange<Exchange, Comm, T>) {
      skipped.clear();
      if (of_all.size() > 0)
        for (auto const each : where.members) skipped.push_back(of_all[each] ? 1 : 0);
      return exchange.exchange(comm, gradient, skipped);
    } else {
      return exchange.exchange(comm, gradient);
    }
  }
};

/// A step's report from its groups, their times, the seconds spent waiting, and the number of layers that were not
/// ready. Reads all reports before it throws the first failure, so that the next step does not throw another one.
template <class Groups>
[[nodiscard]] overlap_report report_of(Groups const& groups, std::span<group_times const> times, double exposed,
                                       std::size_t not_ready) {
  overlap_report all{{}, 0, exposed, not_ready};
  for (auto const& each : times) all.busy += each.finish - each.start;
  std::exception_ptr first;
  for (auto const& each : groups) try {
      if (each.report) all.exchanged.add(*each.report);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  if (first) std::rethrow_exception(first);
  return all;
}

}  // namespace gradsieve::detail
