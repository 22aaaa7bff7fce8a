// Decide, accumulate, select: the part of a step on the host that needs no other rank.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/codec/checked.hpp>
#include <gradsieve/codec/limit.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/report.hpp>
#include <gradsieve/host/memory.hpp>
#include <gradsieve/host/workspace.hpp>
#include <gradsieve/partitioner/segmentation.hpp>
#include <gradsieve/selector/select.hpp>
#include <gradsieve/step/parts.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// A gradient to accumulate, times `factor`.
template <class T>
struct host_incoming {
  gradient_ref<T const> gradient;
  float factor = 1;
};

/// Checks the entries of the selector of this title. Cost: O(entries). @throws invalid_argument unless indices increase
/// within the segment
inline void check_places(std::span<index_type const> places, segment const& from,
                         std::string (*title)(std::string const&)) {
  if (places.empty()) return;
  auto const refuse = [&](std::string const& what) {
    throw invalid_argument("gradsieve: the " + title("selector") + "'s select() wrote " + what);
  };
  if (!wire::all_rise(places)) refuse("indices that do not increase");
  if (places.front() < from.offset || places.back() >= from.offset + from.size)
    refuse("indices " + std::to_string(places.front()) + " to " + std::to_string(places.back()) +
           ", the segment has " + std::to_string(from.offset) + " to " + std::to_string(from.offset + from.size - 1));
}

/// Segments, their budgets and owners, and this rank's entries. Counts into `report`.
template <class Recipe>
class host_selection_stage {
  using selector_type = decltype(Recipe::selector);
  using partitioner_type = decltype(Recipe::partitioner);
  using residual_type = decltype(Recipe::residual);
  using codec_type = decltype(Recipe::codec);

 public:
  using memory_type = residual_memory<host_workspace, residual_type>;

  host_selection_stage(Recipe const& recipe, host_workspace& work, memory_type& memory, step_report& report)
      : recipe_{recipe}, work_{work}, memory_{memory}, report_{report} {}

  [[nodiscard]] segmentation<partitioner_type>& segments() noexcept { return segments_; }

  /// Buffers for `capacity` entries. Allocates.
  void reserve(std::uint64_t capacity) {
    candidate_thresholds_.assign(segments_.size(), 0);
    indices_ = host_buffer<index_type>(capacity);
    values_ = host_buffer<float>(capacity);
  }

  // ---- Decide ------------------------------------------------------------------------------------------------

  /// Decides budgets and owners of the segments, without norms. Returns true if they may have changed.
  bool decide(step_role const role) {
    segments_.assign(recipe_.partitioner, recipe_.density(steps_), steps_, role.world);
    return true;
  }

  /// Decides by the accumulators' norms, summed over the ranks (collective) if they exchange; that sum also reports
  /// failures. Damaged norms become this rank's `failure`. @throws the failure; communication_error if another rank's.
  template <class Comm>
  bool decide_by_norms(Comm const& comm, step_role const role, held_failure& failure) {
    auto const norms = segments_.norms();
    std::fill(norms.begin(), norms.end(), 0.0);
    if (!failure)
      for (std::size_t s = 0; s < segments_.size(); ++s) norms[s] = work_.measure(accumulator(s)).sum_squares;
    if (role.exchanging) {
      norms.back() = failure ? 1 : 0;
      comm.all_reduce(work_.where(), norms, reduction::sum);
      report_.bytes_sent += norms.size_bytes();
      report_.bytes_received += norms.size_bytes();
    }
    if (failure) std::rethrow_exception(failure.why());
    if (norms.back() > 0) throw communication_error("gradsieve: another rank failed in this step; nothing was sent");
    failure.attempt([&] {
      if (!std::ranges::all_of(norms, [](double norm) { return is_finite(norm); }))
        throw corrupt_message("gradsieve: a segment's norm, summed over the ranks, is not finite");
    });
    return !failure && decide(role);
  }

  /// A number that is equal on ranks with equal decisions.
  [[nodiscard]] std::uint64_t decision() const noexcept { return segments_.decision(steps_); }

  /// Total budget of all segments on all ranks, excluding segments sent in full or with nothing selectable.
  [[nodiscard]] index_type listed_budget() const noexcept {
    std::uint64_t total = 0;
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      auto const& each = segments_[s];
      if (work_.selectable(s) == 0 || passes(each)) continue;
      total += takes_all(each) ? work_.selectable(s) : each.k;
    }
    return static_cast<index_type>(std::min<std::uint64_t>(total, segments_.budget()));
  }

  // ---- Accumulate --------------------------------------------------------------------------------------------

  /// Cost: a pass if the residual store needs the gradient's norm.
  template <class T>
  [[nodiscard]] host_incoming<T> prepare(gradient_ref<T const> const gradient, [[maybe_unused]] int world) {
    float factor = 1;
    if constexpr (scaling_residual_store<residual_type>)
      if (recipe_.residual.needs_norm())
        factor = recipe_.residual.factor(std::sqrt(work_.sum_squares(gradient)), world);
    return {gradient, factor};
  }

  /// Number of elements that would not be finite in the accumulator. Cost: a pass.
  template <class T>
  [[nodiscard]] std::uint64_t count_non_finite(host_incoming<T> const& in) {
    memory_.flush_pending();
    return work_.count_non_finite(recipe_.residual, memory_.pointers(), in.gradient, in.factor);
  }

  /// Accumulates the gradient and in the same pass collects candidates, in the segments that this rank selects from. If
  /// budgets are not decided yet, it assumes the last step's thresholds, budgets and owners; select() corrects that.
  template <class T>
  void accumulate(host_incoming<T> const& in, step_role const role) {
    std::fill(candidate_thresholds_.begin(), candidate_thresholds_.end(), 0);
    if (segments_.warm_thresholds().size() != segments_.size()) forget_warm_thresholds();
    if constexpr (bin_selector<selector_type>)
      accumulate_in_bins(in, role);
    else if constexpr (stands_for_several<selector_type>)
      chooses_in_bins(recipe_.selector) ? accumulate_in_bins(in, role) : accumulate_and_collect(in, role);
    else
      accumulate_and_collect(in, role);
    memory_.mark_flushed();
  }

  // ---- Select ------------------------------------------------------------------------------------------------

  /// This rank's entries of its segments, in index order.
  [[nodiscard]] selection_view select(step_role const role) {
    auto const mine = [&](std::size_t s) { return selects(s, role.rank, role.exchanging); };
    if constexpr (partitioner_type::traits.needs_norms)
      if (reads_norms(recipe_.partitioner)) {
        predict(work_, mine);
        work_.collect_others(memory_.state(0), candidate_thresholds_);
      }
    report_.thresholds = work_.take_threshold_counts();  // drops those of a failed step
    std::size_t found = 0;
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      if (!mine(s)) continue;
      auto const capacity =
          std::min<std::size_t>(selection_capacity(recipe_.selector, segments_[s].k), indices_.size() - found);
      selection_span const out{indices_.span().subspan(found, capacity), values_.span().subspan(found, capacity), {}};
      if (takes_all(segments_[s])) {
        found += work_.take_places(accumulator(s), work_.selectable(s), std::views::iota(std::uint64_t{0}), out);
        continue;
      }
      std::size_t const count = std::min<std::size_t>(
          capacity, gradsieve::select(recipe_.selector, work_, accumulator(s), segments_[s].k, out));
      with_chosen(recipe_.selector, [&]<class One>(One const&) {
        if constexpr (direct_selector<One, host_workspace>)
          check_places(indices_.span().subspan(found, count), segments_[s], &titled<One>);
      });
      found += count;
    }
    report_.thresholds = work_.take_threshold_counts();
    report_.budget = role.exchanging ? listed_budget() : segments_.budget();
    report_.selected = static_cast<index_type>(found);
    return {indices_.first(found), values_.first(found), {}};
  }

  /// Replaces the entries' values by what receivers will decode: clamped to the largest value that codec and output can
  /// hold, then rounded by the codec. The residual keeps the rest. @throws corrupt_message if a rounded value is not
  /// finite: no receiver would accept it, and its remainder would never leave the residual.
  void quantise(selection_view const own, message_info const& info, float limit) {
    auto const values = values_.first(own.values.size());
    report_.saturated += work_.saturate(values, largest_coded(recipe_.codec, info, limit));
    if constexpr (quantises<codec_type>) {
      recipe_.codec.quantise(info, own.indices, values);
      wire::check_finite(own.values);
    }
  }

  /// True if a selection lies in memory that the next step writes.
  [[nodiscard]] bool owns_part_of(selection_view const chosen) const noexcept {
    return shares_memory(std::as_bytes(chosen.indices), std::as_bytes(indices_.span())) ||
           shares_memory(std::as_bytes(chosen.values), std::as_bytes(values_.span()));
  }

  // ---- Steps and warm thresholds -------------------------------------------------------------------------------

  void end_step() noexcept { ++steps_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  void set_steps(std::uint64_t steps) noexcept { steps_ = steps; }

  [[nodiscard]] std::vector<warm_threshold> warm_thresholds() const { return segments_.warm_thresholds(); }
  /// Warm thresholds of a checkpoint, maybe of another world; kept until a step begins.
  void set_warm_thresholds(std::vector<warm_threshold> warm_thresholds) noexcept {
    segments_.warm_thresholds() = std::move(warm_thresholds);
  }
  void forget_warm_thresholds() { segments_.warm_thresholds().assign(segments_.size(), {}); }

 private:
  template <class T>
  void accumulate_in_bins(host_incoming<T> const& in, step_role const role) {
    for (std::size_t s = 0; s < segments_.size(); ++s) candidate_thresholds_[s] = selects(s, role.rank, false) ? 1 : 0;
    report_.non_finite =
        work_.accumulate_bins(recipe_.selector, segments_.all(), recipe_.residual, memory_.pointers(), in.gradient,
                              in.factor, steps_, candidate_thresholds_, memory_.pending());
  }

  template <class T>
  void accumulate_and_collect(host_incoming<T> const& in, step_role const role) {
    auto const states = memory_.pointers();
    bool measure = reads_norms(recipe_.partitioner);
    if (measure) {
      for (std::size_t s = 0; s < segments_.size() && predicts_warm(); ++s)
        candidate_thresholds_[s] = selects(s, role.rank, role.exchanging) ? segments_.warm_thresholds()[s].key : 0;
    } else if constexpr (!partitioner_type::traits.needs_norms || stands_for_several<partitioner_type>) {
      auto const mine = [&](std::size_t s) { return selects(s, role.rank, false); };
      host_kernels::incoming const read{states, in.gradient, in.factor, recipe_.residual};
      auto preview = work_.preview(read, [&] { memory_.flush_pending(); });
      predict(preview, mine);
      for (std::size_t s = 0; s < segments_.size(); ++s)
        measure = measure || (candidate_thresholds_[s] == 0 && mine(s) && !takes_all(segments_[s]));
    }
    report_.non_finite = work_.accumulate(recipe_.residual, states, in.gradient, in.factor, measure,
                                          candidate_thresholds_, memory_.pending());
  }

  [[nodiscard]] accumulator_ref accumulator(std::size_t s) noexcept {
    return segments_.view(memory_.state(0), s, steps_);
  }

  /// True if every rank sends all of a segment, encoded; passes(): as binary32.
  [[nodiscard]] bool takes_all(segment const& each) const { return segments_.sent_in_full(each) && codes_full(recipe_); }
  [[nodiscard]] bool passes(segment const& each) const {
    return segments_.sent_in_full(each) && gives_full(recipe_) && !codes_full(recipe_);
  }

  /// True if this rank selects from a segment; with `full_taken`, not from those that every rank sends in full.
  [[nodiscard]] bool selects(std::size_t s, int rank, bool full_taken) const noexcept {
    auto const& each = segments_[s];
    return segments_.gives(each) && work_.selectable(s) > 0 && !(full_taken && passes(each)) &&
           (each.owner == segment::every_rank || each.owner == rank || takes_all(each));
  }

  /// True if the selector predicts a segment's warm threshold whenever it has one.
  [[nodiscard]] bool predicts_warm() const noexcept {
    if constexpr (warm_selector<selector_type>) return recipe_.selector.predicts_warm();
    return false;
  }

  /// Sets the candidate thresholds.
  template <class View, class Mine>
  void predict(View& view, Mine const& mine) {
    for (std::size_t s = 0; s < segments_.size(); ++s)
      candidate_thresholds_[s] =
          mine(s) && !takes_all(segments_[s])
              ? predict_candidate_threshold(recipe_.selector, view, accumulator(s), segments_[s].k)
              : 0;
  }

  Recipe const& recipe_;
  host_workspace& work_;
  memory_type& memory_;
  step_report& report_;
  segmentation<partitioner_type> segments_;
  std::vector<key_type> candidate_thresholds_;  // of each segment
  host_buffer<index_type> indices_;
  host_buffer<float> values_;
  std::uint64_t steps_ = 0;  // steps so far
};

}  // namespace gradsieve::detail
