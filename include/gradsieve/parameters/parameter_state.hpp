// The options of a parameter_exchange, the recipes that fit, and its saved state as bytes.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/exchange/reduce_scatter.hpp>
#include <gradsieve/residual/none.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Options of a parameter_exchange.
struct parameter_options {
  /// The factor, in [0, 1], of a rank's unsent changes in its own parameters. 0: ranks train on the common parameters,
  /// and see their own changes late; 1: each rank sees all of its changes, and differs more from the others. Empty:
  /// 0.5, with a momentum 0.25, or 0.125 on more than 4 ranks or below a density of 2.5 %; 1 for a single rank. After a
  /// change with a factor above 1, at most one over it.
  std::optional<float> weight{};
  /// A momentum of the mean changes, in [0, 1): with m = momentum * m + (1 - momentum) * mean the common parameters move
  /// by m / (1 - momentum^t) in exchange t. All ranks need the same; check_common() finds a difference. For an optimizer
  /// without one, as Adam with beta1 = 0, which then loses less; of_beta() has the best one. 0: they move by the mean.
  float momentum = 0;
  /// True: at (final) densities below 1, where changes are late, but not with `none`, own parameters are ahead of common
  /// ones by `momentum` times the last move, as with Nesterov's.
  bool look_ahead = true;

  /// The momentum to take for Adam's beta1 on several ranks at this (final) density: shorter below 6 %, where changes
  /// are sent late, and a long one delays them more. Source: measured, see examples/study/TRANSFORMERS.md.
  [[nodiscard]] static constexpr float of_beta(float beta1, double density) noexcept {
    return std::max(0.0f, 1 - (1 - beta1) * static_cast<float>(std::clamp(0.06 / density, 1.0, 5.0)));
  }

  /// @throws invalid_argument unless the weight is in [0, 1] and the momentum in [0, 1).
  void check() const {
    if (weight && !(is_finite(*weight) && *weight >= 0.0f && *weight <= 1.0f))
      throw invalid_argument("gradsieve: parameter_exchange's weight is not in [0, 1]");
    if (!(is_finite(momentum) && momentum >= 0.0f && momentum < 1.0f))
      throw invalid_argument("gradsieve: parameter_exchange's momentum is not in [0, 1)");
  }

  /// The weight for this number of ranks and (final) density, if the last change had this factor. @pre ranks > 0
  [[nodiscard]] constexpr float among(int ranks, float factor = 1, double density = 1) const noexcept {
    float const common = ranks > 4 || density < 0.025 ? 0.125f : 0.25f;
    float const usual = weight.value_or(ranks == 1 ? 1.0f : momentum > 0 ? common : 0.5f);
    return factor > 1 ? std::min(usual, divide(1.0f, factor)) : usual;
  }

  /// How much of the momentum, over its size, own parameters are ahead at this (final) density.
  [[nodiscard]] constexpr float ahead(double density) const noexcept {
    return look_ahead && density < 1 ? momentum : 0.0f;
  }

  friend bool operator==(parameter_options const&, parameter_options const&) = default;
};

namespace detail {

/// True if it can be the factor of a change.
[[nodiscard]] constexpr bool is_factor(float factor) noexcept { return is_finite(factor) && factor >= 0; }

/// True if a residual store drops everything that was not sent.
template <class Store>
[[nodiscard]] constexpr bool keeps_nothing() noexcept {
  if constexpr (wrapping_residual_store<Store>)
    return keeps_nothing<std::remove_cvref_t<decltype(std::declval<Store const&>().store)>>();
  else
    return std::same_as<Store, none>;
}

/// The rules for a parameter_exchange's compressor. A compiler prints the sentence of a rule that is broken.
template <class Compressor>
struct parameter_rules {
  static constexpr bool fit = true;
  static constexpr bool is_two_level = requires(Compressor & it) { it.part_compressor(); };

  static_assert(!is_two_level,
                "parameter_exchange: a two_level_compressor holds the residual of a part only: use a compressor of all "
                "ranks");
  static_assert(!requires { requires Compressor::residual_type::states != 1; },
                "parameter_exchange: recipe.residual keeps several states, and the optimizer has the momentum already: "
                "use error_feedback");
  static_assert(!requires { requires std::same_as<typename Compressor::exchange_type, reduce_scatter>; },
                "parameter_exchange: reduce_scatter leaves each rank a shard of the mean, and common parameters need "
                "all of it: use gather or index_union");

  /// True if the compressor's store drops what is not sent. @throws invalid_argument if an any_compressor's store keeps
  /// several states, or its exchange leaves shards.
  [[nodiscard]] static bool keeps_nothing(Compressor const& with) {
    if constexpr (requires { typename Compressor::residual_type; }) {
      return detail::keeps_nothing<typename Compressor::residual_type>();
    } else {
      return std::visit(
          []<class Exchange, class Store>(Exchange const&, Store const&) {
            if (std::same_as<Exchange, reduce_scatter>)
              throw invalid_argument(
                  "gradsieve: parameter_exchange: reduce_scatter leaves each rank a shard of the mean, and common "
                  "parameters need all of it: use gather or index_union");
            if (Store::states != 1)
              throw invalid_argument(std::string{"gradsieve: parameter_exchange: '"} + Store::name +
                                     "' keeps several states, and the optimizer has the momentum already: use "
                                     "error_feedback");
            return detail::keeps_nothing<Store>();
          },
          with.recipe().chosen_exchange(), with.recipe().residual);
    }
  }
};

/// A state of parameter_exchange. Little-endian: magic u32 | version u32 | n u64 | layout hash u64 | weight binary32 |
/// momentum's size binary32 | checksum u64, then the common parameters, n binary32, then, unless its size is 0, the
/// momentum, n binary32, then the compressor's state.
struct parameter_state {
  static constexpr std::uint32_t magic = 0x5053'5247;  ///< "GRSP"
  static constexpr std::uint32_t version = 2;          ///< version of this format
  static constexpr std::size_t header_bytes = 40;      ///< size of the header, which the common parameters follow

  std::uint64_t n = 0;                    ///< parameters
  std::uint64_t layout_hash = 0;          ///< layout::hash()
  float weight = 0;                       ///< the weight of the own parameters
  float momentum_size = 0;                ///< of the momentum, after as many means of 1; 0: there is none
  std::span<std::byte const> common;      ///< after read(): n binary32
  std::span<std::byte const> momentum;    ///< after read(): n binary32, or none
  std::span<std::byte const> compressor;  ///< after read(): the compressor's state

  /// Writes this state as bytes, with these common parameters, momentum and compressor's state. Allocates.
  [[nodiscard]] std::vector<std::byte> write(std::span<float const> parameters, std::span<float const> held,
                                             std::span<std::byte const> of_compressor) const {
    std::vector<std::byte> out(header_bytes + 4 * (n + held.size()));
    auto const bytes = std::span{out};
    wire::store_all(bytes, magic, version, n, layout_hash, weight, momentum_size);
    wire::store(bytes.subspan(header_bytes), parameters);
    wire::store(bytes.subspan(header_bytes + 4 * n), held);
    wire::store_one(bytes.subspan(32), wire::checksum_around(bytes, 32));
    out.insert(out.end(), of_compressor.begin(), of_compressor.end());
    return out;
  }

  /// Reads a state and checks it, except for the compressor's part. @throws corrupt_state if the bytes are damaged, of
  /// another version, or hold a weight outside [0, 1] or a non-finite parameter; mismatch if they are of another
  /// layout.
  [[nodiscard]] static parameter_state read(std::span<std::byte const> bytes, std::uint64_t n,
                                            std::uint64_t layout_hash) {
    auto const refuse = [](std::string const& why) { throw corrupt_state("gradsieve: parameter state " + why); };
    wire::check_begin(bytes, header_bytes, magic, version, refuse);
    parameter_state state;
    wire::load_all(bytes.subspan(8), state.n, state.layout_hash, state.weight, state.momentum_size);
    auto const of_momentum = state.momentum_size != 0.0f ? state.n : 0;
    if (state.n >= std::uint64_t{1} << 32 || bytes.size() - header_bytes < 4 * (state.n + of_momentum))
      refuse("has " + std::to_string(bytes.size()) + " bytes, which its header does not explain");
    auto const own = bytes.first(header_bytes + 4 * (state.n + of_momentum));
    wire::check_sum(own, 32, refuse);
    if (state.n != n || state.layout_hash != layout_hash)
      throw mismatch("gradsieve: parameter state belongs to another layout (" + std::to_string(state.n) +
                     " elements, here " + std::to_string(n) + ")");
    state.common = own.subspan(header_bytes, 4 * n);
    state.momentum = own.subspan(header_bytes + 4 * n);
    state.compressor = bytes.subspan(own.size());
    if (!is_finite(state.weight) || state.weight < 0.0f || state.weight > 1.0f)
      refuse("has the weight " + std::to_string(state.weight) + ", expected 0 to 1");
    bool const finite = is_finite(state.momentum_size) && state.momentum_size >= 0.0f;
    if (!finite || !wire::all_finite(own.subspan(header_bytes))) refuse("holds a value that is not finite");
    return state;
  }
};

}  // namespace detail

}  // namespace gradsieve
