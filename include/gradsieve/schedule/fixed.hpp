// Plans that do not look at what communication costs.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <utility>
#include <vector>

#include <gradsieve/schedule/arrivals.hpp>
#include <gradsieve/text.hpp>

namespace gradsieve {

/// Wait-free backpropagation: every gradient travels alone as soon as it is ready.
/// When not: many small layers, as each pays a startup.
struct wfbp {
  template <cost_model Cost>
  [[nodiscard]] grouping operator()(arrivals const& in, Cost const& cost) const {
    std::vector<std::size_t> ends(in.count());
    for (std::size_t i = 0; i < ends.size(); ++i) ends[i] = i + 1;
    return with_certificate(in, cost, std::move(ends));
  }
  friend bool operator==(wfbp const&, wfbp const&) = default;
  friend std::ostream& operator<<(std::ostream& out, wfbp const&) { return describe(out, "wfbp"); }
};

/// Everything in one group after the backward pass (SyncEASGD), or in as few as the constraints allow. At most twice
/// the least finish of one group.
/// When not: wherever something could overlap.
struct single {
  template <cost_model Cost>
  [[nodiscard]] grouping operator()(arrivals const& in, Cost const& cost) const {
    std::vector<std::size_t> ends;
    std::size_t begin = 0;
    for (std::size_t j = 1; j <= in.count(); ++j) {
      if (in.first_with(j) <= begin) continue;
      ends.push_back(begin = j - 1);
    }
    if (in.count() > 0) ends.push_back(in.count());
    return with_certificate(in, cost, std::move(ends));
  }
  friend bool operator==(single const&, single const&) = default;
  friend std::ostream& operator<<(std::ostream& out, single const&) { return describe(out, "single"); }
};

/// Buckets that close as soon as they hold `cap` bytes, the first one at `first`: the rule of PyTorch's
/// DistributedDataParallel, with its defaults.
struct fixed_bucket {
  std::uint64_t first = std::uint64_t{1} << 20;
  std::uint64_t cap = std::uint64_t{25} << 20;

  template <cost_model Cost>
  [[nodiscard]] grouping operator()(arrivals const& in, Cost const& cost) const {
    std::vector<std::size_t> ends;
    std::size_t begin = 0;
    for (std::size_t j = 1; j <= in.count(); ++j) {
      if (j > 1 && in.first_with(j) > begin) ends.push_back(begin = j - 1);
      if (in.bytes(begin, j) >= (ends.empty() ? first : cap)) ends.push_back(begin = j);
    }
    if (begin < in.count()) ends.push_back(in.count());
    return with_certificate(in, cost, std::move(ends));
  }
  friend bool operator==(fixed_bucket const&, fixed_bucket const&) = default;
  friend std::ostream& operator<<(std::ostream& out, fixed_bucket const& it) {
    return describe(out, "fixed_bucket", std::pair{"first", it.first}, std::pair{"cap", it.cap});
  }
};

/// Every `cycle` seconds what has become ready since is fused, in buffers of at most `cap` bytes: Horovod's rule, with
/// its defaults. The wait for the end of a cycle is not in the predicted times.
struct fusion_buffer {
  double cycle = 1e-3;
  std::uint64_t cap = std::uint64_t{128} << 20;

  /// @throws invalid_argument unless the cycle is finite and above 0.
  void check() const { require_between("cycle of a fusion buffer, in seconds,", cycle, 1e-9, 1e9); }

  template <cost_model Cost>
  [[nodiscard]] grouping operator()(arrivals const& in, Cost const& cost) const {
    check();
    std::vector<std::size_t> ends;
    std::size_t begin = 0;
    for (std::size_t j = 2; j <= in.count(); ++j) {
      bool const same_cycle = std::ceil(in.ready(j - 1) / cycle) == std::ceil(in.ready(begin) / cycle);
      if (same_cycle && in.first_with(j) <= begin && in.bytes(begin, j) <= cap) continue;
      ends.push_back(begin = j - 1);
    }
    if (in.count() > 0) ends.push_back(in.count());
    return with_certificate(in, cost, std::move(ends));
  }
  friend bool operator==(fusion_buffer const&, fusion_buffer const&) = default;
  friend std::ostream& operator<<(std::ostream& out, fusion_buffer const& it) {
    return describe(out, "fusion_buffer", std::pair{"cycle", it.cycle}, std::pair{"cap", it.cap});
  }
};

}  // namespace gradsieve
