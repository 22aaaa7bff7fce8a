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
#include <gradsieve/run_time.hpp>

#include "../../command_line.hpp"

namespace example {

namespace gs = gradsieve;

inline names const index_codec_names{"automatic", "raw32", "delta", "bitmap", "fixed_width", "elias_fano"};
inline constexpr std::size_t fixed_width_place = 4;  // in index_codec_names
inline names const value_codec_names{
    "fp32", "fp16", "bf16", "int8", "int4", "int2", "ternary", "sign", "sbc", "qsgd", "automatic_values"};

/// The variant's alternative at this place.
template <class Variant>
[[nodiscard]] Variant alternative(std::size_t place) {
  static auto const all = []<std::size_t... Is>(std::index_sequence<Is...>) {
    return std::array{Variant{std::in_place_index<Is>}...};
  }(std::make_index_sequence<std::variant_size_v<Variant>>{});
  return all[place];
}

// In the order of the names.
using any_indices = gs::any_indices<gs::automatic, gs::raw32, gs::delta, gs::bitmap, gs::fixed_width, gs::elias_fano>;
using any_values = gs::any_values<gs::fp32, gs::fp16, gs::bf16, gs::int8, gs::int4, gs::int2, gs::ternary, gs::sign,
                                  gs::sbc, gs::qsgd, gs::automatic_values>;

/// The values of a codec whose values can be summed up, for exchanges that send indices and values apart.
class summed_values {
 public:
  using choice = std::variant<gs::fp32, gs::fp16, gs::bf16>;  // the first of the names
  choice chosen{};

  [[nodiscard]] std::uint64_t value_bytes() const noexcept {
    return std::visit([](auto const& how) { return how.value_bytes(); }, chosen);
  }
  [[nodiscard]] float largest() const noexcept {
    return std::visit(
        [](auto const& how) {
          if constexpr (requires { how.largest(); })
            return how.largest();
          else
            return gs::largest_value<float>;
        },
        chosen);
  }
  void quantise(gs::message_info const& info, std::span<gs::index_type const> indices,
                std::span<float> values) const noexcept {
    std::visit(
        [&](auto const& how) {
          if constexpr (gs::quantises<std::remove_cvref_t<decltype(how)>>) how.quantise(info, indices, values);
        },
        chosen);
  }
  void encode(gs::message_info const& info, std::span<gs::index_type const> indices, std::span<float const> values,
              std::span<std::byte> to) const {
    std::visit([&](auto const& how) { how.encode(info, indices, values, to); }, chosen);
  }
  void decode(gs::message_info const& info, std::span<gs::index_type const> indices, std::span<std::byte const> from,
              std::span<float> values) const {
    std::visit([&](auto const& how) { how.decode(info, indices, from, values); }, chosen);
  }
  friend bool operator==(summed_values const&, summed_values const&) = default;
};

/// One of the library's codecs. Writes and reads what that one does, and identifies itself as it does, so that ranks
/// with another one are found when ranks first meet. Cost: that codec's, and a branch a message.
class any_codec {
  using choice = std::variant<gs::coo, gs::binned, gs::packed<any_indices, any_values>>;

 public:
  any_codec() = default;
  [[nodiscard]] static any_codec binned() { return any_codec{choice{gs::binned{}}}; }

  /// `packed` of the parts with these places in index_codec_names and value_codec_names. @pre both exist
  [[nodiscard]] static any_codec packed(std::size_t index_codec, std::size_t value_codec) {
    gs::packed<any_indices, any_values> parts;
    parts.indices.chosen = alternative<decltype(any_indices::chosen)>(index_codec);
    parts.values.chosen = alternative<decltype(any_values::chosen)>(value_codec);
    any_codec chosen{parts};
    chosen.indices = parts.indices;
    if (value_codec < std::variant_size_v<summed_values::choice>)
      chosen.values.chosen = alternative<summed_values::choice>(value_codec);
    return chosen;
  }

  /// body(codec), with the library's type of the codec that was chosen. body is compiled for each.
  template <class Body>
  decltype(auto) visit(Body const& body) const {
    using result = decltype(body(gs::coo{}));
    return std::visit(
        [&]<class Codec>(Codec const& codec) -> result {
          if constexpr (requires { codec.indices.chosen; })
            return std::visit(
                [&]<class Indices, class Values>(Indices const& how, Values const& what) {
                  return body(gs::packed<Indices, Values>{how, what});
                },
                codec.indices.chosen, codec.values.chosen);
          else
            return body(codec);
        },
        chosen_);
  }

  /// Whether its values can be summed up, as index_union and leader do.
  [[nodiscard]] bool sums() const {
    return visit([](auto const& codec) { return gs::separable_codec<std::remove_cvref_t<decltype(codec)>>; });
  }

  /// body(policy) with all that the codec is made of, which may change it.
  template <class Body>
  void change(Body& body) {
    if (auto* const parts = std::get_if<gs::packed<any_indices, any_values>>(&chosen_)) {
      std::visit(body, parts->indices.chosen);
      std::visit(body, parts->values.chosen);
    } else if (auto* const bins = std::get_if<gs::binned>(&chosen_)) {
      body(*bins);
    }
    std::visit(body, indices.chosen);
    std::visit(body, values.chosen);
  }

  any_indices indices{{gs::raw32{}}};  // of coo and packed; without meaning in others
  summed_values values{};

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
  [[nodiscard]] std::uint64_t max_bytes(std::uint64_t n, std::uint64_t count,
                                        std::uint64_t passthrough) const noexcept {
    return std::visit([&](auto const& codec) { return codec.max_bytes(n, count, passthrough); }, chosen_);
  }
  void quantise(gs::message_info const& info, std::span<gs::index_type const> places,
                std::span<float> in_out) const noexcept {
    std::visit(
        [&](auto const& codec) {
          if constexpr (gs::quantises<std::remove_cvref_t<decltype(codec)>>) codec.quantise(info, places, in_out);
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
  [[nodiscard]] gs::byte_breakdown breakdown(gs::message_info const& info, gs::selection_view const in,
                                             std::span<gs::range const> passthrough,
                                             std::span<std::byte const> message) const {
    return std::visit(
        [&](auto const& codec) -> gs::byte_breakdown {
          if constexpr (requires { codec.breakdown(info, in, passthrough, message); })
            return codec.breakdown(info, in, passthrough, message);
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
