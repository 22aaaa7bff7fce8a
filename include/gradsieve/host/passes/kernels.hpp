// Inner loops of the host space, over one tile that stays in the nearest cache.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/simd/append.hpp>
#include <gradsieve/host/simd/simd.hpp>
#include <gradsieve/residual/accumulate_element.hpp>

namespace gradsieve::host_kernels {

/// Elements of a tile: gradient and accumulator of one tile fit the first-level cache together.
inline constexpr std::uint64_t tile_size = 4096;

/// Elements between two requests to memory, and how far ahead of the work they are: one core's own guesses leave half
/// of what memory could give unused.
inline constexpr std::size_t strip = 256;
inline constexpr std::size_t ahead = 4 * strip;

/// Asks for `count` elements that will be needed soon; they may lie behind the array's end.
template <class T>
GRADSIEVE_INLINE void prefetch(T const* values, std::size_t count) noexcept {
  auto const from = reinterpret_cast<std::uintptr_t>(values);
  for (std::size_t line = 0; line < count * sizeof(T); line += 64)
    __builtin_prefetch(reinterpret_cast<void const*>(from + line));
}

/// Sums of one tile or segment, in the order of its elements: the same for any number of threads.
struct statistics {
  double sum_abs = 0;
  double sum_squares = 0;
  key_type max_key = 0;
  std::uint64_t nonzero = 0;

  void add(statistics const& other) noexcept {
    sum_abs += other.sum_abs;
    sum_squares += other.sum_squares;
    max_key = larger(max_key, other.max_key);
    nonzero += other.nonzero;
  }
};

/// For accumulate_element(): nobody looks at its elements.
struct unseen {
  GRADSIEVE_INLINE void operator()(std::size_t, float, float) const noexcept {}
  GRADSIEVE_INLINE void advance(std::size_t) const noexcept {}
};

/// Adds `count` gradient elements, times `factor`, to their states as `policy` does. A gradient that is not finite
/// counts as zero; an element whose new state would not be finite keeps its old one. With `Write` false nothing is
/// stored. Returns how many were not finite. seen(i, state, gradient) is called with the new state 0 and the gradient
/// element as used.
template <bool Write, class Residual, class T, std::size_t States, class Seen = unseen>
GRADSIEVE_INLINE std::uint64_t accumulate_element(Residual const& policy, std::array<float*, States> const& states,
                                                  T const* gradient, float factor, std::size_t count,
                                                  Seen const& seen = {}) noexcept {
  float* const* const state = states.data();
  std::uint32_t bad = 0;
  GRADSIEVE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    element_state<States> now{};
    for (std::size_t s = 0; s < States; ++s) now[s] = state[s][i];
    float const entered = multiply(to_float(gradient[i]), factor);
    bool const finite = accumulate_element(policy, entered, now);
    bad += finite ? 0u : 1u;
    seen(i, now[0], entered);
    if constexpr (Write)
      for (std::size_t s = 0; s < States; ++s) state[s][i] = now[s];
  }
  return bad;
}

/// The same for a block, in half the instructions: gradients are taken to be finite, and those that are not are entered
/// after all. A policy may so be called with what is not finite; its result is then thrown away. `largest`: no new
/// state 0 has a key above it.
template <class Residual, class T, std::size_t States, class Seen>
GRADSIEVE_INLINE std::uint64_t accumulate_block(Residual const& policy, std::array<float*, States> const& states,
                                                T const* gradient, float factor, Seen const& seen,
                                                key_type& largest) noexcept {
  constexpr auto finite = static_cast<std::int32_t>(infinite_key - 1);
  float* const* const state = states.data();
  std::int32_t most = 0;  // keys fit 31 bits, and signed comparisons vectorise everywhere
  std::uint32_t bad = 0;
  GRADSIEVE_INDEPENDENT
  for (std::size_t i = 0; i < block; ++i) {  // a count that the compiler knows: it vectorises this at -O2 too
    element_state<States> before{};
    for (std::size_t s = 0; s < States; ++s) before[s] = state[s][i];
    auto now = before;
    float const entered = multiply(to_float(gradient[i]), factor);
    policy.accumulate_element(entered, now);
    auto key = static_cast<std::int32_t>(magnitude_key(entered));
    for (std::size_t s = 0; s < States; ++s) key = larger(key, static_cast<std::int32_t>(magnitude_key(now[s])));
    most = larger(most, key);
    bad += key > finite ? 1u : 0u;
    for (std::size_t s = 0; s < States; ++s) state[s][i] = now[s] = key > finite ? before[s] : now[s];
    seen(i, now[0], entered);
  }
  largest = static_cast<key_type>(most);
  if (most <= finite) [[likely]]
    return 0;
  for (std::size_t i = 0; i < block; ++i) {
    float const entered = multiply(to_float(gradient[i]), factor);
    if (is_finite(entered)) continue;
    element_state<States> now{};
    for (std::size_t s = 0; s < States; ++s) now[s] = state[s][i];
    accumulate_element(policy, entered, now);
    for (std::size_t s = 0; s < States; ++s) state[s][i] = now[s];
    seen(i, now[0], entered);
  }
  return bad;
}

/// Four lanes at a time, in the compiler's own vectors: loops over lanes are vectorised by some compilers and levels
/// only, and eight sums in fixed lanes are the same for any of them.
struct measure_tile {
  template <simd>
  GRADSIEVE_INLINE static statistics run(float const* values, std::size_t count) noexcept {
    constexpr std::size_t width = 4;
    constexpr std::size_t lanes = 2 * width;
    using doubles [[gnu::vector_size(width * sizeof(double))]] = double;
    using floats [[gnu::vector_size(width * sizeof(float))]] = float;
    using keys [[gnu::vector_size(width * sizeof(float))]] = std::int32_t;
    doubles sum_abs[2]{};
    doubles sum_squares[2]{};
    keys largest[2]{};
    keys nonzero[2]{};
    auto const add = [&](float const* from) GRADSIEVE_LAMBDA_INLINE {
      for (std::size_t h = 0; h < 2; ++h) {
        keys key;
        std::memcpy(&key, from + width * h, sizeof key);
        key &= 0x7FFF'FFFF;
        floats magnitude;
        std::memcpy(&magnitude, &key, sizeof key);
        doubles const x = __builtin_convertvector(magnitude, doubles);
        sum_abs[h] += x;
        doubles const square = x * x;
        sum_squares[h] += square;
        largest[h] = key > largest[h] ? key : largest[h];
        nonzero[h] -= key != 0;  // true is -1
      }
    };
    std::size_t i = 0;
    while (i + lanes <= count) {
      prefetch(values + i + ahead, strip);
      for (std::size_t const end = smaller(i + strip, count); i + lanes <= end; i += lanes) add(values + i);
    }
    if (i < count) {
      std::array<float, lanes> rest{};
      std::copy(values + i, values + count, rest.begin());
      add(rest.data());
    }
    statistics result;
    for (std::size_t h = 0; h < 2; ++h)
      for (std::size_t lane = 0; lane < width; ++lane) {
        result.sum_abs += sum_abs[h][lane];
        result.sum_squares += sum_squares[h][lane];
        result.max_key = larger(result.max_key, static_cast<key_type>(largest[h][lane]));
        result.nonzero += static_cast<std::uint64_t>(nonzero[h][lane]);
      }
    return result;
  }
};

/// Removes a sent value from the states of one element.
template <class Residual, std::size_t States>
GRADSIEVE_INLINE void remove_sent_element(Residual const& policy, std::array<float*, States> const& states,
                                          std::uint64_t i, float sent) noexcept {
  float* const* const state = states.data();
  element_state<States> now{};
  for (std::size_t s = 0; s < States; ++s) now[s] = state[s][i];
  policy.remove_sent(sent, now, false);
  for (std::size_t s = 0; s < States; ++s) state[s][i] = now[s];
}

/// Entries that were sent and are still to be removed: index-ordered, the first ones for the elements that come next.
struct pending_list {
  index_type const* indices = nullptr;
  float const* values = nullptr;
  std::uint64_t count = 0;
};

/// Removing what is pending, accumulating, measuring and keeping candidates of a tile, a strip at a time. Each block
/// asks for the one that comes a few strips later: memory would else be idle while a block is looked through.
struct accumulate_tile {
  static constexpr std::size_t remove_ahead = 1 * strip;  // a vector load right behind a scalar store would wait for it

  template <simd Level, class Residual, class T, std::size_t States, class Seen = unseen>
  GRADSIEVE_INLINE static std::uint64_t run(Residual const policy, std::array<float*, States> states, T const* gradient,
                                            float factor, std::size_t count, std::uint64_t first,
                                            key_type candidate_threshold, candidate_list* list, pending_list* pending,
                                            statistics* sums, Seen seen = {}) noexcept {
    std::uint64_t bad = 0;
    for (std::size_t at = 0; at < count; at += strip) {
      std::size_t const size = smaller(strip, count - at);
      for (; pending->count > 0 && *pending->indices < first + at + size + remove_ahead; --pending->count)
        remove_sent_element(policy, states, *pending->indices++ - (first + at), *pending->values++);
      key_type const least = candidate_threshold == 0 ? ~key_type{0} : candidate_threshold;
      std::size_t i = 0;
      for (; i + block <= size; i += block) {
        key_type largest = 0;
        prefetch(gradient + at + i + ahead, block);
        for (auto const* const state : states) prefetch(state + ahead, block);
        bad += accumulate_block(policy, states, gradient + at + i, factor, seen, largest);
        append_from_block<Level>(states[0], first + at + i, largest, least, *list);
        for (auto& state : states) state += block;
        seen.advance(block);
      }
      if (i == size) continue;
      bad += accumulate_element<true>(policy, states, gradient + at + i, factor, size - i, seen);
      if (candidate_threshold != 0) append<Level>(states[0], size - i, first + at + i, candidate_threshold, *list);
      for (auto& state : states) state += size - i;
      seen.advance(size - i);
    }
    if (sums != nullptr) *sums = measure_tile::run<Level>(states[0] - count, count);
    return bad;
  }
};

template <bool Write>
struct enter_tile {
  template <simd, class Residual, class T, std::size_t States>
  GRADSIEVE_INLINE static std::uint64_t run(Residual const policy, std::array<float*, States> states, T const* gradient,
                                            float factor, std::size_t count) noexcept {
    return accumulate_element<Write>(policy, states, gradient, factor, count);
  }
};

struct append_tile {
  template <simd Level>
  GRADSIEVE_INLINE static void run(float const* values, std::size_t count, std::uint64_t first,
                                   key_type candidate_threshold, candidate_list* list) noexcept {
    for (std::size_t at = 0; at < count && !list->full(); at += strip) {
      prefetch(values + at + ahead, strip);
      append<Level>(values + at, smaller(strip, count - at), first + at, candidate_threshold, *list);
    }
  }
};

[[nodiscard]] GRADSIEVE_INLINE std::uint64_t count_at_least(float const* values, std::size_t count,
                                                            key_type key) noexcept {
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < count; ++i) found += magnitude_key(values[i]) >= key ? 1u : 0u;
  return found;
}

struct count_tile {
  template <simd>
  GRADSIEVE_INLINE static std::uint64_t run(float const* values, std::size_t count, key_type key) noexcept {
    std::uint64_t found = 0;
    for (std::size_t at = 0; at < count; at += strip) {
      prefetch(values + at + ahead, strip);
      found += count_at_least(values + at, smaller(strip, count - at), key);
    }
    return found;
  }
};

/// Elements of a part that a threshold keeps: above its key, and equal to it. Later: where the part writes its first
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
    kept found;
    for (std::size_t at = 0; at < count; at += strip) {
      prefetch(values + at + ahead, strip);
      auto const here = count_kept(values + at, smaller(strip, count - at), key, keep);
      found = {found.above + here.above, found.equal + here.equal};
    }
    return found;
  }
};

/// Writes what a threshold keeps of a part to [at.above, end), with the first at.equal ties.
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
    return count_kept(values, count, key, keep_all{});
  }
};

/// Writes the candidates that a threshold keeps to [at.above, end).
struct write_candidates {
  template <simd Level>
  GRADSIEVE_INLINE static void run(float const* values, index_type const* from, std::size_t count, key_type key,
                                   kept at, std::uint64_t end, index_type* indices, float* out) noexcept {
    std::size_t i = 0;
    for (; i + block <= count && at.above + block <= end; i += block) {  // as long as a block's room is left
      std::uint32_t equal = 0;
      if (at.equal > 0)
        for (std::size_t j = 0; j < block; ++j) equal += magnitude_key(values[i + j]) == key ? 1u : 0u;
      if (equal > at.equal) break;  // ties that are not taken
      key_type const least = equal > 0 ? key : key_above(key);
      at.above += pack_block<Level>::run(values + i, from + i, least, indices + at.above, out + at.above);
      at.equal -= equal;
    }
    write_kept(values + i, count - i, key, keep_all{}, at, end, {{indices, end}, {out, end}, {}},
               [&](std::size_t j) { return from[i + j]; });
  }
};

}  // namespace gradsieve::host_kernels
