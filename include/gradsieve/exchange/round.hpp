// Input and result of one exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <type_traits>

#include <gradsieve/concepts.hpp>
#include <gradsieve/exchange/preflight.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// One rank's input to one exchange.
template <class Comm, class Workspace, class Codec>
struct exchange_round {
  Comm const& comm;                    ///< the ranks
  Workspace& work;                     ///< this rank's workspace
  Codec const& how;                    ///< the recipe's codec
  message_info info;                   ///< of the whole gradient
  detail::preflight& ranks;            ///< for meet(); then has what the ranks sent: `size(rank)`, `total()`
  detail::preflight::word word;        ///< this rank's layout, recipe and step, as meet() compares them
  std::uint64_t decision = 0;          ///< compared as well: equal on all ranks
  std::exception_ptr failure;          ///< this rank's failure; null if it has none
  selection_view own;                  ///< what this rank selected; nothing if `failure`
  std::span<float const> accumulator;  ///< of all elements
  float limit = 0;                     ///< the largest value that the communicator may sum

  /// Calls write(), unless this rank has failed, and all-gathers the size that it returns, at most `most`, in the
  /// handshake that every exchange makes before it sends. If write() throws, all ranks throw. Returns the size.
  /// Collective. @throws mismatch, communication_error; exceptions of write()
  template <class Write>
  std::uint64_t meet(std::uint64_t most, Write const& write) const {
    std::uint64_t size = 0;
    auto why = failure;
    try {
      if (!why) size = write();
    } catch (...) {
      why = std::current_exception();
    }
    ranks.meet(comm, work.where(), word, size, most, decision, why);
    return size;
  }
};

/// The result of an exchange. Spans point into the exchange's buffers.
struct exchange_result {
  std::span<selection_view const> updates;  ///< to be added in this order and divided by the number of ranks
  selection_view sent;                      ///< the entries that this rank subtracts from its residual
  std::exception_ptr damage;                ///< why this rank cannot read what it received; no updates then
  std::uint64_t bytes_sent = 0;             ///< without those of meet()
  std::uint64_t bytes_received = 0;         ///< without those of meet()
  std::span<std::byte const> message{};     ///< what this rank sent, if the codec wrote it
  std::uint64_t saturated = 0;              ///< values of `sent` that were clamped to the limit
  char const* index_codec = "";             ///< the index codec that wrote this rank's indices, if there is no message
};

namespace detail {

/// The memory of an exchange in any space, made from the policy's value if it has such a constructor.
template <class Buffers, class Exchange>
[[nodiscard]] Buffers exchange_buffers_of(Exchange const& how) {
  if constexpr (std::is_constructible_v<Buffers, Exchange const&>)
    return Buffers(how);
  else
    return {};
}

}  // namespace detail

}  // namespace gradsieve
