// Inner loops of the host space, over one tile that stays in the nearest cache.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <gradsieve/search.hpp>
#include <gradsieve/selection.hpp>
#include <gradsieve/space/host_append.hpp>
#include <gradsieve/space/host_simd.hpp>
#include <gradsieve/types.hpp>

namespace gradsieve::host_kernels {

/// Elements of a tile: gradient and accumulator of one tile fit the first-level cache together.
inline constexpr std::uint64_t tile_size = 4096;

/// Sums of one tile or segment, in the order of its elements: the same for any number of threads.
struct statistics {
  double sum_abs = 0;
  double sum_squares = 0;
  key_type max_key = 0;
  std::uint64_t nonzero = 0;

  void add(statistics const& other) noexcept {
    sum_abs += other.sum_abs;
    sum_squares += other.sum_squares;
    max_key = std::max(max_key, other.max_key);
    nonzero += other.nonzero;
  }
};

/// Enters one gradient element into its state; false if it or the new state was not finite.
template <class Residual, std::size_t States>
GRADSIEVE_INLINE constexpr bool enter_one(Residual const& policy, float gradient,
                                          std::array<float, States>& state) noexcept {
  auto const before = state;
  bool const usable = is_finite(gradient);
  policy.enter(usable ? gradient : 0.0f, state);
  bool finite = true;
  for (float const each : state) finite = finite & is_finite(each);
  for (std::size_t s = 0; s < States; ++s) state[s] = finite ? state[s] : before[s];
  return usable & finite;
}

/// Enters `count` gradient elements, times `factor`, into their states. A gradient that is not finite counts as
/// zero; an element whose new state would not be finite keeps its old one. With `Write` false nothing is stored.
/// Returns how many were not finite.
template <bool Write, class Residual, class T, std::size_t States>
GRADSIEVE_INLINE std::uint64_t enter(Residual const& policy, std::array<float*, States> const& states,
                                     T const* gradient, float factor, std::size_t count) noexcept {
  std::uint32_t bad = 0;
  GRADSIEVE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    std::array<float, States> now{};
    for (std::size_t s = 0; s < States; ++s) now[s] = states[s][i];
    bool const finite = enter_one(policy, multiply(to_float(gradient[i]), factor), now);
    bad += finite ? 0u : 1u;
    if constexpr (Write)
      for (std::size_t s = 0; s < States; ++s) states[s][i] = now[s];
  }
  return bad;
}

[[nodiscard]] GRADSIEVE_INLINE statistics measure(float const* values, std::size_t count) noexcept {
  constexpr std::size_t lanes = 8;  // fixed lanes: vector code of any width adds in this order
  std::array<double, lanes> sum_abs{};
  std::array<double, lanes> sum_squares{};
  statistics result;
  key_type largest = 0;
  std::uint32_t nonzero = 0;
  auto const one = [&](std::size_t i, std::size_t lane) {
    auto const x = static_cast<double>(abs(values[i]));
    sum_abs[lane] += x;
    double const square = x * x;
    sum_squares[lane] += square;
    key_type const key = magnitude_key(values[i]);
    largest = std::max(largest, key);
    nonzero += key != 0 ? 1u : 0u;
  };
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane) one(i + lane, lane);
  for (; i < count; ++i) one(i, i % lanes);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    result.sum_abs += sum_abs[lane];
    result.sum_squares += sum_squares[lane];
  }
  result.max_key = largest;
  result.nonzero = nonzero;
  return result;
}

[[nodiscard]] GRADSIEVE_INLINE std::uint64_t count_at_least(float const* values, std::size_t count,
                                                            key_type key) noexcept {
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < count; ++i) found += magnitude_key(values[i]) >= key ? 1u : 0u;
  return found;
}

/// Lets a value leave the states of one element.
template <class Residual, std::size_t States>
GRADSIEVE_INLINE void leave_one(Residual const& policy, std::array<float*, States> const& states, std::uint64_t i,
                                float sent) noexcept {
  std::array<float, States> now{};
  for (std::size_t s = 0; s < States; ++s) now[s] = states[s][i];
  policy.leave(sent, now, false);
  for (std::size_t s = 0; s < States; ++s) states[s][i] = now[s];
}

/// Asks for `count` elements that will be needed soon; they may lie behind the array's end.
template <class T>
GRADSIEVE_INLINE void prefetch(T const* values, std::size_t count) noexcept {
  auto const from = reinterpret_cast<std::uintptr_t>(values);
  for (std::size_t line = 0; line < count * sizeof(T); line += 64)
    __builtin_prefetch(reinterpret_cast<void const*>(from + line));
}

/// Entries that were sent and have still to leave: index-ordered, the first ones for the elements that come next.
struct owed_list {
  index_type const* indices = nullptr;
  float const* values = nullptr;
  std::uint64_t count = 0;
};

/// Letting leave, entering, measuring and keeping candidates of a tile, a strip at a time. Memory is asked for a few
/// strips ahead: a strip that is looked through would else leave it idle.
struct accumulate_tile {
  static constexpr std::size_t strip = 256;
  static constexpr std::size_t ahead = 4 * strip;
  static constexpr std::size_t leave_ahead = 1 * strip;  // a vector load right behind a scalar store would wait for it

  template <simd Level, class Residual, class T, std::size_t States>
  GRADSIEVE_INLINE static std::uint64_t run(Residual const policy, std::array<float*, States> states, T const* gradient,
                                            float factor, std::size_t count, std::uint64_t first, key_type lower,
                                            candidate_list* list, owed_list* owed, statistics* sums) noexcept {
    std::uint64_t bad = 0;
    for (std::size_t at = 0; at < count; at += strip) {
      std::size_t const size = std::min(strip, count - at);
      prefetch(gradient + at + ahead, strip);
      for (auto const* const state : states) prefetch(state + ahead, strip);
      for (; owed->count > 0 && *owed->indices < first + at + size + leave_ahead; --owed->count)
        leave_one(policy, states, *owed->indices++ - (first + at), *owed->values++);
      if (size == strip)  // a count that the compiler knows: it vectorises this one at -O2 too
        bad += enter<true>(policy, states, gradient + at, factor, strip);
      else
        bad += enter<true>(policy, states, gradient + at, factor, size);
      if (lower != 0) append<Level>(states[0], size, first + at, lower, *list);
      for (auto& state : states) state += size;
    }
    if (sums != nullptr) *sums = measure(states[0] - count, count);
    return bad;
  }
};

struct count_bad {
  template <simd, class Residual, class T, std::size_t States>
  GRADSIEVE_INLINE static std::uint64_t run(Residual const policy, std::array<float*, States> states, T const* gradient,
                                            float factor, std::size_t count) noexcept {
    return enter<false>(policy, states, gradient, factor, count);
  }
};

struct append_tile {
  template <simd Level>
  GRADSIEVE_INLINE static void run(float const* values, std::size_t count, std::uint64_t first, key_type lower,
                                   candidate_list* list) noexcept {
    append<Level>(values, count, first, lower, *list);
  }
};

struct measure_tile {
  template <simd>
  GRADSIEVE_INLINE static statistics run(float const* values, std::size_t count) noexcept {
    return measure(values, count);
  }
};

struct count_tile {
  template <simd>
  GRADSIEVE_INLINE static std::uint64_t run(float const* values, std::size_t count, key_type key) noexcept {
    return count_at_least(values, count, key);
  }
};

/// Elements of a part that a cut keeps: above its key, and equal to it. Later: where the part writes its first
/// entry, and how many ties it takes.
struct kept {
  std::uint64_t above = 0;
  std::uint64_t equal = 0;
};

template <class Keep>
[[nodiscard]] GRADSIEVE_INLINE kept count_kept(float const* values, std::size_t count, key_type key,
                                               Keep const& keep) noexcept {
  std::uint32_t above = 0;
  std::uint32_t equal = 0;
  for (std::size_t i = 0; i < count; ++i) {
    key_type const here = magnitude_key(values[i]);
    std::uint32_t const wanted = keep(values[i]) ? 1 : 0;
    above += here > key ? wanted : 0u;
    equal += here == key ? wanted : 0u;
  }
  return {above, equal};
}

struct count_tile_kept {
  template <simd, class Keep>
  GRADSIEVE_INLINE static kept run(float const* values, std::size_t count, key_type key, Keep const keep) noexcept {
    return count_kept(values, count, key, keep);
  }
};

/// Writes what a cut keeps of a part to [at.above, end), with the first at.equal ties.
template <class Keep, class Index>
void write_kept(float const* values, std::size_t count, key_type key, Keep const& keep, kept at, std::uint64_t end,
                selection_span out, Index const& index) noexcept {
  for (std::size_t i = 0; i < count && at.above < end; ++i) {
    key_type const here = magnitude_key(values[i]);
    if (here < key || (here == key && at.equal == 0) || !keep(values[i])) continue;
    at.equal -= here == key ? 1u : 0u;
    out.indices[at.above] = index(i);
    out.values[at.above++] = values[i];
  }
}

struct count_candidates {
  template <simd>
  GRADSIEVE_INLINE static kept run(float const* values, std::size_t count, key_type key) noexcept {
    return count_kept(values, count, key, [](float) { return true; });
  }
};

/// Writes the candidates that a cut keeps to [at.above, end).
struct write_candidates {
  template <simd Level>
  GRADSIEVE_INLINE static void run(float const* values, index_type const* from, std::size_t count, key_type key,
                                   kept at, std::uint64_t end, index_type* indices, float* out) noexcept {
    std::size_t i = 0;
    for (; i + group <= count && at.above + group <= end; i += group) {  // as long as a group's room is left
      std::uint32_t equal = 0;
      if (at.equal > 0)
        for (std::size_t j = 0; j < group; ++j) equal += magnitude_key(values[i + j]) == key ? 1u : 0u;
      if (equal > at.equal) break;  // ties that are not taken
      key_type const lower = equal > 0 ? key : key + 1;
      at.above += pack_group<Level>::run(values + i, from + i, lower, indices + at.above, out + at.above);
      at.equal -= equal;
    }
    for (; i < count && at.above < end; ++i) {
      key_type const here = magnitude_key(values[i]);
      if (here < key || (here == key && at.equal == 0)) continue;
      at.equal -= here == key ? 1u : 0u;
      indices[at.above] = from[i];
      out[at.above++] = values[i];
    }
  }
};

/// Counts the keys above `high` and writes those in [low, high] to `out`, at most `room` of them.
struct split_keys {
  struct result {
    std::uint64_t above = 0;
    std::uint64_t inside = 0;
    bool complete = true;
  };

  template <simd Level>
  GRADSIEVE_INLINE static result run(float const* values, std::size_t count, key_type low, key_type high, key_type* out,
                                     std::uint64_t room) noexcept {
    result found;
    for (std::size_t i = 0; i < count; i += group) {
      if (found.inside + group > room) return {found.above, found.inside, false};
      found.inside +=
          split_group<Level>::run(values + i, std::min(group, count - i), low, high, out + found.inside, found.above);
    }
    return found;
  }
};

/// Sum of x^2 in order of the elements, those that are not finite left out.
template <class T>
[[nodiscard]] double sum_squares(T const* values, std::size_t count) noexcept {
  double total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    float const x = to_float(values[i]);
    auto const wide = static_cast<double>(is_finite(x) ? x : 0.0f);
    total += wide * wide;
  }
  return total;
}

}  // namespace gradsieve::host_kernels
