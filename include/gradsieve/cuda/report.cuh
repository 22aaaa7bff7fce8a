// The report of a step on a device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <vector>

#include <gradsieve/core/report.hpp>
#include <gradsieve/cuda/assignment.cuh>
#include <gradsieve/cuda/codec/messages.cuh>
#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/faults.cuh>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

/// A compressor's last step as the host knows it, and the device addresses of the rest.
struct device_step_record {
  device where;
  step_report known;
  device_faults const* faults = nullptr;  ///< null before the first step
  std::uint32_t const* selected = nullptr;
  std::uint64_t const* non_finite = nullptr;
  std::uint64_t const* saturated = nullptr;
  threshold_counts const* thresholds = nullptr;
  std::uint64_t const* steps = nullptr;
  std::uint64_t const* words = nullptr;                  // as step_decision
  bool union_is_selected = false;                        // a step without exchange
  cuda_kernels::message_state const* message = nullptr;  // of the message that was sent
  std::byte const* sent = nullptr;                       // that message
  // Breakdown of the message; empty if neither codec nor selector counts bytes.
  std::function<byte_breakdown(std::span<std::byte const>)> breakdown;
};

}  // namespace detail

/// The report of a step on a device. Reading it, by get(), conversion or printing, synchronises the stream and throws
/// what failed in the step. With a selector whose bins lie within layers, or a codec that has breakdown(), it also
/// copies the message to the host for its breakdown, without the rest of its slot. Valid until the next step.
class device_report {
 public:
  /// Made by a compressor.
  explicit device_report(detail::device_step_record const& step) noexcept : step_{&step} {}

  /// Reads the report. Synchronises the stream. @throws what failed in the step; device_error.
  [[nodiscard]] step_report get() const {
    auto report = step_->known;
    if (step_->faults == nullptr) return report;  // no step yet
    std::uint32_t selected = 0;
    detail::device_numbers numbers;
    cuda_kernels::message_state message;
    detail::step_decision words;
    step_->where.wait_for([&] {
      copy_one(step_->selected, selected);
      copy_one(step_->non_finite, report.non_finite);
      copy_one(step_->saturated, report.saturated);
      copy_one(step_->faults->numbers(), numbers);
      copy_one(step_->thresholds, report.thresholds);
      copy_one(step_->steps, report.step);
      if (step_->message != nullptr) copy_one(step_->message, message);
      copy_one(reinterpret_cast<detail::step_decision const*>(step_->words), words);
    });
    if (numbers.error != 0) step_->faults->forget(step_->where);  // reported now, not again by the next call
    detail::device_faults::raise(numbers.error);
    --report.step;
    report.selected = selected;
    report.budget = static_cast<index_type>(words.budget);
    report.union_size = step_->union_is_selected ? selected : numbers.touched - std::min(numbers.touched, words.listed);
    report.passthrough_elements += words.listed;
    if (step_->message != nullptr && step_->breakdown && message.failed == 0) {
      std::vector<std::byte> bytes(message.bytes);
      step_->where.wait_for([&] { step_->where.copy({step_->sent, bytes.size()}, bytes); });
      report.message = step_->breakdown(bytes);
    }
    return report;
  }
  /// Reads the report, as get().
  operator step_report() const { return get(); }  // NOLINT: it is one

  /// A word in device memory that is not 0 if the step has failed, valid in stream order; null before the first step.
  [[nodiscard]] std::uint64_t const* fault() const noexcept {
    return step_->faults == nullptr ? nullptr : step_->faults->error();
  }

  friend std::ostream& operator<<(std::ostream& out, device_report const& it) { return out << it.get(); }

 private:
  template <class T>
  void copy_one(T const* from, T& to) const {
    throw_on_error(cudaMemcpyAsync(&to, from, sizeof to, cudaMemcpyDeviceToHost, step_->where.stream),
                   "cudaMemcpyAsync");
  }

  detail::device_step_record const* step_;
};

}  // namespace gradsieve
