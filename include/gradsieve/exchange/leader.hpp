// All-reduce of values at the indices that one rank has selected.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>

#include <gradsieve/core/fields.hpp>
#include <gradsieve/exchange/round.hpp>
#include <gradsieve/exchange/value_sum.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// The one rank that selected broadcasts its indices; the accumulators of all ranks are summed there, and every rank
/// subtracts its values there. Indices use the codec's `indices`, values are summed in the format of its `values`. If
/// indices do not increase or are too large, all ranks throw; other damage in transport is not detected. If the
/// leader's accumulator is zero, nothing is sent. Needs a partitioner for which exactly one rank selects in a step.
/// When not: see `cyclic`.
/// Cost: one small all-gather, a broadcast of k indices and an all-reduce of k values (for shorter values:
/// send_receives and an all-gather), O(k). With `coo` each rank sends and receives 12 bytes per entry together, for any
/// number of ranks, besides 32 bytes per rank. On a device the indices are all-reduced too.
/// Memory: 12 bytes per entry, and the longest list that the index codec may write.
/// Source: ScaleCom's CLT-k (Chen et al., NeurIPS 2020).
struct leader {
  static constexpr char const* name = "leader";
  static constexpr exchange_traits traits{.sums_values = true, .single_owner = true, .broadcast = true};  ///< its needs

  template <class Workspace>
  class buffers {
   public:
    /// Allocates buffers for one list of at most `capacity` entries.
    template <class Codec>
    void reserve(Workspace& work, Codec const& how, message_info const info, int world, std::uint64_t capacity, bool) {
      std::uint64_t const most = std::min(capacity, info.n);
      indices_ = typename Workspace::template buffer<index_type>(most);
      if constexpr (separable_codec<Codec>) {
        list_ = typename Workspace::template buffer<std::byte>(detail::list_capacity(how.indices, info.n, capacity));
        sum_.reserve(how.values, most + 1, world);
      }
      work.reserve_updates(1);
    }

    /// The most entries that one rank subtracts in a step.
    [[nodiscard]] std::uint64_t most_sent() const noexcept { return indices_.size(); }

    /// One round. Collective. If it throws, no residual has changed. Indices damaged on one rank are returned as damage
    /// on all ranks. An exception of the index codec's encode() is this rank's failure. @throws communication_error;
    /// mismatch, also if several ranks list entries, or one lists more than reserve() allows.
    template <class Comm, class Codec>
    exchange_result run(exchange_round<Comm, Workspace, Codec> const& round) {
      auto const& index_codec = round.how.indices;
      round.meet(~std::uint64_t{0}, [&] {
        return detail::encode_list(index_codec, round.info, round.own.indices, list_.span()).packed();
      });
      int const from = sender(round.ranks, round.comm.size());
      if (from == nobody) return {};
      auto const size = detail::list_size::of(round.ranks.size(static_cast<std::size_t>(from)));
      detail::require_fits(size, static_cast<std::size_t>(from), indices_.size());
      bool const leads = from == round.comm.rank();
      auto const indices = indices_.first(size.count);
      auto const list = list_.first(size.bytes());
      round.comm.broadcast(round.work.where(), list, from);
      bool damaged = false;
      try {
        detail::decode_list(index_codec, round.info, list, indices);
      } catch (corrupt_message const&) {
        damaged = true;
      }
      if (damaged)
        std::ranges::fill(sum_.own().first(size.count), 0.0f);
      else
        round.work.gather(round.accumulator, indices, sum_.own());
      sum_.own()[size.count] = damaged ? 1.0f : 0.0f;  // passes the damage to all ranks
      auto result = sum_.of(round, indices, size.count + 1);
      result.bytes_sent += leads ? size.bytes() : 0;
      result.bytes_received += leads ? 0 : size.bytes();
      if (damaged)
        result.damage = std::make_exception_ptr(corrupt_message("gradsieve: rank " + std::to_string(from) +
                                                                "'s indices arrived out of order or out of range"));
      else if (sum_.sums()[size.count] > 0)
        result.damage = std::make_exception_ptr(
            communication_error("gradsieve: the leader's indices were damaged on their way to another rank"));
      else if (leads)
        result.index_codec = detail::list_codec(index_codec, size, list);
      if (result.damage) result.updates = {};
      return result;
    }

   private:
    static constexpr int nobody = -1;

    [[nodiscard]] static int sender(detail::preflight const& ranks, int world) {
      int found = nobody;
      for (int r = 0; r < world; ++r) {
        auto const size = ranks.size(static_cast<std::size_t>(r));
        if (size == 0) continue;
        if (found != nobody)
          throw mismatch(
              "gradsieve: rank " + std::to_string(found) + " and rank " + std::to_string(r) +
              " both selected; the exchange leader is for one rank's choice, as with the partitioner cyclic");
        found = r;
      }
      return found;
    }

    typename Workspace::template buffer<index_type> indices_;
    typename Workspace::template buffer<std::byte> list_;  // as sent
    detail::value_sum<Workspace> sum_;
  };

  friend bool operator==(leader const&, leader const&) = default;
};

}  // namespace gradsieve
