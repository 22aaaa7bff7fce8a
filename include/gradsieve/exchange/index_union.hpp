// All-reduce of values at the union of all ranks' indices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/core/fields.hpp>
#include <gradsieve/exchange/round.hpp>
#include <gradsieve/exchange/value_sum.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// All-gathers the indices and sums all ranks' accumulators at their union; every rank subtracts its values there.
/// Indices use the codec's `indices`, values are summed in the format of its `values`. The transport must not damage
/// indices, as ranks would then sum different elements.
/// When not: with a partitioner for which all ranks select from the same segments (`whole`), as the union grows with
/// their number; with `deft` it stays at k.
/// Cost: two all-gathers and an all-reduce (for shorter values: send_receives and an all-gather); O(union + span / 64).
/// Memory: 20 bytes per entry of the union, and the longest list that the index codec may write.
/// Source: DEFT (Yoon and Oh 2023); MiCRO and SAGE use the same exchange.
struct index_union {
  static constexpr char const* name = "index_union";
  static constexpr exchange_traits traits{.sums_values = true};  ///< what it needs, and does with values

  template <class Workspace>
  class buffers {
   public:
    /// Allocates buffers for `world` index lists of at most `capacity` entries each, or together if `disjoint`.
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
      if constexpr (separable_codec<Codec>) {
        list_ = typename Workspace::template buffer<std::byte>(detail::list_capacity(how.indices, info.n, capacity));
        arrived_ = typename Workspace::template buffer<std::byte>(4 * listed);
        sum_.reserve(how.values, most, world);
      }
      work.reserve_updates(ranks);
    }

    /// The most entries that one rank subtracts in a step.
    [[nodiscard]] std::uint64_t most_sent() const noexcept { return indices_.size(); }

    /// One round. Collective. If it throws, no residual has changed. An exception of the index codec's encode() is this
    /// rank's failure. @throws communication_error; mismatch, also if the ranks together list more than reserve()
    /// allows; corrupt_message if a list is not what its rank wrote.
    template <class Comm, class Codec>
    exchange_result run(exchange_round<Comm, Workspace, Codec> const& round) {
      auto const& index_codec = round.how.indices;
      auto const mine = detail::list_size::of(round.meet(~std::uint64_t{0}, [&] {
        return detail::encode_list(index_codec, round.info, round.own.indices, list_.span()).packed();
      }));
      detail::list_size total;
      for (std::size_t r = 0; r < sizes_.size(); ++r) {
        auto const size = detail::list_size::of(round.ranks.size(r));
        detail::require_fits(size, r, all_.size());
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
        auto const list = all_.span().subspan(at, detail::list_size::of(round.ranks.size(r)).count);
        detail::decode_list(index_codec, round.info, arrived.subspan(byte, sizes_[r]), list);
        lists_[r] = {list, {}, {}};
        at += list.size();
      }
      auto result = sum_.at(round, indices_.first(round.work.merge(lists_, indices_.span())));
      result.bytes_sent += mine.bytes();
      result.bytes_received += total.bytes() - mine.bytes();
      result.index_codec = detail::list_codec(index_codec, mine, list_.span());
      return result;
    }

   private:
    std::vector<std::size_t> sizes_;
    std::vector<selection_view> lists_;
    typename Workspace::template buffer<index_type> all_, indices_;
    typename Workspace::template buffer<std::byte> list_, arrived_;  // as sent
    detail::value_sum<Workspace> sum_;
  };

  friend bool operator==(index_union const&, index_union const&) = default;
};

}  // namespace gradsieve
