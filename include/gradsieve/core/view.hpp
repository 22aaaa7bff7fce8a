// Consecutive elements in memory of either space.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// std::span<T>, but callable on a device without a compiler flag. On the host either converts to the other, and
/// whatever converts to std::span<T> converts to it.
template <class T>
class view {
 public:
  using element_type = T;                  ///< may be const
  using value_type = std::remove_cv_t<T>;  ///< without const

  /// Empty.
  constexpr view() = default;
  /// `size` elements from `data` on.
  GRADSIEVE_HD constexpr view(T* data, std::uint64_t size) noexcept : data_{data}, size_{size} {}

  /// A view of the same elements as const.
  template <class U>
    requires(!std::same_as<U, T> && std::convertible_to<U (*)[], T (*)[]>)
  GRADSIEVE_HD constexpr view(view<U> other) noexcept : data_{other.data()}, size_{other.size()} {}  // NOLINT

  /// A vector, array or span. Host only.
  template <class Range>
    requires(!std::same_as<std::remove_cvref_t<Range>, view> && std::convertible_to<Range, std::span<T>>)
  constexpr view(Range&& range) {  // NOLINT
    std::span<T> const all = std::forward<Range>(range);
    data_ = all.data();
    size_ = all.size();
  }

  [[nodiscard]] GRADSIEVE_HD constexpr T* data() const noexcept { return data_; }             ///< the first element
  [[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t size() const noexcept { return size_; }  ///< number of elements
  [[nodiscard]] GRADSIEVE_HD constexpr bool empty() const noexcept { return size_ == 0; }     ///< true if size() is 0
  [[nodiscard]] GRADSIEVE_HD constexpr T* begin() const noexcept { return data_; }            ///< the first element
  [[nodiscard]] GRADSIEVE_HD constexpr T* end() const noexcept { return data_ + size_; }  ///< after the last element
  /// Element i. @pre i < size()
  [[nodiscard]] GRADSIEVE_HD constexpr T& operator[](std::uint64_t i) const noexcept { return data_[i]; }

  /// The first elements. @pre count <= size()
  [[nodiscard]] GRADSIEVE_HD constexpr view first(std::uint64_t count) const noexcept { return {data_, count}; }

  /// `count` elements from `offset` on. @pre offset + count <= size()
  [[nodiscard]] GRADSIEVE_HD constexpr view subspan(std::uint64_t offset, std::uint64_t count) const noexcept {
    return {data_ + offset, count};
  }

 private:
  T* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace gradsieve

/// @cond internal
/// A view owns nothing: a std::span of a temporary view outlives it.
template <class T>
inline constexpr bool std::ranges::enable_borrowed_range<gradsieve::view<T>> = true;
/// @endcond
