// The plan that finishes first, exactly.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <ostream>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/schedule/arrivals.hpp>
#include <gradsieve/text.hpp>

namespace gradsieve {

/// Between last groups that finish together (to 1e-12 of the whole): the one with the fewest groups before it, or the
/// one that begins latest, which leaves less to the last group where the cost turns out higher.
enum class ties { fewest_groups, latest };

namespace schedule_detail {

/// The states of the recurrence F(j) = min over i < j of max(F(i), ready(j - 1)) + cost(bytes(i, j)), where F(j) is
/// the least finish of the first j gradients. F never falls, as a gradient less never finishes later.
class shortest_finish {
 public:
  template <cost_model Cost>
  shortest_finish(arrivals const& in, Cost const& cost, ties rule)
      : finish_(in.count() + 1), groups_(in.count() + 1), from_(in.count() + 1), rule_{rule} {
    std::size_t const n = in.count();
    if (n == 0) return;
    double const scale = std::max(in.ready(n - 1), static_cast<double>(cost(in.bytes(0, n))));
    grain_ = scale > 0 ? 1e-12 * scale : 1;
  }

  [[nodiscard]] double operator[](std::size_t i) const noexcept { return finish_[i]; }
  /// Begins the search for F(j).
  void open() noexcept { best_grade_ = std::numeric_limits<double>::infinity(); }
  [[nodiscard]] double best() const noexcept { return best_; }
  [[nodiscard]] double grain() const noexcept { return grain_; }

  /// A last group that begins with gradient i and finishes then.
  void consider(std::size_t i, double finish) noexcept {
    double const grade = grade_of(finish);
    if (!before(grade, i, best_grade_, best_from_)) return;
    best_grade_ = grade;
    best_from_ = i;
    best_ = finish;
  }
  void close(std::size_t j) noexcept {
    finish_[j] = best_;
    from_[j] = best_from_;
    groups_[j] = groups_[best_from_] + 1;
  }

  /// Values that differ by less than the grain may have one grade; grades are ordered without a tolerance.
  [[nodiscard]] double grade_of(double value) const noexcept { return std::floor(value / grain_); }
  /// Whether to begin with gradient i is preferred to gradient k.
  [[nodiscard]] bool before(double grade, std::size_t i, double other, std::size_t k) const noexcept {
    if (grade != other) return grade < other;
    if (rule_ == ties::fewest_groups && groups_[i] != groups_[k]) return groups_[i] < groups_[k];
    return i > k;
  }

  [[nodiscard]] std::vector<std::size_t> ends() const {
    std::vector<std::size_t> ends;
    for (std::size_t j = finish_.size() - 1; j > 0; j = from_[j]) ends.push_back(j);
    std::reverse(ends.begin(), ends.end());
    return ends;
  }

 private:
  std::vector<double> finish_;
  std::vector<std::uint32_t> groups_;
  std::vector<std::size_t> from_;
  ties rule_;
  double grain_ = 1;
  double best_ = 0;
  double best_grade_ = 0;
  std::size_t best_from_ = 0;
};

/// Any cost: all pairs, but for last groups that alone take longer than the best.
template <cost_model Cost>
[[nodiscard]] std::vector<std::size_t> optimal_ends(arrivals const& in, Cost const& cost, ties rule) {
  shortest_finish state{in, cost, rule};
  for (std::size_t j = 1; j <= in.count(); ++j) {
    double const ready = in.ready(j - 1);
    state.open();
    for (std::size_t i = j; i-- > in.first_with(j);) {
      double const took = cost(in.bytes(i, j));
      if (i + 1 < j && ready + took > state.best() + 2 * state.grain()) break;  // and so do all longer ones
      state.consider(i, std::max(state[i], ready) + took);
    }
    state.close(j);
  }
  return state.ends();
}

/// Costs that are the least of affine pieces. A last group that begins with i finishes at
///   ready + cost(bytes)       where F(i) <= ready: the largest such i is the best, and only moves on;
///   F(i) - b S(i) + a + b S(j) for a piece a, b otherwise: the least key F(i) - b S(i), kept in a monotone queue.
[[nodiscard]] inline std::vector<std::size_t> optimal_ends(arrivals const& in, std::span<affine const> pieces,
                                                           ties rule) {
  envelope const cost{{pieces.begin(), pieces.end()}};
  struct candidate {
    double key;
    double grade;
    std::size_t i;
  };
  struct queue {
    std::vector<candidate> all;
    std::size_t front = 0;
  };
  std::vector<queue> queues(pieces.size());
  shortest_finish state{in, cost, rule};
  std::size_t free = 0;  // the last i with F(i) <= ready
  for (std::size_t j = 1; j <= in.count(); ++j) {
    double const ready = in.ready(j - 1);
    std::size_t const first = in.first_with(j);
    while (free + 1 < j && state[free + 1] <= ready) ++free;
    state.open();
    if (free >= first) state.consider(free, std::max(state[free], ready) + cost(in.bytes(free, j)));
    for (std::size_t q = 0; q < pieces.size(); ++q) {
      auto& [all, front] = queues[q];
      double const key = state[j - 1] - pieces[q].b * in.bytes_before(j - 1);
      double const grade = state.grade_of(key);
      while (all.size() > front && !state.before(all.back().grade, all.back().i, grade, j - 1)) all.pop_back();
      all.push_back({key, grade, j - 1});
      while (front < all.size() && (all[front].i <= free || all[front].i < first)) ++front;
      if (front < all.size())
        state.consider(all[front].i, all[front].key + pieces[q].a + pieces[q].b * in.bytes_before(j));
    }
    state.close(j);
  }
  return state.ends();
}

}  // namespace schedule_detail

/// Merges so that the last group finishes as early as it can, for one stream and the given constraints. The default.
/// Cost: O(L) for affine costs and for each piece of an envelope, O(L^2) for other costs, and where a piece costs
/// nothing a byte and ties are broken by fewest_groups. Memory: O(L).
/// When not: costs that are far off, above all seconds a byte that are too high; see `robust`.
struct optimal {
  ties rule = ties::fewest_groups;

  template <cost_model Cost>
  [[nodiscard]] grouping operator()(arrivals const& in, Cost const& cost) const {
    if constexpr (std::same_as<Cost, affine>) {
      return {ends(in, std::span{&cost, 1}, cost), 0.0, {}};
    } else if constexpr (std::same_as<Cost, envelope>) {
      return {ends(in, cost.pieces, cost), 0.0, {}};
    } else {
      return {schedule_detail::optimal_ends(in, cost, rule), 0.0, {}};
    }
  }
  friend bool operator==(optimal const&, optimal const&) = default;
  friend std::ostream& operator<<(std::ostream& out, optimal const& it) {
    return describe(out, it.rule == ties::latest ? "optimal_latest" : "optimal");
  }

 private:
  template <cost_model Cost>
  [[nodiscard]] std::vector<std::size_t> ends(arrivals const& in, std::span<affine const> pieces,
                                              Cost const& cost) const {
    bool const flat = std::any_of(pieces.begin(), pieces.end(), [](affine const& piece) { return piece.b == 0; });
    if (flat && rule == ties::fewest_groups) return schedule_detail::optimal_ends(in, cost, rule);
    return schedule_detail::optimal_ends(in, pieces, rule);
  }
};

}  // namespace gradsieve
