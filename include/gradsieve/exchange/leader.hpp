// Every rank contributes its values at one rank's choice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>

#include <gradsieve/exchange/round.hpp>
#include <gradsieve/fields.hpp>

namespace gradsieve {

/// The one rank that selected anything broadcasts its indices; every rank's accumulator at these places is all-reduced,
/// and every rank gives up all of them. Values travel as binary32, indices as u32: the codec is not asked. Indices that
/// do not rise or are too large make all ranks throw; what else happens to them on their way is the transport's
/// business. A leader that has nothing to send, as its accumulator is zero, costs all ranks a step in which nothing is
/// sent. When not: with partitioners by which several ranks select; and see `cyclic`. Cost: one small all-gather, a
/// broadcast of k indices and an all-reduce of k values, O(k): sent and received together 12 bytes an entry on every
/// rank, for any number of them, besides the all-gather's 32 bytes a rank. On a device the indices are all-reduced too;
/// see cuda/leader.cuh. Memory: 12 bytes an entry. Source: ScaleCom's CLT-k (Chen et al., NeurIPS 2020).
struct leader {
  static constexpr char const* name = "leader";
  static constexpr bool encodes = false;         ///< values are binary32: nothing is quantised
  static constexpr bool needs_broadcast = true;  ///< of the communicator; the compressor asks, on a host

  template <class Workspace>
  class buffers {
   public:
    /// Room for one list of at most `capacity` entries. Allocates.
    template <class Codec>
    void reserve(Workspace& work, Codec const&, message_info const info, int, std::uint64_t capacity, bool) {
      std::uint64_t const most = std::min(capacity, info.n);
      indices_ = typename Workspace::template buffer<index_type>(most);
      own_ = typename Workspace::template buffer<float>(most);
      sums_ = typename Workspace::template buffer<float>(most + 1);
      work.reserve_updates(1);
    }

    /// Entries that one rank gives up in a step at most.
    [[nodiscard]] std::uint64_t most_sent() const noexcept { return indices_.size(); }

    /// Collective. @throws as preflight::meet(); mismatch if several ranks list entries, or one more than reserve()
    /// was told; nothing has been given up then. Indices that are damaged on one rank are returned as damage on all.
    template <class Comm, class Codec>
    exchange_result run(exchange_round<Comm, Workspace, Codec> const& round) {
      auto const own = round.own.indices;
      round.meet(own.size(), indices_.size());
      int const from = sender(round.ranks, round.comm.size());
      exchange_result result{};
      if (from == nobody) return result;
      std::uint64_t const count = round.ranks.size(static_cast<std::size_t>(from));
      bool const leads = from == round.comm.rank();
      auto const indices = indices_.first(count);
      if (leads) std::copy(own.begin(), own.end(), indices.begin());
      round.comm.broadcast(round.work.where(), std::as_writable_bytes(indices), from);
      bool const damaged =
          std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<>{}) != indices.end() ||
          indices.back() >= round.accumulator.size();
      if (damaged)
        std::fill_n(own_.data(), count, 0.0f);
      else
        round.work.gather(round.accumulator, indices, own_.span());
      result.saturated = round.work.saturate(own_.first(count), round.limit);
      std::copy_n(own_.data(), count, sums_.data());
      sums_[count] = damaged ? 1.0f : 0.0f;  // so that all ranks learn of it
      round.comm.all_reduce(round.work.where(), sums_.first(count + 1), reduction::sum);
      result.bytes_sent += 4 * (count + 1 + (leads ? count : 0));
      result.bytes_received += 4 * (count + 1 + (leads ? 0 : count));
      if (damaged) {
        result.damage = std::make_exception_ptr(
            corrupt_message("gradsieve: rank " + std::to_string(from) + "'s indices came out of order or range"));
      } else if (sums_[count] > 0) {
        result.damage = std::make_exception_ptr(
            communication_error("gradsieve: the leader's indices were damaged on their way to another rank"));
      } else {
        update_ = {indices, sums_.first(count), {}};
        result.updates = {&update_, 1};
        result.sent = {indices, own_.first(count), {}};
      }
      return result;
    }

   private:
    static constexpr int nobody = -1;

    /// The rank that lists entries.
    [[nodiscard]] static int sender(preflight const& ranks, int world) {
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

    selection_view update_;
    typename Workspace::template buffer<index_type> indices_;
    typename Workspace::template buffer<float> own_, sums_;
  };

  friend bool operator==(leader const&, leader const&) = default;
};

}  // namespace gradsieve
