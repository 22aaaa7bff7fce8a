// The saved state of a parameter_exchange, as bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// One rank's state, as parameter_exchange::state() writes it. Little-endian: magic u32 | version u32 | n u64 | layout
/// hash u64 | weight binary32 | zero u32 | checksum u64, then the common parameters, n binary32, then the compressor's
/// state.
struct parameter_state {
  static constexpr std::uint32_t magic = 0x5053'5247;  ///< "GRSP"
  static constexpr std::uint32_t version = 1;          ///< version of this format
  static constexpr std::size_t header_bytes = 40;      ///< size of the header, which the common parameters follow

  std::uint64_t n = 0;                    ///< parameters
  std::uint64_t layout_hash = 0;          ///< layout::hash()
  float weight = 0;                       ///< the weight of the own parameters
  std::span<std::byte const> common;      ///< after read(): n binary32
  std::span<std::byte const> compressor;  ///< after read(): the compressor's state

  /// Writes this state as bytes, with these common parameters and that compressor's state. Allocates.
  [[nodiscard]] std::vector<std::byte> write(std::span<float const> parameters,
                                             std::span<std::byte const> of_compressor) const {
    std::vector<std::byte> out(header_bytes + 4 * n);
    auto const bytes = std::span{out};
    wire::store_one(bytes, magic);
    wire::store_one(bytes.subspan(4), version);
    wire::store_one(bytes.subspan(8), n);
    wire::store_one(bytes.subspan(16), layout_hash);
    wire::store_one(bytes.subspan(24), weight);
    wire::store(bytes.subspan(header_bytes), parameters);
    wire::store_one(bytes.subspan(32), checksum_of(bytes));
    out.insert(out.end(), of_compressor.begin(), of_compressor.end());
    return out;
  }

  /// Reads a state and checks it, except for the compressor's part.
  /// @throws corrupt_state if the bytes are damaged, of another version, or hold a weight that is not in [0, 1] or a
  /// parameter that is not finite; mismatch if they are of another layout.
  [[nodiscard]] static parameter_state read(std::span<std::byte const> bytes, std::uint64_t n,
                                            std::uint64_t layout_hash) {
    auto const refuse = [](std::string const& why) { throw corrupt_state("gradsieve: parameter state " + why); };
    if (bytes.size() < header_bytes) refuse("has " + std::to_string(bytes.size()) + " bytes, fewer than its header");
    if (wire::load_one<std::uint32_t>(bytes) != magic) refuse("does not begin with its magic number");
    if (auto const found = wire::load_one<std::uint32_t>(bytes.subspan(4)); found != version)
      refuse("has version " + std::to_string(found) + ", expected " + std::to_string(version));
    parameter_state state{wire::load_one<std::uint64_t>(bytes.subspan(8)),
                          wire::load_one<std::uint64_t>(bytes.subspan(16)),
                          wire::load_one<float>(bytes.subspan(24)),
                          {},
                          {}};
    if (state.n >= std::uint64_t{1} << 32 || bytes.size() - header_bytes < 4 * state.n)
      refuse("has " + std::to_string(bytes.size()) + " bytes, which its header does not explain");
    auto const own = bytes.first(header_bytes + 4 * state.n);
    if (wire::load_one<std::uint64_t>(bytes.subspan(32)) != checksum_of(own))
      refuse("does not match its checksum: the bytes are damaged");
    if (state.n != n || state.layout_hash != layout_hash)
      throw mismatch("gradsieve: parameter state belongs to another layout (" + std::to_string(state.n) +
                     " elements, here " + std::to_string(n) + ")");
    state.common = own.subspan(header_bytes);
    state.compressor = bytes.subspan(own.size());
    if (!is_finite(state.weight) || state.weight < 0.0f || state.weight > 1.0f)
      refuse("has the weight " + std::to_string(state.weight) + ", expected 0 to 1");
    bool finite = true;
    for (std::size_t at = 0; at < state.common.size(); at += 4)
      finite = finite & is_finite(wire::load_one<float>(state.common.subspan(at)));
    if (!finite) refuse("holds a value that is not finite");
    return state;
  }

 private:
  [[nodiscard]] static std::uint64_t checksum_of(std::span<std::byte const> bytes) noexcept {
    return wire::checksum(bytes.subspan(header_bytes)) ^ wire::checksum(bytes.first(32));
  }
};

}  // namespace gradsieve::detail
