// Finds complete groups of a plan, as layers become ready in any order and on any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/plan/plan.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Counts the ready layers of each step. Groups [0, frontier()) are complete and may be issued in this order; a group
/// after an incomplete one waits, as all ranks must issue collectives in the same order. Layers are those of the plan,
/// in its order; no group waits for a layer of 0 bytes. Memory: 16 bytes per layer and 8 per group, allocated here.
/// Threads: on_ready() and const members from any thread; reset() and flush() while no thread is in on_ready().
class tracker {
 public:
  explicit tracker(plan const& chosen) : group_(chosen.count()), sizes_(chosen.groups().size()), seen_(chosen.count()) {
    for (std::size_t i = 0; i < group_.size(); ++i) {
      group_[i] = chosen.bytes_of(i) > 0 ? chosen.group_of(i) : no_group;
      if (group_[i] != no_group) ++sizes_[group_[i]];
    }
    remaining_ = std::vector<std::atomic<std::size_t>>(sizes_.size());
    reset();
  }

  [[nodiscard]] std::size_t layers() const noexcept { return group_.size(); }  ///< of the plan
  [[nodiscard]] std::size_t groups() const noexcept { return sizes_.size(); }  ///< of the plan

  /// The first incomplete group. Writes before on_ready() of the previous groups' layers are visible.
  [[nodiscard]] std::size_t frontier() const noexcept { return frontier_.load(); }

  /// True if a layer was ready in this step. @pre layer < layers()
  [[nodiscard]] bool is_ready(std::size_t layer) const noexcept { return seen_[layer].load() == step_; }

  /// Marks a layer's gradient as complete. Returns the frontier. Cost: O(1), no lock. @throws invalid_argument, and
  /// changes nothing, if there is no such layer or it was ready before in this step.
  std::size_t on_ready(std::size_t layer) {
    if (layer >= group_.size())
      throw invalid_argument("gradsieve: layer " + std::to_string(layer) + " is ready, the plan has " +
                             std::to_string(group_.size()) + " layers");
    if (seen_[layer].exchange(step_) == step_)
      throw invalid_argument("gradsieve: layer " + std::to_string(layer) + " is ready for the second time in a step");
    auto const group = group_[layer];
    return group != no_group && remaining_[group].fetch_sub(1) == 1 ? advance() : frontier();
  }

  /// Completes all groups: calls missing(layer), then on_ready(layer), for every layer that a group still waits for.
  /// Cost: O(groups), and O(layers) if one is missing.
  template <class Missing>
  void flush(Missing const& missing) {
    if (frontier() == groups()) return;
    for (std::size_t i = 0; i < layers(); ++i)
      if (group_[i] != no_group && !is_ready(i)) {
        missing(i);
        on_ready(i);
      }
  }

  /// Begins the next step. Cost: O(groups).
  void reset() noexcept {
    ++step_;
    for (std::size_t g = 0; g < sizes_.size(); ++g) remaining_[g].store(sizes_[g]);
    frontier_.store(0);
    advance();  // over groups that wait for nothing
  }

 private:
  static constexpr auto no_group = static_cast<std::size_t>(-1);  // of layers of 0 bytes

  /// Moves the frontier past all complete groups; called by a thread that completes a group. If two threads complete
  /// neighbours at the same time, the later one sees both.
  std::size_t advance() noexcept {
    auto at = frontier_.load();
    while (at < remaining_.size() && remaining_[at].load() == 0)
      if (frontier_.compare_exchange_weak(at, at + 1)) ++at;
    return at;
  }

  std::vector<std::size_t> group_;                   // of each layer
  std::vector<std::size_t> sizes_;                   // layers that each group waits for
  std::vector<std::atomic<std::uint64_t>> seen_;     // the last step in which a layer was ready
  std::vector<std::atomic<std::size_t>> remaining_;  // of these, the layers that are not ready
  std::atomic<std::size_t> frontier_{0};
  std::uint64_t step_ = 0;
};

}  // namespace gradsieve::detail
