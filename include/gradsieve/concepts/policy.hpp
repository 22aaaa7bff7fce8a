// The concept of every policy.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A policy is a plain value: default-constructible, copyable, comparable, and cheap to pass to a kernel. Optional
/// members make it `described`, `self_checking` or `fingerprinted`. For a device, mark the members that a step calls
/// with GRADSIEVE_HD, and those that take the workspace with GRADSIEVE_EITHER_SPACE; see examples/custom_selector.cpp.
template <class P>
concept policy = std::regular<P> && std::is_trivially_copyable_v<P>;

namespace detail {

/// A constant of exactly type bool.
template <std::same_as<bool> auto Value>
inline constexpr bool flag = Value;

/// A constant number of elements, of exactly this type.
template <std::same_as<std::uint32_t> auto Value>
inline constexpr std::uint32_t length = Value;

/// A constant number that names a format in messages, of exactly this type.
template <std::same_as<std::uint16_t> auto Value>
inline constexpr std::uint16_t id = Value;

/// True if a type has a member of this name in any form: data, a type's constant, a function.
#define GRADSIEVE_HAS(Type, name) (requires { &Type::name; } || requires { Type::name; })

/// True if a policy stands for several, of which one is chosen at run time.
template <class P>
inline constexpr bool stands_for_several = requires(P const& it) { it.with_chosen([](auto const&) {}); };

/// Calls f with the policy, or with the chosen one of a policy that stands for several; f returns one type for all.
template <class P, class F>
constexpr auto with_chosen(P const& it, F const& f) {
  if constexpr (stands_for_several<P>)
    return it.with_chosen(f);
  else
    return f(it);
}

}  // namespace detail

}  // namespace gradsieve
