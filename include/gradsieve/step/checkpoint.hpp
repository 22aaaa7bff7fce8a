// A compressor's state as bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/selection.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

/// A nonzero hash of a store's name and `meaning`, not of its parameters; a wrapping store has that of the wrapped one.
template <class Residual>
[[nodiscard]] std::uint32_t kind_of_store(Residual const& policy) {
  if constexpr (wrapping_residual_store<Residual>) {
    return kind_of_store(policy.store);
  } else {
    std::string name;
    if constexpr (described<Residual>)
      name = Residual::name;
    else
      name = type_name<Residual>();
    if constexpr (versioned_residual_store<Residual>) name += Residual::meaning;
    auto const hash = layout{{name, 0}}.hash();
    return static_cast<std::uint32_t>(hash >> 32 ^ hash) | 1u;
  }
}

}  // namespace detail

/// A state(), little-endian: magic u32 | version u16 | states u16 | n u64 | layout hash u64 | step u64 | warm
/// thresholds u32 | kind of store u32 | checksum u64; warm thresholds (key u32, k u32); states, n binary32 each.
struct checkpoint {
  static constexpr std::uint32_t magic = 0x4353'5247;  ///< "GRSC"
  static constexpr std::uint16_t version = 3;          ///< version of this format
  static constexpr std::size_t header_bytes = 48;      ///< size of the header, which the warm thresholds follow
  static constexpr std::uint16_t most_states = 16;     ///< the most floats per element that a residual store may keep

  std::uint16_t states = 0;                     ///< floats kept for each element
  std::uint32_t store = 0;                      ///< kind_of_store()
  std::uint64_t n = 0;                          ///< elements
  std::uint64_t layout_hash = 0;                ///< layout::hash()
  std::uint64_t step = 0;                       ///< number of steps so far
  std::vector<warm_threshold> warm_thresholds;  ///< one per segment, or none
  std::span<std::byte const> values;            ///< after read(): n * states binary32

  /// Writes this state as bytes; `state(s)` returns the n floats of state s. Allocates.
  template <class State>
  [[nodiscard]] std::vector<std::byte> write(State const& state) const {
    std::vector<std::byte> out(header_bytes + 8 * warm_thresholds.size() + 4 * n * states);
    auto const bytes = std::span{out};
    wire::store_all(bytes, magic, version, states, n, layout_hash, step,
                    static_cast<std::uint32_t>(warm_thresholds.size()), store);
    std::size_t at = header_bytes;
    for (auto const& each : warm_thresholds) at += wire::store_all(bytes.subspan(at), each.key, each.k);
    for (std::uint16_t s = 0; s < states; ++s, at += 4 * n)
      wire::store(bytes.subspan(at), std::span<float const>{state(s)});
    wire::store_one(bytes.subspan(40), wire::checksum_around(bytes, 40));
    return out;
  }

  /// Checks that the state belongs to that layout and that residual store. @throws mismatch
  void require(std::uint16_t its_states, std::uint32_t its_store, std::uint64_t its_n, std::uint64_t its_layout) const {
    if (n != its_n || layout_hash != its_layout)
      throw mismatch("gradsieve: checkpoint belongs to another layout (" + std::to_string(n) + " elements, here " +
                     std::to_string(its_n) + ")");
    if (states != its_states)
      throw mismatch("gradsieve: checkpoint has " + std::to_string(states) +
                     " states an element, this residual store has " + std::to_string(its_states));
    if (store != its_store)
      throw mismatch("gradsieve: checkpoint is of another residual store, whose states mean something else");
  }

  /// Calls read(), then require() for a compressor with this residual store. @throws corrupt_state, mismatch
  template <class Residual>
  [[nodiscard]] static checkpoint read(std::span<std::byte const> bytes, Residual const& policy, std::uint64_t n,
                                       std::uint64_t layout_hash) {
    auto found = read(bytes);
    found.require(Residual::states, detail::kind_of_store(policy), n, layout_hash);
    return found;
  }

  /// Reads a state and checks all of it. @throws corrupt_state if it is damaged, of another version, or has a value
  /// that is not finite, a warm threshold above the key of infinity, no state or more than most_states.
  [[nodiscard]] static checkpoint read(std::span<std::byte const> bytes) {
    auto const refuse = [](std::string const& why) { throw corrupt_state("gradsieve: checkpoint " + why); };
    wire::check_begin(bytes, header_bytes, magic, version, refuse);
    checkpoint state;
    std::uint32_t warm_thresholds = 0;
    auto const fields = bytes.subspan(6);
    wire::load_all(fields, state.states, state.n, state.layout_hash, state.step, warm_thresholds, state.store);
    if (state.states < 1 || state.states > most_states)
      refuse("has " + std::to_string(state.states) + " states an element, expected 1 to " +
             std::to_string(most_states));
    auto const body = bytes.size() - header_bytes;
    bool const fits = warm_thresholds <= body / 8 && state.n < (std::uint64_t{1} << 32) &&
                      body == std::uint64_t{8} * warm_thresholds + 4 * state.n * state.states;
    if (!fits) refuse("has " + std::to_string(bytes.size()) + " bytes, which its header does not explain");
    wire::check_sum(bytes, 40, refuse);
    std::size_t from = header_bytes;
    for (std::uint32_t h = 0; h < warm_thresholds; ++h) {
      auto& each = state.warm_thresholds.emplace_back();
      from += wire::load_all(bytes.subspan(from), each.key, each.k);
      if (state.warm_thresholds.back().key > infinite_key)
        refuse("has a warm threshold of " + std::to_string(state.warm_thresholds.back().key) + ", expected at most " +
               std::to_string(infinite_key));
    }
    state.values = bytes.subspan(from);
    if (!wire::all_finite(state.values)) refuse("holds a value that is not finite");
    return state;
  }
};

}  // namespace gradsieve
