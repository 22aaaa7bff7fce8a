// A step's plan on a device: the partitioner decides on the host, in stream order, which rank selects what.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>

#include <gradsieve/core/density.hpp>
#include <gradsieve/cuda/workspace.cuh>
#include <gradsieve/exchange/preflight.hpp>
#include <gradsieve/partitioner/segmentation.hpp>
#include <gradsieve/selector/select.hpp>
#include <gradsieve/step/parts.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// True if the parts of a device_exchange say so.
template <class Parts>
[[nodiscard]] bool has_places(Parts const& parts) {
  static_assert(!requires { parts.slots(); },
                "gradsieve: a device_exchange with places says has_places(); its slots() are device_segment::slot now");
  if constexpr (requires { parts.has_places(); })
    return parts.has_places();
  else
    return false;
}

/// Numbers that are uploaded with a step's segments.
struct step_decision {
  std::uint64_t decision = 0;  ///< differs between ranks that decide differently
  std::uint64_t budget = 0;    ///< sum of k, without segments sent in full
  std::uint64_t listed = 0;    ///< elements of segments that are listed in full
};

/// Partitioner and segments, and their upload to a device. A partitioner that needs norms runs in a host function in
/// the stream, after the download of the norms and before the upload of its decision: the caller does not wait, and a
/// CUDA graph can hold it. Not movable, as workspace and recipe are not.
template <class Recipe>
class step_assignment {
 public:
  using partitioner_type = decltype(Recipe::partitioner);

  /// `has_places`: the exchange reserves slots for segments sent in full, even if that is decided after planning.
  step_assignment(Recipe const& recipe, cuda_workspace& work, bool has_places)
      : recipe_{recipe}, work_{work}, has_places_{has_places} {}
  step_assignment(step_assignment const&) = delete;
  step_assignment& operator=(step_assignment const&) = delete;

  [[nodiscard]] segmentation<partitioner_type>& segments() noexcept { return segments_; }

  /// Allocates. @pre segments().plan() was called, and nothing is enqueued
  void reserve(std::uint64_t most) {
    auto const count = segments_.size();
    most_ = most;
    sent_ = upload{count};
    now_ = upload{count};
    norms_ = pinned_array<double>(count + 1);
    device_norms_ = work_.zeroed<double>(count + 1);
    device_decision_ = work_.zeroed<std::uint64_t>(sizeof(step_decision) / 8);
    known_ = false;
  }

  /// Sets the number that identifies the skipped layers. Everything is uploaded again.
  void skip(std::uint64_t skips) noexcept {
    skips_ = skips;
    known_ = false;
  }

  /// Squared norms, one per segment, in device memory.
  [[nodiscard]] std::span<double> norms() const noexcept { return device_norms_.first(segments_.size()); }

  [[nodiscard]] std::span<std::uint64_t> decision() const noexcept { return device_decision_.span(); }  // on device

  /// Decides now, for a partitioner without norms. Uploads the decision if it has changed, after waiting for the
  /// previous upload; returns true then. If the partitioner rotates, the device has the owners of step 0 and computes
  /// the current ones in stream order, also in a graph. @throws as segmentation::assign(); invalid_argument if it has
  /// to upload in a capture.
  bool decide_now(step_role const who, std::uint64_t step) {
    segments_.assign(recipe_.partitioner, recipe_.density(step), rotates ? 0 : step, who.world);
    describe(who, now_);
    bool const differs = !known_ || now_ != sent_;
    if (differs) upload_again();
    if constexpr (rotates) work_.take_turns(who.world);
    return differs;
  }

  /// Decides in stream order, for a partitioner with norms. @pre norms(), and behind them the step
  void decide_later(step_role const who) {
    auto& mine = host_callbacks_[who.exchanging ? 1 : 0];
    if (mine.plan != this || mine.who != who) mine = {this, who};
    work_.where().copy(std::as_bytes(device_norms_.span()), std::as_writable_bytes(norms_.span()));
    throw_on_error(cudaLaunchHostFunc(
                       work_.where().stream,
                       [](void* what) {
                         auto const& [plan, request] = *static_cast<host_callback const*>(what);
                         plan->decide(request);
                       },
                       &mine),
                   "cudaLaunchHostFunc");
    upload_all();
  }

  /// Throws what the partitioner threw in the stream; that step sent no entries.
  void rethrow() {
    if (failed_.exchange(false)) std::rethrow_exception(failure_);
  }

  void forget_failure() noexcept { failed_.store(false); }  ///< @pre nothing is enqueued

 private:
  static constexpr bool rotates = partitioner_type::traits.rotates;

  /// Tables to upload, in pinned memory.
  struct upload {
    pinned_array<cuda_kernels::device_segment> table;
    pinned_array<std::uint64_t> decision;

    upload() = default;
    explicit upload(std::size_t count) : table(count), decision(sizeof(step_decision) / 8) {}

    friend bool operator==(upload const& a, upload const& b) {
      return std::ranges::equal(a.table.span(), b.table.span()) &&
             std::ranges::equal(a.decision.span(), b.decision.span());
    }
  };

  struct host_callback {
    step_assignment* plan = nullptr;
    step_role who;
  };

  /// Uploads now_. Refused in a capture: a graph would upload what sent_ holds at its launch.
  void upload_again() {
    work_.where().refuse_capture("budgets or owners differ from those of the last step and have to be uploaded");
    uploaded_.synchronize();
    std::swap(now_, sent_);
    upload_all();
    uploaded_.record(work_.where());
    known_ = true;
  }

  void upload_all() const {
    work_.upload_segments(sent_.table.span());
    work_.upload(std::span<std::uint64_t const>{sent_.decision.span()}, decision());
  }

  void decide(step_role const who) noexcept {
    try {
      std::copy_n(norms_.data(), segments_.size(), segments_.norms().begin());
      auto const step = static_cast<std::uint64_t>(norms_[segments_.size()]);
      segments_.assign(recipe_.partitioner, recipe_.density(step), step, who.world);
      describe(who, sent_);
    } catch (...) {
      for (auto& each : sent_.table.span()) each.k = each.full = 0;
      if (!failed_.load()) failure_ = std::current_exception();
      failed_.store(true);
    }
  }

  /// True for a segment sent in full, from which nobody selects. If known before the step it is all-reduced as a
  /// passthrough range, else listed at its places in the ranks' list, if there is one.
  [[nodiscard]] bool elsewhere(step_role const who, segment const& each) const noexcept {
    return who.exchanging && gives_full(recipe_) && !codes_full(recipe_) && segments_.sent_in_full(each) &&
           (!partitioner_type::traits.needs_norms || has_places_);
  }

  /// True if every rank selects all of a segment; has_every_rank(): if every rank selects from it.
  [[nodiscard]] bool takes_all(segment const& each) const noexcept {
    return codes_full(recipe_) && segments_.sent_in_full(each);
  }
  [[nodiscard]] bool has_every_rank(segment const& each) const noexcept {
    return each.owner == segment::every_rank || takes_all(each);
  }

  void describe(step_role const who, upload& to) const {
    auto const all = segments_.all();
    auto const capacity = [&](index_type k) { return selection_capacity(recipe_.selector, k); };
    work_.describe_step(
        all, capacity,
        [&](std::size_t s) {
          return segments_.gives(all[s]) && work_.selectable(s) > 0 && !elsewhere(who, all[s]) &&
                 (rotates || has_every_rank(all[s]) || all[s].owner == who.rank);
        },
        to.table.span());
    if constexpr (rotates)
      for (std::size_t s = 0; s < all.size(); ++s) {
        to.table[s].due = to.table[s].k;
        to.table[s].turn = has_every_rank(all[s])
                               ? cuda_kernels::every_turn
                               : static_cast<std::uint32_t>((who.rank - all[s].owner + who.world) % who.world);
      }
    std::uint64_t slot = 0;
    std::uint64_t listed = 0;
    std::uint64_t budget = 0;
    for (std::size_t s = 0; s < all.size(); ++s) {
      bool const gives = work_.selectable(s) > 0;
      bool const is_listed = partitioner_type::traits.needs_norms && gives && elsewhere(who, all[s]);
      if (gives && !elsewhere(who, all[s])) budget += takes_all(all[s]) ? work_.selectable(s) : all[s].k;
      to.table[s].slot = static_cast<std::uint32_t>(slot);
      to.table[s].full = is_listed ? 1 : 0;
      slot = std::min(slot + std::min<std::uint64_t>(capacity(all[s].k), work_.selectable(s)), most_);
      if (is_listed) listed += all[s].size;
    }
    step_decision const decision{preflight::decision(segments_.decision(0), skips_),
                                 std::min<std::uint64_t>(budget, segments_.budget()), listed};
    std::memcpy(to.decision.data(), &decision, sizeof decision);
  }

  Recipe const& recipe_;
  cuda_workspace& work_;
  segmentation<partitioner_type> segments_;
  bool has_places_;
  std::uint64_t most_ = 0;
  std::uint64_t skips_ = 0;  // step_layers::hash()
  bool known_ = false;
  upload sent_, now_;
  cuda_event uploaded_;                            // sent_ has been copied
  std::array<host_callback, 2> host_callbacks_{};  // of steps without and with an exchange
  pinned_array<double> norms_;
  cuda_buffer<double> device_norms_;
  cuda_buffer<std::uint64_t> device_decision_;

  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;
};

}  // namespace gradsieve::detail
