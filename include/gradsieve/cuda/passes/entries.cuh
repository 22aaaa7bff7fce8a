// Kernels over the entries that a step took out, and over whole states.
#pragma once

#include <cub/block/block_reduce.cuh>

#include <cstdint>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/incoming.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// The states of all elements, and the policy that says how entries leave them.
template <class Residual>
struct state_memory {
  stored_t<Residual>* states[Residual::states];
  Residual policy;
  std::uint64_t const* step;  // number of the step, by which values are rounded
};

/// Elements that are sent without indices. `place`: of the first among all such elements.
struct passthrough_range {
  std::uint32_t offset;
  std::uint32_t size;
  std::uint32_t place;
};

/// The elements of some ranges, side by side.
struct passthrough_part {
  passthrough_range const* ranges;
  std::uint32_t range_count;
  std::uint64_t elements;

  /// The next range. On the host.
  passthrough_range append(range const& next) {
    passthrough_range const made{static_cast<std::uint32_t>(next.offset), static_cast<std::uint32_t>(next.size),
                                 static_cast<std::uint32_t>(elements)};
    ++range_count;
    elements += next.size;
    return made;
  }

  [[nodiscard]] __device__ std::uint32_t element(std::uint64_t place) const {
    auto const& its = ranges[count_before(range_count, [&](std::uint64_t r) { return ranges[r].place <= place; }) - 1];
    return its.offset + static_cast<std::uint32_t>(place - its.place);
  }
};

/// Threads that share work: whole blocks of a launch.
struct thread_team {
  std::uint64_t thread;  // this one's number
  std::uint64_t threads;

  template <class Body>
  __device__ void for_each(std::uint64_t count, Body const& body) const {
    for (std::uint64_t i = thread; i < count; i += threads) body(i);
  }
};

[[nodiscard]] __device__ inline thread_team whole_launch() {
  return {std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x, std::uint64_t{gridDim.x} * blockDim.x};
}

/// Calls body(i) for i < count, by all threads of a launch.
template <class Body>
__device__ void for_each(std::uint64_t count, Body const& body) {
  whole_launch().for_each(count, body);
}

/// Calls body(sender, team) for all senders, each by its own team of blocks; one after the other only if there are more
/// senders than blocks. By all threads of a launch.
template <class Body>
__device__ void for_each_sender(std::uint32_t senders, Body const& body) {
  std::uint32_t const blocks = larger(gridDim.x / larger(senders, 1u), 1u);  // of a sender
  for (std::uint32_t r = blockIdx.x / blocks; r < senders; r += gridDim.x / blocks)
    body(r, thread_team{std::uint64_t{blockIdx.x % blocks} * blockDim.x + threadIdx.x,
                        std::uint64_t{blocks} * blockDim.x});
}

template <class Residual>
__device__ element_state<Residual::states> load_state(state_memory<Residual> const& memory, std::uint64_t i) {
  element_state<Residual::states> now;
#pragma unroll
  for (unsigned s = 0; s < Residual::states; ++s) now[s] = to_float(memory.states[s][i]);
  return now;
}

template <class Residual>
__device__ void store_state(state_memory<Residual> const& memory, std::uint64_t i,
                            element_state<Residual::states> const& now) {
#pragma unroll
  for (unsigned s = 0; s < Residual::states; ++s) memory.states[s][i] = to_stored<stored_t<Residual>>(now[s]);
}

/// State of an element after a value has left it.
template <class Residual>
[[nodiscard]] __device__ element_state<Residual::states> without_sent(state_memory<Residual> const& memory,
                                                                      std::uint64_t i, float sent, bool full_layer,
                                                                      element_state<Residual::states> now) {
  memory.policy.remove_sent(sent, now, full_layer);
  rounding{*memory.step, rounding::removed}.apply<stored_t<Residual>>(i, now);
  return now;
}
template <class Residual>
__device__ void remove_sent_state(state_memory<Residual> const& memory, std::uint64_t i, float sent, bool full_layer,
                                  element_state<Residual::states> const& now) {
  store_state(memory, i, without_sent(memory, i, sent, full_layer, now));
}

/// Removes what is pending; saves its old states. The caller then zeroes the list's directory.
template <class Residual>
__global__ void remove_pending(state_memory<Residual> const memory, tables const t, entry_list const pending,
                               element_state<Residual::states>* saved) {
  std::uint32_t const count = pending.cells[t.cell_count];
  for_each(count, [&](std::uint64_t p) {
    auto const i = pending.indices[p];
    auto const segment_here = t.tiles[tile_of(t, i)].segment;
    bool const full_layer = segment_here != no_segment && t.segments[segment_here].full != 0;
    saved[p] = load_state(memory, i);
    remove_sent_state(memory, i, pending.values[p], full_layer, saved[p]);
  });
  if (count > 0 && blockIdx.x == 0 && threadIdx.x == 0) t.taken->saved = count;
}

/// Restores what remove_pending() took, if it may still be rolled back.
template <class Residual>
__global__ void restore_entries(state_memory<Residual> const memory, entry_list const taken,
                                element_state<Residual::states> const* saved, taken_state const* state) {
  for_each(state->open != 0 ? state->saved : 0,
           [&](std::uint64_t p) { store_state(memory, taken.indices[p], saved[p]); });
}

/// Clamps a value to +-limit, and counts it if it is beyond.
[[nodiscard]] __device__ inline float saturated(float value, float limit, std::uint64_t* count) {
  if (magnitude_key(value) <= magnitude_key(limit)) return value;
  atomicAdd(reinterpret_cast<unsigned long long*>(count), 1ull);
  return with_sign_of(value, limit);
}

template <int = 0>
__global__ void saturate_entries(entry_list const own, float limit, std::uint64_t* count) {
  wait_for_previous();
  for_each(*own.count, [&](std::uint64_t p) { own.values[p] = saturated(own.values[p], limit, count); });
}

/// Converts a mean to a gradient's format, clamped to its largest value; counts it then.
template <class T>
[[nodiscard]] __device__ T to_output(float mean, std::uint64_t* count) {
  if (exceeds<T>(mean)) atomicAdd(reinterpret_cast<unsigned long long*>(count), 1ull);
  return from_float_saturated<T>(mean);
}

/// Removes whole ranges: accumulators, clamped to +-limit, to `out`, old states to `saved`. Accumulators become zero
/// until return_passthrough(); sets *stays if one is to get something back then.
template <class Residual>
__global__ void take_passthrough(state_memory<Residual> const memory, passthrough_part const part,
                                 element_state<Residual::states>* saved, float* out, float limit, std::uint64_t* beyond,
                                 std::uint64_t* stays) {
  wait_for_previous();
  for_each(part.elements, [&](std::uint64_t p) {
    auto const i = part.element(p);
    saved[p] = load_state(memory, i);
    out[p] = saturated(saved[p][0], limit, beyond);
    auto now = without_sent(memory, i, out[p], true, saved[p]);
    if (magnitude_key(now[0]) != 0) {
      now[0] = 0;
      *stays = 1;
    }
    store_state(memory, i, now);
  });
}

/// Ends take_passthrough(): returns everything if *condition, which may be null, is not zero; else what stays.
template <class Residual>
__global__ void return_passthrough(state_memory<Residual> const memory, passthrough_part const part,
                                   element_state<Residual::states> const* saved, float const* out,
                                   std::uint64_t const* condition, std::uint64_t const* stays) {
  wait_for_previous();
  bool const undo = condition != nullptr && *condition != 0;
  for_each(undo || *stays != 0 ? part.elements : 0, [&](std::uint64_t p) {
    auto const i = part.element(p);
    if (undo)
      store_state(memory, i, saved[p]);
    else
      memory.states[0][i] = to_stored<stored_t<Residual>>(without_sent(memory, i, out[p], true, saved[p])[0]);
  });
}

/// Moves the accumulators of ranges to `held`, and leaves zeros; with `Back` moves them back.
template <bool Back, class Stored>
__global__ void hold_ranges(Stored* accumulator, passthrough_part const part, Stored* held) {
  wait_for_previous();
  for_each(part.elements, [&](std::uint64_t p) {
    auto const i = part.element(p);
    if constexpr (Back)
      accumulator[i] = held[p];
    else {
      held[p] = accumulator[i];
      accumulator[i] = to_stored<Stored>(0.0f);
    }
  });
}

/// Restores what take_passthrough() took, if *condition is not zero.
template <class Residual, class Word>
__global__ void restore_passthrough(state_memory<Residual> const memory, passthrough_part const part,
                                    element_state<Residual::states> const* saved, Word const* condition) {
  for_each(*condition != 0 ? part.elements : 0,
           [&](std::uint64_t p) { store_state(memory, part.element(p), saved[p]); });
}

/// Copies the elements to be summed over the ranks, and after them whether this rank's exchange has failed.
template <int = 0>
__global__ void copy_passthrough(float const* own, std::uint64_t elements, std::uint64_t const* error, float* sums) {
  wait_for_previous();
  for_each(elements + 1, [&](std::uint64_t p) { sums[p] = p < elements ? own[p] : *error != 0 ? 1.0f : 0.0f; });
}

/// Writes sums / divisor to their ranges of a gradient; zeros if *error, which may be null, is not zero.
template <class T>
__global__ void write_passthrough(passthrough_part const part, float const* sums, float divisor,
                                  std::uint64_t const* error, T* out, std::uint64_t* beyond) {
  wait_for_previous();
  bool const failed = error != nullptr && *error != 0;
  for_each(part.elements, [&](std::uint64_t p) {
    out[part.element(p)] = to_output<T>(failed ? 0.0f : divide(sums[p], divisor), beyond);
  });
}

/// Multiplies where the product is finite.
template <class T>
__global__ void scale_values(T* values, std::uint64_t count, float factor) {
  for_each(count, [&](std::uint64_t i) {
    float const scaled = multiply(to_float(values[i]), factor);
    if (is_finite(scaled)) values[i] = to_stored<T>(scaled);
  });
}

/// Adds where the sum is finite.
template <class T>
__global__ void add_values(T* values, std::uint64_t count, float const* other) {
  for_each(count, [&](std::uint64_t i) {
    float const sum = add(to_float(values[i]), other[i]);
    if (is_finite(sum)) values[i] = to_stored<T>(sum);
  });
}

/// Sum of squares of finite values, in as many parts as there are blocks, in a fixed order.
template <class T>
__global__ void __launch_bounds__(sum_threads) sum_squares(T const* values, std::uint64_t count, double* parts) {
  using reduce = CUB_NS_QUALIFIER::BlockReduce<double, sum_threads>;
  __shared__ typename reduce::TempStorage shared;
  double own = 0;
  for_each(count, [&](std::uint64_t i) {
    float const x = to_float(values[i]);
    own += is_finite(x) ? widened(x) * widened(x) : 0.0;
  });
  double const total = reduce{shared}.Sum(own);
  if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

/// Factor by which a residual store multiplies a gradient of this norm.
template <class Residual>
__global__ void gradient_factor(Residual const policy, double const* parts, int world, float* factor) {
  double total = 0;
  for (unsigned b = 0; b < sum_blocks; ++b) total += parts[b];
  *factor = policy.factor(std::sqrt(total), world);
}

}  // namespace gradsieve::cuda_kernels
