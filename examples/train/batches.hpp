// Which samples a worker sees: every global batch is cut into one part a rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "data.hpp"
#include "eigen.hpp"

namespace example {

/// [first, last) of n things: one rank's part of them.
struct share {
  std::uint64_t first, last;

  share(std::uint64_t n, int rank, int size)
      : first{n * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(size)},
        last{n * static_cast<std::uint64_t>(rank + 1) / static_cast<std::uint64_t>(size)} {}

  [[nodiscard]] std::uint64_t count() const { return last - first; }
};

/// One rank's part of each batch, in an order that all ranks share: one shuffle an epoch, drawn from the seed
/// and the epoch alone.
class batches {
 public:
  batches(samples const& all, std::uint64_t size, share part, std::uint64_t seed)
      : all_{all},
        size_{size},
        part_{part},
        seed_{seed},
        order_(static_cast<std::size_t>(all.count())),
        features_(all.features.rows(), static_cast<Eigen::Index>(part.count())),
        labels_(part.count()) {}

  /// Takes the batch of a step; steps are asked for in rising order.
  void load(std::uint64_t step) {
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      auto const sample = at(step * size_ + part_.first + i);
      features_.col(static_cast<Eigen::Index>(i)) = all_.features.col(static_cast<Eigen::Index>(sample));
      labels_[i] = all_.labels[sample];
    }
  }

  [[nodiscard]] Eigen::MatrixXf const& features() const { return features_; }
  [[nodiscard]] std::span<int const> labels() const { return labels_; }

 private:
  /// The sample at a place in the endless row of epochs.
  [[nodiscard]] std::size_t at(std::uint64_t place) {
    if (auto const epoch = place / order_.size() + 1; epoch != epoch_) {
      epoch_ = epoch;
      std::iota(order_.begin(), order_.end(), std::size_t{0});
      auto random = std::mt19937_64{seed_ * 0x9E37'79B9'7F4A'7C15u + epoch};
      std::shuffle(order_.begin(), order_.end(), random);
    }
    return order_[place % order_.size()];
  }

  samples const& all_;
  std::uint64_t size_;
  share part_;
  std::uint64_t seed_;
  std::uint64_t epoch_ = 0;  ///< of which `order_` is the shuffle, counted from 1
  std::vector<std::size_t> order_;
  Eigen::MatrixXf features_;
  std::vector<int> labels_;
};

}  // namespace example
