// A recipe whose policies are chosen at run time, from text or by hand, and which of them fit together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/run_time/any_codec.hpp>
#include <gradsieve/run_time/any_policy.hpp>
#include <gradsieve/run_time/menu.hpp>
#include <gradsieve/run_time/recipe_text.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Properties of the chosen policies that the rules need.
class fitting {
 public:
  template <class Recipe>
  explicit fitting(Recipe const& of) {
    with_chosen(of.selector, [&]<class S>(S const&) {
      selector_ = S::name;
      has_bins_ = bin_selector<S>;
      bins_in_layers_ = layer_bin_selector<S>;
      chooses_alike_ = shared_selector<S>;
    });
    with_chosen(of.partitioner, [&]<class P>(P const&) {
      partitioner_ = P::name;
      needs_norms_ = P::traits.needs_norms;
      disjoint_ = P::traits.disjoint;
      in_layers_ = P::traits.within_layers.value_or(true);
      one_owner_ = P::traits.single_owner.value_or(true);
    });
    with_chosen(of.chosen_exchange(), [&]<class E>(E const&) {
      exchange_ = E::name;
      sums_ = E::traits.sums_values;
      needs_one_owner_ = E::traits.single_owner;
      needs_alike_ = E::traits.shared_choice;
    });
    binned_ = of.codec == decltype(of.codec)::binned;
    codec_ = binned_ ? binned::name : coo::name;
    if (of.codec == decltype(of.codec)::packed)
      with_chosen(of.values, [&]<class V>(V const&) {
        codec_ = V::name;
        summed_ = is_summed<V>::value;
      });
  }

  void check() const {
    using recipe_text::refuse;
    if (has_bins_ && needs_norms_)
      refuse(selector_ + " has bins and chooses in the accumulate pass: it needs a partitioner without norms, not " +
             partitioner_);
    if (bins_in_layers_ && !in_layers_)
      refuse(selector_ + "'s bins do not cross layers: it needs a partitioner whose segments lie within layers, such " +
             "as layerwise, not " + partitioner_);
    if (binned_ && !has_bins_)
      refuse("binned writes places in the selector's bins: it needs a selector that has bins, such as adacomp, not " +
             selector_);
    if (needs_one_owner_ && !one_owner_)
      refuse(exchange_ + " is for one rank's choice: it needs a partitioner by which one rank selects in a step, " +
             "such as cyclic, not " + partitioner_);
    if (needs_alike_ && (!chooses_alike_ || disjoint_))
      refuse(exchange_ + " sums what all ranks have chosen alike: it needs a selector that chooses by a seed, such " +
             "as random_k, and a partitioner by which all ranks select from all segments, such as whole; not " +
             selector_ + " and " + partitioner_);
    if (sums_ && (!summed_ || binned_))
      refuse(exchange_ + " sums values one by one: the codec is coo with it, or packed with values fp32, fp16, bf16, " +
             "not " + codec_);
  }

 private:
  std::string selector_, partitioner_, exchange_, codec_;
  bool has_bins_ = false, bins_in_layers_ = false, chooses_alike_ = false;
  bool needs_norms_ = false, disjoint_ = false, in_layers_ = false, one_owner_ = false;
  bool sums_ = false, needs_one_owner_ = false, needs_alike_ = false;
  bool binned_ = false, summed_ = true;
};

}  // namespace gradsieve::detail

namespace gradsieve::inline GRADSIEVE_ABI {

template <>
inline constexpr std::array value_names<non_finite>{std::string_view{"skip"}, std::string_view{"fail"}};

/// The codec of a recipe that is chosen at run time.
enum class codec_kind {
  coo,     ///< coo
  packed,  ///< packed, of the recipe's index and value codec
  binned   ///< binned
};

/// A recipe of policies that are chosen at run time, from a menu. If they do not fit together, check() throws the
/// sentence that a compiler prints for recipe.
template <class Menu = full_menu>
struct any_recipe {
  /// See `exchange`.
  using exchange_variant = typename decltype(type_list<of_partitioner>{} + typename Menu::exchanges{})::variant;

  density_schedule density = 0.01;                     ///< as recipe::density
  typename Menu::selectors::variant selector{};        ///< one of the menu
  typename Menu::partitioners::variant partitioner{};  ///< one of the menu
  typename Menu::residuals::variant residual{};        ///< one of the menu
  codec_kind codec = codec_kind::coo;                  ///< packed has the next two
  typename Menu::indices::variant indices{};           ///< one of the menu
  typename Menu::values::variant values{};             ///< one of the menu
  exchange_variant exchange{};                         ///< one of the menu, or the partitioner's
  passthrough_layers passthrough{};                    ///< as recipe::passthrough
  non_finite on_non_finite = non_finite::skip;         ///< as recipe::on_non_finite

  /// Reads a recipe such as "laplacian(tolerance=0.1)+deft+momentum+packed:delta,fp32@0.01": names joined by '+', at
  /// most one of each family and in any order, each with its fields in parentheses; then '@' and the density, a number
  /// or warm_up(initial=0.25,final=0.01,steps=100,stages=4). A family that is not named has the menu's first; the codec
  /// is then coo, the exchange the partitioner's. `packed` has an index and a value codec behind its colon; an index or
  /// a value codec by itself, as in "radix+bf16", is `packed` too. Case and blanks do not matter, but in patterns.
  /// "passthrough:head.*,*.bias" are patterns of layers that pass through, by comma, as in
  /// passthrough_layers::patterns; "passthrough:" is none; "passthrough(up_to=256):head.*" also sets
  /// passthrough_layers::up_to. "on_non_finite:fail" is recipe::on_non_finite. @throws invalid_argument, for an unknown
  /// name with those that are nearest; and as check().
  [[nodiscard]] static any_recipe parse(std::string const& text) {
    any_recipe made;
    auto const parts = recipe_text::split(text, '@');
    auto policies = parts[0];
    for (std::size_t i = 1; i + 1 < parts.size(); ++i) policies += '@' + parts[i];
    if (parts.size() > 1) made.density = read_density(parts.back());
    families seen{};
    for (auto const& token : recipe_text::split(policies, '+')) made.take(token, seen);
    made.check();
    return made;
  }

  /// The text that parse() reads as this recipe.
  [[nodiscard]] std::string text() const {
    auto const write = [](auto const& of) {
      return std::visit([](auto const& it) { return recipe_text::write_policy(it); }, of);
    };
    auto all = write(selector) + "+" + write(partitioner) + "+" + write(residual) + "+";
    if (codec == codec_kind::packed)
      all += "packed:" + write(indices) + "," + write(values);
    else
      all += codec == codec_kind::coo ? coo::name : binned::name;
    if (exchange.index() != 0) all += "+" + write(exchange);
    passthrough_layers const usual;
    if (passthrough != usual) all += "+" + write_passthrough();
    if (on_non_finite != non_finite::skip) all += "+on_non_finite:fail";
    return all + "@" + write_density();
  }

  /// Checks every policy, and whether they fit together. @throws invalid_argument
  void check() const {
    gradsieve::check(density);
    if (std::ranges::find(passthrough.patterns, "") != passthrough.patterns.end())
      throw invalid_argument("gradsieve: an empty pattern of passthrough, which text cannot name: give the layer a name");
    auto const check_one = [](auto const& of) { std::visit([](auto const& it) { gradsieve::check(it); }, of); };
    check_one(selector);
    check_one(partitioner);
    check_one(residual);
    check_one(indices);
    check_one(values);
    detail::fitting{*this}.check();
    std::visit(
        []<class S, class P, class R>(S const&, P const&, R const&) {
          if constexpr (!detail::offers<Menu, S, P, R>())
            recipe_text::refuse(std::string{"this program does not offer "} + S::name + " with " + P::name + " and " +
                                R::name);
        },
        selector, partitioner, residual);
  }

  /// The exchange; the partitioner's if the recipe names none.
  [[nodiscard]] typename Menu::exchanges::variant chosen_exchange() const {
    typename Menu::exchanges::variant chosen;
    if (exchange.index() == 0)
      std::visit([&]<class P>(P const&) { chosen = typename P::default_exchange{}; }, partitioner);
    else
      detail::assign_chosen(chosen, exchange);
    return chosen;
  }

  /// The codec, which writes the chosen one's bytes.
  [[nodiscard]] detail::menu_codec<Menu> coded() const {
    if (codec == codec_kind::coo) return {};
    if (codec == codec_kind::binned) return detail::menu_codec<Menu>{binned{}};
    packed<detail::any_of<any_indices, typename Menu::indices>, detail::any_of<any_values, typename Menu::values>>
        parts;
    parts.indices.chosen = indices;
    parts.values.chosen = values;
    return detail::menu_codec<Menu>{parts};
  }

  /// The same number as recipe::hash() of the recipe written in C++.
  [[nodiscard]] std::uint64_t hash() const {
    fingerprint all;
    auto const add = [&](auto const& of) { std::visit([&](auto const& it) { gradsieve::add_to(all, it); }, of); };
    gradsieve::add_to(all, density);
    add(selector);
    add(partitioner);
    add(residual);
    gradsieve::add_to(all, coded());
    add(chosen_exchange());
    gradsieve::add_to(all, passthrough);
    gradsieve::add_to(all, on_non_finite);
    return all.value();
  }

  friend std::ostream& operator<<(std::ostream& out, any_recipe const& it) {
    plain_output const plain{out};
    auto const write = [&](auto const& of) { std::visit([&](auto const& each) { print(out << ", ", each); }, of); };
    out << "density " << it.density;
    write(it.selector);
    write(it.partitioner);
    write(it.residual);
    print(out << ", ", it.coded());
    write(it.chosen_exchange());
    return out << ", " << it.passthrough << (it.on_non_finite == non_finite::fail ? ", fails on non-finite" : "");
  }

  /// The names that parse() knows, by family.
  [[nodiscard]] static std::string names() {
    using recipe_text::names_of;
    return "selectors " + names_of(typename Menu::selectors{}) + "; partitioners " +
           names_of(typename Menu::partitioners{}) + "; residuals " + names_of(typename Menu::residuals{}) +
           "; codecs coo, binned, packed:INDICES,VALUES with indices " + names_of(typename Menu::indices{}) +
           " and values " + names_of(typename Menu::values{}) + "; exchanges " + names_of(typename Menu::exchanges{}) +
           "; and passthrough:PATTERN,PATTERN, passthrough(up_to=ELEMENTS):PATTERN, on_non_finite:skip or fail";
  }

  friend bool operator==(any_recipe const&, any_recipe const&) = default;

 private:
  /// A number, or warm_up(initial=0.25,final=0.01,steps=100,stages=4).
  [[nodiscard]] static density_schedule read_density(std::string const& text) {
    if (!recipe_text::as_name(text).starts_with("warm_up")) return recipe_text::read_number<double>("density", text);
    auto const item = recipe_text::read_item(text);
    warm_up ramp;
    for (std::size_t i = 0; i < item.options.size(); ++i) {
      recipe_text::require_once("warm_up", item.options, i);
      auto const& [name, value] = item.options[i];
      auto const what = "warm_up's " + name;
      if (name == "initial")
        recipe_text::read_value(what, value, ramp.initial);
      else if (name == "final")
        recipe_text::read_value(what, value, ramp.final);
      else if (name == "steps")
        recipe_text::read_value(what, value, ramp.steps);
      else if (name == "stages")
        recipe_text::read_value(what, value, ramp.stages);
      else
        recipe_text::refuse("warm_up has no '" + name + "'; it has initial, final, steps, stages");
    }
    if (item.name != "warm_up" || ramp.steps == 0)
      recipe_text::refuse("density is '" + text + "', expected a number, or warm_up(initial=..,final=..,steps=..)");
    return ramp;
  }

  [[nodiscard]] std::string write_density() const {
    auto out = plain_text();
    if (warm_up const& ramp = density.ramp(); ramp.steps == 0)
      out << density;
    else
      out << "warm_up(initial=" << shortest{ramp.initial} << ",final=" << shortest{ramp.final}
          << ",steps=" << ramp.steps << ",stages=" << ramp.stages << ')';
    return out.str();
  }

  [[nodiscard]] std::string write_passthrough() const {
    std::string text{"passthrough"};
    if (passthrough.up_to > 0) text.append("(up_to=").append(std::to_string(passthrough.up_to)).append(")");
    char const* between = ":";
    for (auto const& pattern : passthrough.patterns)
      text.append(std::exchange(between, ",")).append(recipe_text::escaped(pattern));
    if (passthrough.patterns.empty()) text.append(between);
    return text;
  }

  /// What of a text has been read: selector, partitioner, residual, codec, index codec, value codec, exchange, layers
  /// that pass through, on_non_finite.
  using families = std::array<bool, 9>;

  void take(std::string const& token, families& seen) {
    auto const once = [&](std::size_t family, char const* what) {
      if (std::exchange(seen[family], true)) recipe_text::refuse(std::string{"two "} + what + " are named");
    };
    auto const part = [&](std::size_t family, char const* what) {
      codec = codec_kind::packed;
      once(family, seen[3] ? "codecs" : what);
      if (seen[3]) recipe_text::refuse("two codecs are named");
    };
    auto const parts = recipe_text::split(token, ':');
    bool const has_colon = parts.size() > 1;
    auto const tail = has_colon ? token.substr(parts[0].size() + 1) : std::string{};  // behind the first one
    auto const item = recipe_text::read_item(parts[0]);
    bool const plain = item.options.empty();
    if (item.name == "passthrough" && has_colon)
      return once(7, "lists of layers that pass through"), take_layers(item, tail);
    if (item.name == "on_non_finite" && plain && has_colon)
      return once(8, "values of on_non_finite"), recipe_text::read_value(item.name, tail, on_non_finite);
    bool const is_packed = item.name == packed<>::name, is_whole = item.name == coo::name || item.name == binned::name;
    if (plain && (is_packed || (is_whole && !has_colon))) {
      once(3, "codecs");
      if (seen[4] || seen[5]) recipe_text::refuse("two codecs are named");
      if (is_packed) return take_packed(token, tail, has_colon);
      codec = item.name == coo::name ? codec_kind::coo : codec_kind::binned;
      return;
    }
    if (has_colon)
      recipe_text::refuse("'" + token + "' has a colon, which is for packed, passthrough and on_non_finite only");
    if (recipe_text::read_one_of(typename Menu::selectors{}, item, selector)) return once(0, "selectors");
    if (recipe_text::read_one_of(typename Menu::partitioners{}, item, partitioner)) return once(1, "partitioners");
    if (recipe_text::read_one_of(typename Menu::residuals{}, item, residual)) return once(2, "residuals");
    if (recipe_text::read_one_of(typename Menu::indices{}, item, indices)) return part(4, "index codecs");
    if (recipe_text::read_one_of(typename Menu::values{}, item, values)) return part(5, "value codecs");
    if (recipe_text::read_one_of(typename Menu::exchanges{}, item, exchange)) return once(6, "exchanges");
    using all = decltype(typename Menu::selectors{} + typename Menu::partitioners{} + typename Menu::residuals{} +
                         typename Menu::indices{} + typename Menu::values{} + typename Menu::exchanges{});
    auto known = recipe_text::all_names(all{});
    known.insert(known.end(), {"coo", "binned", "packed", "passthrough:", "on_non_finite:", "momentum"});
    refuse_name(item.name, known);
  }

  [[noreturn]] static void refuse_name(std::string const& name, std::vector<std::string_view> const& known) {
    recipe_text::refuse("there is no '" + name + "'; nearest are " + recipe_text::nearest(name, known) +
                        "; any_recipe::names(), in C gradsieve_recipe_names(), lists all");
  }

  void take_layers(recipe_text::item const& item, std::string const& list) {
    for (std::size_t i = 0; i < item.options.size(); ++i) {
      recipe_text::require_once("passthrough", item.options, i);
      auto const& [name, value] = item.options[i];
      name == "up_to" ? recipe_text::read_value("passthrough's up_to", value, passthrough.up_to)
                      : recipe_text::refuse("passthrough has no '" + name + "'; it has up_to");
    }
    passthrough.patterns.clear();
    if (list.empty()) return;
    for (auto const& each : recipe_text::split(list, ',')) passthrough.patterns.push_back(recipe_text::unescaped(each));
  }

  void take_packed(std::string const& token, std::string const& tail, bool has_parts) {
    codec = codec_kind::packed;
    if (!has_parts) return;
    auto const parts = recipe_text::split(tail, ',');
    if (parts.size() != 2) recipe_text::refuse("'" + token + "' is not packed:INDICES,VALUES");
    auto const read = [](auto list, std::string const& part, auto& to) {
      auto const item = recipe_text::read_item(part);
      if (!recipe_text::read_one_of(list, item, to)) refuse_name(item.name, recipe_text::all_names(list));
    };
    read(typename Menu::indices{}, parts[0], indices);
    read(typename Menu::values{}, parts[1], values);
  }
};

/// As check_names() of a recipe.
template <class Menu>
void check_names(any_recipe<Menu> const& recipe, layout const& layers) {
  static_cast<void>(recipe.passthrough.of(layers));
  detail::with_chosen(recipe.selector, [&](auto const& it) {
    if constexpr (requires { it.check_names(layers); }) it.check_names(layers);
  });
}

}  // namespace gradsieve
