// The layers that pass through uncompressed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <gradsieve/core/fingerprint.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/selection.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A pattern in passthrough_layers::patterns for all biases and the parameters of norms.
inline constexpr char const* biases_and_norms = "<biases and norms>";

/// Layers whose name matches a pattern ('*' any characters, '?' one), or that have at most `up_to` elements, are
/// all-reduced in full. The default is biases and norms: a fraction of a per cent of a model, whose compression costs
/// accuracy. If a layout knows a layer's dimensions, these are the layers of one dimension; otherwise
/// names_bias_or_norm() decides. `.patterns = {}` compresses everything; `{biases_and_norms, "head.*"}` adds to the
/// default.
struct passthrough_layers {
  /// The default of `patterns`. (With a list as its initializer, g++ 12.2 crashes on recipes in templates.)
  [[nodiscard]] static std::vector<std::string> usual() { return {biases_and_norms}; }

  std::vector<std::string> patterns = usual();  ///< of layer names, see layout::plain()
  std::uint64_t up_to = 0;                                 ///< elements

  /// For each layer, true if it passes through. Allocates. Cost: O(layers x patterns). @throws invalid_argument for a
  /// pattern that matches no layer, except biases_and_norms, unless the layout is a part.
  [[nodiscard]] std::vector<bool> of(layout const& layers) const;

  void add_to(fingerprint& to) const noexcept {
    to.add(up_to);
    to.add(std::uint64_t{patterns.size()});
    for (auto const& pattern : patterns) to.add(std::string_view{pattern});
  }

  friend bool operator==(passthrough_layers const&, passthrough_layers const&) = default;
  friend std::ostream& operator<<(std::ostream& out, passthrough_layers const& it);
};

/// Checks that each pattern of a recipe, of passthrough layers and of the selector's bins, matches a layer. A
/// compressor does so; code that makes compressors for parts of a model calls it for the whole model. @throws
/// invalid_argument
template <class Recipe>
  requires requires(Recipe const& recipe, layout const& layers) { recipe.passthrough.of(layers); }
void check_names(Recipe const& recipe, layout const& layers) {
  static_cast<void>(recipe.passthrough.of(layers));
  if constexpr (requires { recipe.selector.check_names(layers); }) recipe.selector.check_names(layers);
}

/// The nonempty layers that pass through, in order. Allocates. @throws invalid_argument as passthrough_layers::of().
[[nodiscard]] std::vector<layer> passing(layout const& layers, passthrough_layers const& chosen);

/// passing() as text: the number of layers and elements, and the layers' names. Allocates. @throws invalid_argument
[[nodiscard]] std::string describe_passing(layout const& layers, passthrough_layers const& chosen);

namespace detail {

/// The ranges of a layout's layers: those selected from and those passed through.
struct layer_split {
  std::vector<range> selected;
  std::vector<range> passthrough;
  std::uint64_t selected_elements = 0;
  std::uint64_t passthrough_elements = 0;

  layer_split(layout const& layers, passthrough_layers const& chosen) {
    auto const all = chosen.of(layers);
    for (std::size_t i = 0; i < layers.count(); ++i) {
      if (layers[i].size == 0) continue;
      bool const passes = all[i];
      (passes ? passthrough : selected).push_back({layers.offset(i), layers[i].size});
      (passes ? passthrough_elements : selected_elements) += layers[i].size;
    }
  }
};

}  // namespace detail

}  // namespace gradsieve

#if !defined(GRADSIEVE_COMPILED)
#include <gradsieve/core/passthrough_layers_bodies.hpp>
#endif
