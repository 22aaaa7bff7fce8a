// The layers of ResNet-50.
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

/// Its number of parameters.
inline std::uint64_t const resnet50_parameters = [] {
  auto const sizes = resnet50();
  return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
}();

/// The same layers, scaled so that they have n elements together; those that vanish are left out.
inline std::vector<gs::range> resnet50_layers(std::uint64_t n) {
  std::vector<gs::range> layers;
  std::uint64_t end = 0;
  for (std::uint64_t before = 0; auto const size : resnet50()) {
    before += size;
    auto const next = static_cast<std::uint64_t>(static_cast<long double>(before) * n / resnet50_parameters + 0.5L);
    if (next > end) layers.push_back({end, next - end});  // none is empty, as in a compressor
    end = next;
  }
  return layers;
}

/// The same as a layout.
inline gs::layout resnet50_layout(std::uint64_t n) {
  std::vector<gs::layer> layers;
  for (auto const& each : resnet50_layers(n)) layers.push_back({"layer", each.size});
  return gs::layout{layers};
}

}  // namespace bench
