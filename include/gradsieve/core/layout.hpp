// The layers of a flat gradient, in order.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fingerprint.hpp>
#include <gradsieve/core/layer_names.hpp>
#include <gradsieve/core/text.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// One layer: a name for display and for patterns, and its number of elements (0 is allowed). Layers are equal if their
/// names and sizes are; the other fields decide which patterns match, and which layers pass through by default.
struct layer {
  std::string name;                        ///< may be empty
  std::uint64_t size = 0;                  ///< elements
  std::uint32_t dimensions = 0;            ///< of its shape, 1 for a scalar; 0: not known, see layout
  std::vector<std::string> other_names{};  ///< further names of a tied weight

  layer() = default;
  /// A layer with numbers of any integral type, as frameworks use. @throws invalid_argument for a negative number, and
  /// for 2^32 dimensions or more.
  template <std::integral Size = std::uint64_t, std::integral Dimensions = std::uint32_t>
  layer(std::string called, Size elements, Dimensions shape = 0, std::vector<std::string> others = {})
      : name{std::move(called)}, other_names{std::move(others)} {
    if (std::cmp_less(elements, 0) || std::cmp_less(shape, 0) || !std::in_range<std::uint32_t>(shape))
      throw invalid_argument("gradsieve: layer '" + name + "' has " + std::to_string(elements) + " elements and " +
                             std::to_string(shape) + " dimensions");
    size = static_cast<std::uint64_t>(elements);
    dimensions = static_cast<std::uint32_t>(shape);
  }
  /// Compares name and size.
  friend bool operator==(layer const& a, layer const& b) { return a.name == b.name && a.size == b.size; }
};

/// Whether a pattern of names ('*' any characters, '?' one) matches a layer; for a layout's layers see layout::plain().
[[nodiscard]] inline bool fits(std::string_view pattern, layer const& each) {
  auto const plain = without_wrappers(pattern);
  auto const fits_name = [&](std::string const& name) {
    constexpr std::string_view outer = "module.";  // of a wrapped model: no '*' matches it
    return glob(plain, name) && (&name == &each.name || !name.starts_with(outer) || plain.starts_with(outer));
  };
  return fits_name(each.name) || std::ranges::any_of(each.other_names, fits_name);
}

/// The layers of one flat gradient, back to back. All ranks of a compressor have equal layouts. A layer "x.weight" of
/// unknown dimensions with as many elements as the layer "x.bias" has one dimension: it belongs to a norm, as the
/// weight of a matrix product has more elements.
class layout {
 public:
  layout() = default;

  /// A layout of these layers, back to back. @throws invalid_argument if the sizes sum to 2^32 or more.
  layout(std::initializer_list<layer> layers) : layout(std::vector<layer>(layers)) {}
  /// @copydoc layout(std::initializer_list<layer>)
  explicit layout(std::vector<layer> layers) : layout{std::move(layers), false} {
    find_wrappers();
    find_norms();
  }

  /// A layout of these layers, checked against the size of the caller's buffer.
  /// @throws invalid_argument if the sizes of the layers do not sum to `size`.
  layout(std::uint64_t size, std::vector<layer> layers) : layout(std::move(layers)) {
    if (this->size() != size)
      throw invalid_argument("gradsieve: layers sum to " + std::to_string(this->size()) +
                             " elements, the gradient has " + std::to_string(size));
  }

  /// One unnamed layer of n elements: a gradient without structure.
  [[nodiscard]] static layout flat(std::uint64_t n) { return layout{std::vector<layer>{{"", n}}}; }

  /// Some of these layers, or pieces of them, as the layout of one compressor of several: a pattern that matches a
  /// layer here matches it there, and one that matches none there is accepted, see require_fit(). @throws
  /// invalid_argument as the constructor.
  [[nodiscard]] layout part(std::vector<layer> layers) const {
    layout made{std::move(layers), true};
    made.outer_ = outer_;
    made.has_module_ = has_module_;
    return made;
  }

  /// Elements in all layers.
  [[nodiscard]] std::uint64_t size() const noexcept { return offsets_.empty() ? 0 : offsets_.back(); }

  /// Number of layers.
  [[nodiscard]] std::size_t count() const noexcept { return layers_.size(); }

  /// First element of a layer.
  [[nodiscard]] std::uint64_t offset(std::size_t i) const noexcept { return offsets_[i]; }

  /// First element of each layer, and the end after the last layer. A default-constructed layout has none.
  [[nodiscard]] std::span<std::uint64_t const> offsets() const noexcept { return offsets_; }

  /// A layer. @pre i < count()
  [[nodiscard]] layer const& operator[](std::size_t i) const noexcept { return layers_[i]; }
  [[nodiscard]] auto begin() const noexcept { return layers_.begin(); }  ///< the first layer
  [[nodiscard]] auto end() const noexcept { return layers_.end(); }      ///< after the last layer

  /// A layer with the names that patterns are compared with: without the parts that wrappers of modules add, such as
  /// "module." if all names begin with it. If no layer is in a module of this name, a pattern may still begin with it.
  /// Allocates. @pre i < count()
  [[nodiscard]] layer plain(std::size_t i) const {
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
  /// All layers as plain(i), in order.
  [[nodiscard]] std::vector<layer> plain() const {
    std::vector<layer> all;
    for (std::size_t i = 0; i < count(); ++i) all.push_back(plain(i));
    return all;
  }

  /// Refuses a pattern that a caller gave and that matches no layer; a part() of a layout accepts it.
  /// @throws invalid_argument naming `what` it is for, the pattern and a layer.
  void require_fit(bool fits, std::string_view pattern, char const* what) const {
    if (fits || is_part_) return;
    throw invalid_argument("gradsieve: " + std::string{what} + " pattern '" + std::string{pattern} +
                           "' matches none of the " + std::to_string(count()) + " layers" +
                           (count() == 0 ? "" : ", the first of which is '" + layers_[0].name + "'"));
  }

  /// A hash of names and sizes (FNV-1a), the same on every machine.
  [[nodiscard]] std::uint64_t hash() const noexcept {
    fingerprint all;
    for (auto const& each : layers_) {
      for (char const c : each.name) all.mix(static_cast<unsigned char>(c));
      all.mix(0x100);
      all.add(std::uint64_t{each.size});
    }
    return all.value();
  }

  /// A hash of everything that ranks must have in common: hash(), and what is known of dimensions and other names.
  [[nodiscard]] std::uint64_t identity() const noexcept {
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

  /// Whether names and sizes of all layers are equal.
  friend bool operator==(layout const& a, layout const& b) { return a.layers_ == b.layers_; }

 private:
  static constexpr std::uint64_t limit = std::uint64_t{1} << 32;
  static constexpr std::string_view outer = "module.";

  layout(std::vector<layer> layers, bool is_part) : layers_{std::move(layers)}, is_part_{is_part} {
    offsets_.reserve(layers_.size() + 1);
    offsets_.push_back(0);
    for (auto const& each : layers_) {
      if (each.size >= limit - offsets_.back())
        throw invalid_argument("gradsieve: layout reaches 2^32 elements at layer '" + each.name + "' (" +
                               std::to_string(each.size) + " elements); a compressor holds fewer than 2^32");
      offsets_.push_back(offsets_.back() + each.size);
    }
  }

  /// Finds how often all names begin with "module.", and whether a layer still begins with it after removing that.
  void find_wrappers() {
    auto names = std::vector<std::string>{};
    for (auto const& each : layers_) names.push_back(without_wrappers(each.name));
    auto const begins = [](std::string const& name) { return name.starts_with(outer); };
    for (; !names.empty() && std::ranges::all_of(names, begins); ++outer_)
      for (auto& each : names) each.erase(0, outer.size());
    has_module_ = std::ranges::any_of(names, begins);
  }

  /// Sets the dimensions of weights that have as many elements as their bias.
  void find_norms() {
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

  std::vector<layer> layers_;
  std::vector<std::uint64_t> offsets_;
  int outer_ = 0;
  bool has_module_ = false;
  bool is_part_ = false;
};

}  // namespace gradsieve
