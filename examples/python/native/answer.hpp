// Texts that C functions for ctypes take and return.
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "../../c/objects.hpp"
#include "../../command_line.hpp"

namespace example {

/// A whole text as a number, in any locale. @throws usage_error
template <class T>
[[nodiscard]] T read_number(std::string_view name, std::string_view text) {
  T value{};
  auto const [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size())
    throw usage_error("gradsieve: " + std::string{name} + " is '" + std::string{text} + "', which is no number");
  return value;
}

/// Texts one after the other, each with a zero behind it, as what was asked last on this thread. It is valid until the
/// next question.
class answer {
 public:
  answer& operator<<(std::string_view text) {
    text_.append(text);
    text_.push_back('\0');
    return *this;
  }
  template <class T>
    requires std::is_arithmetic_v<T>
  answer& operator<<(T value) {
    std::array<char, 32> digits;
    auto const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    return *this << std::string_view{digits.data(), end};
  }
  void write(char const** to, std::size_t* size) && {
    c_interface::need(to != nullptr && size != nullptr, "to or size");
    thread_local std::string last;
    last = std::move(text_);
    *to = last.data();
    *size = last.size();
  }

 private:
  std::string text_;
};

inline answer& operator<<(answer& out, names const& all) {
  for (auto const& each : all) out << each;
  return out;
}

}  // namespace example
