// Options of policies by name, as their fields() list them: register(model, "radix+qsgd", levels=16).
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/core/bins.hpp>
#include <gradsieve/core/fields.hpp>

#include "../../command_line.hpp"

namespace example {

namespace gs = gradsieve;

/// A field's name and its value as text.
using policy_options = std::vector<std::pair<std::string, std::string>>;

/// Called with each policy of a recipe: sets the fields that are named, and lists all that there are. A name that
/// several policies have is set in all of them; the fields of a policy that is a field count as the outer one's.
/// Limits are not looked at here: gs::check() does that.
class option_setter {
 public:
  explicit option_setter(policy_options wanted) : wanted_{std::move(wanted)}, used_(wanted_.size(), false) {}

  /// @throws usage_error for a text that is no value of the field.
  template <class Policy>
  void operator()(Policy& policy) {
    if constexpr (requires { Policy::fields(); })
      std::apply([&](auto const&... each) { (set(each.name, policy.*(each.member)), ...); }, Policy::fields());
  }

  /// Every field that was seen, with its value.
  [[nodiscard]] policy_options const& known() const noexcept { return known_; }

  /// @throws usage_error for an option that no policy has.
  void finish(std::string const& recipe) const {
    names all;
    for (auto const& each : known_) all.push_back(each.first);
    for (std::size_t i = 0; i < wanted_.size(); ++i)
      if (!used_[i])
        throw usage_error("gradsieve: recipe '" + recipe + "' has no option '" + wanted_[i].first + "'; it has " +
                          (all.empty() ? "none" : joined(all)));
  }

 private:
  template <class T>
  void set(std::string_view name, T& value) {
    constexpr bool is_leaf = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, gs::bin_lengths>;
    if constexpr (!is_leaf) {
      (*this)(value);
    } else {
      for (std::size_t i = 0; i < wanted_.size(); ++i)
        if (wanted_[i].first == name) {
          read(wanted_[i].first, wanted_[i].second, value);
          used_[i] = true;
        }
      std::ostringstream text;
      if constexpr (std::is_same_v<T, bool>)
        text << (value ? "true" : "false");
      else if constexpr (std::is_same_v<T, gs::bin_lengths>)
        write_bins(text, value);
      else
        gs::print(text, value);
      auto const same = [&](auto const& each) { return each.first == name; };
      if (std::ranges::find_if(known_, same) == known_.end()) known_.emplace_back(name, text.str());
    }
  }

  [[noreturn]] static void refuse(std::string const& name, std::string const& text, std::string const& expected) {
    throw usage_error("gradsieve: option " + name + " is '" + text + "', expected " + expected);
  }

  template <class T>
  static void read(std::string const& name, std::string const& text, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      if (text != "true" && text != "false") refuse(name, text, "True or False");
      value = text == "true";
    } else if constexpr (std::is_enum_v<T>) {
      auto const& all = gs::value_names<T>;
      auto const found = std::ranges::find(all, std::string_view{text});
      if (found == all.end()) refuse(name, text, "one of " + joined(names(all.begin(), all.end())));
      value = static_cast<T>(found - all.begin());
    } else if constexpr (std::is_same_v<T, gs::bin_lengths>) {
      read_bins(name, text, value);
    } else if constexpr (std::is_floating_point_v<T>) {
      double read = 0;
      if (!parsed(text, read)) refuse(name, text, "a number");
      constexpr auto largest = static_cast<double>(std::numeric_limits<T>::max());
      value = read > largest ? std::numeric_limits<T>::infinity() : static_cast<T>(read < -largest ? -largest : read);
    } else {
      using limits = std::numeric_limits<T>;
      if (!parsed(text, value))
        refuse(name, text,
               "a whole number from " + std::to_string(limits::min()) + " to " + std::to_string(limits::max()));
    }
  }

  template <class T>
  [[nodiscard]] static bool parsed(std::string_view text, T& value) noexcept {
    auto const [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    return problem == std::errc{} && end == text.data() + text.size();
  }

  /// "500", or "*conv*=50;500": patterns of layers' names with a length each, and that of the other layers.
  static void read_bins(std::string const& name, std::string const& text, gs::bin_lengths& value) {
    gs::bin_lengths fresh;
    fresh.rules = {};
    std::size_t count = 0;
    for (auto const& part : split(text, ';')) {
      auto const equals = part.rfind('=');
      auto const pattern = equals == std::string::npos ? std::string{} : part.substr(0, equals);
      std::uint32_t length = 0;
      if (!parsed(equals == std::string::npos ? part : part.substr(equals + 1), length) || length == 0)
        refuse(name, text, "a length, or a length for each pattern");
      if (equals == std::string::npos) {
        fresh.otherwise = length;
        continue;
      }
      if (count == fresh.rules.size() || pattern.size() >= sizeof fresh.rules[0].pattern)
        refuse(name, text,
               "at most " + std::to_string(fresh.rules.size()) + " patterns of fewer than " +
                   std::to_string(sizeof fresh.rules[0].pattern) + " characters");
      std::ranges::copy(pattern, fresh.rules[count].pattern);
      fresh.rules[count++].length = length;
    }
    value = fresh;
  }

  static void write_bins(std::ostream& out, gs::bin_lengths const& value) {
    for (auto const& rule : value.rules)
      if (rule.length > 0) out << rule.pattern << '=' << rule.length << ';';
    out << value.otherwise;
  }

  policy_options wanted_;
  std::vector<bool> used_;
  policy_options known_;
};

}  // namespace example
