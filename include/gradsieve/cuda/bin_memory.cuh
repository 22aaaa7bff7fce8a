// A device's memory for selectors that choose in bins.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/cuda/passes/bins.cuh>
#include <gradsieve/cuda/stream_work.cuh>
#include <gradsieve/host/passes/tiles.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The bins of each segment, and what a step finds in them. Memory: 20 bytes per bin and a bit per element.
class bin_memory {
 public:
  /// For bins of these lengths in each segment; none: no memory. Waits, allocates.
  void plan(stream_work const& work, std::uint64_t n, std::span<segment const> segments,
            std::span<range const> excluded, std::span<std::uint32_t const> lengths) {
    means_ = work.zeroed<float>(lengths.size());
    tables_ = {};
    if (lengths.empty()) return;
    host_tiles tiles;
    tiles.plan(n, segments, excluded, lengths);
    std::vector<cuda_kernels::device_bin> all;
    std::vector<cuda_kernels::bin_group> groups;
    std::vector<std::uint32_t> first_group, elements;
    auto const count = [](auto const& list) { return static_cast<std::uint32_t>(list.size()); };
    for (std::size_t s = 0; s < segments.size(); ++s) {
      first_group.push_back(count(groups));
      for (auto at = tiles.of(s).first; at < tiles.of(s).last; ++at) {
        auto const& from = tiles[at];
        if (from.excluded) continue;
        auto const first = count(all);
        auto position = from.position;
        std::uint64_t const end = from.begin + from.size;
        for (std::uint64_t begin = from.begin; begin < end;) {
          std::uint64_t const size =
              std::min<std::uint64_t>(lengths[s] - (begin - segments[s].offset) % lengths[s], end - begin);
          all.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(size),
                         static_cast<std::uint32_t>(s), position});
          begin += size;
          position += static_cast<std::uint32_t>(size);
        }
        groups.push_back({first, count(all)});
      }
      elements.push_back(static_cast<std::uint32_t>(tiles.elements_of(s)));
    }
    first_group.push_back(count(groups));
    list_ = work.uploaded<cuda_kernels::device_bin>(all);
    groups_ = work.uploaded<cuda_kernels::bin_group>(groups);
    first_group_ = work.uploaded<std::uint32_t>(first_group);
    elements_ = work.uploaded<std::uint32_t>(elements);
    maxima_ = work.zeroed<float>(all.size());
    sums_ = work.zeroed<double>(groups.size());
    marks_ = work.zeroed<std::uint32_t>(n / 32 + 2);
    tickets_ = work.zeroed<std::uint32_t>(1);
    tables_ = {count(all),       count(groups),  list_.data(), groups_.data(), first_group_.data(),
               elements_.data(), maxima_.data(), sums_.data(), marks_.data(),  tickets_.data()};
  }

  [[nodiscard]] cuda_kernels::bin_tables const& tables() const noexcept { return tables_; }
  /// Of each segment: the mean of its bins' largest magnitudes.
  [[nodiscard]] float* means() const noexcept { return means_.data(); }

 private:
  cuda_kernels::bin_tables tables_;
  cuda_buffer<cuda_kernels::device_bin> list_;
  cuda_buffer<cuda_kernels::bin_group> groups_;
  cuda_buffer<std::uint32_t> first_group_, elements_, marks_, tickets_;
  cuda_buffer<float> maxima_, means_;
  cuda_buffer<double> sums_;
};

}  // namespace gradsieve::detail
