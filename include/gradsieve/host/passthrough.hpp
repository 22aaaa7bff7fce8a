// Values that a step on the host sends without indices.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/passthrough_layers.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/host/memory.hpp>
#include <gradsieve/step/parts.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Writes sums / divisor. Returns how many are clamped to the format's largest value. @pre as many sums as places
template <gradient_value T>
GRADSIEVE_PRECISE std::uint64_t write_means_to(std::span<T> const out, float const* sums, float divisor) noexcept {
  std::uint64_t saturated = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    float const mean = divide(sums[i], divisor);
    out[i] = from_float_saturated<T>(mean);
    saturated += exceeds<T>(mean) ? 1u : 0u;
  }
  return saturated;
}

/// Writes contiguous sums / divisor to their ranges. Returns how many are clamped to the format's largest value.
template <gradient_value T>
std::uint64_t write_ranges(std::span<range const> ranges, std::span<float const> sums, float divisor,
                           gradient_ref<T> const out) noexcept {
  std::size_t at = 0;
  std::uint64_t saturated = 0;
  for (auto const& each : ranges)
    out.for_each_run(each.offset, each.size, [&](std::span<T> const run) {
      saturated += write_means_to(run, sums.data() + at, divisor);
      at += run.size();
    });
  return saturated;
}

/// Lists the ranges that a step sends without indices: passthrough layers and, if `full_segments`, the segments sent in
/// full, without the excluded ranges in them. Cost: one walk over the segments and the excluded ranges.
template <class Segmentation>
void name_passthrough_ranges(step_layers const& now, Segmentation const& segments, bool full_segments,
                             std::vector<range>& ranges) {
  ranges.assign(now.passthrough().begin(), now.passthrough().end());
  if (!full_segments) return;
  auto hole = now.excluded().begin();
  for (auto const& each : segments.all()) {
    std::uint64_t begin = each.offset;
    std::uint64_t const end = each.offset + each.size;
    while (hole != now.excluded().end() && hole->offset + hole->size <= begin) ++hole;
    if (!Segmentation::sent_in_full(each)) continue;
    for (auto inside = hole; inside != now.excluded().end() && inside->offset < end; ++inside) {
      if (inside->offset > begin) ranges.push_back({begin, inside->offset - begin});
      begin = inside->offset + inside->size;
    }
    if (begin < end) ranges.push_back({begin, end - begin});
  }
}

/// Upper bound on the ranges of name_passthrough_ranges(): passthrough layers, and segments, each split at every
/// excluded layer.
[[nodiscard]] inline std::size_t most_passthrough_ranges(layer_split const& split, std::size_t segments) noexcept {
  return 2 * split.passthrough.size() + split.selected.size() + segments + 1;
}

/// Passthrough layers, and segments sent in full: their ranges, this rank's values, the ranks' sum, and the previous
/// states for a rollback. From take() to put_back() these accumulators, and those of skipped layers, are zero: nothing
/// to select.
template <class Workspace, class Residual>
class passthrough_part {
 public:
  static constexpr std::size_t states = Residual::states;
  using buffer = typename Workspace::template buffer<float>;
  using memory_type = residual_memory<Workspace, Residual>;

  passthrough_part(Workspace& work, memory_type& memory, layer_split const& split, step_layers const& now)
      : work_{work}, memory_{memory}, split_{split}, now_{now} {}

  /// Room for passthrough layers and for segments, of which a step sends at most `most` elements in full. Allocates.
  void reserve(std::size_t segments, std::uint64_t most) {
    auto const elements = split_.passthrough_elements + most;
    ranges_.reserve(most_passthrough_ranges(split_, segments));
    own_ = buffer(elements);
    sum_ = buffer(elements + 1);
    if (saved_.size() < elements * states) saved_ = buffer(elements * states);
    reserve_skipped();
  }

  /// Room for the accumulators of skipped layers. Allocates if it needs more than before.
  void reserve_skipped() {
    if (held_.size() < now_.skipped_elements()) held_ = buffer(now_.skipped_elements());
  }

  /// Sets the ranges of a step. @pre reserve()
  template <class Segmentation>
  void choose(Segmentation const& segments, bool full_segments) {
    name_passthrough_ranges(now_, segments, full_segments, ranges_);
    count_ = 0;
    for (auto const& each : ranges_) count_ += each.size;
  }

  [[nodiscard]] std::span<range const> ranges() const noexcept { return ranges_; }

  [[nodiscard]] std::uint64_t size() const noexcept { return count_; }

  /// This rank's values, contiguous. @pre take()
  [[nodiscard]] std::span<float const> own() const noexcept { return own_.first(count_); }
  /// The memory of own(), whole.
  [[nodiscard]] std::span<float const> memory() const noexcept { return own_.span(); }

  /// Moves the ranges' values, clamped to +-limit, out of the residual. Keeps the clamped excess, and the accumulators
  /// of skipped layers, until put_back(). Returns how many values were clamped.
  std::uint64_t take(float limit) {
    taken_ = holds_ = true;
    std::atomic<std::uint64_t> clamped{0};
    std::atomic<bool> stays{false};
    over(ranges_, [&](std::uint64_t place, auto& now) {
      for (std::size_t s = 0; s < states; ++s) saved_[place * states + s] = now[s];
      bool const beyond = magnitude_key(now[0]) > magnitude_key(limit);
      if (beyond) clamped.fetch_add(1, std::memory_order_relaxed);
      own_[place] = beyond ? with_sign_of(now[0], limit) : now[0];
      memory_.policy().remove_sent(own_[place], now, true);
      if (magnitude_key(now[0]) == 0) return;
      now[0] = 0;
      stays.store(true, std::memory_order_relaxed);
    });
    stays_ = stays.load();
    over(now_.skipped(), [&](std::uint64_t place, auto& now) { held_[place] = std::exchange(now[0], 0.0f); });
    return clamped.load();
  }

  /// Returns to the accumulators what take() kept for them. Idempotent.
  void put_back() {
    if (!std::exchange(holds_, false)) return;
    if (std::exchange(stays_, false))
      over(ranges_, [&](std::uint64_t place, auto& now) {
        element_state<states> before{};
        for (std::size_t s = 0; s < states; ++s) before[s] = saved_[place * states + s];
        memory_.policy().remove_sent(own_[place], before, true);
        now[0] = before[0];
      });
    over(now_.skipped(), [&](std::uint64_t place, auto& now) { now[0] = held_[place]; });
  }

  /// Restores exactly what take() removed in this step. Idempotent.
  void rollback() {
    put_back();
    if (taken_)
      over(ranges_, [&](std::uint64_t place, auto& now) {
        for (std::size_t s = 0; s < states; ++s) now[s] = saved_[place * states + s];
      });
    forget();
  }

  /// Ends the possibility of a rollback.
  void forget() noexcept { taken_ = false; }

  /// The states that rollback() restores.
  [[nodiscard]] std::span<float> saved() const noexcept { return saved_.first(taken_ ? count_ * states : 0); }

  /// All-reduces the values, if any, with a flag for `failed`. Returns the bytes sent, and received. Collective.
  template <class Comm>
  std::uint64_t share(Comm const& comm, bool failed) {
    std::copy_n(own_.data(), count_, sum_.data());
    sum_[count_] = failed ? 1.0f : 0.0f;
    if (count_ == 0) return 0;
    comm.all_reduce(work_.where(), sum_.first(count_ + 1), reduction::sum);
    return (count_ + 1) * sizeof(float);
  }

  /// True if any rank had failed in share(); finite(): true if the received sums are finite.
  [[nodiscard]] bool failed() const noexcept { return sum_[count_] > 0; }
  [[nodiscard]] bool finite() const noexcept { return wire::all_finite(sum_.first(count_ + 1)); }

  /// Writes sums / divisor to the ranges of a gradient. Returns how many were clamped.
  template <class T>
  std::uint64_t write(float divisor, gradient_ref<T> const out) const noexcept {
    return write_ranges(ranges(), std::span<float const>{sum_.first(count_)}, divisor, out);
  }

 private:
  /// Calls body(place, states) for the elements of the ranges; places are consecutive.
  template <class Body>
  void over(std::vector<range> const& ranges, Body const& body) {
    std::uint64_t at = 0;
    for (auto const& each : ranges) {
      work_.update(memory_.pointers(), each.offset, each.offset + each.size,
                   [&](std::uint64_t i, auto& now) { body(at + i - each.offset, now); });
      at += each.size;
    }
  }

  Workspace& work_;
  memory_type& memory_;
  layer_split const& split_;
  step_layers const& now_;
  std::vector<range> ranges_;
  buffer own_, sum_, saved_;
  buffer held_;  // accumulators of skipped layers, from take() to put_back()
  std::uint64_t count_ = 0;
  bool taken_ = false;  // take() has run in this step
  bool holds_ = false;  // between take() and put_back()
  bool stays_ = false;  // some accumulators kept a clamped excess
};

}  // namespace gradsieve::detail
