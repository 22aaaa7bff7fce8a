// The layers of ResNet-50 and GPT-2.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include <gradsieve/gradsieve.hpp>

#include "inputs.hpp"

namespace bench {

/// Sizes of ResNet-50's 161 parameter tensors, in order.
inline std::vector<std::uint64_t> resnet50() {
  std::vector<std::uint64_t> sizes;
  auto const convolution = [&](std::uint64_t in, std::uint64_t out, std::uint64_t width) {
    for (auto const size : {in * out * width * width, out, out}) sizes.push_back(size);  // batch norm's two with it
  };
  convolution(3, 64, 7);
  std::uint64_t in = 64;
  std::uint64_t planes = 64;
  for (int const blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      convolution(in, planes, 1);
      convolution(planes, planes, 3);
      convolution(planes, 4 * planes, 1);
      if (block == 0) convolution(in, 4 * planes, 1);
      in = 4 * planes;
    }
    planes *= 2;
  }
  for (auto const size : {in * 1000, std::uint64_t{1000}}) sizes.push_back(size);
  return sizes;
}

/// Sizes of the 148 parameter tensors of GPT-2 with 12 blocks of width 768, in order.
inline std::vector<std::uint64_t> gpt2() {
  constexpr std::uint64_t width = 768;
  std::vector<std::uint64_t> sizes{50257 * width, 1024 * width};
  for (int block = 0; block < 12; ++block) {
    for (std::uint64_t const factor : {std::uint64_t{1}, std::uint64_t{1}, 3 * width, std::uint64_t{3}, width,
                                       std::uint64_t{1}, std::uint64_t{1}, std::uint64_t{1}, 4 * width,
                                       std::uint64_t{4}, 4 * width, std::uint64_t{1}})
      sizes.push_back(factor * width);
  }
  sizes.insert(sizes.end(), 2, width);
  return sizes;
}

inline std::uint64_t parameters_of(std::vector<std::uint64_t> const& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
}
inline std::uint64_t const resnet50_parameters = parameters_of(resnet50());

/// These layers, scaled so that they have n elements together; those that vanish are left out.
inline std::vector<gs::range> scaled_layers(std::vector<std::uint64_t> const& sizes, std::uint64_t n) {
  auto const all = static_cast<long double>(parameters_of(sizes));
  std::vector<gs::range> layers;
  std::uint64_t end = 0;
  for (std::uint64_t before = 0; auto const size : sizes) {
    before += size;
    auto const share = static_cast<long double>(before) / all;
    auto const next = static_cast<std::uint64_t>(share * static_cast<long double>(n) + 0.5L);
    if (next > end) layers.push_back({end, next - end});  // none is empty, as in a compressor
    end = next;
  }
  return layers;
}
inline std::vector<gs::range> resnet50_layers(std::uint64_t n) { return scaled_layers(resnet50(), n); }

/// The same as a layout.
inline gs::layout scaled_layout(std::vector<std::uint64_t> const& sizes, std::uint64_t n) {
  std::vector<gs::layer> layers;
  for (auto const& each : scaled_layers(sizes, n)) layers.push_back({"layer", each.size});
  return gs::layout{layers};
}
inline gs::layout resnet50_layout(std::uint64_t n) { return scaled_layout(resnet50(), n); }

}  // namespace bench
