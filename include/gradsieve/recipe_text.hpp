// Reads and writes recipes as text, such as "radix+deft+momentum+packed:delta,fp32@0.01".
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/plain_output.hpp>

namespace gradsieve {

/// Types in order: the policies of one family that a menu offers; see full_menu. Fewer types compile faster.
template <class... Types>
struct type_list {
  using variant = std::variant<Types...>;  ///< one value of any of them
};

/// The grammar of recipe text, without its policies: names, options and numbers.
/// recipe: name {'+' name} ['@' density]; name: NAME ['(' field '=' value {',' field '=' value} ')'];
/// the codec `packed` has its parts behind a colon, by comma: packed:delta,fp16.
namespace recipe_text {

/// A policy's name, and its options as text.
struct item {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;
};

/// @throws invalid_argument, always
[[noreturn]] inline void refuse(std::string const& what) { throw invalid_argument("gradsieve: recipe: " + what); }

/// Splits where no parenthesis is open.
[[nodiscard]] inline std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts{""};
  int depth = 0;
  for (char const c : text) {
    if (c == '(') ++depth;
    if (c == ')' && --depth < 0) refuse("'" + std::string{text} + "' closes a parenthesis that was not opened");
    if (c == by && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  if (depth != 0) refuse("'" + std::string{text} + "' lacks a ')'");
  return parts;
}

/// NAME or NAME(field=value,...). @throws invalid_argument
[[nodiscard]] inline item read_item(std::string const& text) {
  item found;
  auto const open = text.find('(');
  found.name = text.substr(0, open);
  if (found.name.empty()) refuse("a name is missing before '" + text + "'");
  if (open == std::string::npos) return found;
  if (text.back() != ')') refuse("'" + text + "' has text after its ')'");
  for (auto const& each : split(std::string_view{text}.substr(open + 1, text.size() - open - 2), ',')) {
    auto const equals = each.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == each.size())
      refuse("'" + each + "' in '" + text + "' is not an option: write field=value");
    found.options.emplace_back(each.substr(0, equals), each.substr(equals + 1));
  }
  return found;
}

/// A whole text as a number, without blanks, in its type's limits. @throws invalid_argument
template <class T>
[[nodiscard]] T read_number(std::string const& what, std::string const& text) {
  if constexpr (std::is_same_v<T, bool>) {
    if (text == "true" || text == "false") return text == "true";
    refuse(what + " is '" + text + "', expected true or false");
  } else {
    T value{};
    auto const end = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end.ec != std::errc{} || end.ptr != text.data() + text.size())
      refuse(what + " is '" + text + "', expected " + (std::is_integral_v<T> ? "a whole number" : "a number"));
    return value;
  }
}

/// Sets a field of a policy by its text. @throws invalid_argument
template <class T>
void read_value(std::string const& what, std::string const& text, T& to) {
  if constexpr (std::is_arithmetic_v<T>) {
    to = read_number<T>(what, text);
  } else if constexpr (std::is_enum_v<T>) {
    std::string known;
    for (std::size_t i = 0; i < value_names<T>.size(); ++i) {
      if (value_names<T>[i] == text) {
        to = static_cast<T>(i);
        return;
      }
      known += (i == 0 ? "" : ", ") + std::string{value_names<T>[i]};
    }
    refuse(what + " is '" + text + "', expected one of " + known);
  } else {
    refuse(what + " holds several numbers and cannot be set by text");
  }
}

/// A policy with these options. @throws invalid_argument
template <class P>
[[nodiscard]] P read_policy(item const& from) {
  P policy{};
  for (std::size_t i = 0; i < from.options.size(); ++i) {
    auto const& [name, value] = from.options[i];
    for (std::size_t j = 0; j < i; ++j)
      if (from.options[j].first == name) refuse(from.name + " has '" + name + "' twice");
    bool found = false;
    std::string known;
    detail::for_each_field<P>([&](auto const& each) {
      known += (known.empty() ? "" : ", ") + std::string{each.name};
      if (each.name != name) return;
      found = true;
      read_value(from.name + "'s " + name, value, policy.*(each.member));
    });
    if (!found) refuse(from.name + " has no '" + name + "'; it has " + (known.empty() ? "no options" : known));
  }
  check(policy);
  return policy;
}

/// The name, and those fields that are not as they come. What read_policy() reads, but for fields of several numbers.
template <class P>
[[nodiscard]] std::string write_policy(P const& policy) {
  auto out = plain_text();
  out << P::name;
  char const* before = "(";
  detail::for_each_field<P>([&](auto const& each) {
    if (policy.*(each.member) == P{}.*(each.member)) return;
    print(out << before << each.name << '=', policy.*(each.member));
    before = ",";
  });
  if (*before == ',') out << ')';
  return out.str();
}

/// The names of a list, by comma.
template <class... Types>
[[nodiscard]] std::string names_of(type_list<Types...>) {
  std::string all;
  ((all += (all.empty() ? "" : ", ") + std::string{Types::name}), ...);
  return all;
}

/// Whether a text names this policy. "momentum" is short for momentum_correction.
template <class P>
[[nodiscard]] bool is_named(std::string const& name) {
  return name == P::name || (name == "momentum" && std::string_view{P::name} == "momentum_correction");
}

/// Reads it into `to` if it names one of the list.
template <class... Types, class Variant>
[[nodiscard]] bool read_one_of(type_list<Types...>, item const& from, Variant& to) {
  return ((is_named<Types>(from.name) && (to = read_policy<Types>(from), true)) || ...);
}

}  // namespace recipe_text
}  // namespace gradsieve
