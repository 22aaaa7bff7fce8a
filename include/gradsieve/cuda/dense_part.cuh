// The part of a step on a device that travels without indices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/cuda/workspace.cuh>
#include <gradsieve/dense_layers.hpp>
#include <gradsieve/exchange/dense.hpp>
#include <gradsieve/space/cuda_device.cuh>
#include <gradsieve/space/cuda_entries.cuh>
#include <gradsieve/space/host.hpp>

namespace gradsieve {

/// As dense_part, in device memory and stream order, and with the states that its elements had, to be given back.
template <class Residual>
class device_dense_part {
 public:
  using states_type = cuda_kernels::state_memory<Residual>;

  /// Room for the layers that pass through and that many segments, and for that many elements. Allocates.
  void reserve(cuda_workspace const& work, layer_split const& split, std::size_t segments, std::uint64_t elements) {
    saved_ = work.zeroed<element_state<Residual::states>>(elements);
    own_ = work.zeroed<float>(elements);
    sum_ = work.zeroed<float>(elements + 1);
    ranges_ = work.zeroed<cuda_kernels::dense_range>(2 * split.dense.size() + segments + 1);
    layer_ranges_ = static_cast<std::uint32_t>(split.dense.size());
    layer_elements_ = split.dense_elements;
  }

  /// Names the ranges of a step, as dense_part does, and tells the device.
  template <class Segmentation>
  void choose(cuda_workspace const& work, std::span<range const> layers, Segmentation const& segments,
              bool whole_segments) {
    dense_part<host_workspace> parts;
    parts.choose(layers, segments, whole_segments);
    std::vector<cuda_kernels::dense_range> ranges;
    size_ = 0;
    for (auto const& each : parts.ranges()) {
      ranges.push_back({static_cast<std::uint32_t>(each.offset), static_cast<std::uint32_t>(each.size),
                        static_cast<std::uint32_t>(size_)});
      size_ += each.size;
    }
    range_count_ = static_cast<std::uint32_t>(ranges.size());
    work.upload(std::span<cuda_kernels::dense_range const>{ranges}, ranges_.first(ranges.size()));
  }

  /// How many elements the ranges have.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  /// This rank's values, back to back. @pre take()
  [[nodiscard]] std::span<float const> own() const noexcept { return own_.first(size_); }

  /// The ranges leave the residual, of each value as much as +-limit; counts those that are cut.
  void take(cuda_workspace const& work, states_type const& memory, float limit, std::uint64_t* saturated) const {
    work.over(size_, cuda_kernels::take_dense<Residual>, memory, ranges_.data(), range_count_, size_, saved_.data(),
              own_.data(), limit, saturated);
  }

  /// Puts back what take() took, if *condition, in device memory, is not zero.
  template <class Word>
  void restore(cuda_workspace const& work, states_type const& memory, Word const* condition) const {
    work.over(size_, cuda_kernels::restore_dense<Residual, Word>, memory, ranges_.data(), range_count_, size_,
              saved_.data(), condition);
  }

  /// The states that restore() puts back.
  [[nodiscard]] std::span<element_state<Residual::states>> saved() const noexcept { return saved_.span(); }

  /// All-reduces the values, if there are any, and with them whether *error is not zero. Collective. Returns where it
  /// will stand how many ranks have an error; none where there are no values.
  template <class Comm>
  float const* share(Comm const& comm, cuda_workspace const& work, std::uint64_t const* error) const {
    if (size_ == 0) return nullptr;
    auto const sums = sum_.first(size_ + 1);
    work.over(sums.size(), cuda_kernels::copy_dense<>, static_cast<float const*>(own_.data()), size_, error,
              sums.data());
    comm.all_reduce(work.where(), sums, reduction::sum);
    return &sums.back();
  }

  /// Where sums stand: share()'s, or those that the caller makes of other values.
  [[nodiscard]] std::span<float> sum() const noexcept { return sum_.span(); }

  /// Sums / divisor to the ranges of a gradient; counts those that its format cannot hold.
  template <class T>
  void write(cuda_workspace const& work, float divisor, T* out, std::uint64_t* saturated) const {
    write(work, range_count_, size_, divisor, out, saturated);
  }

  /// The same for the layers alone.
  template <class T>
  void write_layers(cuda_workspace const& work, float divisor, T* out, std::uint64_t* saturated) const {
    write(work, layer_ranges_, layer_elements_, divisor, out, saturated);
  }

 private:
  template <class T>
  void write(cuda_workspace const& work, std::uint32_t ranges, std::uint64_t elements, float divisor, T* out,
             std::uint64_t* saturated) const {
    work.over(elements, cuda_kernels::write_dense<T>, ranges_.data(), ranges, elements,
              static_cast<float const*>(sum_.data()), divisor, out, saturated);
  }

  cuda_buffer<element_state<Residual::states>> saved_;
  cuda_buffer<float> own_, sum_;
  cuda_buffer<cuda_kernels::dense_range> ranges_;  // layers, and after them the segments that are sent whole
  std::uint32_t range_count_ = 0;
  std::uint32_t layer_ranges_ = 0;
  std::uint64_t size_ = 0;
  std::uint64_t layer_elements_ = 0;
};

}  // namespace gradsieve
