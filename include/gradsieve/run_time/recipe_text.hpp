// Reads and writes recipes as text, such as "radix+deft+momentum+packed:delta,fp32@0.01".
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/core/bins.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/core/text.hpp>
#include <gradsieve/run_time/any_policy.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// The grammar of recipe text, without its policies: names, options and numbers.
/// recipe: name {'+' name} ['@' density]; name: NAME ['(' options ')']; options: field '=' value {',' field '=' value};
/// a field of several values: '(' options ')', and of bins '(' {pattern ':' length ','} length ')';
/// the codec `packed` has its parts behind a colon, by comma: packed:delta,fp16. In patterns of layers a backslash
/// stands before what would have a meaning here: + , @ ( ) and itself. Elsewhere case and blanks do not matter.
namespace recipe_text {

/// A policy's name, and its options as text.
struct item {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;  // field, value
};

[[noreturn]] inline void refuse(std::string const& what) { throw invalid_argument("gradsieve: recipe: " + what); }

/// Without the blanks around it.
[[nodiscard]] inline std::string_view without_blanks(std::string_view text) {
  auto const begin = std::min(text.find_first_not_of(" \t\n\r"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\n\r") + 1 - begin);
}
/// A name: in small letters, without the blanks around it.
[[nodiscard]] inline std::string as_name(std::string_view text) {
  std::string name{without_blanks(text)};
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name;
}

/// The three names that are nearest to a word: those that contain it or are in it, and by the letters to change.
[[nodiscard]] inline std::string nearest(std::string_view word, std::vector<std::string_view> const& known) {
  word = word.substr(0, 64);
  auto const changes = [&](std::string_view name) -> std::size_t {
    if (name.find(word) != name.npos || word.find(name) != word.npos) return 1;
    std::vector<std::size_t> row;  // to the name's beginnings
    for (std::size_t j = 0; j <= name.size(); ++j) row.push_back(j);
    for (std::size_t i = 0; i < word.size(); ++i) {
      auto before = std::exchange(row[0], i + 1);
      for (std::size_t j = 0; j < name.size(); ++j)
        before = std::exchange(row[j + 1],
                               std::min({before + (word[i] == name[j] ? 0 : 1), row[j] + 1, row[j + 1] + 1}));
    }
    return row.back();
  };
  std::vector<std::pair<std::size_t, std::size_t>> order;  // changes, place
  for (auto const name : known) order.emplace_back(changes(name), order.size());
  std::ranges::sort(order);
  std::string all;
  for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), 3); ++i)
    all += (i == 0 ? "" : ", ") + std::string{known[order[i].second]};
  return all;
}

/// Splits outside of parentheses, and not behind a backslash.
[[nodiscard]] inline std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts{""};
  int depth = 0;
  bool plain = true;
  for (char const c : text) {
    bool const escaped = !std::exchange(plain, !(plain && c == '\\'));
    if (c == '(' && !escaped) ++depth;
    if (c == ')' && !escaped && --depth < 0)
      refuse("'" + std::string{text} + "' closes a parenthesis that was not opened");
    if (c == by && depth == 0 && !escaped)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  if (!plain) refuse("'" + std::string{text} + "' ends with a backslash");
  if (depth != 0) refuse("'" + std::string{text} + "' lacks a ')'");
  return parts;
}

/// A pattern of layers as text, and back.
[[nodiscard]] inline std::string escaped(std::string_view pattern) {
  std::string text;
  for (char const c : pattern) {
    if (std::string_view{"\\+,@()"}.find(c) != std::string_view::npos) text += '\\';
    text += c;
  }
  return text;
}
[[nodiscard]] inline std::string unescaped(std::string_view text) {
  std::string pattern;
  for (std::size_t i = 0; i < text.size(); ++i) pattern += text[i] == '\\' && i + 1 < text.size() ? text[++i] : text[i];
  return pattern;
}

/// field=value,... as text. @throws invalid_argument; `all` is the text that contains it
using options = std::vector<std::pair<std::string, std::string>>;
[[nodiscard]] inline options read_options(std::string_view list, std::string const& all) {
  options found;
  for (auto const& each : split(list, ',')) {
    auto const equals = each.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == each.size())
      refuse("'" + each + "' in '" + all + "' is not an option: write field=value");
    found.emplace_back(as_name(each.substr(0, equals)), without_blanks(std::string_view{each}.substr(equals + 1)));
  }
  return found;
}

/// NAME or NAME(field=value,...). @throws invalid_argument
[[nodiscard]] inline item read_item(std::string_view raw) {
  std::string const text{without_blanks(raw)};
  item found;
  auto const open = text.find('(');
  found.name = as_name(text.substr(0, open));
  if (found.name.empty())
    refuse(text.empty() ? "a name is missing: at the beginning, at the end or between two '+'"
                        : "a name is missing before '" + text + "'");
  if (open == std::string::npos) return found;
  if (text.back() != ')') refuse("'" + text + "' has text after its ')'");
  found.options = read_options(std::string_view{text}.substr(open + 1, text.size() - open - 2), text);
  return found;
}

inline void require_once(std::string const& owner, options const& from, std::size_t place) {
  for (std::size_t j = 0; j < place; ++j)
    if (from[j].first == from[place].first) refuse(owner + " has '" + from[place].first + "' twice");
}

/// Reads a whole text as a number in its type's range. @throws invalid_argument
template <class T>
[[nodiscard]] T read_number(std::string const& what, std::string_view raw) {
  std::string const text{without_blanks(raw)};
  if constexpr (std::is_same_v<T, bool>) {
    if (auto const word = as_name(text); word == "true" || word == "false") return word == "true";
    refuse(what + " is '" + text + "', expected true or false");
  } else {
    T value{};
    auto const end = std::from_chars(text.data(), text.data() + text.size(), value);
    bool const whole = end.ptr == text.data() + text.size();
    if (whole && end.ec == std::errc::result_out_of_range) refuse(what + " is '" + text + "', which is out of range");
    if (!whole || end.ec != std::errc{})
      refuse(what + " is '" + text + "', expected " + (std::is_integral_v<T> ? "a whole number" : "a number"));
    return value;
  }
}

template <class P>
void read_fields(std::string const& name, options const& from, P& to);

/// Bins as (pattern:length,...,length). @throws invalid_argument
inline void read_bins(std::string const& what, std::string const& text, bin_lengths& to) {
  auto const wrong = [&] { refuse(what + " is '" + text + "', expected (pattern:length,...,length)"); };
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') wrong();
  auto const parts = split(std::string_view{text}.substr(1, text.size() - 2), ',');
  if (parts.size() > to.rules.size() + 1)
    refuse(what + " has " + std::to_string(parts.size() - 1) + " patterns, at most " + std::to_string(to.rules.size()));
  to.rules = {};
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    auto const colon = parts[i].rfind(':');
    if (colon == std::string::npos) wrong();
    auto const pattern = unescaped(std::string_view{parts[i]}.substr(0, colon));
    auto& rule = to.rules[i];
    if (pattern.size() >= std::size(rule.pattern))
      refuse(what + " has the pattern '" + pattern + "', of " + std::to_string(std::size(rule.pattern)) +
             " characters or more");
    if (pattern.find('\0') != std::string::npos) refuse(what + " has a pattern with a character 0");
    std::ranges::copy(pattern, std::begin(rule.pattern));
    rule.length = read_number<std::uint32_t>(what, parts[i].substr(colon + 1));
    if (rule.length == 0) refuse(what + " has the length 0 for '" + pattern + "'");
  }
  to.otherwise = read_number<std::uint32_t>(what, parts.back());
}

template <class T>
void read_value(std::string const& what, std::string const& text, T& to) {
  if constexpr (std::is_arithmetic_v<T>) {
    to = read_number<T>(what, text);
  } else if constexpr (std::is_enum_v<T>) {
    std::string known;
    for (std::size_t i = 0; i < value_names<T>.size(); ++i) {
      if (value_names<T>[i] == as_name(text)) {
        to = static_cast<T>(i);
        return;
      }
      known += (i == 0 ? "" : ", ") + std::string{value_names<T>[i]};
    }
    refuse(what + " is '" + text + "', expected one of " + known);
  } else if constexpr (std::is_same_v<T, bin_lengths>) {
    read_bins(what, text, to);
  } else {
    static_assert(described<T>, "a field that text can set is a number, an enumeration, or names its own fields");
    if (text.size() < 2 || text.front() != '(' || text.back() != ')')
      refuse(what + " is '" + text + "', expected (field=value,...)");
    read_fields(what, read_options(std::string_view{text}.substr(1, text.size() - 2), text), to);
  }
}

template <class P>
void read_fields(std::string const& owner, options const& from, P& to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    auto const& [name, value] = from[i];
    require_once(owner, from, i);
    bool found = false;
    std::string known;
    detail::for_each_field<P>([&](auto const& each) {
      known += (known.empty() ? "" : ", ") + std::string{each.name};
      if (each.name != name) return;
      found = true;
      read_value(owner + "'s " + name, value, to.*(each.member));
    });
    if (!found) refuse(owner + " has no '" + name + "'; it has " + (known.empty() ? "no options" : known));
  }
}

template <class P>
[[nodiscard]] P read_policy(item const& from) {
  P policy{};
  read_fields(from.name, from.options, policy);
  check(policy);
  return policy;
}

template <class T>
void write_value(std::ostream& out, T const& value);

/// Writes the fields that differ from the default, in parentheses; nothing if none does.
template <class P>
void write_fields(std::ostream& out, P const& policy) {
  char const* before = "(";
  detail::for_each_field<P>([&](auto const& each) {
    if (policy.*(each.member) == P{}.*(each.member)) return;
    write_value(out << before << each.name << '=', policy.*(each.member));
    before = ",";
  });
  if (*before == ',') out << ')';
}

template <class T>
void write_value(std::ostream& out, T const& value) {
  if constexpr (std::is_same_v<T, bin_lengths>) {
    out << '(';
    for (auto const& one : value.rules)
      if (one.length > 0) out << escaped(one.pattern) << ':' << shortest{one.length} << ',';
    out << shortest{value.otherwise} << ')';
  } else if constexpr (described<T>) {
    write_fields(out, value);
  } else {
    print(out, value);
  }
}

/// Writes the name and the fields that differ from the default, as read_policy() reads them.
template <class P>
[[nodiscard]] std::string write_policy(P const& policy) {
  auto out = plain_text();
  out << P::name;
  write_fields(out, policy);
  return out.str();
}

/// The names of a list, by comma.
template <class... Types>
[[nodiscard]] std::string names_of(type_list<Types...>) {
  std::string all;
  ((all += (all.empty() ? "" : ", ") + std::string{Types::name}), ...);
  return all;
}
template <class... Types>
[[nodiscard]] std::vector<std::string_view> all_names(type_list<Types...>) {
  return {std::string_view{Types::name}...};
}

/// Another name of a policy, or its own: "momentum" is short for momentum_correction.
template <class P>
[[nodiscard]] constexpr std::string_view short_name() {
  std::string_view const name = P::name;
  return name == "momentum_correction" ? name.substr(0, name.find('_')) : name;
}
/// Whether a text names this policy.
template <class P>
[[nodiscard]] bool is_named(std::string const& name) {
  return name == P::name || name == short_name<P>();
}

/// Reads it into `to` if it names one of the list.
template <class... Types, class Variant>
[[nodiscard]] bool read_one_of(type_list<Types...>, item const& from, Variant& to) {
  return ((is_named<Types>(from.name) && (to = read_policy<Types>(from), true)) || ...);
}

}  // namespace recipe_text
}  // namespace gradsieve
