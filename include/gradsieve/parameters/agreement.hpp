// Checks by one all-reduce that all ranks have the same numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Numbers of a rank, as whole halves and their negatives: a number is equal on all ranks if the largest halves over
/// the ranks match the largest negatives.
template <std::size_t Count>
class agreement {
 public:
  explicit agreement(std::array<std::uint64_t, Count> const& numbers) noexcept {
    for (std::size_t i = 0; i < 2 * Count; ++i) {
      words_[i] = static_cast<double>(numbers[i / 2] >> (32 * (i % 2)) & 0xFFFF'FFFFu);
      words_[2 * Count + i] = -words_[i];
    }
  }
  /// To be replaced by the ranks' maxima.
  [[nodiscard]] std::span<double> words() noexcept { return words_; }
  /// True if number i is equal on all ranks. @pre words() was replaced
  [[nodiscard]] bool on(std::size_t i) const noexcept {
    return words_[2 * i] == -words_[2 * (Count + i)] && words_[2 * i + 1] == -words_[2 * (Count + i) + 1];
  }

 private:
  std::array<double, 4 * Count> words_;
};

}  // namespace gradsieve::detail
