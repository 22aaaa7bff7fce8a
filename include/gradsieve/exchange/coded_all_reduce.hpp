// Every rank receives the whole update in messages of the codec, both ways: an all-to-all, sums, and an all-gather.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <type_traits>

#include <gradsieve/codec/limit.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/arithmetic.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/exchange/gather.hpp>
#include <gradsieve/exchange/reduce_scatter.hpp>
#include <gradsieve/exchange/round.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// An all-reduce of messages: `reduce_scatter`, after which each rank sums what it has received of its shard, as
/// binary32 and in rank order, and `gather` of these sums. All ranks get the same bits. A shard's rank keeps in its
/// residual what the codec rounds off its sums. Segments whose k is their size are encoded too, with all their
/// elements, zeros included, whatever the selector: at density 1, with `packed{.values = int4{}}`, everything is sent
/// in a few bits an element, and 8 bytes for the places of a message.
/// When not: below a density of about 1 / P, as `gather` sends less; on a device, where it is refused; without a
/// residual, as nothing keeps what is rounded.
/// Cost: both exchanges', and a pass that writes n elements. A rank receives (P - 1) / P of all entries, as many of the
/// union, and 200 bytes from every other rank: at density 1 bits / 32 of a ring all-reduce of binary32, at any P.
/// Memory: both exchanges', the second one's for all entries of a shard; 4 bytes an element, 16 for each of a shard's
/// entries, 8 for each selected.
/// Source: the compressed all-reduce of 1-bit Adam (Tang et al. 2021), for any codec and for sparse selections.
struct coded_all_reduce {
  static constexpr char const* name = "coded_all_reduce";
  static constexpr exchange_traits traits{.all_to_all = true, .codes_full = true};  ///< what it needs, and does

  template <class Workspace>
  class buffers {
   public:
    /// Allocates buffers for messages of at most `capacity` entries of each rank, and of their union in a shard.
    template <class Codec>
    void reserve(Workspace& work, Codec const& how, message_info const info, int world, std::uint64_t capacity,
                 bool disjoint) {
      auto const most = std::min(shard_of(info.n, world, 0).size, capacity * static_cast<std::uint64_t>(world));
      scatter_.reserve(work, how, info, world, capacity, disjoint);
      gather_.reserve(work, how, info, world, most, disjoint);
      totals_ = typename Workspace::template buffer<float>(info.n);
      places_ = typename Workspace::template buffer<index_type>(most);
      sums_ = typename Workspace::template buffer<float>(most);
      indices_ = typename Workspace::template buffer<index_type>(capacity + most);
      values_ = typename Workspace::template buffer<float>(capacity + most);
    }

    /// The most entries that one rank subtracts: its own, and those whose sums it rounds.
    [[nodiscard]] std::uint64_t most_sent() const noexcept { return indices_.size(); }

    /// One round. Collective. If it throws, no residual has changed. A message of the first half that is damaged is the
    /// receiver's failure; one of the second is damage. @throws communication_error, mismatch
    template <class Comm, class Codec>
    exchange_result run(exchange_round<Comm, Workspace, Codec> const& round) {
      auto const scattered = scatter_.run(round);
      auto second = round;
      second.failure = scattered.damage;
      second.own = {};
      selection_view sent;
      std::uint64_t saturated = 0;
      try {
        if (!second.failure) second.own = sum(round, scattered.updates, saturated);
        sent = less_rounding(scattered.sent, second.own);
      } catch (...) {
        second.failure = std::current_exception();
      }
      auto result = gather_.run(second);
      result.sent = sent;
      result.message = {};
      result.bytes_sent += scattered.bytes_sent;
      result.bytes_received += scattered.bytes_received;
      result.saturated = scattered.saturated + saturated;
      return result;
    }

   private:
    /// The sums of this rank's shard, as all ranks will decode them; exact ones are in totals_.
    template <class Round>
    selection_view sum(Round const& round, std::span<selection_view const> updates, std::uint64_t& saturated) {
      auto const places = places_.first(round.work.merge(updates, places_.span()));
      auto const sums = sums_.first(places.size());
      round.work.apply(updates, 1.0f, gradient_ref<float>{totals_.span()});
      round.work.gather(totals_.span(), places, sums);
      saturated = round.work.saturate(sums, detail::largest_coded(round.how, round.info, largest_value<float>));
      if constexpr (quantises<std::remove_cvref_t<decltype(round.how)>>) {
        round.how.quantise(round.info, places, sums);
        wire::check_finite(sums);
      }
      return {places, sums, {}};
    }

    /// What this rank has given, less what rounding takes off its sums: together the ranks give the update.
    GRADSIEVE_PRECISE selection_view less_rounding(selection_view const own, selection_view const sums) {
      std::size_t count = 0;
      for (std::size_t at = 0, i = 0; at < own.indices.size() || i < sums.indices.size();) {
        bool const is_own = i == sums.indices.size() || (at < own.indices.size() && own.indices[at] <= sums.indices[i]);
        auto const index = is_own ? own.indices[at] : sums.indices[i];
        bool const is_sum = i < sums.indices.size() && sums.indices[i] == index;
        float const rounded = is_sum ? subtract(totals_[index], sums.values[i]) : 0.0f;
        if (is_own || rounded != 0) {
          indices_[count] = index;
          values_[count++] = subtract(is_own ? own.values[at] : 0.0f, rounded);
        }
        at += is_own ? 1 : 0;
        i += is_sum ? 1 : 0;
      }
      return {indices_.first(count), values_.first(count), {}};
    }

    reduce_scatter::buffers<Workspace> scatter_;
    gather::buffers<Workspace> gather_;
    typename Workspace::template buffer<float> totals_, sums_, values_;
    typename Workspace::template buffer<index_type> places_, indices_;
  };

  friend bool operator==(coded_all_reduce const&, coded_all_reduce const&) = default;
};

}  // namespace gradsieve
