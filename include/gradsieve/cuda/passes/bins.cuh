// Bins on a device, for selectors that choose in bins, and one bin in the registers of a warp.
#pragma once

#include <cstdint>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/random.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/incoming.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Consecutive elements of one segment.
struct device_bin {
  std::uint32_t begin;
  std::uint32_t size;
  std::uint32_t segment;
  std::uint32_t position;  // elements of the segment before it that can be selected
};

/// Bins whose maxima are summed in order: the host's tiles, so that both spaces have the same mean.
struct bin_group {
  std::uint32_t first;
  std::uint32_t last;
};

/// Tables of a gradient's bins for kernels.
struct bin_tables {
  std::uint32_t bin_count = 0;
  std::uint32_t group_count = 0;
  device_bin const* bins = nullptr;
  bin_group const* groups = nullptr;
  std::uint32_t const* first_group = nullptr;  // of each segment; then the end
  std::uint32_t const* elements = nullptr;     // of each segment, those that can be selected
  float* maxima = nullptr;                     // of each bin: its largest magnitude
  double* sums = nullptr;                      // of each group
  std::uint32_t* marks = nullptr;              // a bit for each element; zero between steps
  std::uint32_t* tickets = nullptr;            // of list_marks()
};

/// Consecutive elements of a bin in the registers of a warp: `vectors` vectors of `width` in a lane, each of which
/// begins at a multiple of `width`.
template <class Chosen, class T, class Residual>
class bin_strip {
 public:
  static constexpr unsigned width = incoming<T, Residual>::width;
  static constexpr unsigned each = 16;  ///< elements of a lane
  static constexpr unsigned vectors = each / width;
  static constexpr unsigned size = 32 * each;

  /// `n`: elements of the gradient.
  __device__ bin_strip(incoming<T, Residual> const& in, device_bin const& bin, std::uint64_t n)
      : in_{in},
        begin_{bin.begin},
        end_{bin.begin + bin.size},
        whole_end_{static_cast<std::uint32_t>(n / width * width)} {}

  /// Strips begin at first(), first() + size and so on below end().
  [[nodiscard]] __device__ std::uint32_t first() const { return begin_ / width * width; }
  [[nodiscard]] __device__ std::uint32_t end() const { return end_; }

  /// Loads the strip that begins at `from`, unless it is loaded; all loads are issued before the first value is used.
  __device__ void load(std::uint32_t from) {
    if (from == from_) return;
    from_ = from;
    pack<stored, width> values[vectors];
    pack<T, width> gradient[vectors];
#pragma unroll
    for (unsigned v = 0; v < vectors; ++v) {
      bool const whole = at(v) < end_ && at(v) < whole_end_;
      if (whole) values[v] = *reinterpret_cast<pack<stored, width> const*>(in_.states[0] + at(v));
      if (scores && whole && in_.aligned) gradient[v] = *reinterpret_cast<pack<T, width> const*>(in_.gradient + at(v));
#pragma unroll
      for (unsigned e = 0; e < width; ++e) {
        bool const inside = at(v) + e < end_;
        if (!whole && inside) values[v].values[e] = in_.states[0][at(v) + e];
        if (scores && !(whole && in_.aligned) && inside) gradient[v].values[e] = in_.gradient[at(v) + e];
      }
    }
#pragma unroll
    for (unsigned v = 0; v < vectors; ++v)
#pragma unroll
      for (unsigned e = 0; e < width; ++e) {
        values_[v * width + e] = has(v, e) ? to_float(values[v].values[e]) : 0.0f;
        if constexpr (scores) entered_[v * width + e] = has(v, e) ? to_float(gradient[v].values[e]) : 0.0f;
      }
  }

  [[nodiscard]] __device__ bool has(unsigned v, unsigned e) const { return at(v) + e - begin_ < end_ - begin_; }
  [[nodiscard]] __device__ key_type key(unsigned j) const { return magnitude_key(values_[j]); }

  /// Key that is compared with the bin's threshold.
  [[nodiscard]] __device__ key_type score(Chosen const& chosen, unsigned j, float factor) const {
    if constexpr (scores) {
      float const entered = multiply(entered_[j], factor);
      return magnitude_key(chosen.score(values_[j], is_finite(entered) ? entered : 0.0f));
    } else {
      return key(j);
    }
  }

  /// Marks a lane's elements of vector v.
  __device__ void mark(unsigned v, std::uint32_t bits, std::uint32_t* marks) const {
    std::uint32_t const word = at(v) / 32;
    bits <<= at(v) % 32;
    for (unsigned step = 1; step < 32 / width; step *= 2) {  // lanes of one word, their bits in the lowest
      std::uint32_t const other = __shfl_down_sync(~0u, bits, step);
      std::uint32_t const of = __shfl_down_sync(~0u, word, step);
      if (of == word && threadIdx.x % 32 + step < 32) bits |= other;
    }
    std::uint32_t const before = __shfl_up_sync(~0u, word, 1);
    if (bits != 0 && (threadIdx.x % 32 == 0 || before != word)) atomicOr(&marks[word], bits);
  }

 private:
  using stored = stored_t<Residual>;
  static constexpr bool scores = scoring_selector<Chosen>;

  [[nodiscard]] __device__ std::uint32_t at(unsigned v) const { return from_ + (v * 32 + threadIdx.x % 32) * width; }

  incoming<T, Residual> const& in_;
  std::uint32_t begin_;
  std::uint32_t end_;
  std::uint32_t whole_end_;  // of what can be loaded by vectors
  std::uint32_t from_ = ~0u;
  float values_[each];
  float entered_[scores ? each : 1];
};

/// One bin as a selector sees it, by all threads of a warp together.
template <class Strip>
class warp_bin {
 public:
  /// All bins of the segment give `k` of `elements`.
  __device__ warp_bin(Strip& strip, device_bin const& bin, std::uint32_t k, std::uint32_t elements, std::uint64_t step)
      : strip_{strip}, bin_{bin}, k_{k}, elements_{elements}, step_{step} {}

  [[nodiscard]] __device__ std::size_t size() const noexcept { return bin_.size; }
  [[nodiscard]] __device__ index_type budget() const noexcept {
    std::uint64_t const first = bin_.position;
    std::uint64_t const phase = mix(step_) % elements_;
    return static_cast<index_type>(share_of(k_, first + bin_.size, elements_, phase) -
                                   share_of(k_, first, elements_, phase));
  }

  [[nodiscard]] __device__ key_type max_key() const noexcept {
    if (largest_ != unknown) return largest_;
    key_type largest = 0;
    each_key([&](key_type key) { largest = larger(largest, key); });
    return largest_ = warp_max(largest);
  }

  /// Cost: 32 reads of the bin: of up to 512 elements from registers, of more from the nearest cache.
  [[nodiscard]] __device__ threshold kth_largest(index_type k) const noexcept {
    if (k == 0) return {infinite_key, 0};
    if (k >= bin_.size) return {};
    key_type at = 0;  // the largest key that k elements reach, from its highest bit on
    for (key_type bit = key_type{1} << 30; bit != 0; bit >>= 1)
      if (count_at_least(at | bit) >= k) at |= bit;
    return {at, k - count_at_least(at + 1)};
  }

 private:
  static constexpr key_type unknown = ~key_type{0};

  /// Calls body(key) for each element, and body(0) for what is not the bin's.
  template <class Body>
  __device__ void each_key(Body const& body) const noexcept {
    for (std::uint32_t from = strip_.first(); from < strip_.end(); from += Strip::size) {
      strip_.load(from);
#pragma unroll
      for (unsigned j = 0; j < Strip::each; ++j) body(strip_.key(j));
    }
  }

  /// @pre least > 0
  [[nodiscard]] __device__ std::uint32_t count_at_least(key_type least) const noexcept {
    std::uint32_t own = 0;
    each_key([&](key_type key) { own += key >= least ? 1 : 0; });
    return warp_sum(own);
  }

  Strip& strip_;
  device_bin const& bin_;
  std::uint32_t k_;
  std::uint32_t elements_;
  std::uint64_t step_;
  mutable key_type largest_ = unknown;
};

}  // namespace gradsieve::cuda_kernels
