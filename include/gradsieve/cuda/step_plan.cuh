// Which rank selects what in a step: decided on the host, in stream order, by the same partitioners.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>

#include <gradsieve/cuda/workspace.cuh>
#include <gradsieve/density.hpp>
#include <gradsieve/segmentation.hpp>
#include <gradsieve/selector/select.hpp>
#include <gradsieve/step/parts.hpp>

namespace gradsieve {

/// What a device is told beside its segments.
struct step_words {
  std::uint64_t decision = 0;  ///< a number that differs where ranks decide otherwise
  std::uint64_t budget = 0;    ///< k of all segments
  std::uint64_t listed = 0;    ///< elements of segments that are listed whole
};

/// Partitioner and segments, and what a device is told of them. Where the partitioner wants norms, the decision is a
/// host function in the stream: the norms come down, the partitioner runs there, its answer goes up; the caller does
/// not wait, and a CUDA graph can hold it. Stays where it is made, as the workspace and the recipe it works for.
template <class Recipe>
class step_plan {
 public:
  using partitioner_type = decltype(Recipe::partitioner);

  /// `has_places`: the exchange lists segments that are sent whole in places of their own, also where they are known
  /// late.
  step_plan(Recipe const& recipe, cuda_workspace& work, bool has_places)
      : recipe_{recipe}, work_{work}, has_places_{has_places} {
    throw_on_error(cudaEventCreateWithFlags(&told_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  ~step_plan() { cudaEventDestroy(told_); }
  step_plan(step_plan const&) = delete;
  step_plan& operator=(step_plan const&) = delete;

  [[nodiscard]] segmentation<partitioner_type>& segments() noexcept { return segments_; }

  /// After segments().plan(), with nothing enqueued. Allocates.
  void reserve(std::uint64_t most) {
    auto const count = segments_.size();
    most_ = most;
    said_ = told{count};
    now_ = told{count};
    norms_ = pinned_array<double>(count + 1);
    step_ = pinned_array<std::uint64_t>(1);
    device_norms_ = work_.zeroed<double>(count + 1);
    device_words_ = work_.zeroed<std::uint64_t>(sizeof(step_words) / 8);
    known_ = false;
  }

  /// Squared norms, one a segment, in device memory.
  [[nodiscard]] std::span<double> norms() const noexcept { return device_norms_.first(segments_.size()); }

  /// step_words in device memory.
  [[nodiscard]] std::span<std::uint64_t> words() const noexcept { return device_words_.span(); }

  /// A partitioner that needs no norms: decides now, and tells the device where that differs from the step before:
  /// then the host waits for the last such copy. Returns whether it did. Of one that rotates the device is told the
  /// owners of step 0, and finds out in stream order whose turn it is: also in a graph.
  /// @throws as segmentation::assign()
  template <class Places>
  bool decide_now(step_role const who, std::uint64_t step, Places const& places) {
    segments_.assign(recipe_.partitioner, recipe_.density(step), rotates ? 0 : step, who.world);
    describe(who, now_);
    bool const differs = !known_ || now_ != said_;
    if (differs) tell_anew(places);
    if constexpr (rotates) work_.take_turns(who.world);
    return differs;
  }

  /// A partitioner that needs norms: decides when the stream comes to it. `places` as device_exchange's slots() and
  /// whole(), or anything without.
  template <class Places>
  void decide_later(step_role const who, Places const& places) {
    auto& mine = errands_[who.exchanging ? 1 : 0];
    if (mine.plan != this || mine.who != who) mine = {this, who};
    work_.where().copy(std::as_bytes(norms()), std::as_writable_bytes(norms_.span().first(segments_.size())));
    work_.where().copy(std::as_bytes(work_.step()), std::as_writable_bytes(step_.span()));
    throw_on_error(cudaLaunchHostFunc(
                       work_.where().stream,
                       [](void* what) {
                         auto const& [plan, asking] = *static_cast<errand const*>(what);
                         plan->decide(asking);
                       },
                       &mine),
                   "cudaLaunchHostFunc");
    tell(places);
  }

  /// What a partitioner has thrown in the stream. It gave no entry then, and the step was one without entries.
  void rethrow() {
    if (failed_.exchange(false)) std::rethrow_exception(failure_);
  }

  /// Forgets it. @pre Nothing is enqueued.
  void forget_failure() noexcept { failed_.store(false); }

 private:
  static constexpr bool rotates = rotating_partitioner<partitioner_type>;

  /// What the device is told, in page-locked memory.
  struct told {
    pinned_array<cuda_kernels::device_segment> table;
    pinned_array<std::uint32_t> slots;
    pinned_array<bool> whole;
    pinned_array<std::uint64_t> words;

    told() = default;
    explicit told(std::size_t count) : table(count), slots(count), whole(count), words(sizeof(step_words) / 8) {}

    friend bool operator==(told const& a, told const& b) {
      return std::ranges::equal(a.table.span(), b.table.span()) && std::ranges::equal(a.slots.span(), b.slots.span()) &&
             std::ranges::equal(a.whole.span(), b.whole.span()) && std::ranges::equal(a.words.span(), b.words.span());
    }
  };

  struct errand {
    step_plan* plan = nullptr;
    step_role who;
  };

  /// now_, to a device that knows otherwise or nothing.
  template <class Places>
  void tell_anew(Places const& places) {
    if (known_) throw_on_error(cudaEventSynchronize(told_), "cudaEventSynchronize");
    std::swap(now_, said_);
    tell(places);
    throw_on_error(cudaEventRecord(told_, work_.where().stream), "cudaEventRecord");
    known_ = true;
  }

  template <class Places>
  void tell(Places const& places) const {
    work_.upload(std::span<cuda_kernels::device_segment const>{said_.table.span()}, work_.segments());
    work_.upload(std::span<std::uint64_t const>{said_.words.span()}, words());
    if constexpr (placing_device_exchange<Places>) {
      work_.upload(std::span<std::uint32_t const>{said_.slots.span()}, places.slots());
      work_.upload(std::span<bool const>{said_.whole.span()}, places.whole());
    }
  }

  void decide(step_role const who) noexcept {
    try {
      std::copy_n(norms_.data(), segments_.size(), segments_.norms().begin());
      segments_.assign(recipe_.partitioner, recipe_.density(step_[0]), step_[0], who.world);
      describe(who, said_);
    } catch (...) {
      for (auto& each : said_.table.span()) each.k = each.whole = 0;
      for (bool& each : said_.whole.span()) each = false;
      if (!failed_.load()) failure_ = std::current_exception();
      failed_.store(true);
    }
  }

  /// Whether a segment is sent whole, so that nobody selects there: known beforehand it is all-reduced as a dense
  /// range; else its places in the ranks' list say so, if there is one.
  [[nodiscard]] bool elsewhere(step_role const who, segment const& each) const noexcept {
    return who.exchanging && gives_whole_segments<decltype(Recipe::selector)> && segments_.sent_whole(each) &&
           (!partitioner_type::needs_norms || has_places_);
  }

  void describe(step_role const who, told& to) const {
    auto const all = segments_.all();
    auto const capacity = [&](index_type k) { return selection_capacity(recipe_.selector, k); };
    work_.describe_step(
        all, capacity,
        [&](std::size_t s) {
          return segments_.gives(all[s]) && !elsewhere(who, all[s]) &&
                 (rotates || all[s].owner == segment::every_rank || all[s].owner == who.rank);
        },
        to.table.span());
    if constexpr (rotates)
      for (std::size_t s = 0; s < all.size(); ++s) {
        to.table[s].due = to.table[s].k;
        to.table[s].turn = all[s].owner == segment::every_rank
                               ? cuda_kernels::every_turn
                               : static_cast<std::uint32_t>((who.rank - all[s].owner + who.world) % who.world);
      }
    std::uint64_t slot = 0;
    std::uint64_t listed = 0;
    for (std::size_t s = 0; s < all.size(); ++s) {
      bool const is_listed = partitioner_type::needs_norms && elsewhere(who, all[s]);
      to.slots[s] = static_cast<std::uint32_t>(slot);
      to.whole[s] = is_listed;
      to.table[s].whole = is_listed ? 1 : 0;
      slot = std::min(slot + std::min<std::uint64_t>(capacity(all[s].k), all[s].size), most_);
      if (is_listed) listed += all[s].size;
    }
    step_words const words{segments_.decision(0), segments_.budget(), listed};
    std::memcpy(to.words.data(), &words, sizeof words);
  }

  Recipe const& recipe_;
  cuda_workspace& work_;
  segmentation<partitioner_type> segments_;
  bool has_places_;
  std::uint64_t most_ = 0;
  bool known_ = false;
  told said_, now_;
  cudaEvent_t told_ = nullptr;       // said_ has been copied
  std::array<errand, 2> errands_{};  // of steps without and with an exchange
  pinned_array<double> norms_;
  pinned_array<std::uint64_t> step_;
  cuda_buffer<double> device_norms_;
  cuda_buffer<std::uint64_t> device_words_;

  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;
};

}  // namespace gradsieve
