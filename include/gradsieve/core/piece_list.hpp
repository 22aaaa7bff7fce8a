// A gradient in several pieces of memory.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

/// The type that a list's iterator refers to.
template <class List>
using element_of = decltype(*std::begin(std::declval<List&>()));

/// A forwarding reference's argument that is a temporary with memory of its own, such as a vector, but no span.
template <class Argument>
concept temporary_memory = !std::is_reference_v<Argument> && requires { typename Argument::allocator_type; };

/// Whether a `List&&` of pieces dies before they are used: a temporary list of vectors, or a view that makes vectors.
template <class List>
inline constexpr bool holds_temporaries =
    temporary_memory<element_of<List>> ||
    (temporary_memory<List> && requires { typename std::remove_cvref_t<element_of<List>>::allocator_type; });

/// The element type of a list of pointers, or of lists.
template <class List>
struct piece_value {
  using type = typename decltype(std::span{std::declval<element_of<List>>()})::element_type;
};
template <class List>
  requires std::is_pointer_v<std::remove_cvref_t<element_of<List>>>
struct piece_value<List> {
  using type = std::remove_pointer_t<std::remove_cvref_t<element_of<List>>>;
};

}  // namespace detail

/// A gradient that lies in several pieces of memory, such as one buffer per parameter: pass it in place of one flat
/// buffer. In the layout's order, back to back, the pieces are the gradient; they are read and written in place, at any
/// alignment, and the result has the same bits as that of a flat buffer.
/// `pieces{list}` accepts a range of vectors, arrays or spans, of any lengths, which sum to the layout's size; or a
/// range of pointers, one for each layer of the layout, including empty ones. T may be const if the gradient is only
/// read. It refers to the pieces, which must outlive it, and contains a list of them. Calls that overwrite a gradient
/// refuse pieces that share memory, as a tied weight in two layers; calls that only read it count them twice.
/// Cost: O(pieces log pieces), and allocates; make it once, and again when a piece has moved. A step costs one search
/// in the list for each 4096 elements, and a copy of those 4096 that cross a border.
///
/// Example: @snippet resume.cpp pieces
template <class T>
class pieces {
 public:
  /// From spans, of any lengths.
  explicit pieces(std::span<std::span<T> const> list) {
    starts_.push_back(0);
    for (auto const& each : list) add(each);
    sort();
  }
  /// From vectors, arrays or spans.
  template <class List>
    requires std::convertible_to<detail::element_of<List>, std::span<T>>
  explicit pieces(List&& list) {
    static_assert(!detail::holds_temporaries<List>, "these pieces are temporaries, which are gone when they are used");
    starts_.push_back(0);
    for (auto&& each : list) add(each);
    sort();
  }
  /// From pointers, one for each layer.
  template <class List>
    requires(std::convertible_to<detail::element_of<List>, T*> &&
             !std::convertible_to<detail::element_of<List>, std::span<T>>)  // an array of arrays
  explicit pieces(List&& list) {
    for (T* const each : list) data_.push_back(each);
    sort();
  }

  [[nodiscard]] std::span<T* const> data() const noexcept { return data_; }  ///< where each piece begins
  /// Where each piece begins in the gradient, and the end; empty: each piece is a layer.
  [[nodiscard]] std::span<std::uint64_t const> starts() const noexcept { return starts_; }
  /// The numbers of the pieces in the order of their memory; empty if they are only read.
  [[nodiscard]] std::span<std::size_t const> in_memory() const noexcept { return in_memory_; }

 private:
  void sort() {
    if constexpr (!std::is_const_v<T>) {
      in_memory_.resize(data_.size());
      std::iota(in_memory_.begin(), in_memory_.end(), std::size_t{0});
      std::ranges::sort(in_memory_, {}, [this](std::size_t p) { return data_[p]; });
    }
  }

  void add(std::span<T> piece) {
    data_.push_back(piece.data());
    starts_.push_back(starts_.back() + piece.size());
  }

  std::vector<T*> data_;
  std::vector<std::uint64_t> starts_;
  std::vector<std::size_t> in_memory_;
};

namespace detail {
template <class T>
inline constexpr bool is_pieces = false;
template <class T>
inline constexpr bool is_pieces<pieces<T>> = true;
}  // namespace detail

/// Deduces the element type.
template <class List>
  requires(!detail::is_pieces<std::remove_cvref_t<List>>)
pieces(List&&) -> pieces<typename detail::piece_value<List>::type>;

}  // namespace gradsieve
