// Which layers pass through uncompressed.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <gradsieve/core/fingerprint.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/text.hpp>

namespace gradsieve {

/// Layers whose name matches a pattern ('*' any characters, '?' one), or that have at most `up_to` elements, are
/// all-reduced in full. The default is biases and norms: they are a fraction of a per cent of a model, and compressing
/// them costs accuracy. `.patterns = {}` compresses everything.
struct passthrough_layers {
  std::vector<std::string> patterns = {"*bias*", "*norm*"};  ///< of layer names
  std::uint64_t up_to = 0;                                   ///< elements

  /// Whether a layer passes through.
  [[nodiscard]] bool matches(layer const& each) const {
    if (each.size <= up_to) return true;
    for (auto const& pattern : patterns)
      if (glob(pattern, each.name)) return true;
    return false;
  }

  void add_to(fingerprint& to) const noexcept {
    to.add(up_to);
    to.add(std::uint64_t{patterns.size()});
    for (auto const& pattern : patterns) to.add(std::string_view{pattern});
  }

  friend bool operator==(passthrough_layers const&, passthrough_layers const&) = default;
  friend std::ostream& operator<<(std::ostream& out, passthrough_layers const& it) {
    plain_output const plain{out};
    out << "dense{up_to " << shortest{it.up_to};
    for (auto const& pattern : it.patterns) out << ", " << pattern;
    return out << '}';
  }
};

/// @cond internal
/// The layers of a layout in two lists, one range a layer: those selected from and those passed through.
struct layer_split {
  std::vector<range> selected;
  std::vector<range> passthrough;
  std::uint64_t selected_elements = 0;
  std::uint64_t passthrough_elements = 0;

  layer_split(layout const& layers, passthrough_layers const& chosen) {
    for (std::size_t i = 0; i < layers.count(); ++i) {
      if (layers[i].size == 0) continue;
      bool const passes = chosen.matches(layers[i]);
      (passes ? passthrough : selected).push_back({layers.offset(i), layers[i].size});
      (passes ? passthrough_elements : selected_elements) += layers[i].size;
    }
  }
};
/// @endcond

}  // namespace gradsieve
