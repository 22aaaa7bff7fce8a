// A caller's gradient, in one piece of memory or in several.
#pragma once

#include <algorithm>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/core/arguments.hpp>
#include <gradsieve/core/config.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

template <class List>
using element_of = decltype(*std::begin(std::declval<List&>()));

/// An argument that is a temporary with memory of its own, such as a vector, but no span.
template <class Argument>
concept temporary_memory = !std::is_reference_v<Argument> && requires { typename Argument::allocator_type; };

/// True if a `List&&` of pieces dies before they are used: a temporary list of vectors, or a view that makes vectors.
template <class List>
inline constexpr bool holds_temporaries =
    temporary_memory<element_of<List>> ||
    (temporary_memory<List> && requires { typename std::remove_cvref_t<element_of<List>>::allocator_type; });

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
  /// Each piece's begin in the gradient, and the end; empty: each piece is a layer.
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

/// A caller's gradient in a step: elements that lie in one piece, or in several. Refers to the caller's lists.
template <class T>
class gradient_ref {
 public:
  using element_type = T;                  ///< may be const
  using value_type = std::remove_cv_t<T>;  ///< without const

  /// No elements.
  gradient_ref() = default;
  /// In one piece: from a vector, array or span.
  template <class Range>
    requires(!std::same_as<std::remove_cvref_t<Range>, gradient_ref> && std::convertible_to<Range, std::span<T>>)
  gradient_ref(Range&& flat) {  // NOLINT
    std::span<T> const all = std::forward<Range>(flat);
    only_ = all.data();
    size_ = all.size();
  }
  /// In several pieces. Pieces given by pointers have no elements before in().
  gradient_ref(pieces<T> const& list) noexcept  // NOLINT
      : parts_{list.data().data()},
        starts_{list.starts().data()},
        in_memory_{list.in_memory().data()},
        count_{list.data().size()},
        size_{list.starts().empty() ? 0 : list.starts().back()} {}

  /// The same elements, for reading.
  template <class U>
    requires(std::same_as<U const, T> && !std::is_const_v<U>)
  gradient_ref(gradient_ref<U> const& other) noexcept  // NOLINT
      : only_{other.only_},
        parts_{other.parts_},
        starts_{other.starts_},
        count_{other.count_},
        first_{other.first_},
        size_{other.size_} {}

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }                    ///< elements
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_ * sizeof(T); }  ///< of all elements
  [[nodiscard]] bool in_one_piece() const noexcept { return parts_ == nullptr; }  ///< whether flat() may be called
  [[nodiscard]] std::span<T> flat() const noexcept { return {only_, size_}; }     ///< @pre in_one_piece()

  /// The consecutive elements in memory from number i on. Cost: O(log pieces). @pre i < size()
  [[nodiscard]] GRADSIEVE_INLINE std::span<T> run(std::uint64_t i) const noexcept {
    if (parts_ == nullptr) return {only_ + i, size_ - i};
    return run_of_pieces(i);
  }
  /// Element i. Cost: that of run().
  [[nodiscard]] GRADSIEVE_INLINE T& operator[](std::uint64_t i) const noexcept { return run(i).front(); }

  /// Calls body(span) for the runs of `count` elements from `first` on, in order.
  template <class Body>
  void for_each_run(std::uint64_t first, std::uint64_t count, Body const& body) const {
    while (count > 0) {
      auto const here = run(first);
      auto const part = here.first(std::min<std::uint64_t>(here.size(), count));
      body(part);
      first += part.size();
      count -= part.size();
    }
  }

  /// Copies `count` elements from `first` on to `to`.
  void read(std::uint64_t first, std::uint64_t count, value_type* to) const noexcept {
    for_each_run(first, count, [&](auto const run) { to = std::ranges::copy(run, to).out; });
  }
  /// Copies `count` elements to those from `first` on.
  void write(std::uint64_t first, std::uint64_t count, value_type const* from) const noexcept {
    for_each_run(first, count, [&](auto const run) {
      std::copy_n(from, run.size(), run.data());
      from += run.size();
    });
  }

  /// `count` elements from `first` on. @pre first + count <= size()
  [[nodiscard]] gradient_ref part(std::uint64_t first, std::uint64_t count) const noexcept {
    auto made = *this;
    made.size_ = count;
    if (parts_ == nullptr)
      made.only_ += first;
    else
      made.first_ += first;
    return made;
  }

  /// Checks the number of elements, that no nonempty piece is null, and, if they can be written, that no two share
  /// memory. Cost: O(pieces). @throws invalid_argument
  void check(layout const& layers) const {
    if (starts_ == nullptr && parts_ != nullptr)
      throw invalid_argument("gradsieve: the gradient has " + std::to_string(count_) +
                             " pieces given by pointers, the layout has " + std::to_string(layers.count()) + " layers");
    detail::check_gradient_size(size_, layers.size());
    for (std::size_t p = 0; parts_ != nullptr && p < count_; ++p)
      if (parts_[p] == nullptr && starts_[p + 1] > starts_[p])
        throw invalid_argument("gradsieve: piece " + std::to_string(p) + " of the gradient is null, it has " +
                               std::to_string(starts_[p + 1] - starts_[p]) + " elements");
    check_memory();
  }
  /// Checks that no two pieces that can be written share memory. Cost: O(pieces). @throws invalid_argument
  void check_memory() const {
    std::size_t before = count_;  // the last nonempty one
    for (std::size_t i = 0; in_memory_ != nullptr && i < count_; ++i) {
      auto const p = in_memory_[i];
      if (starts_[p + 1] == starts_[p]) continue;
      auto const behind = [&](std::size_t q) { return parts_[q] + (starts_[q + 1] - starts_[q]); };
      if (before < count_ && std::is_lt(std::compare_three_way{}(parts_[p], behind(before))))
        throw invalid_argument("gradsieve: pieces " + std::to_string(std::min(p, before)) + " and " +
                               std::to_string(std::max(p, before)) +
                               " of the gradient share memory, and both would be overwritten: give a tied weight one "
                               "layer and one piece");
      before = p;
    }
  }

  /// This gradient; pieces given by pointers get the sizes of these layers, which outlive it. If they differ, check()
  /// throws.
  [[nodiscard]] gradient_ref in(layout const& layers) const noexcept {
    auto made = *this;
    if (parts_ == nullptr || starts_ != nullptr || count_ != layers.count()) return made;
    made.starts_ = layers.offsets().data();
    made.size_ = layers.size();
    return made;
  }

 private:
  template <class U>
  friend class gradient_ref;

  [[nodiscard]] std::span<T> run_of_pieces(std::uint64_t i) const noexcept {
    std::uint64_t const at = first_ + i;
    auto const behind = std::upper_bound(starts_, starts_ + count_ + 1, at);
    return {parts_[behind - starts_ - 1] + (at - behind[-1]), std::min(*behind - at, size_ - i)};
  }

  T* only_ = nullptr;                      // begin of the gradient, if it is one piece
  T* const* parts_ = nullptr;              // otherwise the begins of its pieces
  std::uint64_t const* starts_ = nullptr;  // first element of each piece, and the end
  std::size_t const* in_memory_ = nullptr;  // numbers of the pieces in memory order, if they can be written
  std::size_t count_ = 0;                  // of pieces
  std::uint64_t first_ = 0;                // first element, counted in all pieces
  std::uint64_t size_ = 0;                 // number of elements from there on
};

/// Deduces the element type.
template <class T>
gradient_ref(pieces<T> const&) -> gradient_ref<T>;
/// Deduces the element type of one piece.
template <class Range>
gradient_ref(Range&&) -> gradient_ref<typename decltype(std::span{std::declval<Range&>()})::element_type>;

namespace detail {
template <class T>
inline constexpr bool is_gradient_ref = false;
template <class T>
inline constexpr bool is_gradient_ref<gradient_ref<T>> = true;

/// A caller's gradient: pieces, or what checked_span() accepts. check() was not called.
template <class Gradient>
[[nodiscard]] auto checked_gradient(Gradient& gradient, layout const& layers) noexcept {
  if constexpr (is_pieces<std::remove_cv_t<Gradient>>) {
    using element = std::remove_pointer_t<typename decltype(gradient.data())::value_type>;
    static_assert(gradient_value<std::remove_const_t<element>>,
                  "pieces of a gradient are of float, gradsieve::float16 "
                  "or gradsieve::bfloat16");
    return gradient_ref<element>{gradient}.in(layers);
  } else if constexpr (is_gradient_ref<std::remove_cv_t<Gradient>>) {
    return gradient.in(layers);
  } else {
    auto const values = checked_span(gradient);
    return gradient_ref<typename decltype(values)::element_type>{values};
  }
}

/// A gradient that a call overwrites; the caller has passed it as an `Argument&&`.
template <class Argument, class T>
[[nodiscard]] auto writable(gradient_ref<T> const gradient) noexcept {
  static_assert(!std::is_const_v<T>, "this call overwrites the gradient: it must not be const");
  static_assert(!temporary_memory<Argument>,
                "this call overwrites the gradient: it must not be a temporary, whose update would be lost");
  if constexpr (std::is_const_v<T>)
    return gradient_ref<std::remove_const_t<T>>{};  // so that this is the only error
  else
    return gradient;
}

}  // namespace detail

}  // namespace gradsieve
