// All-reduce of values at indices that are the same on all ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/exchange/round.hpp>
#include <gradsieve/exchange/value_sum.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// No index is sent: the ranks sum their values in the format of the codec's `values`. Needs a selector that chooses by
/// a seed, such as `random_k`, and a partitioner for which all ranks select from all segments. If the ranks' indices
/// differ, all throw; on a device this is not detected, and the sums mix different elements. The codec's `indices` are
/// used only in messages of encode().
/// When not: see `random_k`.
/// Cost: a small all-gather and an all-reduce of k values (shorter values: send_receives and an all-gather); O(k).
/// Memory: 8 bytes per entry.
struct shared_choice {
  static constexpr char const* name = "shared_choice";
  static constexpr exchange_traits traits{.sums_values = true, .shared_choice = true};  ///< what it needs

  template <class Workspace>
  class buffers {
   public:
    /// Room for at most `capacity` entries. Allocates.
    template <class Codec>
    void reserve(Workspace& work, Codec const& how, message_info const info, int world, std::uint64_t capacity, bool) {
      if constexpr (separable_codec<Codec>) sum_.reserve(how.values, std::min(capacity, info.n), world);
      work.reserve_updates(1);
    }

    [[nodiscard]] std::uint64_t most_sent() const noexcept { return 0; }

    /// One round. Collective. If it throws, no residual has changed. @throws communication_error; mismatch, also if the
    /// ranks' indices differ.
    template <class Comm, class Codec>
    exchange_result run(exchange_round<Comm, Workspace, Codec> const& round) {
      auto const indices = round.own.indices;
      round.meet(~std::uint64_t{0}, [&] { return wire::checksum(std::as_bytes(indices)) + indices.size(); });
      for (int r = 1; r < round.comm.size(); ++r)
        if (round.ranks.size(static_cast<std::size_t>(r)) != round.ranks.size(0))
          throw mismatch("gradsieve: rank " + std::to_string(r) +
                         " and rank 0 chose different places; the exchange "
                         "shared_choice is for a selector by which all ranks choose alike, such as random_k");
      return sum_.at(round, indices);
    }

   private:
    detail::value_sum<Workspace> sum_;
  };

  friend bool operator==(shared_choice const&, shared_choice const&) = default;
};

}  // namespace gradsieve
