// The plan with the earliest finish, exactly.
#pragma once

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <vector>

#include <gradsieve/core/text.hpp>
#include <gradsieve/plan/planners/arrivals.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Selects among plans with the same finish, to 1e-12 of the finish.
enum class ties {
  /// From the last group to the first, each is as long as the finish allows: few collectives take the least time and
  /// disturb computation the least. With affine costs no plan with this finish has fewer groups.
  fewest_groups,
  /// Each group begins as late as it can while the previous ones finish as early as they can: the last group is
  /// smaller, which helps if the cost turns out to be higher.
  latest
};

namespace detail {

/// The least finish F(j) of the first j gradients, for each j; `never` if no groups of them have finite costs. F(0) =
/// 0, and F(j) = min over i < j of max(F(i), ready(j - 1)) + cost(bytes(i, j)). Examines all pairs, except for groups
/// whose cost alone is known to exceed the best finish.
template <cost_model Cost>
[[nodiscard]] std::vector<double> least_finishes(arrivals const& in, Cost const& cost) {
  std::vector<double> least(in.count() + 1, 0.0);
  for (std::size_t j = 1; j <= in.count(); ++j) {
    double const ready = in.ready(j - 1);
    double best = never;
    for (std::size_t i = j; i-- > in.first_with(j);) {
      double const took = seconds_of(cost, in.bytes(i, j));
      if (rising_cost<Cost> && ready + took >= best) break;
      if (took < never && least[i] < never) best = std::min(best, std::max(least[i], ready) + took);
    }
    least[j] = best;
  }
  return least;
}

/// As above for an affine cost, in O(L). F never decreases, as one gradient less never finishes later. With S(i) bytes
/// before gradient i, F(i) - b S(i) never decreases either: without the gradients from i on, a plan finishes earlier by
/// at least b seconds for each of their bytes. So the best last group begins with the last i of F(i) <= ready, which
/// only increases, or with the next one.
[[nodiscard]] inline std::vector<double> least_finishes(arrivals const& in, affine const& cost) {
  std::vector<double> least(in.count() + 1, 0.0);
  std::size_t free = 0;  // the last i with F(i) <= ready
  for (std::size_t j = 1; j <= in.count(); ++j) {
    double const ready = in.ready(j - 1);
    while (free + 1 < j && least[free + 1] <= ready) ++free;
    std::size_t const behind = std::max(free + 1, in.first_with(j));
    double best = never;
    if (free >= in.first_with(j)) best = ready + cost(in.bytes(free, j));
    if (behind < j) best = std::min(best, least[behind] + cost(in.bytes(behind, j)));
    least[j] = best;
  }
  return least;
}

/// As above for the least of affine pieces, in O(L) for each piece. F never decreases here. A last group that begins
/// with i finishes at
///   ready + cost(bytes)   if F(i) <= ready: the last such i is the best, and only increases;
///   F(i) + piece(bytes)   for one of the pieces otherwise. Of i < k the later is as good for a piece, for any
///                         end, if F(k) - F(i) <= b (S(k) - S(i)): a monotone queue holds the relevant ones.
/// Differences of times are compared to differences of bytes: F(i) - b S(i) loses its digits if b is large.
[[nodiscard]] inline std::vector<double> least_finishes(arrivals const& in, envelope const& cost) {
  struct candidate {
    double finish;
    double bytes;  // before it
    std::size_t i;
  };
  struct queue {
    std::vector<candidate> all;
    std::size_t front = 0;
  };
  std::vector<queue> queues(cost.pieces.size());
  std::vector<double> least(in.count() + 1, 0.0);
  std::size_t free = 0;  // the last i with F(i) <= ready
  for (std::size_t j = 1; j <= in.count(); ++j) {
    double const ready = in.ready(j - 1);
    std::size_t const first = in.first_with(j);
    while (free + 1 < j && least[free + 1] <= ready) ++free;
    candidate const latest{least[j - 1], in.bytes_before(j - 1), j - 1};
    double best = never;
    for (std::size_t q = 0; q < queues.size(); ++q) {
      auto const& piece = cost.pieces[q];
      auto& [all, front] = queues[q];
      while (all.size() > front && latest.finish - all.back().finish <= piece.b * (latest.bytes - all.back().bytes))
        all.pop_back();
      all.push_back(latest);
      while (front < all.size() && (all[front].i <= free || all[front].i < first)) ++front;
      if (front < all.size()) best = std::min(best, all[front].finish + piece(in.bytes(all[front].i, j)));
      if (free >= first) best = std::min(best, ready + piece(in.bytes(free, j)));
    }
    least[j] = best;
  }
  return least;
}

/// Groups that finish by F(L), or later by less than the tolerance, from the last group to the first.
template <cost_model Cost>
class groups_in_time {
 public:
  groups_in_time(arrivals const& in, Cost const& cost, std::vector<double> const& least)
      : in_{in}, cost_{cost}, least_{least} {}

  /// Each begins as late as it can while the previous ones finish as early as they can. O(L).
  [[nodiscard]] std::vector<std::size_t> latest() const {
    double delay = slack();
    return from_the_back([&](std::size_t j) {
      double const deadline = least_[j] + delay;
      std::size_t i = j - 1;
      while (i > in_.first_with(j) && finish_of_last(i, j) > deadline) --i;
      if (finish_of_last(i, j) > deadline) i = best_begin(j);
      delay = std::max(0.0, deadline - finish_of_last(i, j));
      return i;
    });
  }

  /// Each is as long as the deadline of the previous groups allows. With an affine cost no plan in time has fewer: a
  /// shorter group leaves the previous ones at least as many more bytes as it leaves them more time. O(L) per group.
  [[nodiscard]] std::vector<std::size_t> fewest() const {
    double deadline = least_.back() + slack();
    return from_the_back([&](std::size_t j) {
      std::size_t i = in_.first_with(j);
      if constexpr (rising_cost<Cost>) {  // the first with which a ready group finishes in time
        for (std::size_t behind = j - 1; i < behind;) {
          std::size_t const middle = i + (behind - i) / 2;
          if (in_.ready(j - 1) + seconds_of(cost_, in_.bytes(middle, j)) <= deadline)
            behind = middle;
          else
            i = middle + 1;
        }
      }
      while (i < j && finish_of_last(i, j) > deadline) ++i;
      if (i == j) i = best_begin(j);
      deadline = std::max(least_[i], deadline - seconds_of(cost_, in_.bytes(i, j)));
      return i;
    });
  }

 private:
  [[nodiscard]] double slack() const noexcept { return 0.5 * time_tolerance * least_.back(); }

  /// The finish of a last group of gradients [i, j); `never` if that is forbidden.
  [[nodiscard]] double finish_of_last(std::size_t i, std::size_t j) const {
    double const took = least_[i] < never ? seconds_of(cost_, in_.bytes(i, j)) : never;
    return took < never ? std::max(least_[i], in_.ready(j - 1)) + took : never;
  }

  /// The i of F(j). It is in time, unless a compiler rounds one sum in two ways, as with -ffast-math.
  [[nodiscard]] std::size_t best_begin(std::size_t j) const {
    std::size_t best = in_.first_with(j);
    for (std::size_t i = best + 1; i < j; ++i)
      if (finish_of_last(i, j) < finish_of_last(best, j)) best = i;
    return best;
  }

  template <class Begin>
  [[nodiscard]] std::vector<std::size_t> from_the_back(Begin const& begin_of) const {
    std::vector<std::size_t> ends;
    for (std::size_t j = in_.count(); j > 0; j = begin_of(j)) ends.push_back(j);
    std::reverse(ends.begin(), ends.end());
    return ends;
  }

  arrivals const& in_;
  Cost const& cost_;
  std::vector<double> const& least_;
};

}  // namespace detail

/// Merges so that the last group finishes as early as possible, for one stream and the given constraints. The default.
/// Exact for any cost, also one that decreases with the size; no group has an infinite or NaN cost. Throws
/// invalid_argument if every plan has a group of infinite or NaN cost, or if a cost is negative.
/// When not: with a cost that is far off, above all with too many seconds per byte; ties::latest loses less.
/// Cost: O(L) for affine costs and for each piece of an envelope, O(L^2) for other costs; fewest_groups: O(L) more per
/// group.
struct optimal {
  ties rule = ties::fewest_groups;  ///< which of several optimal plans to choose

  template <cost_model Cost>
  [[nodiscard]] grouping operator()(arrivals const& in, Cost const& cost) const {
    using detail::never, detail::time_tolerance;
    auto const least = detail::least_finishes(in, cost);
    if (!(least.back() < never)) {
      std::size_t planned = in.count();
      while (!(least[planned] < never)) --planned;
      detail::refuse_infinite(in, planned);
    }
    detail::groups_in_time<Cost> const chosen{in, cost, least};
    auto ends = rule == ties::latest ? chosen.latest() : chosen.fewest();
    double const behind = finish_of(in, ends, cost) - least.back();
    return {std::move(ends), behind > time_tolerance * least.back() ? behind : 0.0, {}};
  }
  friend bool operator==(optimal const&, optimal const&) = default;
  friend std::ostream& operator<<(std::ostream& out, optimal const& it) {
    return describe(out, it.rule == ties::latest ? "optimal_latest" : "optimal");
  }
};

}  // namespace gradsieve
