// What a step on a device did, once somebody asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/cuda/messages.cuh>
#include <gradsieve/cuda/step_plan.cuh>
#include <gradsieve/cuda/updates.cuh>
#include <gradsieve/error.hpp>
#include <gradsieve/report.hpp>
#include <gradsieve/space/cuda_device.cuh>

namespace gradsieve {

/// Numbers that a step leaves in device memory.
struct device_numbers {
  std::uint64_t error = 0;
  std::uint64_t touched = 0;  // union_size
  std::uint64_t saturated = 0;
};

/// The last step of a compressor as far as the host knows it, and where the rest stands.
struct device_step {
  device where;
  step_report known;
  std::uint32_t const* selected = nullptr;
  std::uint64_t const* non_finite = nullptr;
  device_numbers* numbers = nullptr;
  std::uint64_t const* steps = nullptr;
  std::uint64_t const* words = nullptr;                    // as step_words
  bool union_is_selected = false;                          // a step without exchange
  std::uint64_t* last_error = nullptr;                     // on the host
  cuda_kernels::message_state const* message = nullptr;    // of the message that was sent
  std::byte const* sent = nullptr;                         // that message
  char const* (*index_codec)(std::uint32_t id) = nullptr;  // the name, where the device chooses
  // Where the message's bytes went, where more than its state is needed to tell; of the compressor.
  message_account (*account)(void const* compressor, std::span<std::byte const> message) = nullptr;
  void const* compressor = nullptr;

  /// @throws corrupt_message, mismatch; device_error
  static void raise(std::uint64_t error) {
    using cuda_kernels::exchange_fault;
    std::string const sender = " of rank " + std::to_string(error >> 32);
    switch (static_cast<exchange_fault>(error & 0xFFFF'FFFFu)) {
      case exchange_fault::none:
        return;
      case exchange_fault::header:
        throw corrupt_message("gradsieve: the message" + sender + " is not one of ours");
      case exchange_fault::checksum:
        throw corrupt_message("gradsieve: message checksum" + sender + " does not match: the bytes are damaged");
      case exchange_fault::order:
        throw corrupt_message("gradsieve: message indices" + sender + " are out of order or range");
      case exchange_fault::value:
        throw corrupt_message("gradsieve: the message" + sender + " holds a value that is not finite");
      case exchange_fault::decision:
        if (error >> 32 == 0) throw mismatch("gradsieve: ranks decided differently which rank selects what");
        throw mismatch("gradsieve: rank " + std::to_string(error >> 32) +
                       " decided otherwise than rank 0 which rank selects what");
      case exchange_fault::several:
        throw mismatch(
            "gradsieve: several ranks selected; the exchange leader is for one rank's choice, as with the partitioner "
            "cyclic");
      case exchange_fault::contents:
        throw corrupt_message("gradsieve: the message" + sender + " is not what this codec writes");
      case exchange_fault::elsewhere:
        throw communication_error("gradsieve: a message was damaged on its way to another rank");
      case exchange_fault::failed:
        throw communication_error("gradsieve: rank " + std::to_string(error >> 32) +
                                  " failed in this step; nothing was sent");
    }
  }
};

/// A step's report that is read when it is asked for: then the host waits for the stream. With `binned`, and with a
/// selector whose bins lie within layers, it also fetches the message, to say where its bytes went, of those alone that
/// the message has in its slot. Valid until the compressor's next step.
class device_report {
 public:
  explicit device_report(device_step const& step) noexcept : step_{&step} {}

  /// @throws what went wrong in the step; device_error.
  [[nodiscard]] step_report get() const {
    auto report = step_->known;
    if (step_->numbers == nullptr) return report;  // no step yet
    std::uint32_t selected = 0;
    device_numbers numbers;
    copy_one(step_->selected, selected);
    copy_one(step_->non_finite, report.non_finite);
    copy_one(step_->numbers, numbers);
    copy_one(step_->steps, report.step);
    cuda_kernels::message_state message;
    if (step_->message != nullptr) copy_one(step_->message, message);
    step_words words;
    copy_one(reinterpret_cast<step_words const*>(step_->words), words);
    step_->where.synchronize();
    if (numbers.error != 0) {  // told now, so that the next call does not tell it again
      throw_on_error(cudaMemsetAsync(&step_->numbers->error, 0, sizeof numbers.error, step_->where.stream),
                     "cudaMemsetAsync");
      step_->where.synchronize();
      *step_->last_error = 0;
    }
    device_step::raise(numbers.error);
    --report.step;
    report.selected = selected;
    report.saturated = numbers.saturated;
    report.budget = static_cast<index_type>(words.budget);
    report.union_size = step_->union_is_selected ? selected : report.union_size + numbers.touched;
    report.dense_elements += words.listed;
    if (step_->message != nullptr && step_->index_codec != nullptr)
      report.message.indices = step_->index_codec(message.index_codec);
    if (step_->message != nullptr && step_->account != nullptr && message.failed == 0) {
      std::vector<std::byte> bytes(message.bytes);
      step_->where.copy({step_->sent, bytes.size()}, bytes);
      step_->where.synchronize();
      report.message = step_->account(step_->compressor, bytes);
    }
    return report;
  }
  operator step_report() const { return get(); }  // NOLINT: it is one

  friend std::ostream& operator<<(std::ostream& out, device_report const& it) { return out << it.get(); }

 private:
  template <class T>
  void copy_one(T const* from, T& to) const {
    throw_on_error(cudaMemcpyAsync(&to, from, sizeof to, cudaMemcpyDeviceToHost, step_->where.stream),
                   "cudaMemcpyAsync");
  }

  device_step const* step_;
};

}  // namespace gradsieve
