// What the command lines of several programs are made of: names, lists and numbers.
#pragma once

#include <charconv>
#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace example {

/// A command line, or another choice by name, that cannot be obeyed.
struct usage_error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

using names = std::vector<std::string>;

[[nodiscard]] inline std::string joined(names const& parts, std::string_view between = ", ") {
  std::string all;
  for (auto const& part : parts) all += (all.empty() ? "" : std::string{between}) + part;
  return all;
}

[[nodiscard]] inline names split(std::string const& text, char at) {
  names parts;
  auto stream = std::istringstream{text};
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  if (text.empty() || text.back() == at) parts.emplace_back();  // "a," names an empty part: let it be refused
  return parts;
}

/// The value as a number of type T in [low, high]; anything else is an error that names all three.
template <class T>
[[nodiscard]] T number(std::string const& option, std::string const& text, T low, T high) {
  T value{};
  auto const [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size() || !(value >= low && value <= high)) {
    auto message = std::ostringstream{};
    message.imbue(std::locale::classic());
    message << option << " '" << text << "': choose a number from " << low << " to " << high;
    throw usage_error(message.str());
  }
  return value;
}

[[nodiscard]] inline std::vector<int> numbers(std::string const& option, std::string const& text, int low, int high) {
  std::vector<int> values;
  for (auto const& part : split(text, ',')) values.push_back(number(option, part, low, high));
  return values;
}

[[nodiscard]] inline std::string one_of(std::string const& option, std::string const& text, names const& choices) {
  for (auto const& choice : choices)
    if (text == choice) return text;
  throw usage_error(option + " '" + text + "': choose one of " + joined(choices));
}

}  // namespace example
