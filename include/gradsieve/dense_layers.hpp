// Which layers pass through uncompressed.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <gradsieve/fingerprint.hpp>
#include <gradsieve/layout.hpp>
#include <gradsieve/selection.hpp>
#include <gradsieve/text.hpp>

namespace gradsieve {

/// Layers whose name matches a pattern ('*' any characters, '?' one), or that have at most `up_to` elements, are
/// all-reduced whole. Biases and norms are by default: they are a fraction of a per cent of a model, and
/// compressing them costs accuracy. `.patterns = {}` compresses everything.
struct dense_layers {
  std::vector<std::string> patterns = {"*bias*", "*norm*"};
  std::uint64_t up_to = 0;

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

  friend bool operator==(dense_layers const&, dense_layers const&) = default;
  friend std::ostream& operator<<(std::ostream& out, dense_layers const& it) {
    out << "dense{up_to " << shortest{it.up_to};
    for (auto const& pattern : it.patterns) out << ", " << pattern;
    return out << '}';
  }
};

/// The layers of a layout in two lists, neighbours joined in neither: those selected from and those passed through.
struct layer_split {
  std::vector<range> selected;
  std::vector<range> dense;
  std::uint64_t selected_elements = 0;
  std::uint64_t dense_elements = 0;

  layer_split(layout const& layers, dense_layers const& chosen) {
    for (std::size_t i = 0; i < layers.count(); ++i) {
      if (layers[i].size == 0) continue;
      bool const passes = chosen.matches(layers[i]);
      (passes ? dense : selected).push_back({layers.offset(i), layers[i].size});
      (passes ? dense_elements : selected_elements) += layers[i].size;
    }
  }
};

}  // namespace gradsieve
