// k elements at random positions, the same on every rank.
#pragma once

#include <cstdint>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/random.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

/// k of n positions, increasing: one at random in each of k strips of length n / k, rounded up or down.
class random_places {
 public:
  /// The same stream gives the same positions. @pre k <= n < 2^32
  GRADSIEVE_HD constexpr random_places(std::uint64_t n, std::uint64_t k, std::uint64_t stream) noexcept
      : n_{n}, k_{k}, stream_{stream} {}

  /// Position j, j < k.
  [[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t operator[](std::uint64_t j) const noexcept {
    std::uint64_t const from = j * n_ / k_;
    return from + (((mix(stream_ + j) >> 32) * ((j + 1) * n_ / k_ - from)) >> 32);
  }

 private:
  std::uint64_t n_;
  std::uint64_t k_;
  std::uint64_t stream_;
};

}  // namespace detail

/// Sends k random selectable elements of a segment: one in each of k strips of equal length, whatever its value. Seed,
/// step, segment and layers determine the positions, so that all ranks choose alike in every space; with the exchange
/// `shared_choice` no index is sent.
/// When not: if a few elements matter more than the rest, which is nearly always so: at the same k it converges far
/// slower than a selector that reads the values.
/// Cost: the accumulate pass and k scattered reads.
/// Source: random-k as a baseline of Stich et al. 2018, in strips.
struct random_k {
  static constexpr char const* name = "random_k";
  static constexpr auto fields() { return std::tuple{field<&random_k::seed>{"seed"}}; }
  static constexpr bool same_on_all_ranks = true;

  std::uint32_t seed = 0;  ///< equal on all ranks

  /// Writes the elements at the random positions; returns their number.
  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  [[nodiscard]] GRADSIEVE_HD index_type select(Workspace& work, accumulator_ref const acc, index_type k,
                                               selection_span out) const {
    std::uint64_t const n = work.selectable(acc);
    std::uint64_t const count = smaller<std::uint64_t>(k, n);
    return work.take_places(acc, count, detail::random_places{n, count, mix(seed ^ mix(acc.step ^ mix(acc.first)))},
                            out);
  }

  friend bool operator==(random_k const&, random_k const&) = default;
};

}  // namespace gradsieve
