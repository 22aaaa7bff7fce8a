// Every rank receives the update of its own shard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include <gradsieve/codec/limit.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/random.hpp>
#include <gradsieve/exchange/cut_messages.hpp>
#include <gradsieve/exchange/round.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// The shard of a rank: ceil(n / world) of n elements, in rank order, as ZeRO and FSDP cut a flat buffer. The last
/// shards may be shorter or empty. @pre 0 <= rank < world
[[nodiscard]] constexpr range shard_of(std::uint64_t n, int world, int rank) noexcept {
  auto const ranks = static_cast<std::uint64_t>(world);
  std::uint64_t const size = n / ranks + (n % ranks == 0 ? 0 : 1);
  std::uint64_t const begin = smaller(size * static_cast<std::uint64_t>(rank), n);
  return {begin, smaller(size, n - begin)};
}

namespace detail {

/// The ranks' shards, and a message_info for each: its part of each layer is a layer there.
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
      infos_.push_back(
          {shard.size, mix(whole.layout_hash ^ (r + 1)), 0, whole.layers == nullptr ? nullptr : &layers_[r], bins_[r]});
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

/// Every rank receives the update of its own shard. A rank's selection is cut at the borders of the shards, see
/// shard_of(), and each piece is sent to the shard's rank. A rank's gradient then has the mean in its own shard and
/// zeros elsewhere: for ranks that update only their shard of the parameters, as with ZeRO, FSDP or a parameter server.
/// Together the shards equal what `gather` leaves on every rank, to the bit if the codec is lossless. Layers that pass
/// through, and segments that are sent in full, are all-reduced: every rank's gradient has their mean. A piece is a
/// message of the codec about its shard, with indices, layers, scales and bins of its own, so values are rounded
/// differently than with `gather`. The residual keeps the rounding error.
/// When not: if every rank needs the whole update; if most selected entries lie in one shard, as its rank receives up
/// to P times its share.
/// Cost: a small all-gather, two all-to-alls (sizes, messages), O(k) to encode and to decode. With evenly spread
/// selections a rank receives (P - 1) / P of k entries, and 88 bytes from every other rank; `gather` receives P - 1
/// times k.
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

    /// The most entries that one rank subtracts in a step beyond those that it has selected.
    [[nodiscard]] std::uint64_t most_sent() const noexcept { return 0; }

    /// One round. Collective. If it throws, no residual has changed. An exception of decode() is
    /// returned as damage; one of encode() is this rank's failure. @throws communication_error,
    /// mismatch
    template <class Comm, class Codec>
    exchange_result run(exchange_round<Comm, Workspace, Codec> const& round) {
      auto const me = static_cast<std::size_t>(round.comm.rank());
      auto const values = messages_.copy(round.own.values);
      exchange_result result{};
      round.meet(messages_.capacity(), [&] {
        result.saturated = round.work.saturate(values, detail::largest_coded(round.how, round.info, round.limit));
        return messages_.write(round.how, round.info, shards_.infos(), shards_.borders(), round.own.indices, values);
      });
      auto const moved = messages_.exchange(round.comm, round.work.where());
      result.sent = {round.own.indices, values, {}};
      result.bytes_sent = moved.sent;
      result.bytes_received = moved.received;
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

}  // namespace gradsieve
