// The plan that finishes first, exactly.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <ostream>
#include <span>
#include <vector>

#include <gradsieve/schedule/arrivals.hpp>
#include <gradsieve/text.hpp>

namespace gradsieve {

/// Which of the plans that finish together: the one with the fewest groups, whose collectives take the least time and
/// disturb computing the least; or, from the last group on, the one that begins latest, which leaves less to the last
/// group where the cost turns out higher.
enum class ties { fewest_groups, latest };

namespace schedule_detail {

/// The states of the recurrence F(j) = min over i < j of max(F(i), ready(j - 1)) + cost(bytes(i, j)), where F(j) is
/// the least finish of the first j gradients. F never falls, as a gradient less never finishes later. Of last groups
/// that finish together, to 1e-12 of the whole, the latest to begin is taken.
class shortest_finish {
 public:
  template <cost_model Cost>
  shortest_finish(arrivals const& in, Cost const& cost) : finish_(in.count() + 1), from_(in.count() + 1) {
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
    if (grade > best_grade_ || (grade == best_grade_ && i < best_from_)) return;
    best_grade_ = grade;
    best_from_ = i;
    best_ = finish;
  }
  void close(std::size_t j) noexcept {
    finish_[j] = best_;
    from_[j] = best_from_;
  }

  /// Values that differ by less than the grain may have one grade; grades are ordered without a tolerance.
  [[nodiscard]] double grade_of(double value) const noexcept { return std::floor(value / grain_); }

  [[nodiscard]] std::vector<std::size_t> latest() const {
    std::vector<std::size_t> ends;
    for (std::size_t j = finish_.size() - 1; j > 0; j = from_[j]) ends.push_back(j);
    std::reverse(ends.begin(), ends.end());
    return ends;
  }

  /// The fewest groups that are through by then: from the back, each is as long as the deadline of what is before it
  /// allows. With an affine cost no optimal plan has fewer: a shorter group leaves to those before it at least as many
  /// bytes more as it leaves them time.
  template <cost_model Cost>
  [[nodiscard]] std::vector<std::size_t> fewest(arrivals const& in, Cost const& cost) const {
    std::vector<std::size_t> ends;
    std::size_t j = finish_.size() - 1;
    double deadline = finish_[j];
    while (j > 0) {
      ends.push_back(j);
      std::size_t begin = from_[j];
      auto const in_time = [&](std::size_t i, double earliest) {
        return earliest <= deadline - cost(in.bytes(i, j)) + grain_;
      };
      std::size_t first = in.first_with(j);  // beginning with it, the group is through in time once it is ready
      for (std::size_t behind = begin; first < behind;) {
        std::size_t const middle = first + (behind - first) / 2;
        if (in_time(middle, in.ready(j - 1)))
          behind = middle;
        else
          first = middle + 1;
      }
      while (first < begin && !in_time(first, finish_[first])) ++first;
      if (first < begin) begin = first;
      double const left = deadline - cost(in.bytes(begin, j));
      deadline = std::max(left, finish_[begin]);
      j = begin;
    }
    std::reverse(ends.begin(), ends.end());
    return ends;
  }

 private:
  std::vector<double> finish_;
  std::vector<std::size_t> from_;
  double grain_ = 1;
  double best_ = 0;
  double best_grade_ = 0;
  std::size_t best_from_ = 0;
};

/// Any cost: all pairs, but for last groups that alone take longer than the best.
template <cost_model Cost>
[[nodiscard]] shortest_finish solved(arrivals const& in, Cost const& cost) {
  shortest_finish state{in, cost};
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
  return state;
}

/// Costs that are the least of affine pieces. A last group that begins with i finishes at
///   ready + cost(bytes)       where F(i) <= ready: the largest such i is the best, and only moves on;
///   F(i) - b S(i) + a + b S(j) for a piece a, b otherwise: the least key F(i) - b S(i), kept in a monotone queue.
[[nodiscard]] inline shortest_finish solved(arrivals const& in, std::span<affine const> pieces) {
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
  shortest_finish state{in, cost};
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
      while (all.size() > front && all.back().grade >= grade) all.pop_back();
      all.push_back({key, grade, j - 1});
      while (front < all.size() && (all[front].i <= free || all[front].i < first)) ++front;
      if (front < all.size())
        state.consider(all[front].i, all[front].key + pieces[q].a + pieces[q].b * in.bytes_before(j));
    }
    state.close(j);
  }
  return state;
}

}  // namespace schedule_detail

/// Merges so that the last group finishes as early as it can, for one stream and the given constraints. The default.
/// Cost: O(L) for affine costs and for each piece of an envelope, O(L^2) for other costs; fewest_groups adds O(L)
/// for each group at most. Memory: O(L).
/// When not: costs that are far off, above all seconds a byte that are too high; `robust` plans for that, and
/// ties::latest suffers less.
struct optimal {
  ties rule = ties::fewest_groups;

  template <cost_model Cost>
  [[nodiscard]] grouping operator()(arrivals const& in, Cost const& cost) const {
    auto const state = [&] {
      if constexpr (std::same_as<Cost, affine>)
        return schedule_detail::solved(in, std::span{&cost, 1});
      else if constexpr (std::same_as<Cost, envelope>)
        return schedule_detail::solved(in, std::span{cost.pieces});
      else
        return schedule_detail::solved(in, cost);
    }();
    return {rule == ties::latest ? state.latest() : state.fewest(in, cost), 0.0, {}};
  }
  friend bool operator==(optimal const&, optimal const&) = default;
  friend std::ostream& operator<<(std::ostream& out, optimal const& it) {
    return describe(out, it.rule == ties::latest ? "optimal_latest" : "optimal");
  }
};

}  // namespace gradsieve
