// Which of a model's parameters a DDP bucket holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <gradsieve/core/layout.hpp>

#include "../../command_line.hpp"
#include "compression.hpp"
#include "ddp_passes.hpp"
#include "earlier_updates.hpp"
#include "parameter_use.hpp"

namespace example {

namespace gs = gradsieve;

/// One layer a parameter, in the model's order.
[[nodiscard]] inline gs::layout layout_of(std::vector<at::Tensor> const& parameters, names const& parameter_names) {
  std::vector<gs::layer> layers;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    layers.push_back({parameter_names.at(i), static_cast<std::uint64_t>(parameters[i].numel())});
  return gs::layout{std::move(layers)};
}

/// Whether an update that is still in the gradient when the next one is exchanged goes out again as it is: momentum
/// would count it as a new gradient, `none` drop most of it, and a decay below 1 weaken it.
[[nodiscard]] inline bool updates_may_come_again(compression const& chosen) {
  auto const& residual = chosen.recipe.residual;
  auto const* const feedback = std::get_if<gs::error_feedback>(&residual);
  bool const keeps_all = std::holds_alternative<gs::filtered>(residual) || (feedback && feedback->decay == 1);
  return keeps_all || (chosen.sends_all() && !carries_momentum(chosen.recipe));
}

/// What is to be known about a bucket before it is exchanged.
struct bucket_facts {
  std::vector<std::size_t> members;  ///< places of its parameters in the model's order, in the bucket's
  bool begins = false;               ///< it is the first of a backward pass
  parameter_use use;
};

/// Finds out about DDP's buckets. Called in the backward pass, one call at a time.
class ddp_buckets {
 public:
  /// `parameters`: those with gradients, in the model's order.
  ddp_buckets(std::vector<at::Tensor> const& parameters, compression const& chosen) {
    for (std::size_t i = 0; i < parameters.size(); ++i) place_of_.emplace(parameters[i].unsafeGetTensorImpl(), i);
    if (!updates_may_come_again(chosen)) earlier_.emplace(parameters);
  }

  /// `in_backward`: not so for the buckets of a rank that has joined (torch's Join), which are zero.
  /// @throws std::invalid_argument if a parameter is none of the model's.
  [[nodiscard]] bucket_facts of(c10d::GradBucket const& bucket, ddp_passes& passes, bool in_backward) {
    auto const parameters = const_cast<c10d::GradBucket&>(bucket).getParameters();  // not const in every torch
    bucket_facts found;
    found.begins = passes.begins(bucket.getIndex());
    found.use = passes.use_of(parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      auto const place = place_of_.find(parameters[i].unsafeGetTensorImpl());
      if (place == place_of_.end())
        throw std::invalid_argument("gradsieve: a bucket has a parameter that the model did not have at first");
      found.members.push_back(place->second);
      if (earlier_ && in_backward && earlier_->take(place->second)) found.use.marks[i] += parameter_use::updated;
    }
    return found;
  }

 private:
  std::unordered_map<c10::TensorImpl const*, std::size_t> place_of_;
  std::optional<earlier_updates> earlier_;  // where an update that comes again counts wrong
};

}  // namespace example
