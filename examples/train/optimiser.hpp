// What turns the averaged gradient into new parameters.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/core/layout.hpp>

#include "../command_line.hpp"

namespace example {

inline names const optimiser_names{"sgd", "adam", "adamw", "novograd"};

/// Stochastic gradient descent with momentum, Adam, AdamW, whose decay is apart from the gradient, or NovoGrad, which
/// normalises every layer by its own second moment.
/// Sources: Kingma and Ba 2015; Loshchilov and Hutter 2019; Ginsburg et al. 2019, with equation 8's first step.
class optimiser {
 public:
  /// With a negative learning rate: 0.03, 0.001, 0.01. `momentum` is the first moment's decay; `decay` that of adamw's
  /// weights, by the learning rate; layers of one dimension have none.
  optimiser(std::string const& name, double learning_rate, double momentum, gradsieve::layout const& layers,
            double decay = 0)
      : is_{name == "adam" || name == "adamw" ? kind::adam
            : name == "novograd"              ? kind::novograd
                                              : kind::sgd},
        rate_{learning_rate >= 0      ? static_cast<float>(learning_rate)
              : is_ == kind::adam     ? 0.001f
              : is_ == kind::novograd ? 0.01f
                                      : 0.03f},
        momentum_{static_cast<float>(momentum)} {
    for (std::size_t i = 0; i < layers.count(); ++i) {
      ends_.push_back(static_cast<std::size_t>(layers.offset(i) + layers[i].size));
      decays_.push_back(name == "adamw" && layers[i].dimensions != 1 ? static_cast<float>(decay) : 0.0f);
    }
    norms_.assign(ends_.size(), 0);
  }

  /// `factors`, one a layer: what adam's squared gradients are multiplied by; without any 1.
  void step(std::span<float> parameters, std::span<float const> gradient, std::span<float const> factors = {}) {
    first_.resize(parameters.size());
    ++steps_;
    if (is_ == kind::sgd) {
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        first_[i] = momentum_ * first_[i] + gradient[i];
        parameters[i] -= rate_ * first_[i];
      }
    } else if (is_ == kind::adam) {
      second_.resize(parameters.size());
      double const t = static_cast<double>(steps_);
      auto const unbias = static_cast<float>(1 / (1 - std::pow(static_cast<double>(momentum_), t)));
      auto const unbias_square = static_cast<float>(1 / (1 - std::pow(0.999, t)));
      std::size_t i = 0;
      for (std::size_t layer = 0; layer < ends_.size(); ++layer) {
        float const factor = 0.001f * (factors.empty() ? 1.0f : factors[layer]);
        float const kept = 1 - rate_ * decays_[layer];
        for (; i < ends_[layer]; ++i) {
          first_[i] = momentum_ * first_[i] + (1 - momentum_) * gradient[i];
          second_[i] = 0.999f * second_[i] + factor * gradient[i] * gradient[i];
          parameters[i] =
              kept * parameters[i] - rate_ * unbias * first_[i] / (std::sqrt(unbias_square * second_[i]) + 1e-8f);
        }
      }
    } else {
      std::size_t begin = 0;
      for (std::size_t layer = 0; layer < ends_.size(); begin = ends_[layer++]) {
        double square = 0;
        for (std::size_t i = begin; i < ends_[layer]; ++i) square += static_cast<double>(gradient[i]) * gradient[i];
        norms_[layer] = steps_ == 1 ? square : 0.98 * norms_[layer] + 0.02 * square;
        auto const scale = static_cast<float>(1 / (std::sqrt(norms_[layer]) + 1e-8));
        for (std::size_t i = begin; i < ends_[layer]; ++i) {
          first_[i] = momentum_ * first_[i] + scale * gradient[i];
          parameters[i] -= rate_ * first_[i];
        }
      }
    }
  }

  /// Of what is kept from step to step; 0 before the first step.
  [[nodiscard]] std::size_t state_bytes() const {
    return sizeof(float) * (first_.size() + second_.size()) +
           (is_ == kind::novograd && steps_ > 0 ? sizeof(double) * norms_.size() : 0);
  }

 private:
  enum class kind : std::uint8_t { sgd, adam, novograd };

  kind is_;
  float rate_;
  float momentum_;
  std::uint64_t steps_ = 0;
  std::vector<std::size_t> ends_;  ///< of the layers
  std::vector<float> decays_;      ///< likewise
  std::vector<double> norms_;
  std::vector<float> first_;
  std::vector<float> second_;
};

}  // namespace example
