// All-gather of messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include <gradsieve/codec/checked.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/exchange/decoded_messages.hpp>
#include <gradsieve/exchange/round.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// All-gather of encoded selections, added in rank order, so that all ranks end with the same bits.
/// When not: with many ranks, as the received bytes grow with their number; a dense all-reduce costs less at a density
/// above 1 / ranks.
/// Cost: two all-gathers, O(ranks * k) to decode. Memory: ranks * (message + 8 k) bytes.
struct gather {
  static constexpr char const* name = "gather";
  static constexpr exchange_traits traits{.encodes = true};  ///< what it needs, and what it does with values

  template <class Workspace>
  class buffers {
   public:
    /// Allocates buffers for `world` messages of at most `capacity` entries.
    template <class Codec>
    void reserve(Workspace& work, Codec const& how, message_info const info, int world, std::uint64_t capacity, bool) {
      auto const ranks = static_cast<std::size_t>(world);
      std::uint64_t const bytes = (how.max_bytes(info.n, capacity, 0) + 7) / 8 * 8;
      sizes_.resize(ranks);
      messages_.resize(ranks);
      mine_ = typename Workspace::template buffer<std::byte>(bytes);
      all_ = typename Workspace::template buffer<std::byte>(bytes * ranks);
      decoded_.reserve(ranks, capacity * ranks, 0);
      capacity_ = capacity;
      work.reserve_updates(ranks);
    }

    [[nodiscard]] std::uint64_t most_sent() const noexcept { return 0; }

    /// One round. Collective. If it throws, no residual has changed. An exception of the codec's decode() is returned
    /// as damage; one of its encode() is this rank's failure. @throws mismatch, communication_error
    template <class Comm, class Codec>
    exchange_result run(exchange_round<Comm, Workspace, Codec> const& round) {
      auto info = round.info;
      info.passthrough = 0;  // those layers are all-reduced separately
      return run(round, info, 0);
    }
    /// The same with messages that `info` describes; `size` not 0: that of rank r is about as many elements, from
    /// element r * size on, and its indices count from there.
    template <class Comm, class Codec>
    exchange_result run(exchange_round<Comm, Workspace, Codec> const& round, message_info const& info,
                        std::uint64_t size) {
      auto const bytes = round.meet(mine_.size(), [&] {
        return detail::encode_checked(round.how, info, {round.own.indices, round.own.values, {}}, mine_.span());
      });
      for (std::size_t r = 0; r < sizes_.size(); ++r) sizes_[r] = round.ranks.size(r);
      auto const all = all_.first(round.ranks.total());
      round.comm.all_gather(round.work.where(), std::span<std::byte const>{mine_.first(bytes)}, all, sizes_);
      decoded_.clear();
      exchange_result result{{}, round.own, {}, bytes, round.ranks.total() - bytes, mine_.first(bytes)};
      try {
        std::size_t at = 0;
        for (std::size_t r = 0; r < sizes_.size(); at += sizes_[r++]) messages_[r] = all.subspan(at, sizes_[r]);
        decoded_.add_all(
            round.work, round.how, info, messages_, [&](std::size_t) { return capacity_; }, size == 0, size,
            round.info.n);
        result.updates = decoded_.messages();
      } catch (...) {
        result.damage = std::current_exception();
      }
      return result;
    }

   private:
    std::vector<std::size_t> sizes_;
    std::vector<std::span<std::byte const>> messages_;
    std::uint64_t capacity_ = 0;  // entries of one message at most
    typename Workspace::template buffer<std::byte> mine_, all_;
    decoded_messages<Workspace> decoded_;
  };

  friend bool operator==(gather const&, gather const&) = default;
};

}  // namespace gradsieve
