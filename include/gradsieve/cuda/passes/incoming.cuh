// A gradient and the states to which it is added: how these are rounded, and the state that an element will have.
#pragma once

#include <cstdint>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/random.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/residual/accumulate_element.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Noise that rounds a step's states to their format: a hash of step, event and element, equal in every pass.
class rounding {
 public:
  enum event : std::uint64_t { accumulated, removed };

  GRADSIEVE_HD constexpr rounding(std::uint64_t step, event what) noexcept : stream_{mix(2 * step + what)} {}

  /// Noise for state s of the elements 4 f to 4 f + 3, 16 bits each. Two products of 32 bits, each half of which is
  /// folded onto the other, and a third: a device has no wider ones at full speed.
  [[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t of_four(std::uint32_t f, std::uint32_t s) const noexcept {
    auto const folded = [](std::uint32_t x, std::uint32_t odd) {
      std::uint64_t const product = std::uint64_t{x} * odd;
      return static_cast<std::uint32_t>(product ^ (product >> 32));
    };
    auto const mixed = folded(static_cast<std::uint32_t>(stream_) ^ (f + (s << 30)), 0x9E37'79B1u);
    auto const two = folded(mixed ^ static_cast<std::uint32_t>(stream_ >> 32), 0xC2B2'AE3Du);
    return two | std::uint64_t{two * 0x85EB'CA77u} << 32;
  }

  /// Rounds the states of element i to values that `Stored` can represent.
  template <class Stored, std::size_t States>
  GRADSIEVE_HD constexpr void apply(std::uint64_t i, element_state<States>& state) const noexcept {
    if constexpr (sizeof(Stored) < sizeof(float))
      for (std::uint32_t s = 0; s < States; ++s) {
        auto const noise = of_four(static_cast<std::uint32_t>(i / 4), s) >> (16 * (i % 4));
        state[s] = to_float(to_stored<Stored>(state[s], static_cast<std::uint16_t>(noise)));
      }
  }

 private:
  std::uint64_t stream_;
};

/// A gradient and the states that accumulate it. `pending` is removed first.
template <class T, class Residual>
struct incoming {
  /// Elements of a thread's vector load: 16 bytes of the wider format.
  static constexpr unsigned width = load_bytes / static_cast<unsigned>(larger(sizeof(T), sizeof(stored_t<Residual>)));

  T const* gradient;
  stored_t<Residual>* states[Residual::states];
  Residual policy;
  float const* factor;  // of the gradient; null: 1
  entry_list pending;
  bool aligned;  // the gradient, to loads of `width` elements
};

/// True if an element is pending, and its value: by a search among those of its cell.
__device__ inline bool find_pending(entry_list const& pending, std::uint32_t i, float& value) {
  std::uint32_t const begin = pending.cells[i / cell_size];
  std::uint32_t const end = pending.cells[i / cell_size + 1];
  auto const at = begin + first_not_below(pending.indices + begin, end - begin, i);
  if (at == end || pending.indices[at] != i) return false;
  value = pending.values[at];
  return true;
}

template <class Stored>
struct from_memory {
  Stored const* accumulator;
  __device__ float operator()(std::uint32_t i) const { return to_float(accumulator[i]); }
};

/// The state of an element as accumulate() will write it; returns true if all was finite.
template <class T, class Residual>
__device__ bool accumulated(incoming<T, Residual> const& in, std::uint64_t step, std::uint32_t i,
                            element_state<Residual::states>& now) {
#pragma unroll
  for (unsigned s = 0; s < Residual::states; ++s) now[s] = to_float(in.states[s][i]);
  if (float sent = 0; find_pending(in.pending, i, sent)) {
    in.policy.remove_sent(sent, now, false);
    rounding{step, rounding::removed}.apply<stored_t<Residual>>(i, now);
  }
  float const factor = in.factor == nullptr ? 1.0f : *in.factor;
  bool const finite = accumulate_element(in.policy, multiply(to_float(in.gradient[i]), factor), now);
  rounding{step, rounding::accumulated}.apply<stored_t<Residual>>(i, now);
  return finite;
}

/// Reads an accumulator as accumulate() will write it; 0 in excluded layers.
template <class T, class Residual>
struct from_incoming {
  incoming<T, Residual> in;
  tables t;

  __device__ float operator()(std::uint32_t i) const {
    if (t.has_excluded && t.tiles[tile_of(t, i)].excluded != 0) return 0;
    element_state<Residual::states> now;
    accumulated(in, *t.step, i, now);
    return now[0];
  }
};

/// Counts elements that accumulate() would find not finite; changes no state.
template <class T, class Residual>
__global__ void count_not_finite(incoming<T, Residual> const in, tables const t) {
  std::uint32_t bad = 0;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < t.n;
       i += std::uint64_t{gridDim.x} * blockDim.x) {
    element_state<Residual::states> now;
    bad += accumulated(in, *t.step, static_cast<std::uint32_t>(i), now) ? 0u : 1u;
  }
  if (bad != 0) atomicAdd(reinterpret_cast<unsigned long long*>(t.bad), bad);
}

}  // namespace gradsieve::cuda_kernels
