// The input of planners: when each gradient is ready, and which ones may be merged.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/plan/cost.hpp>
#include <gradsieve/plan/trace.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Limits on what may be merged.
struct merge_constraints {
  std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max();  ///< of a group of several gradients
  std::vector<std::size_t> barriers;  ///< no group holds both layer b - 1 and layer b; in any order
  bool mix_dtypes = false;            ///< true if layers of different dtypes may be merged
};

/// The gradients of a trace that have bytes, in ready order. A layer without bytes belongs to the next one that has
/// some, or to the last; no group waits for it. A group [i, j) of gradients is ready at ready(j - 1), has bytes(i, j),
/// and is allowed if first_with(j) <= i.
class arrivals {
 public:
  /// The gradients of a trace under these constraints. @throws invalid_argument if a barrier names a layer that the
  /// trace lacks, or most_bytes is 0.
  explicit arrivals(trace const& of, merge_constraints const& constraints = {}) : backward_{of.backward()} {
    if (constraints.most_bytes == 0) throw invalid_argument("gradsieve: groups of at most 0 bytes; the least is 1");
    auto barriers = constraints.barriers;
    std::sort(barriers.begin(), barriers.end());
    if (!barriers.empty() && barriers.back() > of.count())
      throw invalid_argument("gradsieve: a barrier before layer " + std::to_string(barriers.back()) + " of " +
                             std::to_string(of.count()));
    capped_ = constraints.most_bytes < of.bytes();
    ready_.reserve(of.count());
    forward_.reserve(of.count());
    bytes_before_.reserve(of.count() + 1);
    first_with_.reserve(of.count());
    layer_end_.reserve(of.count());
    bytes_before_.push_back(0);
    double forward = 0;
    std::size_t next_barrier = 0;
    bool after_barrier = false;
    std::size_t window = 0;  // the first gradient that may be merged with the current one
    for (std::size_t l = 0; l < of.count(); ++l) {
      forward += of[l].forward;
      for (; next_barrier < barriers.size() && barriers[next_barrier] <= l; ++next_barrier) after_barrier = true;
      if (of[l].bytes == 0) continue;
      std::size_t const i = ready_.size();
      bool const other_dtype = i > 0 && of[l].dtype != of[layer_end_.back() - 1].dtype;
      if (after_barrier || (other_dtype && !constraints.mix_dtypes)) window = i;
      after_barrier = false;
      ready_.push_back(of.ready(l));
      bytes_before_.push_back(bytes_before_.back() + of[l].bytes);
      layer_end_.push_back(l + 1);
      forward_.push_back(forward);
      while (window < i && bytes_before_.back() - bytes_before_[window] > constraints.most_bytes) ++window;
      first_with_.push_back(window);
    }
    if (!layer_end_.empty()) {
      layer_end_.back() = of.count();
      forward_.back() = forward;
    }
  }

  /// Number of gradients with bytes.
  [[nodiscard]] std::size_t count() const noexcept { return ready_.size(); }
  /// Time at which gradient i is ready, in seconds from the start of the backward pass.
  [[nodiscard]] double ready(std::size_t i) const noexcept { return ready_[i]; }
  /// Seconds of the backward pass, which may end after the last gradient.
  [[nodiscard]] double backward() const noexcept { return backward_; }
  /// Bytes of gradients [i, j).
  [[nodiscard]] std::uint64_t bytes(std::size_t i, std::size_t j) const noexcept {
    return bytes_before_[j] - bytes_before_[i];
  }
  /// Bytes of gradients [0, j), as a double.
  [[nodiscard]] double bytes_before(std::size_t j) const noexcept { return static_cast<double>(bytes_before_[j]); }
  /// The first gradient with which a group that ends before j may begin. Never decreases with j. @pre j >= 1
  [[nodiscard]] std::size_t first_with(std::size_t j) const noexcept { return first_with_[j - 1]; }
  /// True if most_bytes forbids any group.
  [[nodiscard]] bool capped() const noexcept { return capped_; }
  /// The end of the layers of gradients [0, j). @pre j >= 1
  [[nodiscard]] std::size_t layer_end(std::size_t j) const noexcept { return layer_end_[j - 1]; }
  /// Seconds of the forward pass of the layers before that end.
  [[nodiscard]] double forward(std::size_t j) const noexcept { return j == 0 ? 0 : forward_[j - 1]; }

 private:
  std::vector<double> ready_;
  std::vector<double> forward_;
  std::vector<std::uint64_t> bytes_before_;
  std::vector<std::size_t> first_with_;
  std::vector<std::size_t> layer_end_;
  double backward_ = 0;
  bool capped_ = false;
};

/// Start and finish of a group, in seconds from the start of the backward pass.
struct group_times {
  double start = 0;   ///< of its collective
  double finish = 0;  ///< of its collective
};

/// The result of a planner: groups of consecutive gradients.
struct grouping {
  std::vector<std::size_t> ends;      ///< ends of the groups, each after its last gradient
  std::optional<double> certificate;  ///< see plan::certificate()
  std::vector<group_times> times;     ///< predicted times; empty: those of times_of()
};

/// The schedule of these groups on one stream, in order: a group starts when its last gradient is ready and the
/// previous group has finished. @throws invalid_argument if a group's cost is negative, infinite or NaN.
template <cost_model Cost>
[[nodiscard]] std::vector<group_times> times_of(arrivals const& in, std::vector<std::size_t> const& ends,
                                                Cost const& cost) {
  std::vector<group_times> times;
  times.reserve(ends.size());
  double finish = 0;
  std::size_t begin = 0;
  for (auto const end : ends) {
    double const start = std::max(finish, in.ready(end - 1));
    finish = start + detail::planned_seconds_of(cost, in.bytes(begin, end));
    times.push_back({start, finish});
    begin = end;
  }
  return times;
}

/// The finish of the last of these groups; 0 without groups. @throws invalid_argument as times_of().
template <cost_model Cost>
[[nodiscard]] double finish_of(arrivals const& in, std::vector<std::size_t> const& ends, Cost const& cost) {
  auto const times = times_of(in, ends, cost);
  return times.empty() ? 0 : times.back().finish;
}

/// A lower bound on the finish of any plan for an affine cost: the last gradient is sent after it is ready, and all
/// bytes are sent, with at least one startup, after the first gradient is ready.
[[nodiscard]] inline double least_finish(arrivals const& in, affine const& cost) {
  std::size_t const n = in.count();
  if (n == 0) return 0;
  return std::max(in.ready(n - 1) + cost(in.bytes(n - 1, n)), in.ready(0) + cost(in.bytes(0, n)));
}

/// A grouping with a certificate that does not need the optimum: for affine costs its distance to least_finish(), or
/// `known` if that is smaller. @throws invalid_argument as times_of().
template <cost_model Cost>
[[nodiscard]] grouping with_certificate(arrivals const& in, Cost const& cost, std::vector<std::size_t> ends,
                                        std::optional<double> known = std::nullopt) {
  double const finish = finish_of(in, ends, cost);
  if constexpr (std::same_as<Cost, affine>) {
    double const gap = std::max(0.0, finish - least_finish(in, cost));
    known = known ? std::min(*known, gap) : gap;
  }
  return {std::move(ends), known, {}};
}

namespace detail {

/// Makes groups by a rule that does not use the cost: gradient `end` joins those from `begin` on if joins(begin, end)
/// and the constraints allow it. A group of infinite or NaN cost ends with the last gradient up to which its cost is
/// finite. @throws invalid_argument if there is none.
template <cost_model Cost, class Joins>
[[nodiscard]] grouping grown(arrivals const& in, Cost const& cost, Joins const& joins) {
  std::vector<std::size_t> ends;
  for (std::size_t begin = 0; begin < in.count();) {
    std::size_t end = begin + 1;
    while (end < in.count() && in.first_with(end + 1) <= begin && joins(begin, end)) ++end;
    std::size_t last = end;
    while (last > begin && !(seconds_of(cost, in.bytes(begin, last)) < never)) --last;
    ends.push_back(begin = last > begin ? last : end);
  }
  return with_certificate(in, cost, std::move(ends));
}

/// Makes groups in one pass: gradient i joins those from `begin` on, which could start at `start`, if joins(begin, i,
/// start) and the constraints allow it. If `bounded`, merges that delay their group are all that the plan may lose.
/// @throws invalid_argument if the cost of a group is negative, infinite or NaN.
template <cost_model Cost, class Joins>
[[nodiscard]] grouping decided(arrivals const& in, Cost const& cost, bool bounded, Joins const& joins) {
  if (in.count() == 0) return {{}, 0.0, {}};
  std::vector<std::size_t> ends;
  std::size_t begin = 0;
  double start = in.ready(0);  // of the open group
  double waited = 0;           // by merges that delay the group
  for (std::size_t i = 1; i < in.count(); ++i) {
    double const ready = in.ready(i);
    if (in.first_with(i + 1) <= begin && joins(begin, i, start)) {
      waited += std::max(0.0, ready - start);
      start = std::max(start, ready);
    } else {
      start = std::max(start + planned_seconds_of(cost, in.bytes(begin, i)), ready);
      ends.push_back(begin = i);
    }
  }
  ends.push_back(in.count());
  return with_certificate(in, cost, std::move(ends), bounded ? std::optional{waited} : std::nullopt);
}

/// Throws that plans with finite costs exist only for the first `planned` gradients.
[[noreturn]] inline void refuse_infinite(arrivals const& in, std::size_t planned) {
  throw invalid_argument(
      "gradsieve: no plan is finite: each has a group of infinite or NaN cost; there is a finite one for the first " +
      std::to_string(planned == 0 ? 0 : in.layer_end(planned)) + " of " + std::to_string(in.layer_end(in.count())) +
      " layers only");
}

}  // namespace detail

}  // namespace gradsieve
