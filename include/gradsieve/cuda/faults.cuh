// Failures in a device's stream: words in device memory, and their messages on the host.
#pragma once

#include <cstdint>
#include <string>

#include <gradsieve/core/error.hpp>
#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/passes/updates.cuh>
#include <gradsieve/cuda/workspace.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Numbers that a step leaves in device memory.
struct device_numbers {
  std::uint64_t error = 0;    ///< an exchange_fault and its sender
  std::uint64_t touched = 0;  ///< union_size
};

/// Owns device_numbers, and the host's copy of the error.
class device_faults {
 public:
  explicit device_faults(cuda_workspace const& work) : numbers_{work.zeroed<device_numbers>(1)}, reported_(1) {}

  [[nodiscard]] std::uint64_t* error() const noexcept { return &numbers_.data()->error; }  // in device memory
  [[nodiscard]] std::uint64_t* touched() const noexcept { return &numbers_.data()->touched; }
  /// The host's copy of the error, for kernels to write to; null if an error is expected.
  [[nodiscard]] std::uint64_t* reported(bool expected) const noexcept { return expected ? nullptr : reported_.data(); }

  [[nodiscard]] device_numbers const* numbers() const noexcept { return numbers_.data(); }

  void set(cuda_workspace const& work) const {
    throw_on_error(cudaMemsetAsync(error(), 1, 1, work.where().stream), "cudaMemsetAsync");
  }
  void clear(cuda_workspace const& work) const { work.zero_one(error()); }

  void forget(device const& where) const {  // clears the error; waits
    where.wait_for([&] {
      throw_on_error(cudaMemsetAsync(error(), 0, sizeof(std::uint64_t), where.stream), "cudaMemsetAsync");
    });
    reported_[0] = 0;
  }

  /// Returns the error if the host's copy shows one, and clears it, which waits; else 0.
  [[nodiscard]] std::uint64_t take_reported(cuda_workspace const& work) const {
    if (*static_cast<std::uint64_t volatile*>(reported_.data()) == 0) return 0;
    auto const found = work.download(error());
    forget(work.where());
    return found;
  }

  /// Throws the exception of an error word. @throws corrupt_message, mismatch; device_error
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
        throw corrupt_message("gradsieve: message indices" + sender + " are out of order or out of range");
      case exchange_fault::value:
        throw corrupt_message("gradsieve: the message" + sender + " holds a value that is not finite");
      case exchange_fault::decision:
        throw mismatch("gradsieve: " +
                       (error >> 32 == 0 ? "ranks" : "rank " + std::to_string(error >> 32) + " and rank 0") +
                       " differ in which rank selects where, or in the layers that they skip: they skip others, were "
                       "built otherwise, or the communicator's all_reduce gave them different norms");
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

 private:
  cuda_buffer<device_numbers> numbers_;
  pinned_array<std::uint64_t> reported_;
};

}  // namespace gradsieve::detail
