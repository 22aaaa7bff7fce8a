// Numbers, policies and patterns as text.
#pragma once

#include <concepts>
#include <ostream>
#include <string_view>
#include <type_traits>

#include <gradsieve/core/plain_output.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

std::ostream& write_shortest(std::ostream& out, float value);
std::ostream& write_shortest(std::ostream& out, double value);
std::ostream& write_shortest(std::ostream& out, long double value);
std::ostream& write_shortest(std::ostream& out, long long value);
std::ostream& write_shortest(std::ostream& out, unsigned long long value);

}  // namespace detail

/// Writes a number with the fewest digits that read back as the same number, whatever the stream's settings.
template <class T>
  requires std::is_arithmetic_v<T>
struct shortest {
  T value;  ///< the number
  friend std::ostream& operator<<(std::ostream& out, shortest const& number) {
    if constexpr (std::same_as<T, bool>)
      return out << (number.value ? "true" : "false");
    else if constexpr (std::is_floating_point_v<T>)
      return detail::write_shortest(out, number.value);
    else
      return detail::write_shortest(
          out, static_cast<std::conditional_t<std::is_signed_v<T>, long long, unsigned long long>>(number.value));
  }
};

/// Writes name{field value, field value}; a field is a std::pair of its name and its number.
template <class... Fields>
std::ostream& describe(std::ostream& out, std::string_view name, Fields const&... fields) {
  plain_output const plain{out};
  out << name;
  if constexpr (sizeof...(fields) > 0) {
    out << '{';
    std::string_view separator = "";
    ((out << separator << fields.first << ' ' << shortest{fields.second}, separator = ", "), ...);
    out << '}';
  }
  return out;
}

/// True if a name matches a pattern: '*' any characters, '?' one.
[[nodiscard]] bool glob(std::string_view pattern, std::string_view name) noexcept;

}  // namespace gradsieve

#if !defined(GRADSIEVE_COMPILED)
#include <gradsieve/core/text_bodies.hpp>
#endif
