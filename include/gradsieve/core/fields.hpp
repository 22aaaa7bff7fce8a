// Policies that name their fields, from which printing, range checks and fingerprints follow.
#pragma once

#include <array>
#include <cstddef>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fingerprint.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/core/text.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A data member of a policy: its name, and, for a number, the allowed values.
template <auto Member>
struct field {
  std::string_view name;  ///< as in text and errors
  interval allowed{};     ///< checked where the member is a number

  static constexpr auto member = Member;  ///< the pointer to the member
};

/// A policy that has `static constexpr char const* name` and, unless it is empty, `static constexpr auto fields()`: a
/// std::tuple with a `field` for each data member, in the order of declaration.
///
/// Example: @snippet custom_residual.cpp fields
template <class P>
concept described = requires { std::string_view{P::name}; };

/// A policy with a check beyond the ranges of its fields: `check()` throws invalid_argument for invalid combinations.
template <class P>
concept self_checking = requires(P const& p) { p.check(); };

/// A policy that adds itself to a fingerprint: `add_to(to)`. Policies that differ add different values.
template <class P>
concept fingerprinted = requires(P const& p, fingerprint& to) { p.add_to(to); };

/// The names of an enumeration's values, counted from 0. Specialise it for an enumeration that is a field of a policy.
template <class E>
inline constexpr std::array<std::string_view, 0> value_names{};

namespace detail {

template <class T>
concept number_field = std::is_arithmetic_v<T>;

template <class P, auto... Member>
[[nodiscard]] constexpr std::size_t size_with(std::tuple<field<Member>...> const&) {
  std::size_t size = 0;
  auto const add = [&]<class Owner, class T>(T Owner::*) {
    size = (size + alignof(T) - 1) / alignof(T) * alignof(T) + sizeof(T);
  };
  (add(Member), ...);
  return (size + alignof(P) - 1) / alignof(P) * alignof(P);
}

struct anything {
  template <class T>
  operator T() const;
};

/// Number of values of an aggregate; 0 for other types. A base counts as one.
template <class P, class... Values>
[[nodiscard]] constexpr std::size_t members_of() {
  if constexpr (!std::is_aggregate_v<P>)
    return 0;
  else if constexpr (requires { P{Values{}..., anything{}}; })
    return members_of<P, Values..., anything>();
  else
    return sizeof...(Values);
}

template <class P, class First, class... Rest>
[[nodiscard]] constexpr bool inherits_fields(std::tuple<First, Rest...> const&) {
  return []<class Owner, class T>(T Owner::*) { return !std::is_same_v<Owner, P>; }(First::member);
}

/// True if a policy inherits its name and is therefore another policy.
template <class P>
[[nodiscard]] constexpr bool inherits_name() {
  if constexpr (requires { P::fields(); })
    return inherits_fields<P>(P::fields());
  else
    return members_of<P>() > 0;  // an empty class: count its bases
}

/// True if fields() names all data members; for a class that inherits it, if there are no others.
template <class P>
[[nodiscard]] constexpr bool names_all_members() {
  constexpr auto named = P::fields();
  constexpr std::size_t members = members_of<P>();
  constexpr std::size_t expected = inherits_fields<P>(named) ? 1 : std::tuple_size_v<decltype(named)>;
  return size_with<P>(named) == sizeof(P) && (members == 0 || members == expected);
}

template <described P, class F>
constexpr void for_each_field(F const& f) {
  constexpr bool has_fields = requires { P::fields(); };
  static_assert(has_fields || std::is_empty_v<P>,
                "a policy with a name and data members needs static constexpr auto fields(), which names them");
  if constexpr (has_fields) {
    static_assert(names_all_members<P>(),
                  "fields() must name every data member of the policy, in the order of declaration");
    std::apply([&](auto const&... each) { (f(each), ...); }, P::fields());
  }
}

/// A type's name, without GRADSIEVE_ABI, which may differ between ranks. Allocates.
template <class P>
[[nodiscard]] std::string type_name() {
  std::string const abi = GRADSIEVE_TEXT(GRADSIEVE_ABI);
#if defined(__cpp_rtti) || defined(__GXX_RTTI)
  std::string name = typeid(P).name(), before = "9gradsieve", inner = std::to_string(abi.size()) + abi;
#else
  std::string name = __PRETTY_FUNCTION__, before = "gradsieve::", inner = abi + "::";
#endif
  for (auto at = name.find(before + inner); at != std::string::npos; at = name.find(before + inner))
    name.erase(at + before.size(), inner.size());
  return name;
}

}  // namespace detail

template <described P>  // before print(), which would find it for types of namespace gradsieve only
std::ostream& operator<<(std::ostream& out, P const& policy);

/// Writes a field's value, or a policy as `name{field value, field value}`; "custom" for a type without operator<<.
template <class T>
void print(std::ostream& out, T const& value) {
  if constexpr (std::is_enum_v<T>)
    out << value_names<T>[static_cast<std::size_t>(value)];
  else if constexpr (detail::number_field<T>)
    out << shortest{value};
  else if constexpr (requires { out << value; })
    out << value;
  else
    out << "custom";
}

/// Writes a policy that names its fields; see print().
template <described P>
std::ostream& operator<<(std::ostream& out, P const& policy) {
  plain_output const plain{out};
  out << P::name;
  char const* separator = "{";
  detail::for_each_field<P>([&](auto const& each) {
    print(out << separator << each.name << ' ', policy.*(each.member));
    separator = ", ";
  });
  return *separator == '{' ? out : out << '}';
}

/// Checks a policy: each number against its field's range, each field that is a policy, and then its own check(), if
/// any. @throws invalid_argument naming the policy, the field, the value and its limits.
template <class P>
void check(P const& policy) {
  if constexpr (described<P>)
    detail::for_each_field<P>([&](auto const& each) {
      using value_type = std::remove_cvref_t<decltype(policy.*(each.member))>;
      constexpr bool is_enum = std::is_enum_v<value_type>;
      if constexpr (is_enum || detail::number_field<value_type>)
        require_in(std::string{P::name} + "'s " + std::string{each.name}, static_cast<double>(policy.*(each.member)),
                   is_enum ? between(0, static_cast<double>(value_names<value_type>.size()) - 1) : each.allowed);
      else
        check(policy.*(each.member));
    });
  static_assert(self_checking<P> || !(
                                        requires { &P::check; } || requires(P& p) { p.check(); }),
                "a policy's check must be void check() const");
  if constexpr (self_checking<P>) policy.check();
}

/// A policy as text: "partitioner deft", or only the family if it has no name. Allocates.
template <class P>
[[nodiscard]] std::string titled(std::string const& family) {
  if constexpr (described<P>)
    return family + " " + std::string{P::name};
  else
    return family;
}

/// Adds a policy to a fingerprint: by its own add_to(to), if any; otherwise by its name and fields; otherwise by its
/// type's name (equal in all builds with RTTI) and bytes. Padding in these counts as zero with GCC; for other compilers
/// the type should have none.
template <class P>
void add_to(fingerprint& to, P const& policy) {
  if constexpr (std::is_arithmetic_v<P> || std::is_enum_v<P>) {
    to.add(policy);
  } else if constexpr (fingerprinted<P>) {
    policy.add_to(to);
  } else if constexpr (described<P>) {
    to.add(std::string_view{P::name});
    if constexpr (detail::inherits_name<P>()) to.add(detail::type_name<P>());
    detail::for_each_field<P>([&](auto const& each) {
      to.add(each.name);
      gradsieve::add_to(to, policy.*(each.member));
    });
  } else {
    to.add(detail::type_name<P>());
    if constexpr (!std::is_empty_v<P>) {
      P copy = policy;
#if __has_builtin(__builtin_clear_padding)
      __builtin_clear_padding(&copy);
#endif
      to.add_bytes(std::as_bytes(std::span{&copy, 1}));
    }
  }
}

}  // namespace gradsieve
