// The sizes that a host's passes are tuned by, in one place.
//
// Each line ends with what it was measured on: EPYC (AVX2) or Zen 5 (AVX-512), two cores each (bench/README.md has the
// machines), or "machine not recorded". Results depend on tile_size alone: on it hang the last bits of statistics.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

// ---- Memory ------------------------------------------------------------------------------------------------------

/// Elements of a tile: gradient and accumulator of one fit a first-level cache of 32 KiB. Statistics are added tile by
/// tile: another size changes their last bits. Machine not recorded.
inline constexpr std::uint64_t tile_size = 4096;
/// Elements between the work and what memory is asked for ahead of it: the processor's own prefetches leave bandwidth
/// unused. 2^20 elements and more, machine not recorded.
inline constexpr std::size_t prefetch_ahead = 2048;
/// Elements of a pass that counts, between two requests. Machine not recorded.
inline constexpr std::size_t count_strip = 256;
/// Samples, which lie far from each other, that memory is asked for ahead. Zen 5, `hierarchical`.
inline constexpr std::uint64_t sample_ahead = 64;
/// Entries of a message that memory is asked for ahead, in apply. Zen 5, 8 messages of 1 %.
inline constexpr std::size_t update_ahead = 192;
/// Elements by which pending entries are subtracted before the vector loads: one right behind a scalar store would wait
/// for it. Density 1 %, machine not recorded.
inline constexpr std::size_t remove_ahead = 256;
/// Bytes of a gradient which is, with its accumulator, in a cache that needs no requests. Zen 5, 2^12 to 2^25 elements.
inline constexpr std::size_t cached_bytes = std::size_t{1} << 21;
/// Bytes from which an array that is overwritten whole goes past the caches: a core's share of them holds little of it,
/// and a store that goes through them first reads what it overwrites. 2^25 elements, machine not recorded.
inline constexpr std::size_t streamed_bytes = std::size_t{1} << 24;
/// Elements accumulated between two times that candidates are appended, from cached_bytes to streamed_bytes. Zen 5,
/// 2^19 to 2^22 elements.
inline constexpr std::size_t cached_strip = tile_size / 2;
/// The same for larger gradients. EPYC, 6.5 million elements at 1 %.
inline constexpr std::size_t streamed_strip = 512;
/// The most elements that are accumulated before their scores are formed, in the nearest cache. `adacomp`, 2^20
/// elements, one thread, machine not recorded.
inline constexpr std::size_t scored_strip = 512;
/// Bytes from which a buffer asks for huge pages: 8 of them at least. Scattered reads of samples, machine not
/// recorded.
inline constexpr std::size_t huge_bytes = std::size_t{1} << 24;

// ---- Threads -----------------------------------------------------------------------------------------------------

/// Elements of work from which a team is woken. Two threads, small layers, machine not recorded.
inline constexpr std::uint64_t least_team_work = 32'768;

// ---- Candidates --------------------------------------------------------------------------------------------------

/// Candidates that a list has room for beyond twice those expected. Not measured: small layers never collect twice.
inline constexpr std::uint64_t spare_candidates = 65'536;
/// Candidates of a block that are appended by a loop of fixed length; more are packed. Zen 5, 2^16 elements at 0.1 and
/// 1 %.
inline constexpr std::size_t few_in_block = 4;
/// Blocks of a tile's 64 with candidates from which all are packed: about three a block, where they fall at random.
/// `chunked`, machine not recorded.
inline constexpr std::size_t dense_blocks = 60;

/// Elements of a block that add_up() visits one by one. Zen 5, stages of `sidco`.
inline constexpr std::size_t few_added = 8;

// ---- Ranks -------------------------------------------------------------------------------------------------------

/// Candidates that are ranked as they are: to find two keys around the answer would take as long. 2^16 and 2^20
/// elements at 1 %, machine not recorded.
inline constexpr std::uint64_t few_candidates = 4096;
/// A sample that brackets a rank among candidates is one in `bracket_share`, within these bounds. Machine not recorded.
inline constexpr std::uint64_t bracket_share = 16;
inline constexpr std::uint64_t least_bracket_samples = 1024;
inline constexpr std::uint64_t most_bracket_samples = 4096;
/// Standard deviations of a sample's rank on each side of it: a rank outside costs a search by digits.
/// Not measured.
inline constexpr double bracket_deviations = 5;
/// Samples and counting passes that look for a tie before a search by digits. Equal elements, machine not
/// recorded.
inline constexpr std::uint64_t tie_samples = 4096;
inline constexpr int tie_passes = 4;
/// Samples of a bin that bound its threshold; a bin with less than 4 times as many is ranked whole. `chunked`,
/// machine not recorded.
inline constexpr std::size_t bin_samples = 256;

}  // namespace gradsieve::host_kernels
