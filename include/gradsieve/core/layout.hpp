// The layers of a flat gradient, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>

namespace gradsieve {

/// One layer: a name for people and patterns, and its number of elements (0 is allowed).
struct layer {
  std::string name;        ///< may be empty
  std::uint64_t size = 0;  ///< elements
  friend bool operator==(layer const&, layer const&) = default;
};

/// The layers of one flat gradient, back to back. All ranks of a compressor hold equal layouts.
class layout {
 public:
  layout() = default;

  /// These layers, back to back. @throws invalid_argument if the sizes sum to 2^32 or more.
  layout(std::initializer_list<layer> layers) : layout(std::vector<layer>(layers)) {}
  /// @copydoc layout(std::initializer_list<layer>)
  explicit layout(std::vector<layer> layers) : layers_{std::move(layers)} {
    offsets_.reserve(layers_.size() + 1);
    offsets_.push_back(0);
    for (auto const& each : layers_) {
      if (each.size >= limit - offsets_.back())
        throw invalid_argument("gradsieve: layout reaches 2^32 elements at layer '" + each.name + "' (" +
                               std::to_string(each.size) + " elements); a compressor holds fewer than 2^32");
      offsets_.push_back(offsets_.back() + each.size);
    }
  }

  /// These layers, checked against the size of the caller's buffer.
  /// @throws invalid_argument if the layers do not sum to `size`.
  layout(std::uint64_t size, std::vector<layer> layers) : layout(std::move(layers)) {
    if (this->size() != size)
      throw invalid_argument("gradsieve: layers sum to " + std::to_string(this->size()) +
                             " elements, the gradient has " + std::to_string(size));
  }

  /// One unnamed layer of n elements: a gradient without structure.
  [[nodiscard]] static layout flat(std::uint64_t n) { return layout{std::vector<layer>{{"", n}}}; }

  /// Elements in all layers.
  [[nodiscard]] std::uint64_t size() const noexcept { return offsets_.empty() ? 0 : offsets_.back(); }

  /// Number of layers.
  [[nodiscard]] std::size_t count() const noexcept { return layers_.size(); }

  /// First element of a layer.
  [[nodiscard]] std::uint64_t offset(std::size_t i) const noexcept { return offsets_[i]; }

  /// A layer. @pre i < count()
  [[nodiscard]] layer const& operator[](std::size_t i) const noexcept { return layers_[i]; }
  [[nodiscard]] auto begin() const noexcept { return layers_.begin(); }  ///< the first layer
  [[nodiscard]] auto end() const noexcept { return layers_.end(); }      ///< behind the last layer

  /// A hash of names and sizes (FNV-1a), the same on every machine.
  [[nodiscard]] std::uint64_t hash() const noexcept {
    std::uint64_t h = 0xCBF2'9CE4'8422'2325u;
    auto const mix = [&h](std::uint64_t byte) { h = (h ^ byte) * 0x0000'0100'0000'01B3u; };
    for (auto const& each : layers_) {
      for (char const c : each.name) mix(static_cast<unsigned char>(c));
      mix(0x100);
      for (int shift = 0; shift < 64; shift += 8) mix((each.size >> shift) & 0xFFu);
    }
    return h;
  }

  /// Whether names and sizes of all layers are equal.
  friend bool operator==(layout const& a, layout const& b) { return a.layers_ == b.layers_; }

 private:
  static constexpr std::uint64_t limit = std::uint64_t{1} << 32;

  std::vector<layer> layers_;
  std::vector<std::uint64_t> offsets_;
};

}  // namespace gradsieve
