// The states of all elements on a device, and the rollback of a failed step.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/incoming.cuh>
#include <gradsieve/cuda/workspace.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Device counterpart of residual_memory, in stream order: owns the states, and the list of what the last step took
/// out, pending until the next accumulate pass. Memory: sizeof(stored) * states * n bytes, 8 + 4 * states an entry.
template <class Residual>
class device_residual_memory {
 public:
  using stored = stored_t<Residual>;
  using saved_state = element_state<Residual::states>;
  static constexpr std::size_t states = Residual::states;

  device_residual_memory(cuda_workspace& work, Residual const& policy) : work_{work}, policy_{policy} {
    for (auto& each : states_) each = work_.template zeroed<stored>(work_.size());
    parts_ = work_.template zeroed<double>(cuda_kernels::sum_blocks);
    factor_ = work_.template zeroed<float>(1);
  }

  /// Allocates for what a step takes out, at least one entry. Nothing is pending any more. @pre flush_pending()
  void reserve(std::uint64_t entries) {
    taken_ = work_.make_list(std::max<std::uint64_t>(entries, 1));
    saved_ = work_.template zeroed<saved_state>(taken_.capacity);
  }

  [[nodiscard]] stored* accumulator() const noexcept { return states_[0].data(); }
  [[nodiscard]] std::span<stored const> state(std::size_t s) const noexcept { return states_[s].span(); }

  [[nodiscard]] cuda_kernels::state_memory<Residual> view() const noexcept {
    cuda_kernels::state_memory<Residual> all{{}, policy_, work_.step().data()};
    for (std::size_t s = 0; s < states; ++s) all.states[s] = states_[s].data();
    return all;
  }

  [[nodiscard]] cuda_workspace::entry_list taken() const noexcept { return taken_.list(); }  // what a step takes out

  /// A gradient to accumulate. `world` is for a store that scales it by its norm, at the cost of a pass.
  template <class T>
  [[nodiscard]] cuda_kernels::incoming<T, Residual> incoming(T const* gradient, [[maybe_unused]] int world) const {
    using incoming_type = cuda_kernels::incoming<T, Residual>;
    incoming_type in{gradient, {}, policy_, nullptr, taken_.list(), false};
    for (std::size_t s = 0; s < states; ++s) in.states[s] = states_[s].data();
    in.aligned = reinterpret_cast<std::uintptr_t>(gradient) % (incoming_type::width * sizeof(T)) == 0;
    if constexpr (scaling_residual_store<Residual>)
      if (policy_.needs_norm()) {
        sum_squares(gradient);
        work_.launch<cuda_kernels::gradient_factor<Residual>>(1, 1, policy_, static_cast<double const*>(parts_.data()),
                                                              world, factor_.data());
        in.factor = factor_.data();
      }
    return in;
  }

  void flush_pending() const {  // subtracts what the last step sent
    work_.over<cuda_kernels::remove_pending<Residual>>(taken_.capacity, view(), work_.tables(), taken_.list(),
                                                       saved_.data());
    work_.zero(taken_.cells);
  }

  /// Restores what the last step took out, if it was subtracted already.
  void rollback() const {
    work_.over<cuda_kernels::restore_entries<Residual>>(taken_.capacity, view(), taken_.list(), saved_.data(),
                                                        work_.taken());
  }

  void close() const {  // nothing can be rolled back any more
    throw_on_error(cudaMemsetAsync(work_.taken(), 0, sizeof(cuda_kernels::taken_state), work_.where().stream),
                   "cudaMemsetAsync");
  }

  void forget() const {  // nothing is pending, nor can be rolled back
    work_.zero(taken_.cells);
    work_.zero(taken_.count);
    close();
  }

  /// Multiplies all states and what could be rolled back, where the product is finite. @pre flush_pending()
  void rescale(float factor, std::span<saved_state> passthrough) const {
    auto const scale = [&]<class T>(T* values, std::uint64_t count) {
      work_.over<cuda_kernels::scale_values<T>>(count, values, count, factor);
    };
    for (auto const& each : states_) scale(each.data(), each.size());
    scale(reinterpret_cast<float*>(saved_.data()), saved_.size() * states);
    scale(reinterpret_cast<float*>(passthrough.data()), passthrough.size() * states);
  }

  // The following flush what is pending, and wait.

  /// Sum of the accumulators' squares. Cost: one pass.
  [[nodiscard]] double squared_norm() const {
    double total = 0;
    flush_now();
    sum_squares(static_cast<stored const*>(accumulator()));
    for (double const each : work_.downloaded(std::span<double const>{parts_.span()})) total += each;
    return total;
  }

  [[nodiscard]] std::vector<float> read(std::size_t s) const {
    flush_now();
    auto const kept = work_.downloaded(state(s));
    std::vector<float> values(kept.size());
    std::ranges::transform(kept, values.begin(), [](stored x) { return to_float(x); });
    return values;
  }

  void write(std::size_t s, std::span<float const> values) const {
    flush_now();
    std::vector<stored> kept(values.size());
    std::ranges::transform(values, kept.begin(), [](float x) { return to_stored<stored>(x); });
    work_.upload_now(std::span<stored const>{kept}, states_[s].span());
  }

  /// Adds another memory's state, element by element, where the sum is finite.
  void absorb(std::size_t s, std::span<float const> values) const {
    flush_now();
    auto const other = work_.template uploaded<float>(values);
    work_.over<cuda_kernels::add_values<stored>>(values.size(), states_[s].data(), values.size(),
                                                 static_cast<float const*>(other.data()));
    work_.where().synchronize();
  }

 private:
  void flush_now() const {
    work_.where().refuse_capture("it waits for the stream");
    flush_pending();
  }

  template <class T>
  void sum_squares(T const* values) const {
    work_.launch<cuda_kernels::sum_squares<T>>(cuda_kernels::sum_blocks, cuda_kernels::sum_threads, values,
                                               work_.size(), parts_.data());
  }

  cuda_workspace& work_;
  Residual const& policy_;
  std::array<cuda_buffer<stored>, states> states_;
  detail::list_memory taken_;  // what the last step took out, and what of it is pending
  cuda_buffer<saved_state> saved_;
  cuda_buffer<double> parts_;
  cuda_buffer<float> factor_;
};

}  // namespace gradsieve::detail
