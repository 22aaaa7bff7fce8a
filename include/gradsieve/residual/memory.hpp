// The states of all elements, and the way back when a step comes to nothing.
#pragma once

#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <gradsieve/concepts.hpp>

namespace gradsieve {

/// Owns `Residual::states` floats for each element; state 0 is the accumulator. Remembers what the current step
/// took out, so that a step that fails or is discarded can be given back, bit for bit.
/// What a selection sent is `owed`: it leaves when the next step's accumulate pass comes by anyway, or when somebody
/// looks. At a density of 10 % a pass of its own would touch nearly every cache line again.
template <class Workspace, class Residual>
class residual_memory {
 public:
  static constexpr std::size_t states = Residual::states;
  using buffer = typename Workspace::template buffer<float>;

  /// Memory: 4 * states * n bytes, zeroed by the team that will work on it.
  residual_memory(Workspace& work, std::uint64_t n) {
    for (auto& each : states_) {
      each = buffer(n);
      work.fill_zero(each.span());
    }
  }

  /// Room for what a step takes out. Allocates.
  void reserve(std::uint64_t sent, std::uint64_t dense) {
    if (saved_.size() < sent * states) saved_ = buffer(sent * states);
    if (saved_dense_.size() < dense * states) saved_dense_ = buffer(dense * states);
  }

  [[nodiscard]] std::array<float*, states> pointers() const noexcept {
    std::array<float*, states> all{};
    for (std::size_t s = 0; s < states; ++s) all[s] = states_[s].data();
    return all;
  }

  [[nodiscard]] std::span<float> state(std::size_t s) const noexcept { return states_[s].span(); }

  /// Nothing can be given back any more: a new step begins.
  void begin_step() noexcept {
    final_ = true;
    taken_ranges_ = {};
  }

  /// The entries that have still to leave.
  [[nodiscard]] selection_view owed() const noexcept { return left_ ? selection_view{} : taken_; }

  /// Lets them leave now. Afterwards the states are what they are said to be. Cost: O(entries), scattered.
  void settle(Workspace& work, Residual const& policy) {
    if (left_) return;
    left_ = true;
    work.update(pointers(), taken_.indices, [&](std::uint64_t p, auto& now) {
      for (std::size_t s = 0; s < states; ++s) saved_[p * states + s] = now[s];
      policy.leave(taken_.values[p], now, false);
    });
  }

  /// An accumulate pass has let them leave.
  void settled() noexcept { left_ = true; }

  /// Lets whole ranges leave; their accumulators, cut to `limit`, back to back into `out`. What is cut off stays.
  /// Returns how many elements, and how many of them are cut.
  std::pair<std::uint64_t, std::uint64_t> take(Workspace& work, Residual const& policy, std::span<range const> ranges,
                                               std::span<float> out, float limit) {
    taken_ranges_ = ranges;
    std::uint64_t at = 0;
    std::atomic<std::uint64_t> cut{0};
    for (auto const& each : ranges) {
      work.update(pointers(), each.offset, each.offset + each.size, [&](std::uint64_t i, auto& now) {
        std::uint64_t const place = at + i - each.offset;
        for (std::size_t s = 0; s < states; ++s) saved_dense_[place * states + s] = now[s];
        bool const beyond = magnitude_key(now[0]) > magnitude_key(limit);
        if (beyond) cut.fetch_add(1, std::memory_order_relaxed);
        out[place] = beyond ? with_sign_of(now[0], limit) : now[0];
        policy.leave(out[place], now, true);
      });
      at += each.size;
    }
    return {at, cut.load()};
  }

  /// The values that were sent are to leave. Indices and values must live until the next step has accumulated, or
  /// settle(). @pre Nothing is owed.
  void leave(selection_view sent) noexcept {
    taken_ = {sent.indices, sent.values, {}};
    left_ = final_ = false;
  }

  /// Puts back whatever this step took, exactly. Idempotent.
  void give_back(Workspace& work) {
    if (!final_ && left_)
      work.update(pointers(), taken_.indices, [&](std::uint64_t p, auto& now) {
        for (std::size_t s = 0; s < states; ++s) now[s] = saved_[p * states + s];
      });
    left_ = left_ || !final_;
    std::uint64_t at = 0;
    for (auto const& each : taken_ranges_) {
      work.update(pointers(), each.offset, each.offset + each.size, [&](std::uint64_t i, auto& now) {
        for (std::size_t s = 0; s < states; ++s) now[s] = saved_dense_[(at + i - each.offset) * states + s];
      });
      at += each.size;
    }
    begin_step();
  }

  /// Multiplies every state, and what could be given back. An element that would not stay finite keeps its value.
  /// @pre settle().
  void rescale(Workspace& work, float factor) {
    auto const scale = [&](buffer const& values, std::uint64_t count) {
      work.update(std::array{values.data()}, 0, count, [&](std::uint64_t, auto& now) {
        float const scaled = multiply(now[0], factor);
        now[0] = is_finite(scaled) ? scaled : now[0];
      });
    };
    for (auto const& each : states_) scale(each, each.size());
    std::uint64_t dense = 0;
    for (auto const& each : taken_ranges_) dense += each.size;
    scale(saved_, final_ ? 0 : taken_.indices.size() * states);
    scale(saved_dense_, dense * states);
  }

  /// Adds another memory's states, element by element. A sum that would not be finite is not made.
  void absorb(Workspace& work, std::size_t s, std::span<float const> other) {
    work.update(std::array{states_[s].data()}, 0, other.size(), [&](std::uint64_t i, auto& now) {
      float const sum = add(now[0], other[i]);
      now[0] = is_finite(sum) ? sum : now[0];
    });
  }

 private:
  std::array<buffer, states> states_;
  buffer saved_, saved_dense_;
  selection_view taken_;  // what the last selection sent
  bool left_ = true;      // it has left the states
  bool final_ = true;     // it can not be given back
  std::span<range const> taken_ranges_;
};

}  // namespace gradsieve
