// A tree of ranks; at each node two selections are merged into one of k entries.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>

#include <gradsieve/codec/checked.hpp>
#include <gradsieve/codec/limit.hpp>
#include <gradsieve/codec/message.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/exchange/round.hpp>
#include <gradsieve/published/merged_list.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Merges selections along a binomial tree into one of k entries. At each node two lists are merged: values of equal
/// indices are added, and the k largest magnitudes are kept, of equal ones those with the lower indices. k is the
/// step's budget. The final list goes to all ranks. Then, down the tree, a bit for each of its entries says whether the
/// values of this part of the tree are in it. A rank gives up only the values of its own that are in the final list and
/// keeps all others, so that nothing is lost. Needs a codec that loses no bits, as sums are encoded.
/// When not: where the largest sums of all ranks are needed, see `ok_topk`; here an entry is dropped that is small in
/// each half of the tree and large only in the sum. With many ranks, as the latencies of the levels add up.
/// Cost: a small all-gather; log2 P times a size, a list of k entries and k / 8 bytes; two broadcasts; O(k log P).
/// Memory: a message and 72 bytes an entry.
/// Source: gTop-k (Shi et al., ICDCS 2019). Other than there, a rank keeps values that were dropped on the way, also at
/// indices of the final list, and P need not be a power of two.
struct gtopk {
  static constexpr char const* name = "gtopk";
  static constexpr exchange_traits traits{.exact_values = true, .broadcast = true, .send_receive = true};  ///< what it needs, and does with values

  template <class Workspace>
  class buffers {
   public:
    /// Room for lists of at most `capacity` entries. Allocates.
    template <class Codec>
    void reserve(Workspace& work, Codec const& how, message_info const info, int, std::uint64_t capacity, bool) {
      capacity_ = smaller(capacity, info.n);
      message_ = (how.max_bytes(info.n, capacity_, 0) + 7) / 8 * 8;
      bytes_ = typename Workspace::template buffer<std::byte>(message_);
      own_ = typename Workspace::template buffer<float>(capacity_);
      list_.reserve(capacity_);
      other_.reserve(capacity_);
      shares_ = typename Workspace::template buffer<std::uint32_t>(capacity_);
      mask_ = typename Workspace::template buffer<std::byte>(mask_bytes(capacity_));
      part_ = typename Workspace::template buffer<std::byte>(mask_bytes(capacity_));
      sent_indices_ = typename Workspace::template buffer<index_type>(capacity_);
      sent_values_ = typename Workspace::template buffer<float>(capacity_);
      work.reserve_updates(1);
    }

    /// Entries that one rank gives up in a step at most, beyond those that it has selected.
    [[nodiscard]] std::uint64_t most_sent() const noexcept { return 0; }

    /// One round. Collective. Whatever it throws, nothing has been given up. What the codec throws on one rank is that
    /// rank's failure and makes all throw, but for the last decode(): that is returned as damage, on this rank and
    /// those below it in the tree.
    /// @throws communication_error; mismatch, on this rank alone if a list is longer than there is room for.
    template <class Comm, class Codec>
    exchange_result run(exchange_round<Comm, Workspace, Codec> const& round) {
      auto info = round.info;
      info.passthrough = 0;  // those layers are all-reduced
      exchange_result result{};
      round.meet(~std::uint64_t{0}, [&] { return std::uint64_t{0}; });
      budget_ = smaller<std::uint64_t>(round.budget, capacity_);
      auto const values = own_.first(round.own.values.size());
      std::ranges::copy(round.own.values, values.begin());
      result.saturated = round.work.saturate(values, detail::largest_coded(round.how, info, round.limit));
      list_.begin(round.own.indices, values, own_share, budget_);

      std::exception_ptr failure;
      climb(round, info, failure, result);
      auto const count = spread(round, info, failure, result);
      descend(round, count, result);
      if (!result.damage) {
        update_ = {other_.indices.first(count), other_.values.first(count), {}};
        result.updates = {&update_, 1};
        result.sent = came_through(round.own.indices, values, count);
      }
      return result;
    }

   private:
    static constexpr std::uint64_t failed = ~std::uint64_t{0};  // in place of a size
    static constexpr std::uint32_t own_share = 1;               // bit 0; bit l + 1 is the child's of level l

    /// A bit for each entry, and a byte behind: not 0 where this part of the tree cannot know.
    [[nodiscard]] static constexpr std::uint64_t mask_bytes(std::uint64_t count) noexcept {
      return (count + 7) / 8 + 1;
    }

    /// Writes the list. Returns its bytes; none for no entries, and `failed` for a failure.
    template <class Codec>
    [[nodiscard]] std::uint64_t write(Codec const& how, message_info const& info, std::exception_ptr& failure) {
      if (!failure && list_.list().count > 0) try {
          return detail::encode_checked(how, info, list_.view(), bytes_.span());
        } catch (...) {
          failure = std::current_exception();
        }
      return failure ? failed : 0;
    }

    /// @throws mismatch
    void require_room(std::uint64_t size, int from) const {
      if (size > message_)
        throw mismatch("gradsieve: rank " + std::to_string(from) + " announces a size of " + std::to_string(size) +
                       ", there is room for " + std::to_string(message_));
    }

    template <class Codec>
    [[nodiscard]] selection_view read(Codec const& how, message_info const& info, std::uint64_t size) {
      if (size == 0) return {};
      return detail::decode_checked(how, info, bytes_.first(size),
                                    {other_.indices.first(budget_), other_.values.first(budget_), {}});
    }

    /// Up the tree: rank 0 ends with the last list.
    template <class Round>
    void climb(Round const& round, message_info const& info, std::exception_ptr& failure, exchange_result& result) {
      auto const& comm = round.comm;
      auto const& where = round.work.where();
      std::uint32_t share = 2 * own_share;
      for (int distance = 1; distance < comm.size(); distance *= 2, share *= 2) {
        auto const at = detail::place_at(distance, comm.rank(), comm.size());
        std::uint64_t size = at.is_child ? write(round.how, info, failure) : 0;
        auto const word = std::as_writable_bytes(std::span{&size, 1});
        comm.send_receive(where, std::span<std::byte const>{word.first(at.is_child ? sizeof size : 0)}, at.peer,
                          word.first(at.is_parent ? sizeof size : 0), at.peer);
        bool const fails = size == failed;
        if (fails) size = 0;
        if (at.is_parent) require_room(size, at.peer);
        comm.send_receive(where, std::span<std::byte const>{bytes_.first(at.is_child ? size : 0)}, at.peer,
                          bytes_.first(at.is_parent ? size : 0), at.peer);
        if (at.is_child) result.bytes_sent += sizeof size + size;
        if (!at.is_parent) continue;
        result.bytes_received += sizeof size + size;
        if (failure) continue;
        try {
          if (fails) throw communication_error("gradsieve: another rank failed in this step; nothing was sent");
          list_.merge(read(round.how, info, size), share);
        } catch (...) {
          failure = std::current_exception();
        }
      }
    }

    /// The last list goes to all ranks, as `other_`. Returns how many entries it has.
    /// @throws the failure; communication_error if another rank failed; mismatch
    template <class Round>
    std::size_t spread(Round const& round, message_info const& info, std::exception_ptr& failure,
                       exchange_result& result) {
      auto const& where = round.work.where();
      bool const root = round.comm.rank() == 0;
      std::array<std::uint64_t, 2> words{root ? write(round.how, info, failure) : 0, list_.list().count};
      round.comm.broadcast(where, std::as_writable_bytes(std::span{words}), 0);
      auto const [size, count] = words;
      if (failure) std::rethrow_exception(failure);
      if (size == failed) throw communication_error("gradsieve: another rank failed in this step; nothing was sent");
      require_room(size, 0);
      if (count > budget_)
        throw mismatch("gradsieve: rank 0 announces " + std::to_string(count) + " entries, there is room for " +
                       std::to_string(budget_));
      round.comm.broadcast(where, bytes_.first(size), 0);
      (root ? result.bytes_sent : result.bytes_received) += sizeof words + size;
      try {
        auto const found = read(round.how, info, size).indices.size();
        wire::expect(found == count, "entry count", found, "", count);
      } catch (...) {
        result.damage = std::current_exception();
        std::ranges::fill(other_.indices.first(count), index_type{0});
      }
      return count;
    }

    /// Down the tree: `mask_` becomes which entries of the last list have what this rank had sent up, and `shares_`
    /// whose they are of those.
    template <class Round>
    void descend(Round const& round, std::size_t count, exchange_result& result) {
      auto const& comm = round.comm;
      auto const& where = round.work.where();
      auto const& mine = list_.list();
      for (std::size_t i = 0, at = 0; i < count; ++i) {
        while (at < mine.count && mine.indices[at] < other_.indices[i]) ++at;
        shares_[i] = at < mine.count && mine.indices[at] == other_.indices[i] ? mine.shares[at] : 0;
      }
      auto const bytes = mask_bytes(count);
      auto const mask = mask_.first(bytes);
      auto const part = part_.first(bytes);
      std::ranges::fill(mask, std::byte{0xFF});
      mask.back() = std::byte{};
      int distance = 1;
      std::uint32_t share = 2 * own_share;
      for (; distance < comm.size(); distance *= 2) share *= 2;
      for (distance /= 2, share /= 2; distance >= 1; distance /= 2, share /= 2) {
        auto const at = detail::place_at(distance, comm.rank(), comm.size());
        if (at.is_parent) {
          std::ranges::fill(part, std::byte{});
          for (std::size_t i = 0; i < count; ++i)
            if (is_in(mask, i) && (shares_[i] & share) != 0) part[i / 8] |= std::byte{1} << (i % 8);
          part.back() = result.damage ? std::byte{1} : std::byte{};
        }
        comm.send_receive(where, std::span<std::byte const>{part.first(at.is_parent ? bytes : 0)}, at.peer,
                          mask.first(at.is_child ? bytes : 0), at.peer);
        if (at.is_parent) result.bytes_sent += bytes;
        if (!at.is_child) continue;
        result.bytes_received += bytes;
        if (mask.back() != std::byte{} && !result.damage)
          result.damage = std::make_exception_ptr(
              communication_error("gradsieve: a message was damaged on its way to rank " + std::to_string(at.peer)));
      }
    }

    [[nodiscard]] static bool is_in(std::span<std::byte const> mask, std::size_t i) noexcept {
      return (mask[i / 8] >> (i % 8) & std::byte{1}) != std::byte{};
    }

    /// What this rank has selected, of the places to which it came through.
    [[nodiscard]] selection_view came_through(std::span<index_type const> indices, std::span<float const> values,
                                              std::size_t count) noexcept {
      std::size_t found = 0;
      std::size_t own = 0;
      for (std::size_t i = 0; i < count; ++i) {
        if (!is_in(mask_.span(), i) || (shares_[i] & own_share) == 0) continue;
        while (indices[own] != other_.indices[i]) ++own;
        sent_indices_[found] = indices[own];
        sent_values_[found++] = values[own];
      }
      return {sent_indices_.first(found), sent_values_.first(found), {}};
    }

    std::uint64_t capacity_ = 0;  // entries of one list at most
    std::uint64_t message_ = 0;   // bytes of one message at most
    std::uint64_t budget_ = 0;    // entries of a list in this step
    selection_view update_;
    detail::merged_list<Workspace> list_;
    detail::shared_entries<Workspace> other_;
    typename Workspace::template buffer<std::uint32_t> shares_;
    typename Workspace::template buffer<float> own_;
    typename Workspace::template buffer<std::byte> bytes_, mask_, part_;
    typename Workspace::template buffer<index_type> sent_indices_;
    typename Workspace::template buffer<float> sent_values_;
  };

  friend bool operator==(gtopk const&, gtopk const&) = default;
};

}  // namespace gradsieve
