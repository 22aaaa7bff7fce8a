// Plans that do not depend on the cost of communication.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <utility>

#include <gradsieve/core/text.hpp>
#include <gradsieve/plan/planners/arrivals.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

// These rules use the cost only if it is infinite or NaN: the group then ends with the last gradient up to which it is
// finite. They throw invalid_argument if there is no such gradient, or if the cost of a group is negative.

/// Wait-free backpropagation: every gradient is exchanged alone as soon as it is ready.
/// When not: with many small layers, as each costs a startup.
struct wfbp {
  template <cost_model Cost>
  [[nodiscard]] grouping operator()(arrivals const& in, Cost const& cost) const {
    return detail::grown(in, cost, [](std::size_t, std::size_t) { return false; });
  }
  friend bool operator==(wfbp const&, wfbp const&) = default;
  friend std::ostream& operator<<(std::ostream& out, wfbp const&) { return describe(out, "wfbp"); }
};

/// All gradients in one group after the backward pass (SyncEASGD), or in as few as the constraints allow. With an
/// affine cost and no constraints it finishes at most twice as late as the optimum. When not: if communication can be
/// hidden.
struct single {
  template <cost_model Cost>
  [[nodiscard]] grouping operator()(arrivals const& in, Cost const& cost) const {
    return detail::grown(in, cost, [](std::size_t, std::size_t) { return true; });
  }
  friend bool operator==(single const&, single const&) = default;
  friend std::ostream& operator<<(std::ostream& out, single const&) { return describe(out, "single"); }
};

/// Buckets that close as soon as they hold `cap` bytes, the first one at `first`: the rule of PyTorch's
/// DistributedDataParallel, with its defaults.
struct fixed_bucket {
  std::uint64_t first = std::uint64_t{1} << 20;  ///< bytes that close the first bucket
  std::uint64_t cap = std::uint64_t{25} << 20;   ///< bytes that close the others

  template <cost_model Cost>
  [[nodiscard]] grouping operator()(arrivals const& in, Cost const& cost) const {
    return detail::grown(in, cost, [&](std::size_t begin, std::size_t end) {
      return in.bytes(begin, end) < (begin == 0 ? first : cap);
    });
  }
  friend bool operator==(fixed_bucket const&, fixed_bucket const&) = default;
  friend std::ostream& operator<<(std::ostream& out, fixed_bucket const& it) {
    return describe(out, "fixed_bucket", std::pair{"first", it.first}, std::pair{"cap", it.cap});
  }
};

/// Every `cycle` seconds the gradients that have become ready are merged into buffers of at most `cap` bytes: Horovod's
/// rule, with its defaults. The predicted times do not include the wait for the end of a cycle.
struct fusion_buffer {
  double cycle = 1e-3;                           ///< seconds
  std::uint64_t cap = std::uint64_t{128} << 20;  ///< bytes

  /// Checks the cycle. @throws invalid_argument unless it is finite and above 0.
  void check() const { require_between("cycle of a fusion buffer, in seconds,", cycle, 1e-9, 1e9); }

  template <cost_model Cost>
  [[nodiscard]] grouping operator()(arrivals const& in, Cost const& cost) const {
    check();
    return detail::grown(in, cost, [&](std::size_t begin, std::size_t end) {
      bool const same_cycle = std::ceil(in.ready(end) / cycle) == std::ceil(in.ready(begin) / cycle);
      return same_cycle && in.bytes(begin, end + 1) <= cap;
    });
  }
  friend bool operator==(fusion_buffer const&, fusion_buffer const&) = default;
  friend std::ostream& operator<<(std::ostream& out, fusion_buffer const& it) {
    return describe(out, "fusion_buffer", std::pair{"cycle", it.cycle}, std::pair{"cap", it.cap});
  }
};

}  // namespace gradsieve
