// Which of a model's parameters a DDP bucket holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <gradsieve/core/layout.hpp>

#include "../../command_line.hpp"

namespace example {

namespace gs = gradsieve;

/// One layer a parameter, in the model's order.
[[nodiscard]] inline gs::layout layout_of(std::vector<at::Tensor> const& parameters, names const& parameter_names) {
  std::vector<gs::layer> layers;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    layers.push_back({parameter_names.at(i), static_cast<std::uint64_t>(parameters[i].numel())});
  return gs::layout{std::move(layers)};
}

/// Finds parameters by their identity.
class bucket_members {
 public:
  explicit bucket_members(std::vector<at::Tensor> const& parameters) {
    for (std::size_t i = 0; i < parameters.size(); ++i) place_of_.emplace(parameters[i].unsafeGetTensorImpl(), i);
  }

  /// Places in the model's order, in the bucket's. Valid until the next call.
  /// @throws std::invalid_argument if a parameter is none of the model's.
  [[nodiscard]] std::span<std::size_t const> of(c10d::GradBucket const& bucket) {
    members_.clear();
    for (auto const& each : const_cast<c10d::GradBucket&>(bucket).getParameters()) {  // not const in every torch
      auto const found = place_of_.find(each.unsafeGetTensorImpl());
      if (found == place_of_.end())
        throw std::invalid_argument("gradsieve: a bucket has a parameter that the model did not have at first");
      members_.push_back(found->second);
    }
    return members_;
  }

 private:
  std::unordered_map<c10::TensorImpl const*, std::size_t> place_of_;
  std::vector<std::size_t> members_;
};

}  // namespace example
