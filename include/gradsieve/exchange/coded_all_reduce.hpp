// Every rank receives the whole update in messages of the codec, both ways: an all-to-all, sums, and an all-gather.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/codec/checked.hpp>
#include <gradsieve/codec/limit.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/arithmetic.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/exchange/decoded_messages.hpp>
#include <gradsieve/exchange/reduce_scatter.hpp>
#include <gradsieve/exchange/round.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// An all-reduce of messages: `reduce_scatter`, after which each rank sums what it has received of its shard as
/// binary32, in rank order, encodes the sums and all-gathers them. All ranks get the same bits. A shard's rank keeps in
/// its residual what the codec rounds off its sums. Segments whose k is their size are encoded too, with all their
/// elements, zeros included, whatever the selector: at density 1, `{.density = 1, .codec = packed{.values = int4{}}}`,
/// everything is sent in a few bits an element, with 8 bytes for the places of each message.
/// When not: below a density of about 1 / P, as `gather` sends less; on a device, where it is refused; without a
/// residual, as nothing keeps what is rounded.
/// Cost: reduce_scatter's, and two all-gathers (sizes, messages); O(entries) for the codec, twice. A rank receives
/// (P - 1) / P of all entries, and as many of the union; 80 bytes a message beside them. Both ways together that is
/// bits / 32 of a ring all-reduce of binary32, at any P.
/// Memory: reduce_scatter's; the messages of all shards, 8 bytes for each of their entries, 24 for each of one shard's
/// and 8 for each selected.
/// Source: the compressed all-reduce of 1-bit Adam (Tang et al. 2021), for any codec and for sparse selections.
struct coded_all_reduce {
  static constexpr char const* name = "coded_all_reduce";
  static constexpr exchange_traits traits{.all_to_all = true, .codes_full = true};  ///< what it needs, and does

  template <class Workspace>
  class buffers : reduce_scatter::buffers<Workspace> {
    using scatter = reduce_scatter::buffers<Workspace>;
    template <class T>
    using buffer = typename Workspace::template buffer<T>;
    static constexpr std::uint64_t failed = ~std::uint64_t{0};  // instead of a size

   public:
    /// Allocates buffers for `world` messages in each direction, of at most `capacity` entries.
    template <class Codec>
    void reserve(Workspace& work, Codec const& how, message_info const info, int world, std::uint64_t capacity,
                 bool disjoint) {
      scatter::reserve(work, how, info, world, capacity, disjoint);
      auto const ranks = static_cast<std::size_t>(world);
      auto const shard = this->shards_.infos()[0].n;
      most_ = std::min(shard, capacity * ranks);
      message_ = 0;
      for (auto const& each : this->shards_.infos())
        message_ = std::max(message_, how.max_bytes(each.n, std::min(each.n, most_), 0));
      sizes_.assign(ranks, 0);
      lengths_.assign(ranks, 0);
      total_ = buffer<float>(shard);
      sums_ = buffer<float>(most_);
      places_ = buffer<index_type>(most_);
      indices_ = buffer<index_type>(capacity + most_);
      values_ = buffer<float>(capacity + most_);
      mine_ = buffer<std::byte>(message_);
      all_ = buffer<std::byte>(message_ * ranks);
      decoded_.reserve(ranks, most_ * ranks, 0);
    }

    /// The most entries that one rank subtracts: its own, and those whose sums it rounds.
    [[nodiscard]] std::uint64_t most_sent() const noexcept { return indices_.size(); }

    /// One round. Collective. If it throws, no residual has changed. A damaged message is damage on all ranks, but for
    /// one to a single rank in the all-gather. @throws communication_error, mismatch
    template <class Comm, class Codec>
    exchange_result run(exchange_round<Comm, Workspace, Codec> const& round) {
      auto result = scatter::run(round);
      auto const me = static_cast<std::size_t>(round.comm.rank());
      std::size_t size = failed;
      try {
        if (!result.damage) size = write_sums(round, result, me);
      } catch (...) {
        result.damage = std::current_exception();
      }
      result.updates = {};
      sizes_[me] = size;
      round.comm.all_gather(round.work.where(), std::as_bytes(std::span{sizes_}.subspan(me, 1)),
                            std::as_writable_bytes(std::span{sizes_}));
      std::size_t total = 0;
      bool fails = false;
      for (std::size_t r = 0; r < sizes_.size(); total += lengths_[r++]) {
        fails = fails || sizes_[r] == failed;
        if (!fails && sizes_[r] > message_)
          throw mismatch("gradsieve: rank " + std::to_string(r) + " announces a size of " + std::to_string(sizes_[r]) +
                         ", there is room for " + std::to_string(message_));
        lengths_[r] = sizes_[r];
      }
      if (fails) {
        if (!result.damage)
          result.damage = std::make_exception_ptr(
              communication_error("gradsieve: a message was damaged on its way to another rank"));
        return result;
      }
      auto const all = all_.first(total);
      round.comm.all_gather(round.work.where(), std::span<std::byte const>{mine_.first(size)}, all, lengths_);
      result.bytes_sent += sizeof(std::uint64_t) + size;
      result.bytes_received += sizeof(std::uint64_t) * (sizes_.size() - 1) + total - size;
      decoded_.clear();
      try {
        std::size_t at = 0;
        for (std::size_t r = 0; r < lengths_.size(); at += lengths_[r++])
          if (auto const& info = this->shards_.infos()[r]; lengths_[r] > 0)
            decoded_.add(round.how, info, all.subspan(at, lengths_[r]), std::min(most_, info.n),
                         static_cast<index_type>(r == 0 ? 0 : this->shards_.borders()[r]));
        result.updates = decoded_.messages();
      } catch (...) {
        result.damage = std::current_exception();
      }
      return result;
    }

   private:
    /// Encodes the sums of this rank's shard; returns the bytes. Then the result's sent entries of the shard are what
    /// this rank has given, less what rounding has taken off the sums.
    template <class Round>
    GRADSIEVE_PRECISE std::size_t write_sums(Round const& round, exchange_result& result, std::size_t me) {
      auto const first = static_cast<index_type>(this->shards_.borders()[me]);
      auto const count = round.work.merge(result.updates, places_.span());
      auto const places = places_.first(count);
      auto const sums = sums_.first(count);
      for (auto const i : places) total_[i - first] = 0;
      for (auto const& each : result.updates)
        for (std::size_t i = 0; i < each.indices.size(); ++i)
          total_[each.indices[i] - first] = add(total_[each.indices[i] - first], each.values[i]);
      for (std::size_t i = 0; i < count; ++i) {
        sums[i] = total_[places[i] - first];
        places[i] -= first;
      }
      auto info = this->shards_.infos()[me];
      info.step = round.info.step;
      info.rank = round.info.rank;
      result.saturated += round.work.saturate(sums, detail::largest_coded(round.how, info, largest_value<float>));
      if constexpr (quantises<std::remove_cvref_t<decltype(round.how)>>) {
        round.how.quantise(info, places, sums);
        wire::check_finite(sums);
      }
      subtract_rounding(result, first, places, sums);
      return count == 0 ? 0
                        : static_cast<std::size_t>(
                              detail::encode_checked(round.how, info, {places, sums, {}}, mine_.span()));
    }

    GRADSIEVE_PRECISE void subtract_rounding(exchange_result& result, index_type first,
                                             std::span<index_type const> places, std::span<float const> sums) {
      auto const own = result.sent;
      std::size_t at = 0;
      std::size_t count = 0;
      auto const put = [&](index_type index, float value) {
        indices_[count] = index;
        values_[count++] = value;
      };
      for (std::size_t i = 0; i < places.size(); ++i) {
        for (; at < own.indices.size() && own.indices[at] < first + places[i]; ++at)
          put(own.indices[at], own.values[at]);
        bool const mine = at < own.indices.size() && own.indices[at] == first + places[i];
        float const rounded = subtract(total_[places[i]], sums[i]);
        if (mine || rounded != 0) put(first + places[i], subtract(mine ? own.values[at] : 0.0f, rounded));
        if (mine) ++at;
      }
      for (; at < own.indices.size(); ++at) put(own.indices[at], own.values[at]);
      result.sent = {indices_.first(count), values_.first(count), {}};
    }

    std::uint64_t most_ = 0;     // entries of a shard's sums
    std::uint64_t message_ = 0;  // bytes of their message
    std::vector<std::uint64_t> sizes_;
    std::vector<std::size_t> lengths_;
    buffer<float> total_;       // of the shard, where there are entries
    buffer<float> sums_;        // these, as encoded
    buffer<index_type> places_, indices_;
    buffer<float> values_;
    buffer<std::byte> mine_, all_;
    decoded_messages<Workspace> decoded_;
  };

  friend bool operator==(coded_all_reduce const&, coded_all_reduce const&) = default;
};

}  // namespace gradsieve
