// Plans from one pass that decides for each gradient when it is ready.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <ostream>

#include <gradsieve/core/text.hpp>
#include <gradsieve/plan/planners/arrivals.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// MG-WFBP: the next gradient joins the open group if waiting for it costs less than another startup. Each decision is
/// optimal for two groups, not for all: if gradients arrive faster than one startup the group never closes, and the
/// plan may take up to twice the optimum. With an affine cost the certificate bounds the loss: a merge that makes the
/// group wait costs at most its wait, and all other decisions lose nothing. Other costs are compared directly, without
/// a certificate; a finite cost is preferred to an infinite or NaN one. Throws invalid_argument if a group's cost is
/// negative, or if no choice is finite. Cost: O(L). Source: MG-WFBP (Shi et al., INFOCOM 2019).
struct mgwfbp {
  template <cost_model Cost>
  [[nodiscard]] grouping operator()(arrivals const& in, Cost const& cost) const {
    bool const bounded = std::same_as<Cost, affine> && !in.capped();
    return detail::decided(in, cost, bounded, [&](std::size_t begin, std::size_t i, double start) {
      double const ready = in.ready(i);
      if constexpr (std::same_as<Cost, affine>) {
        return ready - start < cost.a;
      } else {
        using detail::never, detail::seconds_of;
        double const open = seconds_of(cost, in.bytes(begin, i));
        double const next = seconds_of(cost, in.bytes(i, i + 1));
        double const merged = seconds_of(cost, in.bytes(begin, i + 1));
        if (!(open < never)) return true;  // it cannot close yet
        if (!(next < never && merged < never)) return merged < never;
        return std::max(start, ready) + merged < std::max(start + open, ready) + next;
      }
    });
  }
  friend bool operator==(mgwfbp const&, mgwfbp const&) = default;
  friend std::ostream& operator<<(std::ostream& out, mgwfbp const&) { return describe(out, "mgwfbp"); }
};

/// Merges only if that delays nothing: a gradient joins the open group if it is ready before the group could start. The
/// rule of ASC-WFBP, which also runs several collectives at once. A gradient does not join if that makes the group's
/// cost infinite or NaN. Throws invalid_argument if a group's cost is negative, infinite or NaN. When not: with slow
/// startups, as it starts more groups rather than wait. Cost: O(L). Source: Shi et al., INFOCOM 2021.
struct free_merge {
  template <cost_model Cost>
  [[nodiscard]] grouping operator()(arrivals const& in, Cost const& cost) const {
    return detail::decided(in, cost, false, [&](std::size_t begin, std::size_t i, double start) {
      using detail::never, detail::seconds_of;
      return in.ready(i) <= start &&
             (seconds_of(cost, in.bytes(begin, i + 1)) < never || !(seconds_of(cost, in.bytes(begin, i)) < never));
    });
  }
  friend bool operator==(free_merge const&, free_merge const&) = default;
  friend std::ostream& operator<<(std::ostream& out, free_merge const&) { return describe(out, "free_merge"); }
};

}  // namespace gradsieve
