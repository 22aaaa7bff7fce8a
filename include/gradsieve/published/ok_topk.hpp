// All ranks receive the largest sums of all selections.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/codec/checked.hpp>
#include <gradsieve/codec/limit.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/random.hpp>
#include <gradsieve/exchange/cut_messages.hpp>
#include <gradsieve/exchange/round.hpp>
#include <gradsieve/published/global_threshold.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Every rank gets the k largest sums of what all ranks have selected. The gradient is cut into a region for each rank.
/// The entries that a rank has selected in a region go to the region's rank, which sums them in rank order. Of all sums
/// the k largest magnitudes, of equal ones those with the lower indices, go to all ranks; k is the step's budget, and
/// the choice is exact. A rank gives up the values of its own at these indices and keeps all others, so that nothing is
/// lost. Where there are at most k sums, as with `deft`, the result equals that of `gather` to the bit. Regions are
/// balanced: each border is the mean of those that would cut each rank's selection evenly; borders are agreed upon
/// every 64 steps, and when a rank is new. They change no result. Needs a codec that loses no bits, as sums are
/// encoded.
/// When not: where ranks select few common indices, as most sums are then of one rank's value only, and most of what
/// was sent stays in the residuals.
/// Cost: two small all-gathers, two all-to-alls, 3 to 6 rounds for the threshold, an all-gather of the sums; O(k log k)
/// on each rank. A rank receives (P - 1) / P of k entries twice and, from every other rank, two headers of 48 bytes and
/// 176 bytes or more for the rounds. Every 64 steps there is also an all-reduce of P - 1 numbers.
/// Memory: 3 P messages of k entries, 24 P bytes per entry.
/// Source: Ok-Topk (Li and Hoefler, PPoPP 2022). Other than there, the threshold is exact in every step, indices are
/// integers, and values that are not among the k largest sums stay in the residual.
struct ok_topk {
  static constexpr char const* name = "ok_topk";
  /// What it needs, and does with values.
  static constexpr exchange_traits traits{.exact_values = true, .all_to_all = true};
  static constexpr std::uint64_t rebalance_every = 64;  ///< steps for which the regions' borders are kept

  template <class Workspace>
  class buffers {
   public:
    /// Room for `world` messages of at most `capacity` entries. Allocates.
    template <class Codec>
    void reserve(Workspace& work, Codec const& how, message_info const info, int world, std::uint64_t capacity, bool) {
      auto const ranks = static_cast<std::uint64_t>(world);
      capacity_ = smaller(capacity, info.n);
      auto const sums = smaller(capacity_ * ranks, info.n);
      message_ = (how.max_bytes(info.n, capacity_, 0) + 7) / 8 * 8;
      cut_.reserve(world, message_, capacity_, capacity_);
      threshold_.reserve(world);
      borders_.assign(ranks + 1, 0);
      quantiles_.assign(ranks - 1, 0);
      infos_.assign(ranks, {});
      agreed_ = 0;
      sizes_.assign(ranks, 0);
      words_.assign(ranks, 0);
      indices_ = typename Workspace::template buffer<index_type>(sums);
      sums_ = typename Workspace::template buffer<float>(sums);
      keys_ = typename Workspace::template buffer<key_type>(sums);
      mine_ = typename Workspace::template buffer<std::byte>(message_);
      all_ = typename Workspace::template buffer<std::byte>(message_ * ranks);
      sent_indices_ = typename Workspace::template buffer<index_type>(capacity_);
      sent_values_ = typename Workspace::template buffer<float>(capacity_);
      decoded_.reserve(ranks, capacity_, 0);
      work.reserve_updates(ranks);
    }

    /// Entries that one rank gives up in a step at most, beyond those that it has selected.
    [[nodiscard]] std::uint64_t most_sent() const noexcept { return 0; }

    /// One round. Collective. Whatever it throws, nothing has been given up. What the codec throws on one rank is that
    /// rank's failure and makes all throw, but for the last decode(): that is returned as damage.
    /// @throws communication_error, mismatch
    template <class Comm, class Codec>
    exchange_result run(exchange_round<Comm, Workspace, Codec> const& round) {
      auto const& where = round.work.where();
      auto const me = static_cast<std::size_t>(round.comm.rank());
      std::uint64_t const others = sizes_.size() - 1;
      exchange_result result{};
      round.meet(~std::uint64_t{0}, [&] { return agreed_; });
      if (!borders_stand(round)) {
        agree(round);
        result.bytes_sent = result.bytes_received = quantiles_.size() * sizeof(double);
      }

      auto const values = cut_.copy(round.own.values);
      auto const write = failure_of([&] {
        result.saturated = round.work.saturate(values, detail::largest_coded(round.how, round.info, round.limit));
        cut_.write(round.how, round.info, infos_, borders_, round.own.indices, values);
      });
      auto const moved = cut_.exchange(round.comm, where, write);

      std::uint64_t found = 0;
      auto const read = failure_of([&] { found = sum_up(round); });
      auto const keys = keys_.first(found);
      std::ranges::sort(keys, std::greater{});
      threshold_.find(round.comm, where, keys, smaller<std::uint64_t>(round.budget, capacity_), read);

      std::uint64_t bytes = 0;
      auto const encode = failure_of([&] { bytes = write_largest(round.how, found, me); });
      std::uint64_t const said = encode ? failed : bytes;
      round.comm.all_gather(where, std::as_bytes(std::span{&said, 1}), std::as_writable_bytes(std::span{words_}));
      if (encode) std::rethrow_exception(encode);
      std::uint64_t const all = check_sizes();
      round.comm.all_gather(where, std::span<std::byte const>{mine_.first(bytes)}, all_.first(all),
                            std::span{std::as_const(sizes_)});
      result.bytes_sent += moved.sent + threshold_.bytes_sent() + sizeof said + bytes;
      result.bytes_received += moved.received + threshold_.bytes_received() + sizeof said * others + all - bytes;
      result.damage = failure_of([&] { read_all(round.how); });
      if (!result.damage) {
        result.updates = decoded_.messages();
        result.sent = in_common(round.own.indices, values);
      }
      return result;
    }

   private:
    static constexpr std::uint64_t failed = ~std::uint64_t{0};  // in place of a size

    template <class Body>
    [[nodiscard]] static std::exception_ptr failure_of(Body const& body) {
      try {
        body();
        return {};
      } catch (...) {
        return std::current_exception();
      }
    }

    /// Whether all ranks have the same borders, which are not too old. agreed_ is what the handshake compared.
    template <class Round>
    [[nodiscard]] bool borders_stand(Round const& round) const {
      for (std::size_t r = 0; r < sizes_.size(); ++r)
        if (round.ranks.size(r) != agreed_) return false;
      auto const step = round.word.step + 1;
      return agreed_ != 0 && step >= agreed_ && step - agreed_ < rebalance_every;
    }

    /// The borders that would cut each rank's selection evenly, on average: sums of whole numbers below 2^53.
    template <class Round>
    void agree(Round const& round) {
      auto const ranks = sizes_.size();
      auto const indices = round.own.indices;
      for (std::size_t b = 1; b < ranks; ++b)
        quantiles_[b - 1] =
            static_cast<double>(indices.empty() ? round.info.n * b / ranks : indices[indices.size() * b / ranks]);
      agreed_ = 0;  // should the call fail on this rank alone, its old borders are not taken for the others' new ones
      round.comm.all_reduce(round.work.where(), std::span{quantiles_}, reduction::sum);
      borders_[0] = 0;
      borders_[ranks] = round.info.n;
      for (std::size_t b = 1; b < ranks; ++b) {
        double const sum = quantiles_[b - 1];
        auto const mean = sum >= 0 && sum < 0x1p53 ? static_cast<std::uint64_t>(sum) / ranks : 0;
        borders_[b] = larger(borders_[b - 1], smaller(mean, round.info.n));
      }
      for (std::size_t r = 0; r < ranks; ++r)
        infos_[r] = {borders_[r + 1] - borders_[r], mix(round.info.layout_hash ^ (r + 1)), 0, nullptr, {}};
      agreed_ = round.word.step + 1;
    }

    /// The sums of what the ranks have sent for this one's region, and their keys. Returns how many.
    template <class Round>
    std::uint64_t sum_up(Round const& round) {
      auto const me = static_cast<std::size_t>(round.comm.rank());
      auto const lists = cut_.read(round.how, infos_[me], borders_[me]);
      auto const count = round.work.merge(lists, indices_.span());
      add_lists(lists, indices_.first(count), sums_.first(count));
      for (std::uint64_t i = 0; i < count; ++i) keys_[i] = magnitude_key(sums_[i]);
      return count;
    }

    /// An element's sum begins with the first list that has it.
    GRADSIEVE_PRECISE static void add_lists(std::span<selection_view const> lists, std::span<index_type const> indices,
                                            std::span<float> sums) noexcept {
      std::ranges::fill(sums, -0.0f);  // -0 + x is x, whatever x is
      for (auto const& list : lists) {
        auto at = indices.begin();
        for (std::size_t i = 0; i < list.indices.size(); ++i) {
          at = std::lower_bound(at, indices.end(), list.indices[i]);
          float& sum = sums[static_cast<std::size_t>(at - indices.begin())];
          sum = add(sum, list.values[i]);
        }
      }
    }

    /// Writes the sums that are among the largest. Returns the bytes.
    template <class Codec>
    std::uint64_t write_largest(Codec const& how, std::uint64_t count, std::size_t me) {
      std::size_t kept = 0;
      auto ties = threshold_.ties(me);
      for (std::uint64_t i = 0; i < count; ++i) {
        auto const key = magnitude_key(sums_[i]);
        if (key < threshold_.key() || (key == threshold_.key() && ties == 0)) continue;
        if (key == threshold_.key()) --ties;
        indices_[kept] = static_cast<index_type>(indices_[i] - borders_[me]);
        sums_[kept] = sums_[i];
        ++kept;
      }
      if (kept == 0) return 0;
      return detail::encode_checked(how, infos_[me], {indices_.first(kept), sums_.first(kept), {}}, mine_.span());
    }

    /// Of all ranks' last messages. @throws communication_error, mismatch
    [[nodiscard]] std::uint64_t check_sizes() {
      std::uint64_t all = 0;
      for (std::size_t r = 0; r < sizes_.size(); ++r) {
        if (words_[r] == failed)
          throw communication_error("gradsieve: rank " + std::to_string(r) + " failed in this step; nothing was sent");
        if (words_[r] > message_)
          throw mismatch("gradsieve: rank " + std::to_string(r) + " announces a size of " + std::to_string(words_[r]) +
                         ", there is room for " + std::to_string(message_));
        sizes_[r] = words_[r];
        all += words_[r];
      }
      return all;
    }

    /// @throws what the codec throws; corrupt_message if there are other entries than the ranks have agreed upon.
    template <class Codec>
    void read_all(Codec const& how) {
      decoded_.clear();
      std::size_t at = 0;
      for (std::size_t r = 0; r < sizes_.size(); at += sizes_[r++]) {
        std::uint64_t count = 0;
        if (sizes_[r] > 0) {
          decoded_.add(how, infos_[r], all_.span().subspan(at, sizes_[r]), threshold_.kept(r),
                       static_cast<index_type>(borders_[r]));
          count = decoded_.messages().back().indices.size();
        }
        wire::expect(count == threshold_.kept(r), "entry count", count, "", threshold_.kept(r));
      }
    }

    /// What this rank has selected of the places that all ranks got.
    [[nodiscard]] selection_view in_common(std::span<index_type const> indices,
                                           std::span<float const> values) noexcept {
      std::size_t found = 0;
      std::size_t own = 0;
      for (auto const& each : decoded_.messages())
        for (auto const index : each.indices) {
          while (own < indices.size() && indices[own] < index) ++own;
          if (own == indices.size() || indices[own] != index) continue;
          sent_indices_[found] = index;
          sent_values_[found++] = values[own];
        }
      return {sent_indices_.first(found), sent_values_.first(found), {}};
    }

    std::uint64_t capacity_ = 0;  // entries of one selection at most
    std::uint64_t message_ = 0;   // bytes of one message at most
    std::uint64_t agreed_ = 0;    // the step of the borders, counted from 1; 0: there are none
    detail::cut_messages<Workspace> cut_;
    detail::global_threshold threshold_;
    std::vector<double> quantiles_;
    std::vector<std::uint64_t> borders_, words_;
    std::vector<message_info> infos_;
    std::vector<std::size_t> sizes_;
    typename Workspace::template buffer<index_type> indices_, sent_indices_;
    typename Workspace::template buffer<float> sums_, sent_values_;
    typename Workspace::template buffer<key_type> keys_;
    typename Workspace::template buffer<std::byte> mine_, all_;
    decoded_messages<Workspace> decoded_;
  };

  friend bool operator==(ok_topk const&, ok_topk const&) = default;
};

}  // namespace gradsieve
