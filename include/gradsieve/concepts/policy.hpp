// The concept of every policy.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A policy is a plain value: default-constructible, copyable, comparable, and cheap to hand to a kernel. Optional
/// members make it `described`, `self_checking` or `fingerprinted`. For a device, mark the members that a step calls
/// with GRADSIEVE_HD, and with GRADSIEVE_EITHER_SPACE those that take the workspace; see examples/custom_selector.cpp.
template <class P>
concept policy = std::regular<P> && std::is_trivially_copyable_v<P>;

namespace detail {

/// A static member that is a constant of type bool and of no other.
template <std::same_as<bool> auto Value>
inline constexpr bool flag = Value;

/// The same of a number of elements.
template <std::same_as<std::uint32_t> auto Value>
inline constexpr std::uint32_t length = Value;

/// The same of a number that names a format in messages.
template <std::same_as<std::uint16_t> auto Value>
inline constexpr std::uint16_t id = Value;

/// Whether a policy stands for several, of which one is chosen when the program runs.
template <class P>
inline constexpr bool stands_for_several = requires(P const& it) { it.with_chosen([](auto const&) {}); };

/// f(the policy); of one that stands for several, f(the chosen one), which returns the same type for each.
template <class P, class F>
constexpr auto with_chosen(P const& it, F const& f) {
  if constexpr (stands_for_several<P>)
    return it.with_chosen(f);
  else
    return f(it);
}

}  // namespace detail

}  // namespace gradsieve
