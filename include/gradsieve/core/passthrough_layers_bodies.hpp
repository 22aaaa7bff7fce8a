// The bodies of passthrough_layers.hpp, which units with gradsieve::compiled take from there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <gradsieve/core/layer_names.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/passthrough_layers.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/core/text.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

[[nodiscard]] GRADSIEVE_BODY bool is_bias_or_norm(layer const& each) {
  if (each.dimensions > 0) return each.dimensions == 1;
  return names_bias_or_norm(each.name) || std::ranges::any_of(each.other_names, names_bias_or_norm);
}

}  // namespace detail

GRADSIEVE_BODY std::vector<bool> passthrough_layers::of(layout const& layers) const {
  auto const plain = layers.plain();
  std::vector<bool> passes(plain.size());
  for (std::size_t i = 0; i < plain.size(); ++i) passes[i] = plain[i].size <= up_to;
  for (auto const& pattern : patterns) {
    bool const usual = pattern == biases_and_norms;
    bool found = usual;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      if (!(usual ? detail::is_bias_or_norm(plain[i]) : fits(pattern, plain[i]))) continue;
      passes[i] = true;
      found = true;
    }
    layers.require_fit(found, pattern, "passthrough");
  }
  return passes;
}

GRADSIEVE_BODY std::ostream& operator<<(std::ostream& out, passthrough_layers const& it) {
  plain_output const plain{out};
  out << "passthrough{up_to " << shortest{it.up_to};
  for (auto const& pattern : it.patterns) out << ", " << pattern;
  return out << '}';
}

GRADSIEVE_BODY std::vector<layer> passing(layout const& layers, passthrough_layers const& chosen) {
  auto const passes = chosen.of(layers);
  std::vector<layer> all;
  for (std::size_t i = 0; i < layers.count(); ++i)
    if (passes[i] && layers[i].size > 0) all.push_back(layers[i]);
  return all;
}

GRADSIEVE_BODY std::string describe_passing(layout const& layers, passthrough_layers const& chosen) {
  std::uint64_t elements = 0;
  std::string names;
  auto const all = passing(layers, chosen);
  for (auto const& each : all) {
    elements += each.size;
    names += (names.empty() ? ": " : ", ") + each.name;
  }
  return std::to_string(all.size()) + " of " + std::to_string(layers.count()) + " layers pass through, " +
         std::to_string(elements) + " of " + std::to_string(layers.size()) + " elements" + names;
}

}  // namespace gradsieve
