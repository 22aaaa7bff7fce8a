// A codec that is chosen at run time, so that a compressor is compiled once for all of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <gradsieve/gradsieve.hpp>

#include "../../command_line.hpp"

namespace example {

namespace gs = gradsieve;

inline names const index_codec_names{"automatic", "raw32", "delta", "bitmap", "fixed_width"};
inline names const value_codec_names{"fp32", "fp16", "bf16", "ternary"};

/// One of the library's codecs. Writes and reads what that one does, and identifies itself as it does, so that ranks
/// with another one are found at first contact. Cost: that codec's, and a branch a message.
class any_codec {
  // In the order of the names above.
  template <class Indices>
  using with = std::variant<gs::packed<Indices, gs::fp32>, gs::packed<Indices, gs::fp16>, gs::packed<Indices, gs::bf16>,
                            gs::packed<Indices, gs::ternary>>;
  template <class... Parts>
  struct joined_variants;
  template <class... A, class... B, class... Rest>
  struct joined_variants<std::variant<A...>, std::variant<B...>, Rest...>
      : joined_variants<std::variant<A..., B...>, Rest...> {};
  template <class Last>
  struct joined_variants<Last> {
    using type = Last;
  };
  using choice = joined_variants<std::variant<gs::coo, gs::binned>, with<gs::automatic>, with<gs::raw32>,
                                 with<gs::delta>, with<gs::bitmap>, with<gs::fixed_width>>::type;

 public:
  any_codec() = default;
  [[nodiscard]] static any_codec binned(gs::bin_lengths const& bins) { return any_codec{choice{gs::binned{bins}}}; }

  /// `packed` of the parts with these places in index_codec_names and value_codec_names. @pre both exist
  [[nodiscard]] static any_codec packed(std::size_t indices, std::size_t values) {
    static auto const all = []<std::size_t... Is>(std::index_sequence<Is...>) {
      return std::array{any_codec{choice{std::in_place_index<Is + 2>}}...};
    }(std::make_index_sequence<std::variant_size_v<choice> - 2>{});
    return all[indices * value_codec_names.size() + values];
  }

  void check() const {
    std::visit([](auto const& codec) { gs::check(codec); }, chosen_);
  }
  void add_to(gs::fingerprint& to) const {
    std::visit([&](auto const& codec) { gs::add_to(to, codec); }, chosen_);
  }
  [[nodiscard]] float largest() const noexcept {
    return std::visit(
        [](auto const& codec) {
          if constexpr (requires { codec.largest(); })
            return codec.largest();
          else
            return gs::largest_value<float>;
        },
        chosen_);
  }
  [[nodiscard]] std::uint64_t most_entries(std::span<std::byte const> front, std::uint64_t size) const noexcept {
    return std::visit([&](auto const& codec) { return codec.most_entries(front, size); }, chosen_);
  }
  [[nodiscard]] std::uint64_t max_bytes(std::uint64_t n, std::uint64_t count, std::uint64_t dense) const noexcept {
    return std::visit([&](auto const& codec) { return codec.max_bytes(n, count, dense); }, chosen_);
  }
  void quantise(gs::message_info const& info, std::span<gs::index_type const> indices,
                std::span<float> values) const noexcept {
    std::visit(
        [&](auto const& codec) {
          if constexpr (gs::quantises<std::remove_cvref_t<decltype(codec)>>) codec.quantise(info, indices, values);
        },
        chosen_);
  }
  [[nodiscard]] std::uint64_t encode(gs::message_info const& info, gs::selection_view const in,
                                     std::span<std::byte> to) const {
    return std::visit([&](auto const& codec) { return codec.encode(info, in, to); }, chosen_);
  }
  [[nodiscard]] gs::selection_view decode(gs::message_info const& info, std::span<std::byte const> from,
                                          gs::selection_span out) const {
    return std::visit([&](auto const& codec) { return codec.decode(info, from, out); }, chosen_);
  }
  [[nodiscard]] gs::message_account account(gs::message_info const& info, gs::selection_view const in,
                                            std::span<gs::range const> dense,
                                            std::span<std::byte const> message) const {
    return std::visit(
        [&](auto const& codec) -> gs::message_account {
          if constexpr (requires { codec.account(info, in, dense, message); })
            return codec.account(info, in, dense, message);
          else
            return {};
        },
        chosen_);
  }

  friend bool operator==(any_codec const&, any_codec const&) = default;
  friend std::ostream& operator<<(std::ostream& out, any_codec const& it) {
    return std::visit([&](auto const& codec) -> std::ostream& { return out << codec; }, it.chosen_);
  }

 private:
  explicit any_codec(choice const& chosen) : chosen_{chosen} {}

  choice chosen_;
};
static_assert(gs::codec<any_codec>);

}  // namespace example
