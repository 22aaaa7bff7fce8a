// Gradients that hold the update of an earlier step when a backward pass adds to them.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace example {

/// Watches parameters, whose gradient is looked at when a backward pass first adds to it after an exchange: what is not
/// zero then is an earlier update, which the pass would add to, and every later pass until one finds it zero. Costs
/// nothing where gradients are None, as zero_grad() leaves them, and a pass over those that are zero. threads: any.
class earlier_updates {
 public:
  explicit earlier_updates(std::vector<at::Tensor> const& parameters)
      : parameters_{parameters}, found_{std::make_shared<std::vector<std::atomic<state>>>(parameters.size())} {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      (*found_)[i] = state::none;
      bool const frozen = !parameters_[i].requires_grad();  // after DDP had wrapped the module, and not for good
      if (frozen) parameters_[i].set_requires_grad(true);   // else torch takes no function
      auto* const parameter = parameters_[i].unsafeGetTensorImpl();  // not a tensor, which would own this function
      hooks_.push_back(parameters_[i].register_hook([found = found_, i, parameter](at::Tensor const&) {
        if ((*found)[i] == state::none) return;
        auto const self = at::Tensor{c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(parameter)};
        (*found)[i] = is_zero(self.grad()) ? state::none : state::held;
      }));
      if (frozen) parameters_[i].set_requires_grad(false);
    }
  }
  earlier_updates(earlier_updates const&) = delete;
  earlier_updates& operator=(earlier_updates const&) = delete;
  ~earlier_updates() {
    for (std::size_t i = 0; i < hooks_.size(); ++i) parameters_[i].remove_hook(hooks_[i]);
  }

  /// Whether the gradient that is about to be exchanged holds an earlier update. What it is afterwards is one.
  [[nodiscard]] bool take(std::size_t i) {
    auto const found = (*found_)[i].exchange(state::unseen);
    return found == state::held || (found == state::unseen && !is_zero(parameters_[i].grad()));
  }

 private:
  enum class state : unsigned char { unseen, none, held };

  [[nodiscard]] static bool is_zero(at::Tensor const& gradient) {
    at::NoGradGuard const plain;
    return !gradient.defined() || !gradient.ne(0).any().item<bool>();
  }

  std::vector<at::Tensor> parameters_;
  std::shared_ptr<std::vector<std::atomic<state>>> found_;
  std::vector<unsigned> hooks_;
};

}  // namespace example
