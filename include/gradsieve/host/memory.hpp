// The states of all elements on the host, and the rollback of a failed step.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/concepts.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Owns `Residual::states` floats per element (state 0: the accumulator), and what the current step removed, for an
/// exact rollback. Sent values stay `pending`: the next accumulate pass subtracts them, or flush_pending() if the
/// states are read earlier. At a density of 10 %, a separate pass would touch nearly every cache line again.
template <class Workspace, class Residual>
class residual_memory {
 public:
  static constexpr std::size_t states = Residual::states;
  using buffer = typename Workspace::template buffer<float>;

  /// Memory: 4 * states * n bytes, zeroed by the team that will use it.
  residual_memory(Workspace& work, Residual const& policy, std::uint64_t n) : work_{work}, policy_{policy} {
    for (auto& each : states_) {
      each = buffer(n);
      work_.fill_zero(each.span());
    }
  }

  /// Room for the entries that a step removes. Allocates.
  void reserve(std::uint64_t entries) {
    if (saved_.size() < entries * states) saved_ = buffer(entries * states);
  }

  [[nodiscard]] std::array<float*, states> pointers() noexcept {
    std::array<float*, states> all{};
    for (std::size_t s = 0; s < states; ++s) all[s] = states_[s].data();
    return all;
  }
  [[nodiscard]] Residual const& policy() const noexcept { return policy_; }

  /// One state of all elements. @pre flush_pending(), unless pending values may be in it
  [[nodiscard]] std::span<float const> state(std::size_t s) const noexcept { return states_[s].span(); }

  // read, write, absorb and squared_norm flush what is pending.

  [[nodiscard]] std::span<float const> read(std::size_t s) {
    flush_pending();
    return state(s);
  }
  void write(std::size_t s, std::span<float const> values) {
    flush_pending();
    std::ranges::copy(values, states_[s].data());
  }
  /// Adds another memory's state, element by element; skips sums that would not be finite.
  void absorb(std::size_t s, std::span<float const> other) {
    flush_pending();
    work_.update(std::array{states_[s].data()}, 0, other.size(), [&](std::uint64_t i, auto& now) {
      float const sum = add(now[0], other[i]);
      now[0] = is_finite(sum) ? sum : now[0];
    });
  }
  /// Sum of the accumulators' squares. Cost: one pass.
  [[nodiscard]] double squared_norm() {
    flush_pending();
    return work_.sum_squares(state(0));
  }

  /// Entries that were sent and are still in the states.
  [[nodiscard]] selection_view pending() const noexcept { return removed_ ? selection_view{} : sent_; }

  /// Subtracts the pending entries. Cost: O(entries), scattered.
  void flush_pending() {
    if (removed_) return;
    removed_ = true;
    work_.update(pointers(), sent_.indices, [&](std::uint64_t p, auto& now) {
      for (std::size_t s = 0; s < states; ++s) saved_[p * states + s] = now[s];
      policy_.remove_sent(sent_.values[p], now, false);
    });
  }

  /// Marks the pending entries as subtracted, after an accumulate pass has done so.
  void mark_flushed() noexcept { removed_ = true; }

  /// Makes sent values pending; they must live until the next accumulate pass or flush_pending(). @pre None is pending.
  void remove_sent(selection_view sent) noexcept {
    sent_ = {sent.indices, sent.values, {}};
    removed_ = final_ = false;
  }

  /// Restores exactly what this step removed. Idempotent.
  void rollback() {
    if (!final_ && removed_)
      work_.update(pointers(), sent_.indices, [&](std::uint64_t p, auto& now) {
        for (std::size_t s = 0; s < states; ++s) now[s] = saved_[p * states + s];
      });
    removed_ = removed_ || !final_;
    forget();
  }

  /// Ends the possibility of a rollback.
  void forget() noexcept { final_ = true; }

  /// Multiplies every state, the saved states and `passthrough` by `factor`; elements that would not stay finite keep
  /// theirs. @pre flush_pending().
  void rescale(float factor, std::span<float> passthrough) {
    auto const scale = [&](std::span<float> values) {
      work_.update(std::array{values.data()}, 0, values.size(), [&](std::uint64_t, auto& now) {
        float const scaled = multiply(now[0], factor);
        now[0] = is_finite(scaled) ? scaled : now[0];
      });
    };
    for (auto const& each : states_) scale(each.span());
    scale(saved_.first(final_ ? 0 : sent_.indices.size() * states));
    scale(passthrough);
  }

 private:
  Workspace& work_;
  Residual const& policy_;
  std::array<buffer, states> states_;
  buffer saved_;
  selection_view sent_;   // by the last step
  bool removed_ = true;   // sent_ is no longer in the states
  bool final_ = true;     // no rollback is possible
};

}  // namespace gradsieve::detail
