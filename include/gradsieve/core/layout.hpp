// The layers of a flat gradient, in order.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// One layer: a name for display and for patterns, and its number of elements (0 is allowed). Layers are equal if names
/// and sizes are; the other fields decide which patterns match, and which layers pass through by default.
struct layer {
  std::string name;                        ///< may be empty
  std::uint64_t size = 0;                  ///< elements
  std::uint32_t dimensions = 0;            ///< of its shape, 1 for a scalar; 0: not known, see layout
  std::vector<std::string> other_names{};  ///< further names of a tied weight

  layer() = default;
  /// A layer with numbers of any integral type. @throws invalid_argument for negative numbers, and 2^32 dimensions or
  /// more.
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

/// True if a pattern of names ('*' any characters, '?' one) matches a layer; for a layout's layers see layout::plain().
[[nodiscard]] bool fits(std::string_view pattern, layer const& each);

/// The layers of one flat gradient, contiguous. All ranks of a compressor have equal layouts. A layer "x.weight" of
/// unknown dimensions with as many elements as the layer "x.bias" has one dimension: it belongs to a norm, as the
/// weight of a matrix product has more elements.
class layout {
 public:
  layout() = default;

  /// A layout of these layers, back to back. @throws invalid_argument if the sizes sum to 2^32 or more.
  layout(std::initializer_list<layer> layers);
  /// @copydoc layout(std::initializer_list<layer>)
  explicit layout(std::vector<layer> layers);

  /// A layout of these layers. @throws invalid_argument if their sizes do not sum to `size`, the caller's buffer.
  layout(std::uint64_t size, std::vector<layer> layers);

  /// One unnamed layer of n elements: a gradient without structure.
  [[nodiscard]] static layout flat(std::uint64_t n);

  /// Some of these layers, or pieces, as the layout of one compressor of several. A pattern matches the same layers
  /// here and there; one that matches none there is accepted, see require_fit(). @throws invalid_argument as the
  /// constructor.
  [[nodiscard]] layout part(std::vector<layer> layers) const;

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
  [[nodiscard]] layer plain(std::size_t i) const;
  /// All layers as plain(i), in order.
  [[nodiscard]] std::vector<layer> plain() const;

  /// Refuses a caller's pattern that matches no layer, except in a part() of a layout. @throws invalid_argument naming
  /// `what` it is for, the pattern and a layer.
  void require_fit(bool fits, std::string_view pattern, char const* what) const;

  /// A hash of names and sizes (FNV-1a), the same on every machine.
  [[nodiscard]] std::uint64_t hash() const noexcept;

  /// A hash of all that ranks must have in common: hash(), dimensions and other names.
  [[nodiscard]] std::uint64_t identity() const noexcept;

  /// True if names and sizes of all layers are equal.
  friend bool operator==(layout const& a, layout const& b) { return a.layers_ == b.layers_; }

 private:
  static constexpr std::uint64_t limit = std::uint64_t{1} << 32;
  static constexpr std::string_view outer = "module.";

  layout(std::vector<layer> layers, bool is_part);

  /// Finds how often all names begin with "module.", and if a layer still does after removing that.
  void find_wrappers();

  /// Sets the dimensions of weights that have as many elements as their bias.
  void find_norms();

  std::vector<layer> layers_;
  std::vector<std::uint64_t> offsets_;
  int outer_ = 0;
  bool has_module_ = false;
  bool is_part_ = false;
};

}  // namespace gradsieve

#if !defined(GRADSIEVE_COMPILED)
#include <gradsieve/core/layout_bodies.hpp>
#endif
