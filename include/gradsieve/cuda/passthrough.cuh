// The part of a step on a device that is sent without indices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/passthrough_layers.hpp>
#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/memory.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/workspace.cuh>
#include <gradsieve/host/passthrough.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Device counterpart of passthrough_part, in stream order. Kernels find the ranges in a table.
template <class Residual>
class device_passthrough_part {
 public:
  using memory_type = device_residual_memory<Residual>;
  using stored = stored_t<Residual>;

  device_passthrough_part(cuda_workspace const& work, memory_type const& memory, layer_split const& split,
                          step_layers const& now)
      : work_{work}, memory_{memory}, split_{split}, now_{now} {}

  /// Allocates for passthrough layers and for segments, of which a step sends at most `most` elements in full.
  void reserve(std::size_t segments, std::uint64_t most) {
    auto const elements = split_.passthrough_elements + most;
    saved_ = work_.template zeroed<element_state<Residual::states>>(elements);
    own_ = work_.template zeroed<float>(elements);
    sum_ = work_.template zeroed<float>(elements + 1);
    ranges_ = work_.template zeroed<cuda_kernels::passthrough_range>(most_passthrough_ranges(split_, segments));
    part_.ranges = ranges_.data();
    uploaded_.synchronize();
    chosen_ = pinned_array<cuda_kernels::passthrough_range>(ranges_.size());
    reserve_skipped();
  }

  /// Call after the skipped layers change: makes room for their accumulators, uploads their ranges. Waits, allocates.
  void reserve_skipped() {
    std::vector<cuda_kernels::passthrough_range> table;
    skipped_part_ = {};
    for (auto const& each : now_.skipped()) table.push_back(skipped_part_.append(each));
    if (held_.size() < skipped_part_.elements) held_ = work_.template zeroed<stored>(skipped_part_.elements);
    skipped_ = work_.template uploaded<cuda_kernels::passthrough_range>(table);
    skipped_part_.ranges = skipped_.data();
  }

  /// Sets the ranges of a step and uploads them. Waits for the upload before.
  template <class Segmentation>
  void choose(Segmentation const& segments, bool full_segments) {
    std::vector<range> named;
    name_passthrough_ranges(now_, segments, full_segments, named);
    uploaded_.synchronize();
    part_ = {ranges_.data(), 0, 0};
    for (auto const& each : named) {
      auto& next = chosen_[part_.range_count];
      next = part_.append(each);
    }
    work_.upload(std::span<cuda_kernels::passthrough_range const>{chosen_.span().first(part_.range_count)},
                 ranges_.first(part_.range_count));
    uploaded_.record(work_.where());
  }

  [[nodiscard]] std::uint64_t size() const noexcept { return part_.elements; }  // elements in all ranges

  [[nodiscard]] std::span<float const> own() const noexcept { return own_.first(part_.elements); }  // @pre take()

  /// Moves the ranges' values, clamped to +-limit, out of the residual; counts clamped ones. Holds back what stays in
  /// the ranges (*stays is not 0 then) and in skipped layers, until return_rest() or put_back().
  void take(float limit, std::uint64_t* saturated, std::uint64_t* stays) {
    holds_ = true;
    work_.over_early<cuda_kernels::take_passthrough<Residual>>(size(), memory_.view(), part_, saved_.data(),
                                                               own_.data(), limit, saturated, stays);
    hold<false>(true);
  }

  /// Ends what take() began: the accumulators get back what stays there, or all of it if *error is not zero.
  /// `after_kernel`: the previous work is a kernel of the library.
  void return_rest(std::uint64_t const* error, std::uint64_t const* stays, bool after_kernel) {
    holds_ = false;
    work_.over_early_if<cuda_kernels::return_passthrough<Residual>>(
        after_kernel, size(), memory_.view(), part_, saved_.data(), static_cast<float const*>(own_.data()), error,
        stays);
    hold<true>(after_kernel);
  }

  /// Calls return_rest(), unless that was done since take().
  void put_back(std::uint64_t const* stays) {
    if (holds_) return_rest(nullptr, stays, false);
  }

  /// Restores what take() took out, if *condition, in device memory, is not zero.
  template <class Word>
  void rollback_if(Word const* condition) const {
    work_.over<cuda_kernels::restore_passthrough<Residual, Word>>(size(), memory_.view(), part_, saved_.data(),
                                                                  condition);
  }

  /// States that rollback_if() restores.
  [[nodiscard]] std::span<element_state<Residual::states>> saved() const noexcept { return saved_.span(); }

  /// All-reduces the values, if any, and a flag for *error. Collective. Returns the device address of the number of
  /// ranks with an error; null without values. `after_kernel`: as in return_rest().
  template <class Comm>
  float const* share(Comm const& comm, std::uint64_t const* error, bool after_kernel) const {
    if (size() == 0) return nullptr;
    auto const sums = sum_.first(size() + 1);
    work_.over_early_if<cuda_kernels::copy_passthrough<>>(
        after_kernel, sums.size(), static_cast<float const*>(own_.data()), size(), error, sums.data());
    comm.all_reduce(work_.where(), sums, reduction::sum);
    return &sums.back();
  }

  /// Writes sums / divisor to the ranges of a gradient, or zeros if *error is not zero; counts values that its format
  /// cannot hold. @pre the stream's last work is a kernel of the library
  template <class T>
  void write(float divisor, std::uint64_t const* error, std::span<T> out, std::uint64_t* saturated) const {
    work_.over_early<cuda_kernels::write_passthrough<T>>(size(), part_, static_cast<float const*>(sum_.data()), divisor,
                                                         error, out.data(), saturated);
  }

 private:
  /// Moves the skipped layers' accumulators to held_, or back.
  template <bool Back>
  void hold(bool after_kernel) const {
    work_.over_early_if<cuda_kernels::hold_ranges<Back, stored>>(after_kernel, skipped_part_.elements,
                                                                 memory_.accumulator(), skipped_part_, held_.data());
  }

  cuda_workspace const& work_;
  memory_type const& memory_;
  layer_split const& split_;
  step_layers const& now_;
  cuda_buffer<element_state<Residual::states>> saved_;
  cuda_buffer<float> own_, sum_;
  cuda_buffer<cuda_kernels::passthrough_range> ranges_;   // layers, and after them the segments that are sent in full
  pinned_array<cuda_kernels::passthrough_range> chosen_;  // those to upload
  cuda_event uploaded_;                                   // chosen_ has been copied
  cuda_kernels::passthrough_part part_{};
  cuda_buffer<cuda_kernels::passthrough_range> skipped_;  // layers
  cuda_buffer<stored> held_;                              // their accumulators, from take() to return_rest()
  cuda_kernels::passthrough_part skipped_part_{};
  bool holds_ = false;  // between take() and return_rest()
};

}  // namespace gradsieve::detail
