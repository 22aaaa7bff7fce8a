// Options of policies by name, as their fields() list them: register(model, "radix+qsgd", levels=16).
#pragma once

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/core/bins.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/run_time/recipe_text.hpp>

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

  /// @throws gs::invalid_argument for a text that is no value of the field.
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
          auto const what = "option " + wanted_[i].first;
          if constexpr (std::is_same_v<T, gs::bin_lengths>)
            gs::recipe_text::read_bins(what, bins_of_recipe(wanted_[i].second), value);
          else
            gs::recipe_text::read_value(what, wanted_[i].second, value);
          used_[i] = true;
        }
      auto text = gs::plain_text();
      if constexpr (std::is_same_v<T, gs::bin_lengths>)
        write_bins(text, value);
      else
        gs::recipe_text::write_value(text, value);
      auto const same = [&](auto const& each) { return each.first == name; };
      if (std::ranges::find_if(known_, same) == known_.end()) known_.emplace_back(name, text.str());
    }
  }

  /// "500", or "*conv*=50;500": patterns of layers' names with a length each, and that of the other layers, in the
  /// grammar of a recipe text.
  [[nodiscard]] static std::string bins_of_recipe(std::string const& text) {
    names rules;
    auto otherwise = std::to_string(gs::bin_lengths{}.otherwise);
    for (auto const& part : split(text, ';')) {
      auto const equals = part.rfind('=');
      auto const length = equals == std::string::npos ? part : part.substr(equals + 1);
      if (length == "0") throw usage_error("gradsieve: option bins is " + part + ", expected a length above 0");
      if (equals != std::string::npos)
        rules.push_back(gs::recipe_text::escaped(part.substr(0, equals)) + ':' + length);
      else
        otherwise = length;
    }
    rules.push_back(otherwise);
    return '(' + joined(rules, ",") + ')';
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
