// State that compressors have in every space, and a rank's failure, held until the ranks that wait for it know of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/passthrough_layers.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/skipped_layers.hpp>
#include <gradsieve/exchange/preflight.hpp>
#include <gradsieve/partitioner/segmentation.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The layers of a step in lists of ranges, one per layer, in order. Without skipped layers they are the recipe's.
class step_layers {
 public:
  step_layers(layout const& layers, layer_split const& split)
      : layers_{layers}, split_{split}, passthrough_{split.passthrough}, excluded_{split.passthrough} {}

  [[nodiscard]] std::vector<range> const& passthrough() const noexcept { return passthrough_; }  ///< sent in full
  [[nodiscard]] std::vector<range> const& skipped() const noexcept { return skipped_; }          ///< not sent
  [[nodiscard]] std::vector<range> const& excluded() const noexcept { return excluded_; }  ///< both: not selected from
  [[nodiscard]] std::uint64_t skipped_elements() const noexcept { return skipped_elements_; }
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }  ///< of the skipped layers; 0 if none is skipped

  /// Makes later steps skip these layers. Cost: O(layers). Allocates. @pre chosen.check(layers)
  void skip(skipped_layers const& chosen) {
    std::vector<range> passthrough, skipped, excluded;
    std::uint64_t elements = 0;
    std::size_t next = 0;  // of the split's passthrough
    for (std::size_t i = 0; i < layers_.count(); ++i) {
      if (layers_[i].size == 0) continue;
      range const here{layers_.offset(i), layers_[i].size};
      bool const passes = next < split_.passthrough.size() && split_.passthrough[next].offset == here.offset;
      next += passes ? 1u : 0u;
      if (chosen[i]) {
        skipped.push_back(here);
        elements += here.size;
      } else if (passes) {
        passthrough.push_back(here);
      }
      if (chosen[i] || passes) excluded.push_back(here);
    }
    passthrough_.swap(passthrough);
    skipped_.swap(skipped);
    excluded_.swap(excluded);
    skipped_elements_ = elements;
    hash_ = chosen.hash();
  }

 private:
  layout const& layers_;
  layer_split const& split_;
  std::vector<range> passthrough_, skipped_, excluded_;
  std::uint64_t skipped_elements_ = 0;
  std::uint64_t hash_ = 0;
};

struct step_role {
  int world = 1;
  int rank = 0;
  bool exchanging = false;  ///< segments that are sent in full then pass through and are not selected from
  bool selects = true;      ///< the step does not end with its accumulate pass
  friend bool operator==(step_role const&, step_role const&) = default;
};

struct no_ranks {  // replaces the communicator in a step without one
  [[nodiscard]] static constexpr int rank() noexcept { return 0; }
  [[nodiscard]] static constexpr int size() noexcept { return 1; }
  template <class... Anything>
  void all_reduce(Anything const&...) const noexcept {}
};

class held_failure {
 public:
  struct called_for {};  // thrown when the caller reports the failure; see compressor::fail()
  [[nodiscard]] static held_failure by_caller() {
    held_failure made;
    made.why_ = std::make_exception_ptr(called_for{});
    return made;
  }

  template <class Body>
  void attempt(Body const& body) {
    if (why_) return;
    try {
      body();
    } catch (...) {
      why_ = std::current_exception();
    }
  }

  [[nodiscard]] explicit operator bool() const noexcept { return why_ != nullptr; }
  [[nodiscard]] std::exception_ptr const& why() const noexcept { return why_; }

 private:
  std::exception_ptr why_;
};

template <class Recipe>
struct step_parts {
  using selector_type = decltype(Recipe::selector);
  using partitioner_type = decltype(Recipe::partitioner);
  using residual_type = decltype(Recipe::residual);
  using codec_type = decltype(Recipe::codec);
  using exchange_type = decltype(Recipe::exchange);
  static constexpr int no_world = 0;

  layout layers;
  Recipe recipe;
  layer_split split;
  step_layers now;                        ///< the layers that are passed through, skipped or selected from
  std::vector<std::uint32_t> layer_bins;  ///< length of the bins in each layer, where the selector has any
  message_info info;
  std::uint64_t capacity = 0;  ///< the most entries that one rank selects
  int world = no_world;        ///< the world that segments and buffers are made for
  bool met = false;            ///< true if the ranks of this world were compared in this state
  std::uint64_t entered = 0;   ///< gradients that were accumulated
  preflight::origin origin = preflight::origin::made;

  step_parts(layout about, Recipe policies)
      : layers{std::move(about)},
        recipe{std::move(policies)},
        split{layers, recipe.passthrough},
        now{layers, split},
        layer_bins{layer_bins_of(recipe.selector, recipe.codec, layers)},
        info{layers.size(), layers.hash(), split.passthrough_elements, &layers, layer_bins} {}
  step_parts(step_parts const&) = delete;  // parts refer to each other
  step_parts& operator=(step_parts const&) = delete;

 protected:
  ~step_parts() = default;
};

}  // namespace gradsieve::detail
