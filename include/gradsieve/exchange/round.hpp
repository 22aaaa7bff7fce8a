// What an exchange works on, and what it leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>

#include <gradsieve/concepts.hpp>
#include <gradsieve/exchange/preflight.hpp>

namespace gradsieve {

/// One rank's part of one exchange.
template <class Comm, class Workspace, class Codec>
struct exchange_round {
  Comm const& comm;
  Workspace& work;
  Codec const& how;
  message_info info;
  preflight& ranks;                    ///< every exchange meets there before it sends
  preflight::word word;                ///< what this rank says there, with the two below
  std::uint64_t decision = 0;          ///< must be equal on all ranks
  std::exception_ptr failure;          ///< why this rank cannot go on
  selection_view own;                  ///< what this rank selected; nothing if `failure`
  std::span<float const> accumulator;  ///< of all elements
  float limit = 0;                     ///< of a value that is summed up by the communicator
  index_type budget = 0;               ///< entries that all segments give in this step, those sent in full left out

  /// Calls write(), unless this rank has failed, and meets the other ranks with the size that it returns, at most
  /// `most`. What it throws is this rank's failure, of which the others learn. Returns the size. @throws as
  /// preflight::meet()
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

/// What an exchange leaves: the updates to add up, in this order, and the entries this rank has given up for
/// them. Spans point into the exchange's buffers.
struct exchange_result {
  std::span<selection_view const> updates;
  selection_view sent;
  std::exception_ptr damage;  ///< this rank cannot read what it got; no updates then
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;      ///< both without the ranks' meeting
  std::span<std::byte const> message{};  ///< what this rank sent, if the codec wrote it
  std::uint64_t saturated = 0;           ///< values of `sent` that are clamped to the limit
  char const* index_codec = "";          ///< what wrote this rank's indices, where it sent them without a message
};

}  // namespace gradsieve
