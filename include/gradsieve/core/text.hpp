// Numbers, policies and patterns as text.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <ostream>
#include <string_view>
#include <type_traits>

#include <gradsieve/core/plain_output.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Writes a number with the fewest digits that read back as the same number, whatever the stream's settings.
template <class T>
  requires std::is_arithmetic_v<T>
struct shortest {
  T value;  ///< the number
  friend std::ostream& operator<<(std::ostream& out, shortest const& number) {
    if constexpr (std::same_as<T, bool>) {
      return out << (number.value ? "true" : "false");
    } else {
      std::array<char, 32> text{};
      auto const end = std::to_chars(text.data(), text.data() + text.size(), number.value).ptr;
      return out << std::string_view{text.data(), static_cast<std::size_t>(end - text.data())};
    }
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

/// Whether a name matches a pattern: '*' any characters, '?' one.
[[nodiscard]] inline bool glob(std::string_view pattern, std::string_view name) noexcept {
  std::size_t p = 0;
  std::size_t at = 0;
  std::size_t star = std::string_view::npos;  // the last '*', which matches one more character on each retry
  std::size_t retry = 0;
  while (at < name.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[at]) && pattern[p] != '*') {
      ++p;
      ++at;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = at;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      at = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace gradsieve
