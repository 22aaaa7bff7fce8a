// What an exchange works on, and the word that ranks give each other before they send.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/error.hpp>

namespace gradsieve {

/// One rank's part of one exchange.
template <class Comm, class Workspace, class Codec>
struct exchange_round {
  Comm const& comm;
  Workspace& work;
  Codec const& how;
  message_info info;
  selection_view own;                  ///< what this rank selected; nothing if `failure`
  std::span<float const> accumulator;  ///< of all elements
  std::uint64_t decision = 0;          ///< must be equal on all ranks
  std::exception_ptr failure;          ///< why this rank cannot go on
};

/// What an exchange leaves: the updates to add up, in this order, and the entries this rank has given up for
/// them. Spans point into the exchange's buffers.
struct exchange_result {
  std::span<selection_view const> updates;
  selection_view sent;
  std::exception_ptr damage;  ///< this rank cannot read what it got; no updates then
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;      ///< both with what the share_board sends and receives
  std::span<std::byte const> message{};  ///< what this rank sent, if the codec wrote it
};

/// Every rank's word before the payload: how much it will send, what it decided, whether it failed. One
/// all-gather, so that a failure on one rank is an exception on all of them and never a hang.
class share_board {
 public:
  void reserve(int world) { shares_.resize(static_cast<std::size_t>(world)); }

  /// Collective. Afterwards size(rank), which is `most` or less, is known for every rank.
  /// @throws this rank's failure; communication_error if another failed; mismatch if decisions differ or a rank has
  /// more than `most`.
  template <class Comm, class Workspace>
  void post(Comm const& comm, Workspace& work, std::uint64_t size, std::uint64_t most, std::uint64_t decision,
            std::exception_ptr const& failure) {
    share const mine{failure ? 0 : size, decision, failure ? 1u : 0u};
    comm.all_gather(work.where(), std::as_bytes(std::span{&mine, 1}), std::as_writable_bytes(std::span{shares_}));
    if (failure) std::rethrow_exception(failure);
    for (std::size_t r = 0; r < shares_.size(); ++r)
      if (shares_[r].failed != 0)
        throw communication_error("gradsieve: rank " + std::to_string(r) + " failed in this step; nothing was sent");
    for (std::size_t r = 0; r < shares_.size(); ++r)
      if (shares_[r].decision != shares_[0].decision)
        throw mismatch("gradsieve: rank " + std::to_string(r) +
                       " decided otherwise than rank 0 which rank selects what");
    for (std::size_t r = 0; r < shares_.size(); ++r)
      if (shares_[r].size > most)
        throw mismatch("gradsieve: rank " + std::to_string(r) + " announces a size of " +
                       std::to_string(shares_[r].size) + ", room is for " + std::to_string(most));
  }

  /// Bytes that post() sends, and receives.
  [[nodiscard]] std::uint64_t sent() const noexcept { return sizeof(share); }
  [[nodiscard]] std::uint64_t received() const noexcept { return sizeof(share) * (shares_.size() - 1); }

  [[nodiscard]] std::uint64_t size(std::size_t rank) const noexcept { return shares_[rank].size; }
  [[nodiscard]] std::uint64_t total() const noexcept {
    std::uint64_t sum = 0;
    for (auto const& each : shares_) sum += each.size;
    return sum;
  }

 private:
  struct share {
    std::uint64_t size = 0;
    std::uint64_t decision = 0;
    std::uint64_t failed = 0;
  };
  std::vector<share> shares_;
};

}  // namespace gradsieve
