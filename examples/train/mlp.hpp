// A multi-layer perceptron whose parameters, and whose gradient, are one flat vector each.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/core/layout.hpp>

#include "eigen.hpp"

namespace example {

/// Sums over samples, so that parts of a batch or of a test set can be added up.
struct score {
  double loss = 0;
  double correct = 0;
};

/// ReLU between layers, softmax and cross-entropy at the end, He initialisation.
class mlp {
 public:
  /// `widths`: features, hidden layers, classes; `scale`: of the first weights, over He's deviation.
  mlp(std::vector<int> const& widths, std::uint64_t seed, double scale = 1) : values_(widths.size()) {
    Eigen::Index offset = 0;
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      blocks_.push_back({.inputs = widths[i], .outputs = widths[i + 1], .offset = offset});
      offset += blocks_.back().weights() + blocks_.back().outputs;
    }
    parameters_ = Eigen::VectorXf::Zero(offset);
    gradient_ = Eigen::VectorXf::Zero(offset);
    auto random = std::mt19937_64{seed};
    for (auto const& each : blocks_) {
      auto draw = std::normal_distribution<float>{0, std::sqrt(2.0f / static_cast<float>(each.inputs))};
      for (float& weight : weight_of(parameters_, each).reshaped()) weight = static_cast<float>(scale) * draw(random);
    }
  }

  [[nodiscard]] std::span<float> parameters() {
    return {parameters_.data(), static_cast<std::size_t>(parameters_.size())};
  }
  [[nodiscard]] std::span<float> gradient() { return {gradient_.data(), static_cast<std::size_t>(gradient_.size())}; }

  /// fc1.weight, fc1.bias, fc2.weight, ...
  [[nodiscard]] gradsieve::layout layers() const {
    std::vector<gradsieve::layer> all;
    for (auto const& each : blocks_) {
      auto const name = "fc" + std::to_string(all.size() / 2 + 1);
      all.push_back({name + ".weight", static_cast<std::uint64_t>(each.weights()), 2});
      all.push_back({name + ".bias", static_cast<std::uint64_t>(each.outputs), 1});
    }
    return gradsieve::layout{std::move(all)};
  }

  /// Loss and hits of these samples under the present parameters.
  score evaluate(Eigen::Ref<Eigen::MatrixXf const> const& features, std::span<int const> labels) {
    forward(features);
    return softmax(labels);
  }

  /// After evaluate() of the same samples: leaves `scale` times the gradient of the summed loss in `gradient()`. Calls
  /// ready(i) as soon as the gradient of layer i of layers() is there: from the last to the first.
  template <class Ready>
  void backward(Eigen::Ref<Eigen::MatrixXf const> const& features, std::span<int const> labels, float scale,
                Ready const& ready) {
    Eigen::MatrixXf& probability = values_.back();
    for (std::size_t i = 0; i < labels.size(); ++i) probability(labels[i], static_cast<Eigen::Index>(i)) -= 1.0f;
    probability *= scale;
    for (std::size_t i = blocks_.size(); i-- > 0;) {  // values_[i + 1] holds the gradient by layer i's output
      auto const& delta = values_[i + 1];
      bias_of(gradient_, blocks_[i]) = delta.rowwise().sum();
      ready(2 * i + 1);
      if (i == 0) {
        weight_of(gradient_, blocks_[i]).noalias() = delta * features.transpose();
      } else {
        weight_of(gradient_, blocks_[i]).noalias() = delta * values_[i].transpose();
      }
      ready(2 * i);
      if (i == 0) continue;
      back_.noalias() = weight_of(parameters_, blocks_[i]).transpose() * delta;
      values_[i] = (values_[i].array() > 0.0f).select(back_, 0.0f);  // ReLU lets through where it was open
    }
  }

 private:
  struct block {
    Eigen::Index inputs, outputs, offset;
    [[nodiscard]] Eigen::Index weights() const { return inputs * outputs; }
  };

  // Eigen's own storage is aligned alike in every run, so that its vectorised sums round alike.
  [[nodiscard]] static Eigen::Map<Eigen::MatrixXf> weight_of(Eigen::VectorXf& flat, block const& of) {
    return {flat.data() + of.offset, of.outputs, of.inputs};
  }
  [[nodiscard]] static Eigen::Map<Eigen::VectorXf> bias_of(Eigen::VectorXf& flat, block const& of) {
    return {flat.data() + of.offset + of.weights(), of.outputs};
  }

  void forward(Eigen::Ref<Eigen::MatrixXf const> const& features) {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      auto& out = values_[i + 1];
      if (i == 0) {
        out.noalias() = weight_of(parameters_, blocks_[i]) * features;
      } else {
        out.noalias() = weight_of(parameters_, blocks_[i]) * values_[i];
      }
      out.colwise() += bias_of(parameters_, blocks_[i]);
      if (i + 1 < blocks_.size()) out = out.cwiseMax(0.0f);
    }
  }

  /// Turns the last layer's output into probabilities.
  score softmax(std::span<int const> labels) {
    Eigen::MatrixXf& out = values_.back();
    score sum;
    for (Eigen::Index i = 0; i < out.cols(); ++i) {
      auto column = out.col(i);
      auto const label = labels[static_cast<std::size_t>(i)];
      Eigen::Index best = 0;
      column.array() -= column.maxCoeff(&best);
      float const logit = column[label];
      column = column.array().exp();
      float const total = column.sum();
      column /= total;
      sum.loss += static_cast<double>(std::log(total) - logit);
      sum.correct += best == label ? 1 : 0;
    }
    return sum;
  }

  std::vector<block> blocks_;
  std::vector<Eigen::MatrixXf> values_;  ///< each layer's output, and on the way back its gradient; [0] is unused
  Eigen::MatrixXf back_;
  Eigen::VectorXf parameters_;
  Eigen::VectorXf gradient_;
};

}  // namespace example
