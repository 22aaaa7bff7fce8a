// Sizes that tune a device's kernels. Those of accumulate, of searches among candidates and of write_entries were
// chosen by times on an H200 (bench/results/nvidia-h200), the others by what ptxas reports for sm_80 and sm_90:
// registers, spills, shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

// ---- Memory ------------------------------------------------------------------------------------------------------

inline constexpr unsigned load_bytes = 16;        ///< of a vector load: the most a thread can load at once
inline constexpr std::uint32_t cell_size = 4096;  ///< elements of a cell: the grid of tiles and directories
inline constexpr std::uint64_t most_samples = std::uint64_t{1} << 20;  ///< of a segment that all blocks search
inline constexpr std::uint64_t samples_of_block = 8192;                ///< of a segment that one block searches

/// Loads that a thread issues before it uses the first; more for segments that all blocks search.
template <bool FullGrid>
inline constexpr unsigned loads_at_once = FullGrid ? 8 : 4;

// ---- Searches ----------------------------------------------------------------------------------------------------

/// Segments up to this size are searched by one block each; larger ones, and a single segment, by all blocks.
inline constexpr std::uint32_t most_of_block = 1u << 17;
/// Candidates of a segment that one block searches in registers. Less than 8 loads of all threads, as parts of the
/// first and the last load may belong to other segments.
inline constexpr std::uint32_t most_alone = 16384 - 8;
inline constexpr std::uint32_t searched_by_block = 4096;  ///< candidates of a block in a search by several
inline constexpr std::uint32_t most_teams = 128;          ///< of blocks that search a segment each at the same time

// ---- Threads and blocks ------------------------------------------------------------------------------------------

inline constexpr unsigned launch_threads = 256;            ///< of launch_blocks() and launch_over()
inline constexpr std::uint64_t most_launch_blocks = 4096;  ///< of launch_over(): its threads loop over the rest
inline constexpr unsigned accumulate_threads = 256;
/// Blocks of accumulate per multiprocessor, by the number of states of an element.
constexpr unsigned accumulate_blocks(std::size_t states) { return states < 2 ? 4 : 3; }
inline constexpr unsigned tile_loads = 8;      ///< of 32 tiles' counts: together those of half of accumulate's blocks
inline constexpr unsigned few_tile_loads = 4;  ///< the same of blocks whose warps have a tile each
inline constexpr unsigned collect_threads = 512;
inline constexpr unsigned group_threads = 512;  ///< of a block that selects
inline constexpr unsigned group_warps = group_threads / 32;
inline constexpr unsigned group_blocks = 1;            ///< of these, per multiprocessor
inline constexpr unsigned most_blocks = 1024;          ///< of a group at most
inline constexpr unsigned sum_shares = 256;            ///< of a sum by a group: its order does not depend on the blocks
inline constexpr unsigned join_polls = 64;             ///< by which the first block of a group waits for others
inline constexpr unsigned most_join_polls = 4096;      ///< while fewer than half have come
inline constexpr unsigned join_pause = 200;            ///< between polls, in nanoseconds
inline constexpr unsigned small_threads = 512;         ///< of a block of small_step, which does a whole step
inline constexpr std::uint32_t small_size = 1u << 18;  ///< elements of its gradient at most
/// A program whose units all define GRADSIEVE_NO_SMALL_STEP has no such kernel, and compiles faster.
#if defined(GRADSIEVE_NO_SMALL_STEP)
inline constexpr bool has_small_step = false;
#else
inline constexpr bool has_small_step = true;
#endif
inline constexpr unsigned norm_threads = 512;
inline constexpr unsigned write_threads = 512;
inline constexpr unsigned write_warps = write_threads / 32;
inline constexpr unsigned write_blocks = 3;                          ///< per multiprocessor
inline constexpr unsigned write_loads = 4;                           ///< of candidates, that a thread issues at once
inline constexpr unsigned least_part = write_threads * write_loads;  ///< candidates of a block, if there are as many
inline constexpr unsigned small_tiles = 128;                         ///< of small_step at most
inline constexpr unsigned apply_threads = 256;
inline constexpr unsigned apply_blocks = 5;  ///< per multiprocessor; with more, registers would spill
inline constexpr unsigned bin_threads = 256;
inline constexpr unsigned mark_threads = 128;
inline constexpr unsigned mark_blocks = 5;  ///< per multiprocessor; with more, registers would spill
inline constexpr unsigned moment_threads = launch_threads;
inline constexpr unsigned part_threads = 512;  ///< of a packed message's parts
inline constexpr unsigned sum_blocks = 256;    ///< of a sum of squares, whose order is fixed
inline constexpr unsigned sum_threads = 256;
inline constexpr unsigned scan_threads = 1024;
inline constexpr unsigned scan_each = 16;      ///< numbers that a thread of a prefix sum takes at a time
inline constexpr unsigned loop_threads = 256;  ///< of a plain loop over elements
inline constexpr unsigned loop_blocks = 8;     ///< of such a loop, per multiprocessor

}  // namespace gradsieve::cuda_kernels
