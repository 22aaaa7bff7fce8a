// Adding up what the ranks have sent, tile by tile of the gradient.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/simd.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/passes/kernels.hpp>
#include <gradsieve/host/simd/append.hpp>
#include <gradsieve/host/simd/half.hpp>
#include <gradsieve/host/simd/marks.hpp>
#include <gradsieve/host/simd/stream.hpp>
#include <gradsieve/host/team.hpp>
#include <gradsieve/host/tuning.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

/// Bits of -0, the initial value of all sums, as -0 + x is x for every x. Sums that stay -0 have no entry but -0.
inline constexpr std::uint32_t no_entry = 0x8000'0000u;

struct added_entries {
  std::uint32_t entries = 0;  ///< elements that have one
  bool usual = true;          ///< no entry is -0, and no sum can overflow
};

/// Adds the updates' entries below `end`, update by update, to sums[index - first], and advances the cursors. `places`,
/// unless null, receives the positions in `sums` that have an entry, each once if no entry is -0. Room: most_places +
/// 1.
struct add_entries {
  static constexpr std::uint32_t most_places = block * marked_strip::blocks;  // a tile's elements

  template <simd>
  GRADSIEVE_INLINE static added_entries run(selection_view const* updates, std::size_t count, std::size_t* cursors,
                                            std::uint64_t first, std::uint64_t end, float* sums,
                                            std::uint16_t* places) noexcept {
    std::uint32_t entries = 0;
    std::int32_t least = 0;  // of the entries' bits: as a signed number, -0 is the smallest
    std::int32_t most = 0;   // largest key of an entry
    // Of entries below this no sum overflows.
    auto const limit = magnitude_key(divide(0x1p126f, static_cast<float>(larger<std::size_t>(count, 1))));
    for (std::size_t u = 0; u < count; ++u) {
      index_type const* const indices = updates[u].indices.data();
      float const* const values = updates[u].values.data();
      std::size_t const size = updates[u].indices.size();
      std::size_t at = cursors[u];
      for (; at < size && indices[at] < end; ++at) {
        float& sum = sums[indices[at] - first];
        if (places != nullptr) places[smaller(entries, most_places)] = static_cast<std::uint16_t>(indices[at] - first);
        entries += gradsieve::bit_cast<std::uint32_t>(sum) == no_entry ? 1u : 0u;
        sum = gradsieve::add(sum, values[at]);
        least = smaller(least, gradsieve::bit_cast<std::int32_t>(values[at]));
        most = larger(most, static_cast<std::int32_t>(magnitude_key(values[at])));
      }
      cursors[u] = at;
      prefetch(indices, block, at + update_ahead);
      prefetch(values, block, at + update_ahead);
    }
    return {entries,
            least != std::numeric_limits<std::int32_t>::min() && most < static_cast<std::int32_t>(limit)};
  }
};

/// Divides the sums at the given places. Returns true if all means are finite and none became zero.
GRADSIEVE_PRECISE inline bool divide_sums(float* sums, std::uint16_t const* places, std::size_t count,
                                          float divisor) noexcept {
  std::uint32_t unusual = 0;
  for (std::size_t i = 0; i < count; ++i) {
    float& sum = sums[places[i]];
    float const mean = gradsieve::divide(sum, divisor);
    unusual |= magnitude_key(mean) - 1 >= infinite_key - 1 && magnitude_key(sum) != 0 ? 1u : 0u;
    sum = mean;
  }
  return unusual == 0;
}

/// sum * factor, and zero if there is no entry. A mask, as GCC compiles a choice between floats to a branch.
[[nodiscard]] GRADSIEVE_INLINE float mean_of(float sum, float factor) noexcept {
  auto const mean = gradsieve::bit_cast<std::uint32_t>(multiply(sum, factor));
  std::uint32_t const mask = 0u - (gradsieve::bit_cast<std::uint32_t>(sum) != no_entry ? 1u : 0u);
  return gradsieve::bit_cast<float>(mean & mask);
}

/// Writes the means of 16 sums to a cache line, past the caches if the instruction set can, and resets the sums.
template <simd Level>
struct line_of_means {
  GRADSIEVE_INLINE static void stream(float* sums, float factor, float* out) noexcept {
    float means[line_size<float>];
    for (std::size_t i = 0; i < line_size<float>; ++i) means[i] = mean_of(sums[i], factor);
    stream_line(means, out);
    std::fill_n(sums, line_size<float>, gradsieve::bit_cast<float>(no_entry));
  }
};

#if GRADSIEVE_X86
template <>
struct line_of_means<simd::avx2> {
  GRADSIEVE_AVX2 static void stream(float* sums, float factor, float* out) noexcept {
    auto const none = _mm256_set1_epi32(static_cast<int>(no_entry));
    for (std::size_t i = 0; i < line_size<float>; i += 8) {
      auto const sum = _mm256_loadu_ps(sums + i);
      auto const empty = _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_castps_si256(sum), none));
      _mm256_stream_ps(out + i, _mm256_andnot_ps(empty, _mm256_mul_ps(sum, _mm256_set1_ps(factor))));
      _mm256_storeu_ps(sums + i, _mm256_castsi256_ps(none));
    }
  }
};

template <>
struct line_of_means<simd::avx512> {
  GRADSIEVE_AVX512 static void stream(float* sums, float factor, float* out) noexcept {
    auto const none = _mm512_set1_epi32(static_cast<int>(no_entry));
    auto const sum = _mm512_loadu_ps(sums);
    auto const here = _mm512_cmpneq_epi32_mask(_mm512_castps_si512(sum), none);
    _mm512_stream_ps(out, _mm512_maskz_mul_ps(here, sum, _mm512_set1_ps(factor)));
    _mm512_storeu_ps(sums, _mm512_castsi512_ps(none));
  }
};
#endif

/// Writes a tile's sums, times `factor`, zero without an entry; then resets sums to -0. Returns how many were clamped.
struct write_means {
  template <simd Level, class T>
  GRADSIEVE_INLINE static std::uint64_t run(float* sums, std::size_t size, float factor, bool streamed,
                                            T* out) noexcept {
    if (!streamed) return write<Level>(sums, size, factor, out);
    std::size_t i = smaller(size, before_line(out));
    std::uint64_t saturated = write<Level>(sums, i, factor, out);
    if constexpr (std::is_same_v<T, float>) {
      for (; i + line_size<float> <= size; i += line_size<float>)
        line_of_means<Level>::stream(sums + i, factor, out + i);
    } else {
      T means[block];
      for (; i + block <= size; i += block) {
        saturated += write<Level>(sums + i, block, factor, means);
        for (std::size_t line = 0; line < block; line += line_size<T>) stream_line(means + line, out + i + line);
      }
    }
    return saturated + write<Level>(sums + i, size - i, factor, out + i);
  }

 private:
  template <simd Level, class T>
  GRADSIEVE_INLINE static std::uint64_t write(float* sums, std::size_t count, float factor, T* out) noexcept {
    if constexpr (std::is_same_v<T, float>) {
      form(sums, count, factor, out);
      return 0;
    } else {
      std::uint64_t saturated = 0;
      float means[block];
      std::size_t i = 0;
      for (; i + block <= count; i += block) {
        form(sums + i, block, factor, means);
        saturated += narrow<Level>(means, out + i, block);
      }
      form(sums + i, count - i, factor, means);
      return saturated + narrow<Level>(means, out + i, count - i);
    }
  }

  GRADSIEVE_INLINE static void form(float* sums, std::size_t count, float factor, float* means) noexcept {
    GRADSIEVE_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) {
      means[i] = mean_of(sums[i], factor);
      sums[i] = gradsieve::bit_cast<float>(no_entry);
    }
  }
};

}  // namespace gradsieve::host_kernels

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Merges several index-ordered updates tile by tile: no scratch of the gradient's size, no sorting, no atomics, and
/// sums in the order of the updates.
class host_updates {
 public:
  /// Room for that many updates. Allocates if that is more than before.
  void reserve(host_team const& team, std::size_t updates) {
    auto const workers = static_cast<std::size_t>(team.size());
    if (cursors_.size() < updates * workers) cursors_.resize(updates * workers);
    if (counts_.size() < workers) counts_.resize(workers);
  }

  /// Overwrites `out` with (sum of the updates, in their order) / divisor, zero where none has an entry. The sum of an
  /// element starts with the first update that has it, so ranks that apply the same updates get the same bits. A sum
  /// that overflows is computed again in binary64: the mean of finite values is finite. Cost: n writes and O(entries);
  /// one tile of scratch per worker. @pre reserve() for as many updates; divisor > 0
  template <class T>
  applied_update apply(host_team const& team, simd level, std::span<selection_view const> updates, float divisor,
                       gradient_ref<T> const out) {
    auto const tiles = (out.size() + host_kernels::tile_size - 1) / host_kernels::tile_size;
    bool const streamed = out.size_bytes() >= host_kernels::streamed_bytes;
    float const factor = exact_reciprocal(divisor);
    team.run(out.size(), [&](int worker) {
      auto const [begin, end] = team.part(tiles, worker);
      auto const cursors =
          std::span{cursors_}.subspan(static_cast<std::size_t>(worker) * updates.size(), updates.size());
      start(updates, begin * host_kernels::tile_size, cursors);
      std::array<float, host_kernels::tile_size> sums;
      sums.fill(gradsieve::bit_cast<float>(host_kernels::no_entry));
      std::array<std::uint16_t, host_kernels::tile_size + 1> places;
      std::array<T, host_kernels::tile_size> apart;  // a tile that lies in several pieces
      applied_update mine;
      for (auto t = begin; t < end; ++t) {
        std::uint64_t const first = t * host_kernels::tile_size;
        std::size_t const size = std::min<std::uint64_t>(host_kernels::tile_size, out.size() - first);
        auto const run = out.run(first);
        bool const together = run.size() >= size;
        auto const part = together ? run.first(size) : std::span{apart}.first(size);
        auto const added = host_kernels::run<host_kernels::add_entries>(
            level, updates.data(), updates.size(), cursors.data(), first, first + part.size(), sums.data(),
            factor == 0 ? places.data() : nullptr);
        bool usual = added.usual;
        if (factor == 0) usual = usual && host_kernels::divide_sums(sums.data(), places.data(), added.entries, divisor);
        applied_update done{added.entries, host_kernels::run<host_kernels::write_means>(
                                               level, sums.data(), size, factor == 0 ? 1.0f : factor,
                                               streamed && together, part.data())};
        if (!usual) done = apply_tile(updates, first, divisor, part);
        if (!together) out.write(first, size, part.data());
        mine = {mine.entries + done.entries, mine.saturated + done.saturated};
      }
      if (streamed) host_kernels::stream_fence();
      counts_[static_cast<std::size_t>(worker)] = mine;
    });
    applied_update total;
    for (auto const& each : counts_) total = {total.entries + each.entries, total.saturated + each.saturated};
    return total;
  }

  /// The indices below n of all updates, increasing, each once. Returns how many; writes at most out.size(). Cost:
  /// O(entries + n / 64). @pre reserve() for as many updates.
  std::uint64_t merge(std::span<selection_view const> updates, std::uint64_t n, std::span<index_type> out) {
    auto const cursors = std::span{cursors_}.first(updates.size());
    start(updates, 0, cursors);
    std::array<std::uint64_t, host_kernels::tile_size / 64> marks{};
    std::uint64_t count = 0;
    for (std::uint64_t first = 0; first < n; first += host_kernels::tile_size) {
      bool any = false;
      for (std::size_t u = 0; u < updates.size(); ++u) {
        auto const indices = updates[u].indices;
        for (; cursors[u] < indices.size() && indices[cursors[u]] < first + host_kernels::tile_size; ++cursors[u]) {
          auto const at = indices[cursors[u]] - first;
          marks[at / 64] |= std::uint64_t{1} << (at % 64);
          any = true;
        }
      }
      if (!any) continue;
      for (std::size_t word = 0; word < marks.size(); ++word) {
        for (auto left = marks[word]; left != 0; left &= left - 1, ++count)
          if (count < out.size())
            out[count] = static_cast<index_type>(first + word * 64 + static_cast<unsigned>(std::countr_zero(left)));
        marks[word] = 0;
      }
    }
    return count;
  }

 private:
  static void start(std::span<selection_view const> updates, std::uint64_t first,
                    std::span<std::size_t> cursors) noexcept {
    for (std::size_t u = 0; u < updates.size(); ++u) {
      auto const indices = updates[u].indices;
      cursors[u] = static_cast<std::size_t>(std::lower_bound(indices.begin(), indices.end(), first) - indices.begin());
    }
  }

  /// 1 / divisor if products with it equal quotients (powers of two); else 0.
  [[nodiscard]] static float exact_reciprocal(float divisor) noexcept {
    auto const bits = gradsieve::bit_cast<std::uint32_t>(divisor);
    bool const exact = (bits & 0x007F'FFFFu) == 0 && divisor >= 1.0f && divisor <= 0x1p64f;
    return exact ? gradsieve::bit_cast<float>(0x7F00'0000u - bits) : 0.0f;
  }

  /// apply() for one tile of any values: -0, sums that are not finite, means that round to zero.
  template <class T>
  GRADSIEVE_PRECISE static applied_update apply_tile(std::span<selection_view const> updates, std::uint64_t first,
                                                     float divisor, std::span<T> out) noexcept {
    std::array<float, host_kernels::tile_size> total{};
    std::array<bool, host_kernels::tile_size> has{};
    for (auto const& each : updates) {
      auto const begin = std::lower_bound(each.indices.begin(), each.indices.end(), first);
      for (auto e = static_cast<std::size_t>(begin - each.indices.begin());
           e < each.indices.size() && each.indices[e] < first + out.size(); ++e) {
        auto const at = each.indices[e] - first;
        total[at] = has[at] ? add(total[at], each.values[e]) : each.values[e];
        has[at] = true;
      }
    }
    applied_update done;
    for (std::size_t i = 0; i < out.size(); ++i) {
      float mean = has[i] ? divide(total[i], divisor) : 0.0f;
      if (!is_finite(mean)) mean = wide_mean(updates, first + i, divisor);
      done.entries += has[i] ? 1u : 0u;
      if constexpr (std::is_same_v<T, float>) {
        out[i] = mean;
      } else {
        done.saturated += exceeds<T>(mean) ? 1u : 0u;
        out[i] = from_float_saturated<T>(mean);
      }
    }
    return done;
  }

  /// The mean of an element, summed in binary64. Cost: O(updates * log entries).
  [[nodiscard]] static float wide_mean(std::span<selection_view const> updates, std::uint64_t i,
                                       float divisor) noexcept {
    double sum = 0;
    for (auto const& each : updates) {
      auto const found = std::lower_bound(each.indices.begin(), each.indices.end(), i);
      if (found != each.indices.end() && *found == i)
        sum = exact::add(sum, static_cast<double>(each.values[static_cast<std::size_t>(found - each.indices.begin())]));
    }
    return static_cast<float>(exact::divide(sum, static_cast<double>(divisor)));
  }

  std::vector<std::size_t> cursors_;    // for each worker and update
  std::vector<applied_update> counts_;  // of each worker
};

}  // namespace gradsieve::detail
