// Every rank contributes its values at the union of all ranks' choices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/exchange/round.hpp>
#include <gradsieve/fields.hpp>

namespace gradsieve {

/// All-gather of indices, all-reduce of every rank's accumulator at their union; every rank then gives up all of
/// these places. Values travel as binary32, indices as u32: the codec is not asked. The transport must not damage them:
/// ranks that hold different unions do not fit in the all-reduce.
/// When not: with overlapping choices (`whole`) the union grows with the ranks; with `deft` it stays at k.
/// Cost: two all-gathers and an all-reduce, O(union + span / 64). Memory: 16 bytes an entry of the union.
/// Source: DEFT (Yoon and Oh 2023), as MiCRO and SAGE.
struct index_union {
  static constexpr char const* name = "index_union";
  static constexpr bool encodes = false;  ///< values are binary32: nothing is quantised

  template <class Workspace>
  class buffers {
   public:
    /// Room for `world` index lists of at most `capacity` entries each, together if `disjoint`. Allocates.
    template <class Codec>
    void reserve(Workspace& work, Codec const&, message_info const info, int world, std::uint64_t capacity,
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
      work.reserve_updates(ranks);
    }

    /// Entries that one rank gives up in a step at most.
    [[nodiscard]] std::uint64_t most_sent() const noexcept { return indices_.size(); }

    /// Collective. @throws as preflight::meet(); mismatch if the ranks list more than reserve() was told, or
    /// indices out of order; nothing has been given up then.
    template <class Comm, class Codec>
    exchange_result run(exchange_round<Comm, Workspace, Codec> const& round) {
      auto const own = round.own.indices;
      auto const& ranks = round.ranks;
      round.meet(own.size(), all_.size());
      if (ranks.total() > all_.size())
        throw mismatch("gradsieve: the ranks list " + std::to_string(ranks.total()) + " indices, room is for " +
                       std::to_string(all_.size()));
      for (std::size_t r = 0; r < sizes_.size(); ++r) sizes_[r] = ranks.size(r) * sizeof(index_type);
      auto const all = all_.first(ranks.total());
      round.comm.all_gather(round.work.where(), std::as_bytes(own), std::as_writable_bytes(all), sizes_);
      std::size_t at = 0;
      for (std::size_t r = 0; r < sizes_.size(); at += ranks.size(r++)) {
        lists_[r] = {all.subspan(at, ranks.size(r)), {}, {}};
        auto const found = lists_[r].indices;
        if (!std::is_sorted(found.begin(), found.end()) || (!found.empty() && found.back() >= round.accumulator.size()))
          throw mismatch("gradsieve: rank " + std::to_string(r) + " sent indices out of order or range");
      }
      auto const count = round.work.merge(lists_, indices_.span());
      auto const indices = indices_.first(count);
      round.work.gather(round.accumulator, indices, own_.span());
      auto const saturated = round.work.saturate(own_.first(count), round.limit);
      std::copy_n(own_.data(), count, sums_.data());
      round.comm.all_reduce(round.work.where(), sums_.first(count), reduction::sum);
      update_ = {indices, sums_.first(count), {}};
      return {{&update_, 1},
              {indices, own_.first(count), {}},
              {},
              4 * (own.size() + count),
              4 * (ranks.total() - own.size() + count),
              {},
              saturated};
    }

   private:
    std::vector<std::size_t> sizes_;
    std::vector<selection_view> lists_;
    selection_view update_;
    typename Workspace::template buffer<index_type> all_, indices_;
    typename Workspace::template buffer<float> own_, sums_;
  };

  friend bool operator==(index_union const&, index_union const&) = default;
};

}  // namespace gradsieve
