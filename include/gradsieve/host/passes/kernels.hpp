// Inner loops of the host space, over one tile that stays in the nearest cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/simd.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/passes/enter.hpp>
#include <gradsieve/host/passes/measure.hpp>
#include <gradsieve/host/simd/append.hpp>
#include <gradsieve/host/simd/half.hpp>
#include <gradsieve/host/simd/stream.hpp>
#include <gradsieve/host/tuning.hpp>
#include <gradsieve/residual/accumulate_element.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

static_assert(tile_size == block * marked_strip::blocks);

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

/// Removes those entries that lie before `first` + count; the states are those from `first` on.
template <class Residual, std::size_t States>
GRADSIEVE_INLINE void remove_before(Residual const& policy, std::array<float*, States> const& states,
                                    std::uint64_t first, std::uint64_t count, pending_list& pending) noexcept {
  auto const* const indices = pending.indices;
  std::uint64_t done = 0;
  for (; done < pending.count && indices[done] < first + count; ++done)
    remove_sent_element(policy, states, indices[done] - first, pending.values[done]);
  pending = {indices + done, pending.values + done, pending.count - done};
}

/// Elements that are to be accumulated: `count` from element `first` on, as accumulate_tile has it. Scores, of a
/// selector that has some, are written to `scores`, unless that is null.
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

/// Accumulates such elements, and returns how many were not finite. Behind a pointer, so that what surrounds it is
/// compiled once for all residual stores and formats of gradients. The function must outlive it.
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

/// Removing what is pending, accumulating, measuring and keeping candidates of at most a tile. Blocks mark their
/// candidates; when all of a strip are done the marked ones are appended. So no branch waits for what an addition
/// gives: of blocks with candidates and without no processor can predict which comes next. In strips shorter than a
/// tile each block asks memory for one that comes later.
struct accumulate_tile {
  /// Elements of a strip, a multiple of a block and at most a tile. In caches long ones, as they have fewer ends, whose
  /// branches are mispredicted. Else short ones: while entries are removed and appended, memory has only that to bring
  /// which was asked for in a strip.
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
    bool const waits = strip <= streamed_strip;  // for memory
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

/// Keeping candidates of a tile, which has more than tile_size elements where its bin has.
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
