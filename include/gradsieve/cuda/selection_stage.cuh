// Decide, accumulate, select: the part of a step that a rank does alone, on a device.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/codec/limit.hpp>
#include <gradsieve/cuda/assignment.cuh>
#include <gradsieve/cuda/exchange/device_exchange.cuh>
#include <gradsieve/cuda/memory.cuh>
#include <gradsieve/cuda/report.cuh>
#include <gradsieve/cuda/tuning.cuh>
#include <gradsieve/cuda/workspace.cuh>
#include <gradsieve/step/parts.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Result of compress() on a device, in the compressor's device memory; valid in stream order.
struct device_selection {
  index_type const* indices = nullptr;   ///< strictly increasing
  float const* values = nullptr;         ///< as many as indices
  std::uint32_t const* count = nullptr;  ///< number of entries, in device memory
  std::uint64_t capacity = 0;            ///< largest possible number of entries
  std::span<float const> passthrough;    ///< elements of the layers that pass through, in layout order
  std::uint64_t number = 0;              ///< of the compress() call that returned it; the first is 1
};

}  // namespace gradsieve

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Device counterpart of host_selection_stage, in stream order.
template <class Recipe>
class device_selection_stage {
  using selector_type = decltype(Recipe::selector);
  using partitioner_type = decltype(Recipe::partitioner);
  using residual_type = decltype(Recipe::residual);
  using codec_type = decltype(Recipe::codec);
  using stored_type = stored_t<residual_type>;
  using view_type = device::selector_view<stored_type>;

 public:
  using exchange_type = device_exchange<decltype(Recipe::exchange), codec_type>;
  using memory_type = device_residual_memory<residual_type>;
  using entries = cuda_workspace::entry_list;
  template <class T>
  using incoming = cuda_kernels::incoming<T, residual_type>;

  device_selection_stage(Recipe const& recipe, cuda_workspace& work, memory_type& memory, exchange_type& exchange,
                         device_step_record& record)
      : recipe_{recipe},
        work_{work},
        memory_{memory},
        exchange_{exchange},
        record_{record},
        plan_{recipe, work, has_places(exchange)} {
    if constexpr (collects_ahead) work_.collect_speculatively();
  }

  [[nodiscard]] segmentation<partitioner_type>& segments() noexcept { return plan_.segments(); }

  /// Allocates for uploads of segments and decisions, and for coding `capacity` entries. Waits.
  void reserve(std::uint64_t capacity, layout const& layers) {
    capacity_ = capacity;
    plan_.reserve(capacity);
    codec_.reserve_writing(work_, recipe_.codec, layers, capacity);
    take_warm_thresholds();
  }

  /// Call after the workspace was planned again for the same segments with other skipped layers. Waits.
  void plan_again(std::vector<warm_threshold> warm_thresholds, std::uint64_t skips) {
    plan_.skip(skips);
    set_warm_thresholds(std::move(warm_thresholds));
  }

  /// Decides budgets and owners without norms. Returns true if they changed; the host has then waited for an upload.
  bool decide(step_role const role) {
    bool const changed = plan_.decide_now(role, steps_);
    warm_ = warm_ && !changed;
    return changed;
  }

  /// Decides by the norms of the accumulators, in a host function in the stream; returns false, as the host does not
  /// learn of changes. Collective if ranks exchange.
  template <class Comm>
  bool decide_by_norms(Comm const& comm, step_role const role, held_failure const&) {
    work_.segment_norms(plan_.norms().data());
    if (role.exchanging) {
      comm.all_reduce(work_.where(), plan_.norms(), reduction::sum);
      record_.known.bytes_sent += plan_.norms().size_bytes();
      record_.known.bytes_received += plan_.norms().size_bytes();
    }
    plan_.decide_later(role);
    return false;
  }

  /// step_decision in device memory; its first word is equal on ranks that decide alike.
  [[nodiscard]] std::uint64_t const* decision() const noexcept { return plan_.decision().data(); }

  /// Cost: a pass, if the residual store needs the gradient's norm.
  template <class T>
  [[nodiscard]] incoming<T> prepare(std::span<T const> gradient, int world) {
    return memory_.incoming(gradient.data(), world);
  }

  /// Number of elements whose accumulator would not be finite. Waits. Cost: a pass.
  template <class T>
  [[nodiscard]] std::uint64_t count_non_finite(incoming<T> const& in) {
    work_.count_not_finite(in);
    return work_.download(work_.counts().non_finite());
  }

  /// Accumulates the gradient, and collects candidates if segments are decided. On a small gradient it selects as well.
  template <class T>
  void accumulate(incoming<T> const& in, step_role role) {
    if constexpr (collects_ahead) {
      if (!std::exchange(warm_, false)) work_.forget_candidates();
      work_.template accumulate<true, measured>(in);
    } else if constexpr (needs_norms) {
      work_.template accumulate<false, measured>(in);
    } else {
      if constexpr (predicts)
        if (!std::exchange(warm_, false))
          work_.predict(recipe_.selector, cuda_kernels::from_incoming<T, residual_type>{in, work_.tables()},
                        memory_.accumulator(), false);
      if constexpr (may_be_small)
        if (role.selects && work_.is_small()) {
          is_selected_ = true;
          return work_.step_at_once(recipe_.selector, in, leaves_warm(), list_of(role));
        }
      work_.template accumulate<predicts, measured>(in);
      if constexpr (has_bins) work_.keep_bins(recipe_.selector, in);
    }
  }

  /// Returns this rank's entries in index order, and advances the step counter.
  [[nodiscard]] entries select(step_role const role) {
    auto const* const accumulator = memory_.accumulator();
    auto const own = list_of(role);
    if constexpr (needs_norms && predicts) {
      work_.predict(recipe_.selector, cuda_kernels::from_memory<stored_type>{accumulator}, accumulator, true);
      work_.collect(accumulator);
    }
    warm_ = leaves_warm();
    if (!std::exchange(is_selected_, false)) work_.select(recipe_.selector, accumulator, measured, warm_, own);
    record_.selected = own.count;
    record_.words = plan_.decision().data();
    return own;
  }

  /// Clamps this rank's values to `limit` and the codec's largest value, and rounds them as the codec does.
  void quantise(entries const& own, message_info const& info, float limit) {
    limit = largest_coded(recipe_.codec, info, limit);
    if constexpr (quantises<codec_type>)
      codec_.quantise(work_, info, own, limit, work_.counts().saturated());
    else
      saturate_entries(work_, own, capacity_, limit, work_.counts().saturated());
  }
  [[nodiscard]] device_codec<codec_type> const& codec() const noexcept { return codec_; }

  /// @throws invalid_argument in a capture, if the step estimates thresholds that the next one remembers
  void begin_step() {
    if (!warm_ && leaves_warm())
      work_.where().refuse_capture("each launch would estimate thresholds, as no step since a restart left any");
    saved_warm_thresholds_.clear();
    is_selected_ = false;
  }
  void end_step() noexcept { ++steps_; }

  void rethrow() { plan_.rethrow(); }  // what a partitioner threw in the stream

  [[nodiscard]] std::uint64_t steps() const { return work_.download(work_.step().data()); }  // also a graph's; waits
  [[nodiscard]] std::uint64_t steps_begun() const noexcept { return steps_; }                // by the host

  /// Sets the number of steps, and forgets a partitioner's exception. Waits.
  void set_steps(std::uint64_t steps) {
    steps_ = steps;
    work_.upload_now(std::span<std::uint64_t const>{&steps_, 1}, work_.step());
    plan_.forget_failure();
  }

  [[nodiscard]] std::vector<warm_threshold> warm_thresholds() const {  // waits
    if (saved_warm_thresholds_.empty())
      return work_.downloaded(std::span<warm_threshold const>{work_.warm_thresholds().span()});
    work_.where().synchronize();
    return saved_warm_thresholds_;
  }

  /// Takes the warm thresholds of a checkpoint or of another world, and keeps them until a step begins.
  void set_warm_thresholds(std::vector<warm_threshold> warm_thresholds) {
    saved_warm_thresholds_ = std::move(warm_thresholds);
    take_warm_thresholds();
  }
  void forget_warm_thresholds() { set_warm_thresholds({}); }

 private:
  static constexpr bool needs_norms = partitioner_type::traits.needs_norms;
  static constexpr bool has_bins = bin_selector<selector_type>;
  static constexpr bool predicts = predicting_selector<selector_type, view_type>;
  /// True if the next step has the same k, so that predict() would return the warm thresholds of this one.
  static constexpr bool may_stay_warm =
      predicts && warm_selector<selector_type> && !needs_norms && !partitioner_type::traits.rotates;
  /// True if the accumulate pass collects by the last step's budgets and thresholds, before this step's are known.
  static constexpr bool collects_ahead = predicts && warm_selector<selector_type> && needs_norms;
  static constexpr bool measured = needs_norms || !(predicts || has_bins);
  /// True if a small gradient's step is one launch. Not with a second state of 16 bits: what a passthrough layer keeps
  /// is rounded by the step counter, which has advanced by then.
  static constexpr bool may_be_small = cuda_kernels::has_small_step && predicts && candidate_selector<selector_type> &&
                                       !needs_norms &&
                                       (residual_type::states == 1 || sizeof(stored_type) == sizeof(float));

  [[nodiscard]] bool leaves_warm() const {
    if constexpr (may_stay_warm || collects_ahead)
      return recipe_.selector.predicts_warm();
    else
      return false;
  }

  [[nodiscard]] entries list_of(step_role const role) const {  // for this rank's entries
    auto const* const apart = role.exchanging ? exchange_.list() : nullptr;
    return apart != nullptr ? *apart : memory_.taken();
  }

  /// Uploads the saved warm thresholds if they are for as many segments, else zeros.
  void take_warm_thresholds() {
    warm_ = false;
    work_.zero(work_.warm_thresholds());
    if (saved_warm_thresholds_.empty() || saved_warm_thresholds_.size() != work_.warm_thresholds().size()) return;
    work_.upload_now(std::span<warm_threshold const>{saved_warm_thresholds_}, work_.warm_thresholds().span());
  }

  Recipe const& recipe_;
  cuda_workspace& work_;
  memory_type& memory_;
  exchange_type& exchange_;
  device_step_record& record_;
  step_assignment<Recipe> plan_;
  device_codec<codec_type> codec_;  // for this rank's entries
  std::vector<warm_threshold> saved_warm_thresholds_;
  bool is_selected_ = false;  // by this step's accumulate()
  bool warm_ = false;         // the last step left the keys that this one collects from
  std::uint64_t capacity_ = 0;
  std::uint64_t steps_ = 0;  // that the host has enqueued; the device also counts those of graphs
};

}  // namespace gradsieve::detail
