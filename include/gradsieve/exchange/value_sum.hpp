// Indices and values that are sent separately: lists of indices, and sums of values over the ranks.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <type_traits>

#include <gradsieve/codec/checked.hpp>
#include <gradsieve/codec/index/raw32.hpp>
#include <gradsieve/codec/limit.hpp>
#include <gradsieve/codec/message.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/exchange/round.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Number of indices of a list, and of 4-byte words of its encoding, which are never more.
struct list_size {
  std::uint64_t count = 0;
  std::uint64_t words = 0;

  /// Both as one number, for preflight.
  [[nodiscard]] constexpr std::uint64_t packed() const noexcept { return count | words << 32; }
  [[nodiscard]] static constexpr list_size of(std::uint64_t packed) noexcept {
    return {packed & 0xFFFF'FFFFu, packed >> 32};
  }

  [[nodiscard]] constexpr std::uint64_t bytes() const noexcept { return 4 * words; }
  /// True if the indices are sent without encoding.
  [[nodiscard]] constexpr bool is_raw() const noexcept { return words == count; }
};

/// @throws mismatch, naming the rank, if its list exceeds the capacity
inline void require_fits(list_size size, std::size_t rank, std::uint64_t capacity) {
  if (size.count > capacity || size.words > size.count)
    throw mismatch("gradsieve: rank " + std::to_string(rank) + " announces a size of " + std::to_string(size.count) +
                   " indices in " + std::to_string(size.words) + " words, there is room for " +
                   std::to_string(capacity));
}

/// The most bytes that encode_list() needs for `count` of n indices.
template <class Indices>
[[nodiscard]] std::uint64_t list_capacity(Indices const& how, std::uint64_t n, std::uint64_t count) noexcept {
  if constexpr (std::same_as<Indices, raw32>)
    return 4 * count;
  else
    return (larger(how.max_bytes(n, count), 4 * count) + 3) / 4 * 4;
}

/// Encodes a list, padded with zeros to whole words; as u32 if the codec saves no word. @pre to.size() >=
/// list_capacity() @throws what the codec throws.
template <class Indices>
[[nodiscard]] list_size encode_list(Indices const& how, message_info const& info, std::span<index_type const> list,
                                    std::span<std::byte> to) {
  std::uint64_t const count = list.size();
  if constexpr (!std::same_as<Indices, raw32>) {
    auto const bytes = encode_indices_checked(how, info, list, to);
    auto const words = (bytes + 3) / 4;
    if (words < count) {
      std::ranges::fill(to.subspan(bytes, 4 * words - bytes), std::byte{});
      return {count, words};
    }
  }
  wire::store(to, list);
  return {count, count};
}

/// Reads what encode_list() wrote. @throws corrupt_message for anything else, or indices that do not increase below n.
template <class Indices>
void decode_list(Indices const& how, message_info const& info, std::span<std::byte const> from,
                 std::span<index_type> out) {
  if (from.size() == out.size_bytes()) {
    wire::load(out, from);
  } else {
    auto const used = how.decode(info, from, out);
    wire::expect(from.size() == (used + 3) / 4 * 4, "size of an index list", from.size(), "", (used + 3) / 4 * 4);
  }
  wire::check_indices(info.n, out);
}

/// Name of the index codec that wrote a list, for the report; empty if the codec does not choose one.
template <class Indices>
[[nodiscard]] char const* list_codec(Indices const& how, list_size size, std::span<std::byte const> list) noexcept {
  if constexpr (requires { how.with_chosen([](auto const&) { return ""; }); })
    return how.with_chosen([&](auto const& it) { return list_codec(it, size, list); });
  else if constexpr (std::same_as<Indices, raw32>)
    return "";
  else if (size.is_raw())
    return raw32::name;
  else if constexpr (choosing_index_codec<Indices>)
    return how.name_of(list);
  else
    return Indices::name;
}

/// Sums the ranks' values. binary32: an all-reduce. Shorter formats: each rank receives its share of all ranks' values,
/// sums them as binary32 in rank order, rounds the sums, keeps the rounding errors, and all-gathers the sums. A
/// received NaN or infinity is damage. All ranks detect it, except damage to one rank's copy of the sums, which only
/// that rank does. Cost: for shorter formats ranks - 1 send_receives and an all-gather; per element each rank sends
/// about one value and receives about two. Memory: for shorter formats about 4 values per element, and one per rank.
template <class Workspace>
class value_sum {
 public:
  /// Allocates buffers for `most` values.
  template <class Values>
  void reserve(Values const& how, std::uint64_t most, int world) {
    own_ = typename Workspace::template buffer<float>(most);
    sums_ = typename Workspace::template buffer<float>(most);
    if constexpr (quantises<Values>) {
      auto const ranks = static_cast<std::uint64_t>(world);
      auto const share = (most + ranks - 1) / ranks;
      outgoing_ = typename Workspace::template buffer<std::byte>(share * ranks * how.value_bytes());
      incoming_ = typename Workspace::template buffer<std::byte>(share * ranks * how.value_bytes());
      floats_ = typename Workspace::template buffer<float>(2 * share);
    }
  }

  /// The sum of the ranks' accumulators at these indices, equal on all ranks, and what this rank subtracts there.
  /// Collective. @throws communication_error
  template <class Round>
  exchange_result at(Round const& round, std::span<index_type const> indices) {
    round.work.gather(round.accumulator, indices, own_.span());
    return of(round, indices, indices.size());
  }

  /// As at(), of `count` values in own(): those at the indices, and more behind them, whose sums sums() has.
  template <class Round>
  exchange_result of(Round const& round, std::span<index_type const> indices, std::size_t count) {
    auto const& how = round.how.values;
    auto const own = own_.first(count);
    auto const saturated = round.work.saturate(own, largest_summed(how, round.info, round.comm.size(), round.limit));
    auto const sums = sums_.first(count);
    exchange_result result{};
    bool rounds = false;
    if constexpr (quantises<std::remove_cvref_t<decltype(how)>>)
      if (rounds = !is_exact(how); rounds) result = sum_rounded(round, own, sums);
    if (!rounds) {
      std::ranges::copy(own, sums.begin());
      round.comm.all_reduce(round.work.where(), sums, reduction::sum);
      result = moved(own.size_bytes(), own.size_bytes(), wire::all_finite(sums));
    }
    result.saturated = saturated;
    update_ = {indices, sums_.first(indices.size()), {}};
    if (result.damage) return result;
    result.updates = {&update_, 1};
    result.sent = {indices, own.first(indices.size()), {}};
    return result;
  }
  [[nodiscard]] std::span<float> own() noexcept { return own_.span(); }
  [[nodiscard]] std::span<float const> sums() const noexcept { return sums_.span(); }

 private:
  /// True if the value codec, standing for several, has chosen a lossless one.
  template <class Values>
  [[nodiscard]] static bool is_exact([[maybe_unused]] Values const& how) noexcept {
    if constexpr (requires { how.is_exact(); }) return how.is_exact();
    return false;
  }

  [[nodiscard]] static exchange_result moved(std::uint64_t sent, std::uint64_t received, bool finite) {
    exchange_result result{};
    result.bytes_sent = sent;
    result.bytes_received = received;
    if (!finite)
      result.damage = std::make_exception_ptr(
          corrupt_message("gradsieve: a sum over the ranks holds a value that is not finite"));
    return result;
  }

  /// Sums, and makes `own` what this rank subtracts: together the ranks subtract the sums.
  template <class Round>
  GRADSIEVE_PRECISE exchange_result sum_rounded(Round const& round, std::span<float> own, std::span<float> sums) {
    auto const& how = round.how.values;
    auto const& comm = round.comm;
    if (own.empty()) return {};
    auto const ranks = static_cast<std::size_t>(comm.size());
    auto const me = static_cast<std::size_t>(comm.rank());
    std::size_t const share = (own.size() + ranks - 1) / ranks;  // the last ranks' may lie behind the end: zeros
    std::size_t const bytes = share * how.value_bytes();
    auto const mine = outgoing_.first(bytes * ranks);
    auto const theirs = incoming_.first(bytes * ranks);
    how.quantise(round.info, {}, own);
    how.encode(round.info, {}, own, mine);
    std::ranges::fill(mine.subspan(own.size() * how.value_bytes()), std::byte{});

    std::ranges::copy(mine.subspan(bytes * me, bytes), theirs.begin() + static_cast<std::ptrdiff_t>(bytes * me));
    for (std::size_t d = 1; d < ranks; ++d) {
      std::size_t const to = (me + d) % ranks;
      std::size_t const from = (me + ranks - d) % ranks;
      std::span<std::byte const> const out = mine.subspan(bytes * to, bytes);
      comm.send_receive(round.work.where(), out, static_cast<int>(to), theirs.subspan(bytes * from, bytes),
                        static_cast<int>(from));
    }
    auto const total = floats_.first(share);
    auto const part = floats_.span().subspan(share, share);
    bool finite = true;
    for (std::size_t r = 0; r < ranks; ++r) {
      how.decode(round.info, {}, theirs.subspan(bytes * r, bytes), part);
      finite = finite && wire::all_finite(part);
      for (std::size_t i = 0; i < share; ++i) total[i] = r == 0 ? part[i] : add(total[i], part[i]);
    }
    std::ranges::copy(total, part.begin());
    how.quantise(round.info, {}, part);
    for (std::size_t i = 0, at = share * me; i < share && at < own.size(); ++i, ++at)
      own[at] = subtract(own[at], subtract(total[i], part[i]));
    how.encode(round.info, {}, part, mine.first(bytes));
    if (!finite) std::ranges::fill(mine.first(bytes), std::byte{0xFF});  // NaN in both formats, which all ranks detect
    comm.all_gather(round.work.where(), std::span<std::byte const>{mine.first(bytes)}, theirs);
    how.decode(round.info, {}, theirs.first(sums.size() * how.value_bytes()), sums);
    return moved(bytes * ranks, 2 * bytes * (ranks - 1), finite && wire::all_finite(sums));
  }

  typename Workspace::template buffer<std::byte> outgoing_, incoming_;
  typename Workspace::template buffer<float> own_, sums_, floats_;
  selection_view update_;
};

}  // namespace gradsieve::detail
