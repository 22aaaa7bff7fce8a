// The state of one step of an overlap.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <string>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/skipped_layers.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// What is not atomic belongs to the caller's thread before begin() and after wait(), to the exchanging one between.
template <class T>
struct overlap_step {
  std::vector<unsigned char> skipped;  ///< layers of the layout; empty: none
  gradient_ref<T> gradient;
  std::exception_ptr failure;
  std::size_t not_ready = 0;  ///< layers
  std::atomic<bool> open{false};
  std::atomic<bool> ended{false};  ///< whether the backward pass has ended, so that the last group may go
  std::atomic<bool> cancelled{false};

  void begin(gradient_ref<T> const of, skipped_layers const without) {
    not_ready = 0;
    cancelled.store(false);
    ended.store(false);
    gradient = of;
    skipped.clear();
    for (std::size_t i = 0; i < without.size(); ++i) skipped.push_back(without[i] ? 1 : 0);
    failure = nullptr;
    open.store(true);
  }

  /// @throws invalid_argument unless a step is open, or none is, as `is_open` requires
  void require(bool is_open, char const* otherwise) const {
    if (open.load() != is_open) throw invalid_argument("gradsieve: " + std::string{otherwise});
  }

  /// @throws invalid_argument
  void require_layer(std::size_t layer, std::size_t count) const {
    if (!open.load())
      throw invalid_argument("gradsieve: layer " + std::to_string(layer) +
                             " is ready, but no step is open: call begin() first");
    if (layer >= count)
      throw invalid_argument("gradsieve: layer " + std::to_string(layer) + " is ready, the layout has " +
                             std::to_string(count) + " layers");
  }
};

}  // namespace gradsieve::detail
