// Inner loops over one tile in the nearest cache: accumulating, removing sent values, collecting candidates.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <gradsieve/core/config.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/simd.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/passes/measure.hpp>
#include <gradsieve/host/simd/append.hpp>
#include <gradsieve/host/simd/half.hpp>
#include <gradsieve/host/simd/marks.hpp>
#include <gradsieve/host/simd/stream.hpp>
#include <gradsieve/host/tuning.hpp>
#include <gradsieve/residual/accumulate_element.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

/// If all `size` elements, a part of a block, are finite, copies them and marks those whose key is at least `least`;
/// else returns false. Loads each element once, so that a compiler can keep computed values in registers.
template <simd Level>
struct store_finite {
  static constexpr std::size_t size = block;
  GRADSIEVE_INLINE static bool run(float const* from, float* to, key_type least, mark_word& marks) noexcept {
    if (max_key(from, block) >= infinite_key) return false;
    marks = block_of<Level>::at_least(from, least);
    std::copy_n(from, block, to);
    return true;
  }
};

#if GRADSIEVE_X86
template <>
struct store_finite<simd::avx2> {
  static constexpr std::size_t size = 32;
  GRADSIEVE_AVX2 static bool run(float const* from, float* to, key_type least, mark_word& marks) noexcept {
    auto const below = _mm256_set1_epi32(static_cast<std::int32_t>(smaller(least, key_type{1} << 31) - 1));
    auto const magnitude = _mm256_set1_epi32(0x7FFF'FFFF);
    auto most = _mm256_setzero_si256();
    __m256i held[size / 8];
    __m256i over[size / 8];
    for (std::size_t v = 0; v < size / 8; ++v) {
      held[v] = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from + 8 * v));
      auto const key = _mm256_and_si256(held[v], magnitude);
      most = _mm256_max_epi32(most, key);
      over[v] = _mm256_cmpgt_epi32(key, below);
    }
    auto const order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    auto const mixed = _mm256_packs_epi16(_mm256_packs_epi32(over[0], over[1]), _mm256_packs_epi32(over[2], over[3]));
    marks = static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_permutevar8x32_epi32(mixed, order)));
    auto const beyond = _mm256_cmpgt_epi32(most, _mm256_set1_epi32(static_cast<std::int32_t>(infinite_key - 1)));
    if (_mm256_movemask_epi8(beyond) != 0) [[unlikely]]
      return false;
    for (std::size_t v = 0; v < size / 8; ++v) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8 * v), held[v]);
    return true;
  }
};

template <>
struct store_finite<simd::avx512> {
  static constexpr std::size_t size = block;
  GRADSIEVE_AVX512 static bool run(float const* from, float* to, key_type least, mark_word& marks) noexcept {
    auto const low = _mm512_set1_epi32(static_cast<int>(least));
    auto const magnitude = _mm512_set1_epi32(0x7FFF'FFFF);
    auto most = _mm512_setzero_si512();
    __m512i held[block / 16];
    __mmask16 over[block / 16];
    for (std::size_t v = 0; v < block / 16; ++v) {
      held[v] = _mm512_loadu_si512(from + 16 * v);
      auto const key = _mm512_and_si512(held[v], magnitude);
      most = _mm512_maskz_max_epi32(0xFFFF, most, key);
      over[v] = _mm512_cmpge_epu32_mask(key, low);
    }
    marks = _mm512_kunpackd(_mm512_kunpackw(over[3], over[2]), _mm512_kunpackw(over[1], over[0]));
    if (_mm512_cmpge_epi32_mask(most, _mm512_set1_epi32(static_cast<int>(infinite_key))) != 0) [[unlikely]]
      return false;
    for (std::size_t v = 0; v < block / 16; ++v) _mm512_storeu_si512(to + 16 * v, held[v]);
    return true;
  }
};
#endif

/// True if a non-finite gradient always makes state 0 non-finite: then only new states are checked, not gradients. A
/// store declares it by `using spreads_non_finite` of its own type, which a derived store does not inherit.
template <class Residual>
inline constexpr bool spreads_non_finite =
    requires { requires std::same_as<typename Residual::spreads_non_finite, Residual>; };

/// Adds `count` gradient elements, times `factor`, to their states. A non-finite gradient counts as zero; an element
/// whose new state would not be finite keeps its old one. Stores if `Write`. Returns how many were not finite.
template <bool Write, class Residual, class T, std::size_t States>
GRADSIEVE_INLINE std::uint64_t accumulate_elements(Residual const& policy, std::array<float*, States> const& states,
                                                   T const* gradient, float factor, std::size_t count) noexcept {
  float* const* const state = states.data();
  std::uint32_t bad = 0;
  GRADSIEVE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    element_state<States> now{};
    for (std::size_t s = 0; s < States; ++s) now[s] = state[s][i];
    float const entered = multiply(to_float(gradient[i]), factor);
    bool const finite = accumulate_element(policy, entered, now);
    bad += finite ? 0u : 1u;
    if constexpr (Write)
      for (std::size_t s = 0; s < States; ++s) state[s][i] = now[s];
  }
  return bad;
}

/// Largest key of a state and `key`. Recursive: unoptimised GCC does not vectorise around a loop with a choice inside.
template <std::size_t S = 0, std::size_t States>
[[nodiscard]] GRADSIEVE_INLINE std::int32_t largest_key(element_state<States> const& state, std::int32_t key) noexcept {
  if constexpr (S < States)
    return largest_key<S + 1>(state, larger(key, static_cast<std::int32_t>(magnitude_key(state[S]))));
  else
    return key;
}

/// The state, or NaN if the gradient is not finite. A mask, as GCC compiles a choice between floats to a branch.
[[nodiscard]] GRADSIEVE_INLINE float spoilt(float state, float const& gradient) noexcept {
  bool const finite = static_cast<std::int32_t>(magnitude_key(gradient)) < static_cast<std::int32_t>(infinite_key);
  return gradsieve::bit_cast<float>(gradsieve::bit_cast<std::uint32_t>(state) | (finite ? 0u : ~std::uint32_t{0}));
}

/// accumulate_elements() from element `at` on; a separate function, as the fast loops rarely call it.
template <class Residual, class T, std::size_t States>
GRADSIEVE_APART std::uint64_t accumulate_again(Residual const& policy, std::array<float*, States> states,
                                               T const* gradient, float factor, std::size_t at,
                                               std::size_t count) noexcept {
  for (std::size_t s = 0; s < States; ++s) states.data()[s] += at;
  return accumulate_elements<true>(policy, states, gradient + at, factor, count);
}

/// Accumulates a part of a block in registers and stores it if it is finite; otherwise repeats it element by element.
/// So a policy may be called with non-finite values, whose results are discarded. Marks the elements whose new key is
/// at least `least`; adds the number of non-finite ones to `bad`.
template <simd Level, class Residual, class T, std::size_t States>
GRADSIEVE_INLINE mark_word accumulate_part(Residual const& policy, std::array<float*, States> const& states,
                                           T const* gradient, float factor, std::size_t at, key_type least,
                                           std::uint64_t& bad) noexcept {
  constexpr std::size_t part = store_finite<Level>::size;
  float after[States][part];
  float* state[States];  // a copy: no store of floats can change it, whatever the aliasing flags
  GRADSIEVE_SEPARATE(after, gradient);
  for (std::size_t s = 0; s < States; ++s) {
    state[s] = states.data()[s] + at;
    GRADSIEVE_SEPARATE(after, state[s]);
  }
  GRADSIEVE_INDEPENDENT
  for (std::size_t i = 0; i < part; ++i) {  // a constant count: vectorised at -O2 too
    element_state<States> now{};
    for (std::size_t s = 0; s < States; ++s) now[s] = state[s][i];
    float const entered = multiply(to_float(gradient[at + i]), factor);
    policy.accumulate_element(entered, now);
    if constexpr (!spreads_non_finite<Residual>) now[0] = spoilt(now[0], entered);
    for (std::size_t s = 0; s < States; ++s) after[s][i] = now[s];
  }
  bool finite = true;
  for (std::size_t s = 1; s < States && !spreads_non_finite<Residual>; ++s)
    finite = finite && max_key(after[s], part) < infinite_key;
  mark_word marks = 0;
  if (finite && store_finite<Level>::run(after[0], state[0], least, marks)) [[likely]] {
    for (std::size_t s = 1; s < States; ++s) std::copy_n(after[s], part, state[s]);
    return marks << at;
  }
  bad += accumulate_again(policy, states, gradient, factor, at, part);
  return marks_of(state[0], part, least) << at;
}

/// Accumulates a block, part by part.
template <simd Level, class Residual, class T, std::size_t States>
GRADSIEVE_INLINE mark_word accumulate_block(Residual const& policy, std::array<float*, States> const& states,
                                            T const* gradient, float factor, key_type least,
                                            std::uint64_t& bad) noexcept {
  mark_word marks = 0;
  for (std::size_t at = 0; at < block; at += store_finite<Level>::size)
    marks |= accumulate_part<Level>(policy, states, gradient, factor, at, least, bad);
  return marks;
}

/// Accumulates a block and stores it at once: faster if memory-bound. Returns how many were not finite. Does not mark.
template <class Residual, class T, std::size_t States>
GRADSIEVE_INLINE std::uint64_t accumulate_in_place(Residual const& policy, std::array<float*, States> const& states,
                                                   T const* gradient, float factor) noexcept {
  constexpr auto finite = static_cast<std::int32_t>(infinite_key - 1);
  float* state[States];
  for (std::size_t s = 0; s < States; ++s) state[s] = states.data()[s];
  std::int32_t most = 0;  // keys fit 31 bits, and signed comparisons vectorise everywhere
  std::uint32_t bad = 0;
  GRADSIEVE_INDEPENDENT
  for (std::size_t i = 0; i < block; ++i) {
    element_state<States> before{};
    for (std::size_t s = 0; s < States; ++s) before[s] = state[s][i];
    float const entered = multiply(to_float(gradient[i]), factor);
    auto now = before;
    policy.accumulate_element(entered, now);
    auto const key = largest_key(now, static_cast<std::int32_t>(magnitude_key(entered)));
    most = larger(most, key);
    bad += key > finite ? 1u : 0u;
    for (std::size_t s = 0; s < States; ++s) state[s][i] = now[s] = key > finite ? before[s] : now[s];
  }
  if (most <= finite) [[likely]]
    return 0;
  for (std::size_t i = 0; i < block; ++i) {
    float const entered = multiply(to_float(gradient[i]), factor);
    if (is_finite(entered)) continue;
    element_state<States> now{};
    for (std::size_t s = 0; s < States; ++s) now[s] = state[s][i];
    accumulate_element(policy, entered, now);
    for (std::size_t s = 0; s < States; ++s) state[s][i] = now[s];
  }
  return bad;
}

static_assert(tile_size == block * marked_strip::blocks);

template <class Residual, std::size_t States>
GRADSIEVE_INLINE void remove_sent_element(Residual const& policy, std::array<float*, States> const& states,
                                          std::uint64_t i, float sent) noexcept {
  float* const* const state = states.data();
  element_state<States> now{};
  for (std::size_t s = 0; s < States; ++s) now[s] = state[s][i];
  policy.remove_sent(sent, now, false);
  for (std::size_t s = 0; s < States; ++s) state[s][i] = now[s];
}

/// Sent entries still to be removed, in index order, beginning with the next elements'.
struct pending_list {
  index_type const* indices = nullptr;
  float const* values = nullptr;
  std::uint64_t count = 0;
};

/// Removes the entries before `first` + count; the states begin at `first`.
template <class Residual, std::size_t States>
GRADSIEVE_INLINE void remove_before(Residual const& policy, std::array<float*, States> const& states,
                                    std::uint64_t first, std::uint64_t count, pending_list& pending) noexcept {
  auto const* const indices = pending.indices;
  std::uint64_t done = 0;
  for (; done < pending.count && indices[done] < first + count; ++done)
    remove_sent_element(policy, states, indices[done] - first, pending.values[done]);
  pending = {indices + done, pending.values + done, pending.count - done};
}

/// Arguments of accumulate_tile for `count` elements from `first` on. `scores`: where to write scores, or null.
struct entering {
  std::uint64_t first;
  std::size_t count;
  std::size_t strip;
  key_type candidate_threshold;
  candidate_list* list;
  pending_list* pending;
  int worker;
  statistics* sums = nullptr;
  float* scores = nullptr;
};

/// Accumulates elements and returns how many were not finite. A function pointer, so that callers are compiled once for
/// all residual stores and gradient formats. The function must outlive it.
class entry {
 public:
  template <class Enter>
  explicit entry(Enter const& enter) noexcept
      : of_{&enter}, call_{[](void const* of, entering const& what) noexcept -> std::uint64_t {
          return (*static_cast<Enter const*>(of))(what);
        }} {}
  std::uint64_t operator()(entering const& what) const noexcept { return call_(of_, what); }

 private:
  void const* of_;
  std::uint64_t (*call_)(void const*, entering const&) noexcept;
};

/// Removes pending entries, accumulates, measures, and collects candidates of at most a tile. Blocks only mark their
/// candidates, which are appended strip by strip: a branch for each block would be mispredicted. In strips shorter than
/// a tile each block prefetches a later one.
struct accumulate_tile {
  /// Elements of a strip, a multiple of a block and at most a tile. Long strips in caches, as each end mispredicts
  /// branches; otherwise short ones, as only a strip's prefetches are under way while entries are removed and appended.
  [[nodiscard]] static constexpr std::size_t strip_for(std::size_t gradient_bytes) noexcept {
    if (gradient_bytes <= cached_bytes) return tile_size;
    return gradient_bytes < streamed_bytes ? cached_strip : streamed_strip;
  }

  template <simd Level, class Residual, class T, std::size_t States>
  GRADSIEVE_INLINE static std::uint64_t run(Residual const policy, std::array<float*, States> states, T const* gradient,
                                            float factor, std::size_t count, std::uint64_t first, std::size_t strip,
                                            key_type candidate_threshold, candidate_list* list, pending_list* pending,
                                            statistics* sums) noexcept {
    key_type const least = candidate_threshold == 0 ? ~key_type{0} : candidate_threshold;
    std::uint64_t bad = 0;
    float widened[block];
    running_sums<Level> running;
    bool const asks = strip < tile_size;
    bool const waits = strip <= streamed_strip;  // limited by memory
    for (std::size_t at = 0; at < count; at += strip) {
      std::size_t const size = smaller(strip, count - at);
      remove_before(policy, states, first + at, size + remove_ahead, *pending);
      auto const start = static_cast<index_type>(first + at);
      float const* const values = states[0];
      marked_strip marked;
      std::size_t i = 0;
      for (; i + block <= size; i += block) {
        auto const* const block_of_gradient = readable<Level>(gradient + at + i, widened);
        if (asks) {
          prefetch(gradient + at + i + prefetch_ahead, block);
          for (auto const* const state : states) prefetch(state + prefetch_ahead, block);
        }
        if (waits) {
          bad += accumulate_in_place(policy, states, block_of_gradient, factor);
          marked.put(i / block, block_of<Level>::at_least(states[0], least));
        } else {
          marked.put(i / block, accumulate_block<Level>(policy, states, block_of_gradient, factor, least, bad));
        }
        for (auto& state : states) state += block;
      }
      if (sums != nullptr) running.add(values, i);
      marked.append<Level>(values, start, *list);
      if (i == size) continue;
      bad += accumulate_elements<true>(policy, states, gradient + at + i, factor, size - i);
      append_rest(values + i, size - i, start + static_cast<index_type>(i), least, *list);
      for (auto& state : states) state += size - i;
    }
    if (sums != nullptr) *sums = running.end(states[0] - count % block, count % block);
    return bad;
  }
};

template <bool Write>
struct enter_tile {
  template <simd Level, class Residual, class T, std::size_t States>
  GRADSIEVE_INLINE static std::uint64_t run(Residual const policy, std::array<float*, States> states, T const* gradient,
                                            float factor, std::size_t count) noexcept {
    std::uint64_t bad = 0;
    float widened[block];
    for (; count >= block; count -= block, gradient += block) {
      bad += accumulate_elements<Write>(policy, states, readable<Level>(gradient, widened), factor, block);
      for (auto& state : states) state += block;
    }
    return bad + accumulate_elements<Write>(policy, states, gradient, factor, count);
  }
};

/// Collects candidates of a tile, which may be longer than tile_size if its bin is.
struct append_tile {
  template <simd Level>
  GRADSIEVE_INLINE static void run(float const* values, std::size_t count, std::uint64_t first,
                                   key_type candidate_threshold, candidate_list* list) noexcept {
    for (std::size_t at = 0; at < count; at += tile_size) {
      std::size_t const size = smaller<std::size_t>(tile_size, count - at);
      float const* const from = values + at;
      auto const start = static_cast<index_type>(first + at);
      marked_strip marked;
      std::size_t i = 0;
      for (; i + block <= size; i += block) {
        prefetch(from + i + prefetch_ahead, block);
        marked.put(i / block, block_of<Level>::at_least(from + i, candidate_threshold));
      }
      marked.append<Level>(from, start, *list);
      append_rest(from + i, size - i, start + static_cast<index_type>(i), candidate_threshold, *list);
    }
  }
};

}  // namespace gradsieve::host_kernels
