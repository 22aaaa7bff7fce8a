// What DDP's reducer knows about its backward passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "parameter_use.hpp"

namespace example {

/// Names members that c10d::Reducer keeps protected and has no functions for, alike since torch 1.13: a torch that has
/// them no longer does not compile this.
struct reducer_members : c10d::Reducer {
  static constexpr auto parameters = &reducer_members::params_;
  static constexpr auto iterations = &reducer_members::num_iterations_;
  static constexpr auto finds_unused = &reducer_members::find_unused_parameters_;
  static constexpr auto is_static = &reducer_members::static_graph_;
  static constexpr auto used = &reducer_members::local_used_map_;
  static constexpr auto to_finalize = &reducer_members::require_finalize_;
};

/// The backward passes of one DistributedDataParallel. Called by its communication hook, in the backward pass.
class ddp_passes {
 public:
  explicit ddp_passes(std::shared_ptr<c10d::Reducer> const& reducer) : reducer_{reducer} {
    auto const& parameters = (*reducer).*reducer_members::parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) place_of_.emplace(parameters[i].unsafeGetTensorImpl(), i);
  }

  /// Whether this bucket is the first of a backward pass. DDP counts the forward passes that a synchronised backward
  /// pass follows; a rank that has joined (torch's Join) has none, and its buckets come once a step.
  [[nodiscard]] bool begins(std::size_t bucket) {
    auto const now = of(reducer_members::iterations);
    if (bucket >= seen_.size()) seen_.resize(bucket + 1, false);
    bool const first = now != iteration_ || seen_[bucket];
    if (first) seen_.assign(seen_.size(), false);
    seen_[bucket] = true;
    iteration_ = now;
    return first;
  }

  /// Whether DDP is still to put the exchanged gradients in place.
  [[nodiscard]] bool under_way() const { return of(reducer_members::to_finalize); }

  /// Which of these parameters this rank used since the last exchange, as DDP has it: with find_unused_parameters and
  /// with a static graph it leaves the gradient of a parameter that no rank used as it is.
  [[nodiscard]] parameter_use use_of(std::vector<at::Tensor> const& parameters) const {
    parameter_use found;
    bool const is_static = of(reducer_members::is_static);
    found.unused_is_left = is_static || of(reducer_members::finds_unused);
    found.fixed = is_static;
    found.marks.assign(parameters.size(), parameter_use::used);
    if (!found.unused_is_left) return found;
    auto const& map = of(reducer_members::used);
    auto const* const used = map.data_ptr<int>();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (used[place_of_.at(parameters[i].unsafeGetTensorImpl())] == 0) found.marks[i] = 0;
    return found;
  }

 private:
  template <class Member>
  [[nodiscard]] Member const& of(Member c10d::Reducer::* member) const {
    auto const reducer = reducer_.lock();
    if (!reducer) throw std::logic_error("gradsieve: the hook's DistributedDataParallel is gone");
    return (*reducer).*member;
  }

  std::weak_ptr<c10d::Reducer> reducer_;  // which owns the hook
  std::unordered_map<c10::TensorImpl const*, std::size_t> place_of_;
  std::vector<bool> seen_;  // buckets of this pass
  long iteration_ = -1;
};

}  // namespace example
