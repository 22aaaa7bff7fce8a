// A tile in the registers of a block: gradient into residual.
#pragma once

#include <cstdint>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/incoming.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/vectors.cuh>
#include <gradsieve/cuda/tuning.cuh>
#include <gradsieve/residual/accumulate_element.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Candidates of one tile, in index order: their values, and where in the cell they are.
struct candidates_of_tile {
  float values[cell_size];
  std::uint16_t places[cell_size];
};

/// One tile in the registers of a block. A thread has cell_size / Threads elements of the tile's cell, `width`
/// neighbours `vectors` times; a bit of `inside_` says whether the tile has an element.
template <class T, class Residual, unsigned Threads>
class tile_registers {
 public:
  static constexpr unsigned states = Residual::states;
  static constexpr unsigned width = incoming<T, Residual>::width;
  static constexpr unsigned vectors = cell_size / (Threads * width);
  static_assert(width * vectors <= 32);

  __device__ __forceinline__ tile_registers(incoming<T, Residual> const& in, tile const& mine)
      : in_{in}, cell_{mine.begin / cell_size}, is_full_{mine.size == cell_size} {
    if (is_full_) return;
    inside_ = 0;
    each([&](unsigned v, unsigned e) { inside_ |= (at(v) + e - mine.begin < mine.size ? 1u : 0u) << bit(v, e); });
  }

  /// All loads of a full tile are issued before the first value is used.
  __device__ __forceinline__ void load() {
    pack<T, width> gradient[vectors];
    pack<stored, width> kept[states][vectors];
    if (is_full_) {
      if (in_.aligned) {
#pragma unroll
        for (unsigned v = 0; v < vectors; ++v) gradient[v] = load_once<width>(in_.gradient + at(v));
      } else {
        each([&](unsigned v, unsigned e) { gradient[v].values[e] = in_.gradient[at(v) + e]; });
      }
#pragma unroll
      for (unsigned s = 0; s < states; ++s)
#pragma unroll
        for (unsigned v = 0; v < vectors; ++v)
          kept[s][v] = *reinterpret_cast<pack<stored, width> const*>(in_.states[s] + at(v));
    } else {
#pragma unroll
      for (unsigned v = 0; v < vectors; ++v) load_part(v, gradient[v], kept);
    }
    each([&](unsigned v, unsigned e) {
      gradient_[v][e] = to_float(gradient[v].values[e]);
#pragma unroll
      for (unsigned s = 0; s < states; ++s) now_[v][e][s] = to_float(kept[s][v].values[e]);
    });
  }

  /// Removes what is pending: `sent.bits(i)` has a bit for each of 32 - i % 32 elements of the tile's cell from i on,
  /// `sent.value(i)` is that of one with a bit.
  template <class Sent>
  __device__ __forceinline__ void remove(Sent const& sent, bool full_layer, tables const& t) {
#pragma unroll
    for (unsigned v = 0; v < vectors; ++v) {
      std::uint32_t const i = at(v) % cell_size;
      std::uint32_t const bits = sent.bits(i);
#pragma unroll
      for (unsigned e = 0; e < width; ++e)
        if (((bits >> e) & 1u) != 0) in_.policy.remove_sent(sent.value(i + e), now_[v][e], full_layer);
      if ((bits & ((1u << width) - 1)) != 0) round(v, rounding::removed, t);
    }
  }

  /// Adds the gradient to the states; counts this thread's elements that were not finite.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t accumulate(tables const& t) {
    float const factor = in_.factor == nullptr ? 1.0f : *in_.factor;
    std::uint32_t bad = 0;
#pragma unroll
    for (unsigned v = 0; v < vectors; ++v) {
#pragma unroll
      for (unsigned e = 0; e < width; ++e) {
        bool const finite = accumulate_element(in_.policy, multiply(gradient_[v][e], factor), now_[v][e]);
        bad += has(v, e) && !finite ? 1u : 0u;
      }
      round(v, rounding::accumulated, t);
    }
    return bad;
  }

  __device__ __forceinline__ void store() const {
#pragma unroll
    for (unsigned s = 0; s < states; ++s)
#pragma unroll
      for (unsigned v = 0; v < vectors; ++v) {
        pack<stored, width> made;
#pragma unroll
        for (unsigned e = 0; e < width; ++e) made.values[e] = to_stored<stored>(now_[v][e][s]);
        if (is_full_ || has_all(v)) {
          *reinterpret_cast<pack<stored, width>*>(in_.states[s] + at(v)) = made;
        } else {
#pragma unroll
          for (unsigned e = 0; e < width; ++e)
            if (has(v, e)) in_.states[s][at(v) + e] = made.values[e];
        }
      }
  }

  [[nodiscard]] __device__ __forceinline__ tile_sums sums() const {
    tile_sums own{};
    each([&](unsigned v, unsigned e) {
      if (has(v, e)) own.add(now_[v][e][0]);
    });
    return own;
  }

  /// A bit for each element whose accumulator reaches a key.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t that_reach(key_type key) const {
    std::uint32_t found = 0;
    each([&](unsigned v, unsigned e) { found |= (magnitude_key(now_[v][e][0]) >= key ? 1u : 0u) << bit(v, e); });
    return found & inside_;
  }

  /// How many bits each vector has, 16 bits a vector.
  [[nodiscard]] static __device__ __forceinline__ std::uint64_t count_by_vector(std::uint32_t bits) {
    std::uint64_t counts = 0;
#pragma unroll
    for (unsigned v = 0; v < vectors; ++v)
      counts |= static_cast<std::uint64_t>(__popc((bits >> (v * width)) & ((1u << width) - 1))) << (16 * v);
    return counts;
  }

  /// Lists the elements with a bit, in index order. `to`: where vector v's begin.
  __device__ __forceinline__ void list(std::uint32_t bits, std::uint32_t (&to)[vectors],
                                       candidates_of_tile& shared) const {
    each([&](unsigned v, unsigned e) {
      if (((bits >> bit(v, e)) & 1u) == 0) return;
      shared.values[to[v]] = now_[v][e][0];
      shared.places[to[v]] = static_cast<std::uint16_t>(at(v) % cell_size + e);
      ++to[v];
    });
  }

 private:
  using stored = stored_t<Residual>;
  static constexpr std::uint32_t all_of_vector = (1u << width) - 1;

  /// body(vector, element) for all that a thread has, unrolled.
  template <class Body>
  static __device__ __forceinline__ void each(Body const& body) {
#pragma unroll
    for (unsigned v = 0; v < vectors; ++v)
#pragma unroll
      for (unsigned e = 0; e < width; ++e) body(v, e);
  }

  [[nodiscard]] static constexpr __device__ unsigned bit(unsigned v, unsigned e) { return v * width + e; }
  [[nodiscard]] __device__ __forceinline__ bool has(unsigned v, unsigned e) const {
    return ((inside_ >> bit(v, e)) & 1u) != 0;
  }
  [[nodiscard]] __device__ __forceinline__ bool has_all(unsigned v) const {
    return ((inside_ >> bit(v, 0)) & all_of_vector) == all_of_vector;
  }

  /// What a tile that is not full has of a vector.
  __device__ __forceinline__ void load_part(unsigned v, pack<T, width>& gradient,
                                            pack<stored, width> (&kept)[states][vectors]) const {
    if (in_.aligned && has_all(v)) {
      gradient = load_once<width>(in_.gradient + at(v));
    } else {
#pragma unroll
      for (unsigned e = 0; e < width; ++e) gradient.values[e] = has(v, e) ? in_.gradient[at(v) + e] : T{};
    }
#pragma unroll
    for (unsigned s = 0; s < states; ++s) {
      if (has_all(v)) {
        kept[s][v] = *reinterpret_cast<pack<stored, width> const*>(in_.states[s] + at(v));
      } else {
#pragma unroll
        for (unsigned e = 0; e < width; ++e) kept[s][v].values[e] = has(v, e) ? in_.states[s][at(v) + e] : stored{};
      }
    }
  }

  /// The first element of a vector.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t at(unsigned v) const {
    return cell_ * cell_size + (v * Threads + threadIdx.x) * width;
  }

  /// As rounding::apply(), of a vector.
  __device__ __forceinline__ void round(unsigned v, rounding::event what, tables const& t) {
    if constexpr (sizeof(stored) < sizeof(float)) {
      rounding const noise{*t.step, what};
#pragma unroll
      for (unsigned s = 0; s < states; ++s)
#pragma unroll
        for (unsigned first = 0; first < width; first += 4) {
          std::uint64_t const four = noise.of_four((at(v) + first) / 4, s);
#pragma unroll
          for (unsigned e = 0; e < 4; ++e)
            now_[v][first + e][s] =
                to_float(to_stored<stored>(now_[v][first + e][s], static_cast<std::uint16_t>(four >> (16 * e))));
        }
    }
  }

  incoming<T, Residual> const& in_;
  std::uint32_t cell_;
  bool is_full_;
  std::uint32_t inside_ = ~0u;
  float gradient_[vectors][width];
  element_state<states> now_[vectors][width];
};

}  // namespace gradsieve::cuda_kernels
