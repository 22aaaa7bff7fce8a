// The bodies of text.hpp, which units with gradsieve::compiled take from there.
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <ostream>
#include <string_view>

#include <gradsieve/core/text.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

template <class T>
std::ostream& write_digits(std::ostream& out, T value) {
  std::array<char, 32> text{};
  auto const end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return out << std::string_view{text.data(), static_cast<std::size_t>(end - text.data())};
}
GRADSIEVE_BODY std::ostream& write_shortest(std::ostream& out, float value) { return write_digits(out, value); }
GRADSIEVE_BODY std::ostream& write_shortest(std::ostream& out, double value) { return write_digits(out, value); }
GRADSIEVE_BODY std::ostream& write_shortest(std::ostream& out, long double value) { return write_digits(out, value); }
GRADSIEVE_BODY std::ostream& write_shortest(std::ostream& out, long long value) { return write_digits(out, value); }
GRADSIEVE_BODY std::ostream& write_shortest(std::ostream& out, unsigned long long value) {
  return write_digits(out, value);
}

}  // namespace detail

GRADSIEVE_BODY bool glob(std::string_view pattern, std::string_view name) noexcept {
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
