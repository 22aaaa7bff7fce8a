// Every rank receives the update of its own shard; a selection is sent as one message per shard. And what follows from
// it: all-reduces of messages, in which the shards' sums are messages too.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/codec/limit.hpp>
#include <gradsieve/codec/message.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/random.hpp>
#include <gradsieve/core/search.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/exchange/cut_messages.hpp>
#include <gradsieve/exchange/gather.hpp>
#include <gradsieve/exchange/round.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// The shard of a rank: ceil(n / world) of n elements, in rank order, as ZeRO and FSDP divide a flat buffer. The last
/// shards may be shorter or empty. @pre 0 <= rank < world
[[nodiscard]] constexpr range shard_of(std::uint64_t n, int world, int rank) noexcept {
  auto const ranks = static_cast<std::uint64_t>(world);
  std::uint64_t const size = n / ranks + (n % ranks == 0 ? 0 : 1);
  std::uint64_t const begin = smaller(size * static_cast<std::uint64_t>(rank), n);
  return {begin, smaller(size, n - begin)};
}

namespace detail {

/// What messages about one shard's sums have in common on all ranks: as many elements as the largest shard, in one
/// layer, whose bins are the longest of all.
class sums_info {
 public:
  /// Allocates.
  void reserve(message_info const& whole, int world) {
    auto const size = shard_of(whole.n, world, 0).size;
    layer_.assign(1, layout::flat(size));
    bins_.clear();
    if (!whole.bins.empty()) bins_.push_back(*std::ranges::max_element(whole.bins));
    info_ = {size, mix(whole.layout_hash), 0, &layer_[0], bins_};
  }

  /// Of a step's messages of this rank.
  [[nodiscard]] message_info of(message_info const& whole) const noexcept {
    auto info = info_;
    info.step = whole.step;
    info.rank = whole.rank;
    return info;
  }
  [[nodiscard]] std::uint64_t size() const noexcept { return info_.n; }

 private:
  message_info info_{};
  std::vector<layout> layer_;        // info_ points to it
  std::vector<std::uint32_t> bins_;  // and to these
};

/// The ranks' shards and a message_info for each, in which a layer's part is a layer.
class shard_infos {
 public:
  shard_infos() = default;

  /// Allocates.
  shard_infos(message_info const& whole, int world) {
    auto const ranks = static_cast<std::size_t>(world);
    borders_.assign(1, 0);
    layers_.resize(ranks);
    bins_.resize(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      auto const shard = shard_of(whole.n, world, static_cast<int>(r));
      borders_.push_back(shard.offset + shard.size);
      if (whole.layers != nullptr) cut(whole, shard, r);
      infos_.push_back({shard.size, hash_of_part(whole.layout_hash, r), 0,
                        whole.layers == nullptr ? nullptr : &layers_[r], bins_[r]});
    }
  }

  [[nodiscard]] std::span<std::uint64_t const> borders() const noexcept { return borders_; }
  [[nodiscard]] std::span<message_info const> infos() const noexcept { return infos_; }

 private:
  void cut(message_info const& whole, range const& shard, std::size_t r) {
    std::vector<layer> parts;
    for (std::size_t l = 0; l < whole.layers->count(); ++l) {
      auto const& each = (*whole.layers)[l];
      std::uint64_t const begin = larger(whole.layers->offset(l), shard.offset);
      std::uint64_t const end = smaller(whole.layers->offset(l) + each.size, shard.offset + shard.size);
      if (begin >= end) continue;
      parts.push_back(each);
      parts.back().size = end - begin;
      if (!whole.bins.empty()) bins_[r].push_back(whole.bins[l]);
    }
    layers_[r] = layout{std::move(parts)};
  }

  std::vector<std::uint64_t> borders_;
  std::vector<message_info> infos_;
  std::vector<layout> layers_;                    // infos_ points to them
  std::vector<std::vector<std::uint32_t>> bins_;  // and to these
};

}  // namespace detail

/// Every rank receives the update of its own shard (see shard_of()) only: its gradient then has the mean there and
/// zeros elsewhere. For ranks that update only their shard of the parameters, as with ZeRO, FSDP or a parameter server.
/// Together the shards equal what `gather` leaves on every rank, to the bit if the codec is lossless. Passthrough
/// layers, and segments sent in full, are all-reduced: every rank's gradient has their mean. A selection is cut at the
/// shards' borders; each piece is a message of the codec about its shard, with indices, layers, scales and bins of its
/// own, so values are rounded differently than with `gather`. The residual keeps the rounding error.
/// When not: if every rank needs the whole update; if most selected entries lie in one shard, as its rank receives up
/// to P times its share.
/// Cost: a small all-gather, two all-to-alls (sizes, messages), O(k) for the codec. With evenly spread selections a
/// rank receives (P - 1) / P of k entries, and 88 bytes from every other rank; `gather` receives P - 1 times k.
/// Memory: 2 P messages, of as many entries as a shard or a selection has, whichever is less; 12 bytes per entry
/// received, 8 bytes per entry selected.
/// Source: the reduce-scatter of ZeRO (Rajbhandari et al. 2020), with sparse messages as in the first half of Ok-Topk
/// (Li and Hoefler 2022).
struct reduce_scatter {
  static constexpr char const* name = "reduce_scatter";
  static constexpr exchange_traits traits{.all_to_all = true};  ///< what it needs, and does with values

  template <class Workspace>
  class buffers {
   public:
    /// Allocates buffers for `world` messages in each direction, of at most `capacity` entries.
    template <class Codec>
    void reserve(Workspace& work, Codec const& how, message_info const info, int world, std::uint64_t capacity, bool) {
      shards_ = detail::shard_infos{info, world};
      std::uint64_t bytes = 0;
      for (auto const& each : shards_.infos())
        bytes = larger(bytes, how.max_bytes(each.n, smaller(capacity, each.n), 0));
      messages_.reserve(world, bytes, smaller(capacity, shards_.infos()[0].n), capacity);
      work.reserve_updates(static_cast<std::size_t>(world));
    }

    [[nodiscard]] std::uint64_t most_sent() const noexcept { return 0; }

    /// One round. Collective. If it throws, no residual has changed. An exception of decode() is returned as damage;
    /// one of encode() is this rank's failure. @throws communication_error, mismatch
    template <class Comm, class Codec>
    exchange_result run(exchange_round<Comm, Workspace, Codec> const& round) {
      auto const me = static_cast<std::size_t>(round.comm.rank());
      auto const values = messages_.copy(round.own.values);
      exchange_result result{};
      round.meet(messages_.capacity(), [&] {
        result.saturated = round.work.saturate(values, detail::largest_coded(round.how, round.info, round.limit));
        return messages_.write(round.how, round.info, shards_.infos(), shards_.borders(), round.own.indices, values);
      });
      messages_.exchange(round.comm, round.work.where(), result);
      result.sent = {round.own.indices, values, {}};
      try {
        result.updates = messages_.read(round.how, shards_.infos()[me], shards_.borders()[me]);
      } catch (...) {
        result.damage = std::current_exception();
      }
      return result;
    }

   private:
    detail::shard_infos shards_;
    detail::cut_messages<Workspace> messages_;
  };

  friend bool operator==(reduce_scatter const&, reduce_scatter const&) = default;
};

/// An all-reduce of messages: `reduce_scatter`, after which each rank sums what it has received of its shard, as
/// binary32 and in rank order, and `gather` of the largest of these sums: `returned` * m / P of a shard for which the
/// ranks have m entries, or, if the partitioner's ranks select k together, `returned` times its sums. What a rank does
/// not return, and what the codec rounds off, stays in its residual, where what overflows is clamped and counts as
/// saturated. Segments whose k is their size are encoded too, with all their elements, zeros included, whatever the
/// selector: at density 1, with `packed{.values = int4{}}`, everything is sent in a few bits an element.
/// When not: on two or three ranks with a sparse selection, where `gather` sends as little; without a residual, as
/// nothing keeps what is not returned. With momentum_correction a shard's rank clears the velocity of elements whose
/// sums it keeps, too.
/// Cost: both exchanges', a pass that writes n elements, and up to four over a shard's sums. At any P a rank receives
/// (P - 1) / P of k entries and of `returned` k, and 200 bytes from every other rank; at density 1 bits / 32 of a ring
/// all-reduce of binary32. Messages of sums have indices of the shard, and one scale or length of bins where a codec
/// has one for each layer.
/// Memory: both exchanges'; 4 bytes an element, 24 for each of a shard's entries, 8 for each selected.
/// Source: the compressed all-reduce of 1-bit Adam (Tang et al. 2021), for any codec and for sparse selections; a
/// selection of the sums as in Ok-Topk (Li and Hoefler 2022), but what is not returned waits in a residual.
struct coded_all_reduce {
  static constexpr char const* name = "coded_all_reduce";
  static constexpr exchange_traits traits{.all_to_all = true, .codes_full = true};  ///< what it needs, and does
  static constexpr auto fields() {
    return std::tuple{field<&coded_all_reduce::returned>{"returned", between(0.125, 1e9)}};
  }

  double returned = 2;  ///< entries that all ranks together return, in units of k; from P on everything is

  template <class Workspace>
  class buffers {
   public:
    /// For an exchange that returns as many.
    explicit buffers(coded_all_reduce const& how) : returned_{how.returned} {}

    /// Allocates buffers for messages of at most `capacity` entries of each rank, and of their union in a shard.
    template <class Codec>
    void reserve(Workspace& work, Codec const& how, message_info const info, int world, std::uint64_t capacity,
                 bool disjoint) {
      auto const shard = shard_of(info.n, world, 0).size;
      auto const most = std::min(shard, capacity * static_cast<std::uint64_t>(world));
      scatter_.reserve(work, how, info, world, capacity, disjoint);
      together_ = disjoint;
      most_returned_ = std::min(most, share_of(disjoint ? most : std::min(shard, capacity), 1));
      about_.reserve(info, world);
      gather_.reserve(work, how, about_.of(info), world, most_returned_, disjoint);
      relative_ = typename Workspace::template buffer<index_type>(most_returned_);
      totals_ = typename Workspace::template buffer<float>(info.n);
      places_ = typename Workspace::template buffer<index_type>(most);
      kept_ = typename Workspace::template buffer<index_type>(most);
      sums_ = typename Workspace::template buffer<float>(most);
      indices_ = typename Workspace::template buffer<index_type>(capacity + most);
      values_ = typename Workspace::template buffer<float>(capacity + most);
    }

    /// The most entries that one rank subtracts: its own, and those whose sums it has.
    [[nodiscard]] std::uint64_t most_sent() const noexcept { return indices_.size(); }

    /// One round. Collective. If it throws, no residual has changed. A message of the first half that is damaged is the
    /// receiver's failure; one of the second is damage. @throws communication_error, mismatch
    template <class Comm, class Codec>
    exchange_result run(exchange_round<Comm, Workspace, Codec> const& round) {
      auto const scattered = scatter_.run(round);
      auto const about = about_.of(round.info);
      auto second = round;
      second.failure = scattered.damage;
      second.own = {};
      selection_view sent;
      std::uint64_t saturated = 0;
      try {
        if (!second.failure) {
          auto const shard = places_.first(round.work.merge(scattered.updates, places_.span()));
          auto const back = sums(round, about, scattered.updates, shard, saturated);
          sent = less_kept(round.accumulator, scattered.sent, shard, back, saturated);
          second.own = {relative_.first(back.indices.size()), back.values, {}};
        }
      } catch (...) {
        second.failure = std::current_exception();
      }
      auto result = gather_.run(second, about, about_.size());
      result.sent = sent;
      result.message = {};
      result.bytes_sent += scattered.bytes_sent;
      result.bytes_received += scattered.bytes_received;
      result.saturated = scattered.saturated + saturated;
      return result;
    }

   private:
    /// How many sums are returned for the `entries` of so many ranks that each select k.
    [[nodiscard]] std::uint64_t share_of(std::uint64_t entries, int ranks) const noexcept {
      return static_cast<std::uint64_t>(std::ceil(returned_ * static_cast<double>(entries) / ranks));
    }

    /// The sums that are returned, as all ranks will decode them; exact ones of the whole `shard` are in totals_, the
    /// places in the shard in relative_.
    template <class Round>
    selection_view sums(Round const& round, message_info const& about, std::span<selection_view const> updates,
                        std::span<index_type const> shard, std::uint64_t& saturated) {
      round.work.apply(updates, 1.0f, gradient_ref<float>{totals_.span()});
      std::uint64_t entries = 0;
      for (auto const& each : updates) entries += each.indices.size();
      auto const share = together_ ? share_of(shard.size(), 1) : share_of(entries, round.comm.size());
      auto const kept = largest(shard, std::min(share, most_returned_));
      auto const values = sums_.first(kept.size());
      round.work.gather(totals_.span(), kept, values);
      saturated = round.work.saturate(values, detail::largest_coded(round.how, about, largest_value<float>));
      auto const first = about_.size() * static_cast<std::uint64_t>(round.comm.rank());
      for (std::size_t i = 0; i < kept.size(); ++i) relative_[i] = static_cast<index_type>(kept[i] - first);
      if constexpr (quantises<std::remove_cvref_t<decltype(round.how)>>) {
        round.how.quantise(about, relative_.first(kept.size()), values);
        wire::check_finite(values);
      }
      return {kept, values, {}};
    }

    /// The places of the `most` largest totals, of equal ones the first; zeros are not among them.
    std::span<index_type const> largest(std::span<index_type const> const shard, std::uint64_t most) {
      if (shard.size() <= most) return shard;
      auto const key = [&](index_type at) { return smaller(magnitude_key(totals_[at]), infinite_key - 1); };
      detail::digit_search search{1, infinite_key - 1, static_cast<index_type>(most)};
      while (!search.done()) {
        std::array<std::uint32_t, detail::digit_search::bins + 1> histogram{};  // the last counts what is outside
        for (auto const at : shard) ++histogram[search.bin(key(at))];
        search.next(std::span{histogram}.first(detail::digit_search::bins));
      }
      auto [least, ties] = search.result();
      std::size_t count = 0;
      for (auto const at : shard)
        if (auto const here = key(at); here > least || (here == least && ties > 0)) {
          ties -= here == least ? 1 : 0;
          kept_[count++] = at;
        }
      return kept_.first(count);
    }

    /// What this rank has given, less what of its shard's totals is not in the sums: together the ranks give the
    /// update.
    GRADSIEVE_PRECISE selection_view less_kept(std::span<float const> accumulator, selection_view const own,
                                               std::span<index_type const> shard, selection_view const sums,
                                               std::uint64_t& saturated) {
      std::size_t count = 0;
      for (std::size_t at = 0, i = 0, j = 0; at < own.indices.size() || i < shard.size();) {
        bool const is_own = i == shard.size() || (at < own.indices.size() && own.indices[at] <= shard[i]);
        auto const index = is_own ? own.indices[at] : shard[i];
        float kept = 0;
        if (i < shard.size() && shard[i] == index) {
          ++i;
          bool const is_sum = j < sums.indices.size() && sums.indices[j] == index;
          kept = is_sum ? subtract(totals_[index], sums.values[j++]) : totals_[index];
        }
        if (is_own || kept != 0) {
          indices_[count] = index;
          float value = subtract(is_own ? own.values[at] : 0.0f, kept);
          if (float const rest = subtract(accumulator[index], value); kept != 0 && !is_finite(rest)) {
            value = subtract(accumulator[index], std::copysign(largest_value<float> / 2, rest));
            ++saturated;
          }
          values_[count++] = value;
        }
        at += is_own ? 1 : 0;
      }
      return {indices_.first(count), values_.first(count), {}};
    }

    double returned_;
    bool together_ = false;            // whether the ranks select k together
    std::uint64_t most_returned_ = 0;  // sums of a shard
    reduce_scatter::buffers<Workspace> scatter_;
    gather::buffers<Workspace> gather_;
    detail::sums_info about_;
    typename Workspace::template buffer<float> totals_, sums_, values_;
    typename Workspace::template buffer<index_type> places_, kept_, relative_, indices_;
  };

  friend bool operator==(coded_all_reduce const&, coded_all_reduce const&) = default;
};

}  // namespace gradsieve
