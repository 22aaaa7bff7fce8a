// A policy that holds one of several, chosen at run time.
#pragma once

#include <cstdint>
#include <ostream>
#include <type_traits>
#include <variant>

#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/fingerprint.hpp>
#include <gradsieve/core/plain_output.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Types in order: the policies of one family that a menu offers; see full_menu. Fewer types compile faster.
template <class... Types>
struct type_list {
  using variant = std::variant<Types...>;  ///< one value of any of them
  template <class... More>
  friend type_list<Types..., More...> operator+(type_list, type_list<More...>);  ///< a declaration: for decltype
};

namespace detail {

/// A choice among policies: it identifies, checks and prints itself as the chosen one does.
template <class... Types>
struct any_policy {
  std::variant<Types...> chosen{};

  void check() const {
    std::visit([](auto const& it) { gradsieve::check(it); }, chosen);
  }
  void add_to(fingerprint& to) const {
    std::visit([&](auto const& it) { gradsieve::add_to(to, it); }, chosen);
  }
  /// The id of the chosen codec, which messages have.
  [[nodiscard]] std::uint16_t chosen_id() const noexcept {
    return std::visit([](auto const& it) { return std::uint16_t{it.id}; }, chosen);
  }
  template <class F>
  auto with_chosen(F const& f) const {
    return std::visit(f, chosen);
  }
  friend bool operator==(any_policy const&, any_policy const&) = default;
  friend std::ostream& operator<<(std::ostream& out, any_policy const& it) {
    plain_output const plain{out};
    std::visit([&](auto const& each) { print(out, each); }, it.chosen);
    return out;
  }
};

template <template <class...> class Any, class List>
struct any_of_list;
template <template <class...> class Any, class... Types>
struct any_of_list<Any, type_list<Types...>> {
  using type = Any<Types...>;
};
template <template <class...> class Any, class List>
using any_of = typename any_of_list<Any, List>::type;

template <class T, class List>
inline constexpr bool holds = false;
template <class T, class... Types>
inline constexpr bool holds<T, type_list<Types...>> = (std::is_same_v<T, Types> || ...);

/// The types of a list for which the predicate holds.
template <template <class> class Predicate, class List>
struct those;
template <template <class> class Predicate, class... Types>
struct those<Predicate, type_list<Types...>> {
  using type =
      decltype((type_list<>{} + ... + std::conditional_t<Predicate<Types>::value, type_list<Types>, type_list<>>{}));
};
template <template <class> class Predicate, class List>
using those_of = typename those<Predicate, List>::type;

/// As with_chosen() of a policy, with what a variant holds.
template <class... Types, class F>
auto with_chosen(std::variant<Types...> const& chosen, F const& f) {
  return std::visit(f, chosen);
}

/// Sets a variant to the value of another one, if that is one of its types.
template <class... To, class From>
void assign_chosen(std::variant<To...>& to, From const& from) {
  with_chosen(from, [&]<class Chosen>(Chosen const& it) {
    if constexpr ((std::is_same_v<Chosen, To> || ...)) to = it;
  });
}

}  // namespace detail
}  // namespace gradsieve
