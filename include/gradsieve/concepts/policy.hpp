// What every policy is.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace gradsieve {

/// A policy is a plain value: default-constructible, copyable, comparable, and cheap to hand to a kernel. It may have
/// `void check() const`, which throws invalid_argument where its values make no sense; a recipe's check() calls it; see
/// `self_checking`.
/// For a device, the members that a step calls are marked GRADSIEVE_HD, and where they take the workspace
/// GRADSIEVE_EITHER_SPACE; see examples/custom_selector.cpp.
template <class P>
concept policy = std::regular<P> && std::is_trivially_copyable_v<P>;

namespace detail {

/// A static member that is a constant of type bool and of no other.
template <std::same_as<bool> auto Value>
inline constexpr bool flag = Value;

/// The same of a number of elements.
template <std::same_as<std::uint32_t> auto Value>
inline constexpr std::uint32_t length = Value;

}  // namespace detail

}  // namespace gradsieve
