// Sizes that tune the host's passes, measured on EPYC (AVX2) or Zen 5 (AVX-512), two cores each (bench/README.md);
// without a name the machine was not recorded. Results depend on tile_size alone, in the last bits of statistics.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

// ---- Memory ------------------------------------------------------------------------------------------------------

/// Elements of a tile: gradient and accumulator of one fit a first-level cache of 32 KiB. Statistics are sums by tile.
inline constexpr std::uint64_t tile_size = 4096;
/// Elements that a pass prefetches ahead: the processor's own prefetches leave bandwidth unused. From 2^20 elements.
inline constexpr std::size_t prefetch_ahead = 2048;
/// Elements that a counting pass reads between two prefetches.
inline constexpr std::size_t count_strip = 256;
/// Samples, which lie far from each other, to prefetch ahead. Zen 5, `hierarchical`.
inline constexpr std::uint64_t sample_ahead = 64;
/// Entries of a message to prefetch ahead, in apply. Zen 5, 8 messages of 1 %.
inline constexpr std::size_t update_ahead = 192;
/// Elements by which the subtraction of pending entries precedes the vector loads: a load right after a scalar store to
/// the same line would wait for it. Density 1 %.
inline constexpr std::size_t remove_ahead = 256;
/// Bytes of a gradient that, with its accumulator, is in a cache and needs no prefetch. Zen 5, 2^12 to 2^25 elements.
inline constexpr std::size_t cached_bytes = std::size_t{1} << 21;
/// Bytes from which an overwritten array is stored past the caches: they hold little of it, and a cached store reads
/// what it overwrites. 2^25 elements.
inline constexpr std::size_t streamed_bytes = std::size_t{1} << 24;
/// Elements to accumulate before candidates are appended, from cached_bytes to streamed_bytes. Zen 5, 2^19 to 2^22.
inline constexpr std::size_t cached_strip = tile_size / 2;
/// As cached_strip, for larger gradients. EPYC, 6.5 million elements at 1 %.
inline constexpr std::size_t streamed_strip = 512;
/// Elements to accumulate and score before their bins are processed. Emerald Rapids, `adacomp`, bins of 50 and 500.
inline constexpr std::size_t scored_strip = 256;
/// Bytes from which a buffer requests huge pages, at least 8 of them. Scattered reads of samples.
inline constexpr std::size_t huge_bytes = std::size_t{1} << 24;

// ---- Threads -----------------------------------------------------------------------------------------------------

/// Elements of work from which a team is woken. Two threads, small layers.
inline constexpr std::uint64_t least_team_work = 32'768;

// ---- Candidates --------------------------------------------------------------------------------------------------

/// Capacity of a candidate list beyond twice the expected number. Not measured; avoids second passes for small layers.
inline constexpr std::uint64_t spare_candidates = 65'536;
/// Candidates of a block to append by a loop of fixed length; more are packed. Zen 5, 2^16 elements at 0.1 and 1 %.
/// Where most blocks have some: Emerald Rapids, `adacomp` with bins of 50.
inline constexpr std::size_t few_in_block = 4;
inline constexpr std::size_t few_in_dense_block = 8;
/// Blocks with candidates, of a tile's 64, from which all blocks are packed: about three candidates per block.
/// `chunked`.
inline constexpr std::size_t dense_blocks = 60;

/// Elements of a block up to which add_up() visits them one by one. Zen 5, stages of `sidco`.
inline constexpr std::size_t few_added = 8;

// ---- Ranks -------------------------------------------------------------------------------------------------------

/// Candidates up to which they are ranked without a bracket, which would take as long. 2^16 and 2^20 elements at 1 %.
inline constexpr std::uint64_t few_candidates = 4096;
/// One in `bracket_share` candidates, within these bounds, is sampled to bracket a rank.
inline constexpr std::uint64_t bracket_share = 16;
inline constexpr std::uint64_t least_bracket_samples = 1024;
inline constexpr std::uint64_t most_bracket_samples = 4096;
/// Width of the bracket to each side, in standard deviations; a rank outside costs a search by digits. Not measured.
inline constexpr double bracket_deviations = 5;
/// Samples and counting passes that look for a tie before a search by digits. Equal elements.
inline constexpr std::uint64_t tie_samples = 4096;
inline constexpr int tie_passes = 4;
/// Samples of a bin that bound its threshold; bins with fewer than 4 times as many are ranked whole. `chunked`.
inline constexpr std::size_t bin_samples = 256;

}  // namespace gradsieve::host_kernels
