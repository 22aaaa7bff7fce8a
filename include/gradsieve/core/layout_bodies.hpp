// The bodies of layout.hpp, which units with gradsieve::compiled take from there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fingerprint.hpp>
#include <gradsieve/core/layer_names.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/text.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

GRADSIEVE_BODY bool fits(std::string_view pattern, layer const& each) {
  auto const plain = without_wrappers(pattern);
  auto const fits_name = [&](std::string const& name) {
    constexpr std::string_view outer = "module.";  // of a wrapped model: no '*' matches it
    return glob(plain, name) && (&name == &each.name || !name.starts_with(outer) || plain.starts_with(outer));
  };
  return fits_name(each.name) || std::ranges::any_of(each.other_names, fits_name);
}

GRADSIEVE_BODY layout::layout(std::initializer_list<layer> layers) : layout(std::vector<layer>(layers)) {}

GRADSIEVE_BODY layout::layout(std::vector<layer> layers) : layout{std::move(layers), false} {
  find_wrappers();
  find_norms();
}

GRADSIEVE_BODY layout::layout(std::uint64_t size, std::vector<layer> layers) : layout(std::move(layers)) {
  if (this->size() != size)
    throw invalid_argument("gradsieve: layers sum to " + std::to_string(this->size()) +
                           " elements, the gradient has " + std::to_string(size));
}

GRADSIEVE_BODY layout layout::flat(std::uint64_t n) { return layout{std::vector<layer>{{"", n}}}; }

GRADSIEVE_BODY layout layout::part(std::vector<layer> layers) const {
  layout made{std::move(layers), true};
  made.outer_ = outer_;
  made.has_module_ = has_module_;
  return made;
}

GRADSIEVE_BODY layer layout::plain(std::size_t i) const {
  layer made = layers_[i];
  auto const strip = [this](std::string& name) {
    name = without_wrappers(name);
    for (int n = 0; n < outer_ && name.starts_with(outer); ++n) name.erase(0, outer.size());
  };
  strip(made.name);
  for (auto& each : made.other_names) strip(each);
  if (has_module_) return made;
  auto bare = made.other_names;
  bare.push_back(made.name);
  for (int n = 0; n < std::max(outer_, 1); ++n)
    for (auto& name : bare) made.other_names.push_back(name.insert(0, outer));
  return made;
}

GRADSIEVE_BODY std::vector<layer> layout::plain() const {
  std::vector<layer> all;
  for (std::size_t i = 0; i < count(); ++i) all.push_back(plain(i));
  return all;
}

GRADSIEVE_BODY void layout::require_fit(bool fits, std::string_view pattern, char const* what) const {
  if (fits || is_part_) return;
  throw invalid_argument("gradsieve: " + std::string{what} + " pattern '" + std::string{pattern} +
                         "' matches none of the " + std::to_string(count()) + " layers" +
                         (count() == 0 ? "" : ", the first of which is '" + layers_[0].name + "'"));
}

GRADSIEVE_BODY std::uint64_t layout::hash() const noexcept {
  fingerprint all;
  for (auto const& each : layers_) {
    for (char const c : each.name) all.mix(static_cast<unsigned char>(c));
    all.mix(0x100);
    all.add(std::uint64_t{each.size});
  }
  return all.value();
}

GRADSIEVE_BODY std::uint64_t layout::identity() const noexcept {
  fingerprint all;
  all.add(hash());
  bool more = false;
  for (auto const& each : layers_) {
    more = more || each.dimensions > 0 || !each.other_names.empty();
    all.add(each.dimensions);
    for (auto const& name : each.other_names) all.add(std::string_view{name});
  }
  return more ? all.value() : hash();
}

GRADSIEVE_BODY layout::layout(std::vector<layer> layers, bool is_part) : layers_{std::move(layers)}, is_part_{is_part} {
  offsets_.reserve(layers_.size() + 1);
  offsets_.push_back(0);
  for (auto const& each : layers_) {
    if (each.size >= limit - offsets_.back())
      throw invalid_argument("gradsieve: layout reaches 2^32 elements at layer '" + each.name + "' (" +
                             std::to_string(each.size) + " elements); a compressor holds fewer than 2^32");
    offsets_.push_back(offsets_.back() + each.size);
  }
}

GRADSIEVE_BODY void layout::find_wrappers() {
  auto names = std::vector<std::string>{};
  for (auto const& each : layers_) names.push_back(without_wrappers(each.name));
  auto const begins = [](std::string const& name) { return name.starts_with(outer); };
  for (; !names.empty() && std::ranges::all_of(names, begins); ++outer_)
    for (auto& each : names) each.erase(0, outer.size());
  has_module_ = std::ranges::any_of(names, begins);
}

GRADSIEVE_BODY void layout::find_norms() {
  constexpr std::string_view weight = ".weight", bias = ".bias";
  std::unordered_map<std::string_view, std::uint64_t> biases;  // by their modules' names
  auto const module_of = [](std::string_view name, std::string_view end) {
    return name.substr(0, name.size() - end.size());
  };
  for (auto const& each : layers_)
    if (each.name.ends_with(bias)) biases.emplace(module_of(each.name, bias), each.size);
  for (auto& each : layers_) {
    if (each.dimensions > 0 || !each.name.ends_with(weight)) continue;
    auto const found = biases.find(module_of(each.name, weight));
    if (found != biases.end() && found->second == each.size) each.dimensions = 1;
  }
}

}  // namespace gradsieve
