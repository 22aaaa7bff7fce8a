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

/// Entering, measuring and keeping candidates of a tile, a strip at a time: short enough that memory is busy with
/// the next strip while the last one is looked through.
struct accumulate_tile {
  static constexpr std::size_t strip = 512;

  template <simd Level, class Residual, class T, std::size_t States>
  GRADSIEVE_INLINE static std::uint64_t run(Residual const policy, std::array<float*, States> states, T const* gradient,
                                            float factor, std::size_t count, std::uint64_t first, key_type lower,
                                            candidate_list* list, statistics* sums) noexcept {
    std::uint64_t bad = 0;
    for (std::size_t at = 0; at < count; at += strip) {
      std::size_t const size = std::min(strip, count - at);
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

struct largest_key {
  template <simd>
  GRADSIEVE_INLINE static key_type run(float const* values, std::size_t count) noexcept {
    return max_key(values, count);
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
    bool const wanted = here >= key && keep(values[i]);
    above += wanted && here > key ? 1u : 0u;
    equal += wanted && here == key ? 1u : 0u;
  }
  return {above, equal};
}

/// Writes what a cut keeps of a part, from at.above on, with the first at.equal ties; stops where `out` ends.
template <class Keep, class Index>
void write_kept(float const* values, std::size_t count, key_type key, Keep const& keep, kept at, selection_span out,
                Index const& index) noexcept {
  std::size_t const room = out.indices.size();
  for (std::size_t i = 0; i < count && at.above < room; ++i) {
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
    if (at.equal == 0)  // no ties to take: whole groups, as long as a group's room is left
      for (; i + group <= count && at.above + group <= end; i += group)
        at.above += pack_group<Level>::run(values + i, from + i, key + 1, indices + at.above, out + at.above);
    for (; i < count && at.above < end; ++i) {
      key_type const here = magnitude_key(values[i]);
      if (here < key || (here == key && at.equal == 0)) continue;
      at.equal -= here == key ? 1u : 0u;
      indices[at.above] = from[i];
      out[at.above++] = values[i];
    }
  }
};

/// Writes the keys that are in the current range of a search.
struct gather_keys {
  template <simd>
  GRADSIEVE_INLINE static void run(float const* values, std::size_t count, digit_search const search,
                                   key_type* out) noexcept {
    for (std::size_t begin = 0; begin < count; begin += group) {
      std::size_t const size = std::min(group, count - begin);
      std::uint32_t any = 0;
      for (std::size_t i = begin; i < begin + size; ++i) any |= search.inside(magnitude_key(values[i])) ? 1u : 0u;
      if (any == 0) continue;
      for (std::size_t i = begin; i < begin + size; ++i)
        if (search.inside(magnitude_key(values[i]))) *out++ = magnitude_key(values[i]);
    }
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
