// Whether what ranks that are threads ask for fits together.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace gradsieve::threads {

namespace detail {

enum class shape : std::uint8_t { reduce, gather, broadcast, exchange };

/// What one rank asks for in one collective.
struct request {
  std::string_view call{};
  shape what{};
  int kind = 0;  // the root, or of an all_reduce: size of a value, +256 floating, +512 signed, +1024 max
  std::span<std::byte const> out{};
  std::span<std::byte> in{};
  std::size_t share = 0;  // bytes expected of every rank that gives, unless `sizes` says it for each
  int to = 0;
  int from = 0;
  std::span<std::size_t const> sizes{};
};

/// Why the ranks' requests do not fit together; empty if they do.
[[nodiscard]] inline std::string objection(std::span<request const> all) {
  auto const text = [](std::integral auto x) { return std::to_string(x); };
  auto const say = [&](auto a, std::string const& one, auto b, std::string const& other) {
    return "gradsieve: " + std::string{all[a].call} + ": rank " + text(a) + one + ", rank " + text(b) + other;
  };
  auto const calls = [&](auto r) { return " calls " + std::string{all[r].call} + ", kind " + text(all[r].kind); };
  auto const exists = [&](int rank) { return rank >= 0 && std::cmp_less(rank, all.size()); };
  std::size_t const last = all.size() - 1;

  for (std::size_t r = 0; r < all.size(); ++r) {
    request const& mine = all[r];
    if (mine.call != all[0].call || mine.kind != all[0].kind) return say(0u, calls(0u), r, calls(r));
    if (!exists(mine.to) || !exists(mine.from))
      return say(r, " names rank " + text(exists(mine.to) ? mine.from : mine.to), last, " is the last");
  }
  for (std::size_t r = 0; r < all.size(); ++r) {
    request const& mine = all[r];
    if (!mine.sizes.empty() && mine.sizes.size() != all.size())
      return say(r, " passes " + text(mine.sizes.size()) + " sizes", last, " is the last");
    bool const of_one = mine.what == shape::broadcast || mine.what == shape::exchange;
    std::size_t sum = 0;
    for (std::size_t s = 0; s < all.size(); ++s) {
      if (of_one && std::cmp_not_equal(mine.from, s)) continue;
      if (mine.what == shape::exchange && std::cmp_not_equal(all[s].to, r))
        return say(r, " receives from rank " + text(s), s, " sends to rank " + text(all[s].to));
      std::size_t const expected = mine.sizes.empty() ? mine.share : mine.sizes[s];
      if (all[s].out.size() != expected)
        return say(s, " passes " + text(all[s].out.size()) + " bytes", r, " expects " + text(expected));
      sum += expected;
    }
    if (mine.what == shape::gather && sum != mine.in.size())
      return say(r, " has room for " + text(mine.in.size()) + " bytes", r, " expects " + text(sum));
  }
  return {};
}

}  // namespace detail

}  // namespace gradsieve::threads
