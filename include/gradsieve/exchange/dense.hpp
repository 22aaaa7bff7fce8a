// The part of a step that travels without indices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/concepts.hpp>

namespace gradsieve {

/// Writes sums / divisor, which stand back to back, to their ranges. Returns how many are cut to the largest value of
/// the format.
template <gradient_value T>
GRADSIEVE_PRECISE std::uint64_t write_ranges(std::span<range const> ranges, std::span<float const> sums, float divisor,
                                             std::span<T> out) noexcept {
  std::size_t at = 0;
  std::uint64_t saturated = 0;
  for (auto const& each : ranges)
    for (std::uint64_t i = each.offset; i < each.offset + each.size; ++i, ++at) {
      float const mean = divide(sums[at], divisor);
      out[i] = from_float_saturated<T>(mean);
      saturated += exceeds<T>(mean) ? 1u : 0u;
    }
  return saturated;
}

/// Layers that pass through, and segments that are sent whole: their ranges, this rank's values, the ranks' sum.
template <class Workspace>
class dense_part {
 public:
  /// Room for that many ranges and elements. Allocates.
  void reserve(std::size_t ranges, std::uint64_t elements) {
    ranges_.reserve(ranges);
    own_ = typename Workspace::template buffer<float>(elements);
    sum_ = typename Workspace::template buffer<float>(elements + 1);
  }

  /// Names the ranges of a step: layers, and after them the segments that are sent whole.
  template <class Segmentation>
  void choose(std::span<range const> layers, Segmentation const& segments, bool whole_segments) {
    ranges_.assign(layers.begin(), layers.end());
    if (!whole_segments) return;
    for (auto const& each : segments.all())
      if (Segmentation::sent_whole(each)) add(layers, {each.offset, each.size});
  }

  [[nodiscard]] std::span<range const> ranges() const noexcept { return ranges_; }

  /// Where this rank's values go, back to back; set_count() says how many there are.
  [[nodiscard]] std::span<float> room() const noexcept { return own_.span(); }
  void set_count(std::uint64_t count) noexcept { count_ = count; }
  [[nodiscard]] std::span<float const> own() const noexcept { return own_.first(count_); }

  /// All-reduces the values, if there are any, and with them whether a rank has `failed`. Collective. Returns the
  /// bytes that this rank sends, and as many it receives.
  template <class Comm>
  std::uint64_t share(Comm const& comm, Workspace& work, bool failed) {
    std::copy_n(own_.data(), count_, sum_.data());
    sum_[count_] = failed ? 1.0f : 0.0f;
    if (count_ == 0) return 0;
    comm.all_reduce(work.where(), sum_.first(count_ + 1), reduction::sum);
    return (count_ + 1) * sizeof(float);
  }

  /// Whether any rank had failed when the values were shared.
  [[nodiscard]] bool failed() const noexcept { return sum_[count_] > 0; }

  [[nodiscard]] std::span<float const> sum() const noexcept { return sum_.first(count_); }

 private:
  /// A segment without the layers that pass through inside of it: those are named already.
  void add(std::span<range const> layers, range whole) {
    auto const end = whole.offset + whole.size;
    for (auto const& each : layers) {
      if (each.offset + each.size <= whole.offset || each.offset >= end) continue;
      if (each.offset > whole.offset) ranges_.push_back({whole.offset, each.offset - whole.offset});
      whole.offset = each.offset + each.size;
    }
    if (whole.offset < end) ranges_.push_back({whole.offset, end - whole.offset});
  }

  std::vector<range> ranges_;
  typename Workspace::template buffer<float> own_, sum_;
  std::uint64_t count_ = 0;
};

}  // namespace gradsieve
