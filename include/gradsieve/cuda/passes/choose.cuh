// Selection among candidates, in kernels without barriers between blocks: what every segment wants of its candidates,
// and the threshold that keeps just that.
#pragma once

#include <cstdint>

#include <gradsieve/core/search.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/group.cuh>
#include <gradsieve/cuda/passes/last_block.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/tuning.cuh>
#include <gradsieve/selector/select.hpp>

namespace gradsieve::cuda_kernels {

/// Where a segment's entries come from.
enum class entry_source : std::uint32_t {
  none,
  candidates,  ///< those that the threshold keeps; all of them at {0, 0}
  list         ///< of the selector's own select()
};
struct segment_choice {
  entry_source source;
  threshold at;
  warm_threshold warm;  // what settling it has left behind: in place once no block reads the last one any more
};

/// A segment's search that several blocks share. Zero between steps.
struct shared_search {
  std::uint32_t histogram[digit_search::bins];
  std::uint32_t above;  // keys above the range of the histogram
  std::uint32_t tickets;
  std::uint32_t listed;   // keys of the range that `search` is left with
  std::uint32_t is_open;  // `search` is not done
  digit_search search;
};

/// Pointers to what a workspace owns; kernels take it by value.
struct choice_tables {
  segment_choice* choices = nullptr;     // of each segment
  std::uint32_t* undecided = nullptr;    // segments whose candidates do not do
  std::uint32_t shared_count = 0;        // chunks of the candidates; 0: no segment is shared out
  shared_search* shared = nullptr;       // of each chunk, for the segment that begins there
  key_type* keys = nullptr;              // one for each `candidates_a_key` candidates
  std::uint32_t* tickets = nullptr;      // of select_rest()
  std::uint32_t list_blocks = 0;         // of write_entries()
  std::uint64_t* list_counts = nullptr;  // of each of them
  std::uint32_t* list_tickets = nullptr;
};

/// A segment with its candidates, and what its selector wants of them. By all threads of a block alike.
template <class Selector>
struct segment_candidates {
  std::uint32_t id;
  device_segment about;
  candidates found;
  warm_threshold warm;
  std::uint64_t step;
  candidate_choice wanted;

  __device__ segment_candidates(Selector const& chosen, tables const& t, std::uint32_t s)
      : id{s}, about{t.segments[s]}, found{candidates_of(t, s)}, warm{t.warm_thresholds[s]}, step{*t.step} {
    wanted = choose_among(chosen, accumulator(), found, about.k);
  }

  [[nodiscard]] __device__ accumulator_ref accumulator() {
    return {{nullptr, about.size}, about.offset, id, step, &warm};
  }
  [[nodiscard]] __device__ bool needs_search() const { return wanted.made && wanted.rank > 0; }
  [[nodiscard]] __device__ bool is_large() const { return found.count > chunk_size; }

  /// By one thread, with the threshold that keeps what is wanted.
  __device__ void settle(Selector const& chosen, threshold const at, tables const& t, choice_tables const& c) {
    threshold const kept = settle_choice(chosen, accumulator(), found, about.k, at);
    bool const all = kept == every(found);
    if (!all && !(kept == at)) return leave(c);
    t.written[id] = static_cast<std::uint32_t>(smaller<std::uint64_t>(all ? found.count : wanted.rank, about.out_room));
    c.choices[id] = {entry_source::candidates, all ? threshold{} : kept, warm};
  }

  /// The same: the candidates do not do, so that select_rest() is to look.
  __device__ void leave(choice_tables const& c) const {
    c.choices[id] = {entry_source::list, {}, {}};
    atomicAdd(c.undecided, 1u);
  }
};

/// The segments that choose_entries() shares out and that have candidates in a chunk: two at most, as each has more
/// candidates than a chunk. By all threads of a block.
struct chunk_segments {
  std::uint32_t ids[2];
  std::uint32_t count;

  __device__ void find(tables const& t, std::uint32_t chunk) {
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    std::uint64_t const begin = std::uint64_t{chunk} * chunk_size;
    for (std::uint32_t s = threadIdx.x; s < t.segment_count; s += blockDim.x) {
      auto const& mine = t.segments[s];
      std::uint64_t const found = t.found[s];
      if (mine.k > 0 && found > chunk_size && found <= mine.room && t.candidate_thresholds[s] != 0 &&
          mine.base < begin + chunk_size && mine.base + found > begin)
        ids[atomicAdd(&count, 1u)] = s;
    }
    __syncthreads();
  }
};

/// A block's part of a segment's candidates.
struct chunk_part {
  std::uint32_t first;  // chunk
  std::uint32_t blocks;
  std::uint64_t begin;  // of the candidates
  std::uint64_t end;

  __device__ chunk_part(device_segment const& about, std::uint64_t found, std::uint32_t chunk)
      : first{about.base / chunk_size},
        blocks{static_cast<std::uint32_t>((about.base + found - 1) / chunk_size) - first + 1},
        begin{larger<std::uint64_t>(about.base, std::uint64_t{chunk} * chunk_size)},
        end{smaller<std::uint64_t>(about.base + found, (std::uint64_t{chunk} + 1) * chunk_size)} {}
};

/// First round of a large segment's search: its candidates in an octave above the lowest, by key. The last of its
/// blocks picks the bin; the k-th largest is there, unless the prediction was far off.
template <class Selector>
__device__ void begin_search(Selector const& chosen, segment_candidates<Selector>& mine, tables const& t,
                             choice_tables const& c, thread_group<false>& group, block_shared_state& here) {
  chunk_part const part{mine.about, mine.found.count, blockIdx.x};
  auto& all = c.shared[part.first];
  key_type const low = mine.found.threshold;
  key_type const high = smaller<key_type>(low + ((key_type{1} << 23) - 1), infinite_key - 1);
  digit_search search{low, high, mine.wanted.rank};
  group.clear_histogram();
  std::uint32_t above = 0;
  for (std::uint64_t from = part.begin; from < part.end; from += group_threads) {
    std::uint64_t const i = from + threadIdx.x;
    key_type const key = i < part.end ? magnitude_key(t.candidate_values[i]) : 0;
    above += key > high ? 1 : 0;
    group.count(i < part.end ? search.bin(key) : digit_search::bins);
  }
  auto const above_here = static_cast<std::uint32_t>(group.block_sum(above));
  for (unsigned b = threadIdx.x; b < digit_search::bins; b += group_threads)
    if (here.histogram[b] != 0) atomicAdd(&all.histogram[b], here.histogram[b]);
  if (threadIdx.x == 0 && above_here != 0) atomicAdd(&all.above, above_here);
  if (!is_last_block(&all.tickets, part.blocks)) return;

  for (unsigned b = threadIdx.x; b < digit_search::bins; b += group_threads) {
    here.histogram[b] = all.histogram[b];
    all.histogram[b] = 0;
  }
  std::uint32_t const all_above = all.above;
  __syncthreads();
  if (threadIdx.x == 0) all.above = 0;
  if (all_above >= mine.wanted.rank) {
    if (threadIdx.x == 0) mine.leave(c);
    return;
  }
  search = {low, high, mine.wanted.rank - all_above};
  std::uint32_t const left = group.find(search);
  if (threadIdx.x != 0) return;
  if (search.done())
    mine.settle(chosen, search.result(), t, c);
  else if (left > mine.about.room / candidates_a_key)
    mine.leave(c);
  else {
    all.search = search;
    all.is_open = 1;
  }
}

/// What every segment wants of its candidates. A block a segment, where they are few, and a block a chunk. One block a
/// multiprocessor is enough: for more of them ptxas takes fewer registers and spills.
template <class Selector>
__global__ void __launch_bounds__(group_threads, 1)
    choose_entries(Selector const chosen, tables const t, choice_tables const c) {
  __shared__ block_shared_state here;
  __shared__ chunk_segments shared_out;
  thread_group<false> group{here};
  for (std::uint32_t s = blockIdx.x; s < t.segment_count; s += gridDim.x) {
    segment_candidates<Selector> mine{chosen, t, s};
    if (mine.needs_search() && mine.is_large() && c.shared_count > 0) continue;
    threshold at = every(mine.found);
    if (mine.needs_search() && !mine.is_large()) {
      float const* const values = t.candidate_values + mine.about.base;
      auto const count = static_cast<std::uint32_t>(mine.found.count);
      digit_search search{mine.found.threshold, infinite_key - 1, mine.wanted.rank};
      while (!search.done())
        group.narrow(search, [&](auto const& add) {
          for (std::uint32_t from = 0; from < count; from += group_threads) {
            std::uint32_t const i = from + threadIdx.x;
            add(i < count ? search.bin(magnitude_key(values[i])) : digit_search::bins);
          }
        });
      at = search.result();
    }
    __syncthreads();  // all have read what changes now
    if (threadIdx.x != 0) continue;
    if (mine.about.k == 0) {
      t.written[s] = 0;
      c.choices[s] = {entry_source::none, {}, {}};
    } else if (mine.wanted.made && (!mine.needs_search() || !mine.is_large())) {
      mine.settle(chosen, at, t, c);
    } else {
      mine.leave(c);
    }
  }
  if (blockIdx.x >= c.shared_count) return;
  shared_out.find(t, blockIdx.x);
  for (std::uint32_t i = 0; i < shared_out.count; ++i) {
    segment_candidates<Selector> mine{chosen, t, shared_out.ids[i]};
    if (mine.needs_search()) begin_search(chosen, mine, t, c, group, here);
  }
}

/// Second round of the large segments' searches: the keys of the bin are written down, and the last of a segment's
/// blocks finds the answer among them. A block a chunk.
template <class Selector>
__global__ void __launch_bounds__(group_threads, 1)
    end_searches(Selector const chosen, tables const t, choice_tables const c) {
  __shared__ block_shared_state here;
  __shared__ chunk_segments shared_out;
  thread_group<false> group{here};
  shared_out.find(t, blockIdx.x);
  for (std::uint32_t n = 0; n < shared_out.count; ++n) {
    segment_candidates<Selector> mine{chosen, t, shared_out.ids[n]};
    chunk_part const part{mine.about, mine.found.count, blockIdx.x};
    auto& all = c.shared[part.first];
    if (all.is_open == 0) continue;
    digit_search search = all.search;
    key_type* const keys = c.keys + (mine.about.base + candidates_a_key - 1) / candidates_a_key;
    for (std::uint64_t i = part.begin + threadIdx.x; i < part.end; i += group_threads)
      if (key_type const key = magnitude_key(t.candidate_values[i]); search.inside(key))
        keys[atomicAdd(&all.listed, 1u)] = key;
    if (!is_last_block(&all.tickets, part.blocks)) continue;
    std::uint32_t const count = all.listed;
    while (!search.done())
      group.narrow(search, [&](auto const& add) {
        for (std::uint32_t from = 0; from < count; from += group_threads) {
          std::uint32_t const i = from + threadIdx.x;
          add(i < count ? search.bin(keys[i]) : digit_search::bins);
        }
      });
    if (threadIdx.x != 0) continue;
    all.listed = all.is_open = 0;
    mine.settle(chosen, search.result(), t, c);
  }
}

}  // namespace gradsieve::cuda_kernels
