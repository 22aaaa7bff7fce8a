// Checks that the requests of ranks that are threads match.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::threads {

namespace detail {

enum class shape : std::uint8_t { reduce, gather, broadcast, exchange, all_to_all };

/// The request of one rank in one collective.
struct request {
  std::string_view call{};
  shape what{};
  int kind = 0;  // the root, or of an all_reduce: size of a value, +256 floating, +512 signed, +1024 max
  std::span<std::byte const> out{};
  std::span<std::byte> in{};
  std::size_t share = 0;  // bytes expected of every sending rank, unless `sizes` has them for each
  int to = 0;
  int from = 0;
  std::span<std::size_t const> sizes{};
  std::span<std::size_t const> out_sizes{};  // of an all_to_all: bytes for each rank
};

/// The message for `rank` in `bytes` that hold one for each rank, back to back.
[[nodiscard]] inline std::span<std::byte const> message_for(std::size_t rank, request const& from) noexcept {
  std::size_t at = 0;
  for (auto const size : from.out_sizes.first(rank)) at += size;
  return from.out.subspan(at, from.out_sizes[rank]);
}

/// Whether these sizes sum to `bytes` without overflow.
[[nodiscard]] inline bool sum_to(std::span<std::size_t const> sizes, std::size_t bytes) noexcept {
  for (auto const size : sizes) {
    if (size > bytes) return false;
    bytes -= size;
  }
  return bytes == 0;
}

/// Why the ranks' requests do not match; empty if they do.
[[nodiscard]] inline std::string mismatch_of(std::span<request const> all) {
  auto const text = [](std::integral auto x) { return std::to_string(x); };
  auto const differ = [&](auto a, std::string const& one, auto b, std::string const& other) {
    return "gradsieve: " + std::string{all[a].call} + ": rank " + text(a) + one + ", rank " + text(b) + other;
  };
  auto const calls = [&](auto r) { return " calls " + std::string{all[r].call} + ", kind " + text(all[r].kind); };
  auto const exists = [&](int rank) { return rank >= 0 && std::cmp_less(rank, all.size()); };
  std::size_t const last = all.size() - 1;

  for (std::size_t r = 0; r < all.size(); ++r) {
    request const& mine = all[r];
    if (mine.call != all[0].call || mine.kind != all[0].kind) return differ(0u, calls(0u), r, calls(r));
    if (!exists(mine.to) || !exists(mine.from))
      return differ(r, " names rank " + text(exists(mine.to) ? mine.from : mine.to), last, " is the last");
  }
  for (std::size_t r = 0; r < all.size() && all[r].what == shape::all_to_all; ++r) {
    request const& mine = all[r];
    for (auto const count : {mine.out_sizes.size(), mine.sizes.size()})
      if (count != all.size()) return differ(r, " passes " + text(count) + " sizes", last, " is the last");
    if (!sum_to(mine.out_sizes, mine.out.size()) || !sum_to(mine.sizes, mine.in.size()))
      return differ(r,
                 " passes sizes that do not sum to its " + text(mine.out.size()) + " bytes, or its room for " +
                     text(mine.in.size()),
                 last, " is the last");
  }
  for (std::size_t r = 0; r < all.size(); ++r) {
    request const& mine = all[r];
    if (mine.what == shape::all_to_all) {
      for (std::size_t s = 0; s < all.size(); ++s)
        if (all[s].out_sizes[r] != mine.sizes[s])
          return differ(s, " passes " + text(all[s].out_sizes[r]) + " bytes", r, " expects " + text(mine.sizes[s]));
      continue;
    }
    if (!mine.sizes.empty() && mine.sizes.size() != all.size())
      return differ(r, " passes " + text(mine.sizes.size()) + " sizes", last, " is the last");
    bool const of_one = mine.what == shape::broadcast || mine.what == shape::exchange;
    std::size_t sum = 0;
    for (std::size_t s = 0; s < all.size(); ++s) {
      if (of_one && std::cmp_not_equal(mine.from, s)) continue;
      if (mine.what == shape::exchange && std::cmp_not_equal(all[s].to, r))
        return differ(r, " receives from rank " + text(s), s, " sends to rank " + text(all[s].to));
      std::size_t const expected = mine.sizes.empty() ? mine.share : mine.sizes[s];
      if (all[s].out.size() != expected)
        return differ(s, " passes " + text(all[s].out.size()) + " bytes", r, " expects " + text(expected));
      sum += expected;
    }
    if (mine.what == shape::gather && sum != mine.in.size())
      return differ(r, " has room for " + text(mine.in.size()) + " bytes", r, " expects " + text(sum));
  }
  return {};
}

}  // namespace detail

}  // namespace gradsieve::threads
