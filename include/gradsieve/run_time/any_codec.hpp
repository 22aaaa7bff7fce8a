// Codecs that are chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <variant>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/run_time/any_policy.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// An index codec chosen at run time; writes the chosen one's bytes and id.
template <class... Types>
struct any_indices : detail::any_policy<Types...> {
  static constexpr std::uint16_t id = 0;  // no codec's: see chosen_id()

  [[nodiscard]] std::uint64_t max_bytes(std::uint64_t n, std::uint64_t count) const noexcept {
    return this->with_chosen([&](auto const& it) { return it.max_bytes(n, count); });
  }
  [[nodiscard]] std::uint64_t encode(message_info const& info, std::span<index_type const> in,
                                     std::span<std::byte> to) const {
    return this->with_chosen([&](auto const& it) { return it.encode(info, in, to); });
  }
  [[nodiscard]] std::uint64_t decode(message_info const& info, std::span<std::byte const> from,
                                     std::span<index_type> out) const {
    return this->with_chosen([&](auto const& it) { return it.decode(info, from, out); });
  }
  /// The name of the codec that the chosen one has chosen; empty if it does not choose.
  [[nodiscard]] char const* name_of(std::span<std::byte const> part) const noexcept {
    return this->with_chosen([&]<class I>(I const& it) -> char const* {
      if constexpr (choosing_index_codec<I>)
        return it.name_of(part);
      else
        return "";
    });
  }
  friend bool operator==(any_indices const&, any_indices const&) = default;
};

/// A value codec chosen at run time; writes the chosen one's bytes and id.
template <class... Types>
struct any_values : detail::any_policy<Types...> {
  static constexpr std::uint16_t id = 0;  // no codec's: see chosen_id()

  [[nodiscard]] std::uint64_t max_bytes(std::uint64_t count) const noexcept {
    return this->with_chosen([&](auto const& it) { return it.max_bytes(count); });
  }
  [[nodiscard]] std::uint64_t bytes(message_info const& info, std::span<index_type const> places) const {
    return this->with_chosen([&](auto const& it) { return it.bytes(info, places); });
  }
  void encode(message_info const& info, std::span<index_type const> places, std::span<float const> values,
              std::span<std::byte> to) const {
    this->with_chosen([&](auto const& it) { it.encode(info, places, values, to); });
  }
  void decode(message_info const& info, std::span<index_type const> places, std::span<std::byte const> from,
              std::span<float> values) const {
    this->with_chosen([&](auto const& it) { it.decode(info, places, from, values); });
  }
  void quantise(message_info const& info, std::span<index_type const> places, std::span<float> values) const noexcept {
    this->with_chosen([&]<class V>(V const& it) {
      if constexpr (quantises<V>) it.quantise(info, places, values);
    });
  }
  [[nodiscard]] float largest() const noexcept {
    return this->with_chosen([]<class V>(V const& it) {
      if constexpr (limited_codec<V>)
        return it.largest();
      else
        return largest_value<float>;
    });
  }
  friend bool operator==(any_values const&, any_values const&) = default;
};

/// As any_values, of codecs that code each value alone (fp32, fp16, bf16), so that sums can be formed in the chosen
/// format; see elementwise_values.
template <class... Types>
struct any_summed_values : any_values<Types...> {
  [[nodiscard]] std::uint64_t value_bytes() const noexcept {
    return this->with_chosen([](auto const& it) { return it.value_bytes(); });
  }
  /// True if the chosen codec loses no bits: sums are then formed as binary32.
  [[nodiscard]] bool is_exact() const noexcept {
    return this->with_chosen([]<class V>(V const&) { return !quantises<V>; });
  }
  friend bool operator==(any_summed_values const&, any_summed_values const&) = default;
};

namespace detail {

template <class Values>
struct is_summed : std::bool_constant<elementwise_values<Values>> {};

}  // namespace detail

/// `coo`, `packed` of an index and a value codec, or `binned`, chosen at run time; writes the chosen one's bytes.
/// Exchanges that send indices and values apart take its `indices` and `values`, if sends_apart().
template <class Indices, class Values, class Summed>
struct any_codec : detail::any_policy<coo, packed<Indices, Values>, binned> {
  Indices indices{};  ///< for exchanges that send values apart
  Summed values{};    ///< for exchanges that send values apart

  /// coo.
  any_codec() {
    indices.chosen = raw32{};
    values.chosen = fp32{};
  }
  /// packed.
  explicit any_codec(packed<Indices, Values> const& how) : any_codec{} {
    this->chosen = how;
    indices = how.indices;
    detail::assign_chosen(values.chosen, how.values.chosen);
  }
  /// binned.
  explicit any_codec(binned const& how) : any_codec{} { this->chosen = how; }

  /// True if the chosen values can be summed on their way.
  [[nodiscard]] bool sends_apart() const noexcept {
    auto const* const parts = std::get_if<packed<Indices, Values>>(&this->chosen);
    if (parts == nullptr) return std::holds_alternative<coo>(this->chosen);
    return parts->values.with_chosen([]<class V>(V const&) { return detail::is_summed<V>::value; });
  }

  [[nodiscard]] std::uint64_t max_bytes(std::uint64_t n, std::uint64_t count,
                                        std::uint64_t passthrough) const noexcept {
    return this->with_chosen([&](auto const& it) { return it.max_bytes(n, count, passthrough); });
  }
  [[nodiscard]] std::uint64_t most_entries(std::span<std::byte const> front, std::uint64_t size) const noexcept {
    return this->with_chosen([&](auto const& it) { return it.most_entries(front, size); });
  }
  [[nodiscard]] std::uint64_t encode(message_info const& info, selection_view const in, std::span<std::byte> to) const {
    return this->with_chosen([&](auto const& it) { return it.encode(info, in, to); });
  }
  [[nodiscard]] selection_view decode(message_info const& info, std::span<std::byte const> from,
                                      selection_span out) const {
    return this->with_chosen([&](auto const& it) { return it.decode(info, from, out); });
  }
  /// As coo's; nothing for other codecs.
  [[nodiscard]] std::optional<selection_view> view(message_info const& info, std::span<std::byte const> from,
                                                   std::uint64_t most) const {
    auto const* const it = std::get_if<coo>(&this->chosen);
    return it == nullptr ? std::nullopt : it->view(info, from, most);
  }
  [[nodiscard]] float largest() const noexcept {
    auto const* const parts = std::get_if<packed<Indices, Values>>(&this->chosen);
    return parts == nullptr ? largest_value<float> : parts->largest();
  }
  void quantise(message_info const& info, std::span<index_type const> places, std::span<float> in_out) const noexcept {
    this->with_chosen([&]<class C>(C const& it) {
      if constexpr (quantises<C>) it.quantise(info, places, in_out);
    });
  }
  [[nodiscard]] byte_breakdown breakdown(message_info const& info, selection_view const in,
                                         std::span<range const> passthrough,
                                         std::span<std::byte const> message) const noexcept {
    return this->with_chosen([&]<class C>(C const& it) -> byte_breakdown {
      if constexpr (accounting_codec<C>) return it.breakdown(info, in, passthrough, message);
      return {};
    });
  }

  friend bool operator==(any_codec const&, any_codec const&) = default;
};
/// The chosen codec's decode() checks.
template <class Indices, class Values, class Summed>
inline constexpr bool checks_decoded<any_codec<Indices, Values, Summed>> = true;

namespace detail {

/// The codecs of a list whose values can be summed, and fp32, which coo has.
template <class List>
using summed_of = std::conditional_t<holds<fp32, List>, those_of<is_summed, List>,
                                     decltype(type_list<fp32>{} + those_of<is_summed, List>{})>;

template <class Menu>
using menu_codec = any_codec<any_of<any_indices, typename Menu::indices>, any_of<any_values, typename Menu::values>,
                             any_of<any_summed_values, summed_of<typename Menu::values>>>;

}  // namespace detail

}  // namespace gradsieve
