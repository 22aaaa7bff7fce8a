// Every rank contributes its values at the union of all ranks' choices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/core/fields.hpp>
#include <gradsieve/exchange/index_list.hpp>
#include <gradsieve/exchange/round.hpp>
#include <gradsieve/exchange/value_sum.hpp>

namespace gradsieve {

/// All-gather of indices, sums of all ranks' accumulators at their union; every rank then gives up all of these places.
/// Indices travel as the codec's `indices` writes them, values in the format of its `values`: see index_list.hpp and
/// value_sum.hpp. The transport must not damage them: ranks that hold different unions do not fit together.
/// When not: with overlapping choices (`whole`) the union grows with the ranks; with `deft` it stays at k.
/// Cost: two all-gathers and an all-reduce, or what value_sum takes, O(union + span / 64). Memory: 20 bytes an entry of
/// the union, and a list as the index codec may write it at most.
/// Source: DEFT (Yoon and Oh 2023), as MiCRO and SAGE.
struct index_union {
  static constexpr char const* name = "index_union";
  static constexpr bool encodes = false;     ///< no message of the codec's is sent: the exchange itself rounds values
  static constexpr bool sums_values = true;  ///< of a separable codec

  template <class Workspace>
  class buffers {
   public:
    /// Room for `world` index lists of at most `capacity` entries each, together if `disjoint`. Allocates.
    template <class Codec>
    void reserve(Workspace& work, Codec const& how, message_info const info, int world, std::uint64_t capacity,
                 bool disjoint) {
      auto const ranks = static_cast<std::size_t>(world);
      std::uint64_t const listed = disjoint ? capacity : capacity * ranks;
      std::uint64_t const most = std::min(listed, info.n);
      sizes_.resize(ranks);
      lists_.resize(ranks);
      all_ = typename Workspace::template buffer<index_type>(listed);
      indices_ = typename Workspace::template buffer<index_type>(most);
      own_ = typename Workspace::template buffer<float>(most);
      sums_ = typename Workspace::template buffer<float>(most);
      if constexpr (separable_codec<Codec>) {
        list_ = typename Workspace::template buffer<std::byte>(list_room(how.indices, info.n, capacity));
        arrived_ = typename Workspace::template buffer<std::byte>(4 * listed);
        sum_.reserve(how.values, most, world);
      }
      work.reserve_updates(ranks);
    }

    /// Entries that one rank gives up in a step at most.
    [[nodiscard]] std::uint64_t most_sent() const noexcept { return indices_.size(); }

    /// Collective. @throws as preflight::meet(); mismatch if the ranks list more than reserve() was given;
    /// corrupt_message if a list is not what its rank wrote; nothing has been given up then. What the index codec's
    /// encode() throws is this rank's failure.
    template <class Comm, class Codec>
    exchange_result run(exchange_round<Comm, Workspace, Codec> const& round) {
      auto const& index_codec = round.how.indices;
      auto const& value_codec = round.how.values;
      auto const mine = list_size::of(round.meet(~std::uint64_t{0}, [&] {
        return encode_list(index_codec, round.info, round.own.indices, list_.span()).packed();
      }));
      list_size total;
      for (std::size_t r = 0; r < sizes_.size(); ++r) {
        auto const size = list_size::of(round.ranks.size(r));
        require_room(size, r, all_.size());
        sizes_[r] = size.bytes();
        total.count += size.count;
        total.words += size.words;
      }
      if (total.count > all_.size())
        throw mismatch("gradsieve: the ranks list " + std::to_string(total.count) +
                       " indices together, there is room for " + std::to_string(all_.size()));
      auto const arrived = arrived_.first(total.bytes());
      round.comm.all_gather(round.work.where(), std::span<std::byte const>{list_.first(mine.bytes())}, arrived, sizes_);
      std::size_t byte = 0;
      std::size_t at = 0;
      for (std::size_t r = 0; r < sizes_.size(); byte += sizes_[r++]) {
        auto const list = all_.span().subspan(at, list_size::of(round.ranks.size(r)).count);
        decode_list(index_codec, round.info, arrived.subspan(byte, sizes_[r]), list);
        lists_[r] = {list, {}, {}};
        at += list.size();
      }
      auto const count = round.work.merge(lists_, indices_.span());
      auto const indices = indices_.first(count);
      auto const own = own_.first(count);
      round.work.gather(round.accumulator, indices, own_.span());
      auto const saturated =
          round.work.saturate(own, sum_.limit(value_codec, round.info, round.comm.size(), round.limit));
      auto const moved = sum_.run(round.comm, round.work, value_codec, round.info, own, sums_.first(count));
      update_ = {indices, sums_.first(count), {}};
      exchange_result result{{&update_, 1},
                             {indices, own, {}},
                             {},
                             mine.bytes() + moved.sent,
                             total.bytes() - mine.bytes() + moved.received,
                             {},
                             saturated};
      result.index_codec = list_codec(index_codec, mine, list_.span());
      return result;
    }

   private:
    std::vector<std::size_t> sizes_;
    std::vector<selection_view> lists_;
    selection_view update_;
    typename Workspace::template buffer<index_type> all_, indices_;
    typename Workspace::template buffer<float> own_, sums_;
    typename Workspace::template buffer<std::byte> list_, arrived_;  // as they travel
    value_sum<Workspace> sum_;
  };

  friend bool operator==(index_union const&, index_union const&) = default;
};

}  // namespace gradsieve
