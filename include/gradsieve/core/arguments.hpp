// Checks of the arguments of compressors and averagers, and of moved-from objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// A flag that is true until its object is moved from.
class presence {
 public:
  presence() = default;
  presence(presence&& other) noexcept : here_{std::exchange(other.here_, false)} {}
  presence& operator=(presence&& other) noexcept {
    bool const itself = &other == this;  // whose buffers are empty then
    here_ = std::exchange(other.here_, false) && !itself;
    return *this;
  }
  [[nodiscard]] explicit operator bool() const noexcept { return here_; }

 private:
  bool here_ = true;
};

template <class Values>
using value_format = typename decltype(std::span{std::declval<Values const&>()})::value_type;

template <class Gradient>
[[nodiscard]] auto checked_span(Gradient& gradient) {
  constexpr bool is_contiguous = requires { std::span{gradient}; };
  static_assert(is_contiguous,
                "a gradient is contiguous memory of known size: a vector, an array or a std::span, not a pointer or a "
                "list; or gradsieve::pieces of it");
  if constexpr (is_contiguous) {
    std::span const values{gradient};
    using value_type = typename decltype(values)::value_type;
    constexpr bool has_format = gradient_value<value_type>;
    static_assert(has_format, "a gradient is contiguous memory of float, gradsieve::float16 or gradsieve::bfloat16");
    if constexpr (has_format)
      return std::span<typename decltype(values)::element_type>{values};
    else
      return std::span<float>{};  // so that this is the only error
  } else {
    return std::span<float>{};
  }
}

/// Checks a gradient's size against its layout's. @throws invalid_argument
inline void check_gradient_size(std::size_t size, std::uint64_t n) {
  if (size != n)
    throw invalid_argument("gradsieve: gradient has " + std::to_string(size) + " elements, the layout has " +
                           std::to_string(n));
}

}  // namespace gradsieve::detail
