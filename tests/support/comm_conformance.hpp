// What every communicator must do, as templates over it. Nothing here throws or asserts: a rank that stopped
// half-way would leave the others waiting. What went wrong comes back as text, empty if nothing did.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/concepts.hpp>

namespace comm_conformance {

struct anywhere {};  // a space: none of these models looks at it

inline std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

/// One rank's run of the suite.
template <class Comm>
  requires gradsieve::communicator<Comm>
class suite {
 public:
  explicit suite(Comm comm) : comm_{comm} {}

  [[nodiscard]] std::string run() {
    expect(comm_.size() > 0 && comm_.rank() >= 0 && comm_.rank() < comm_.size(), "rank is below size", 0);
    for (std::size_t const n : {0u, 1u, 2u, 7u, 8u, 13u, 1000u, 4099u}) {
      reduce<float>(n);
      reduce<double>(n);
      reduce<std::uint32_t>(n);
      reduce<std::uint64_t>(n);
      scatter<float>(n);
      scatter<double>(n);
      scatter<std::uint32_t>(n);
      scatter<std::uint64_t>(n);
      same_bits<float>(n);
      same_bits<double>(n);
      gather(n);
      for (int shape = 0; shape < 5; ++shape) gather_sizes(n, shape);
      for (int root = 0; root < comm_.size(); ++root) broadcast(n, root);
      for (int shift = 0; shift < comm_.size(); ++shift) ring(n, shift);
      pairs(n);
      for (int shape = 0; shape < 4; ++shape) to_all(n, shape);
    }
    mixed();
    return failures_;
  }

 private:
  void expect(bool ok, char const* what, std::size_t n) {
    if (ok || failures_.size() > 2000) return;
    failures_ += "rank " + std::to_string(comm_.rank()) + " of " + std::to_string(comm_.size()) + ", n " +
                 std::to_string(n) + ": " + what + '\n';
  }

  /// Values whose sums are exact, negative ones and sums beyond 2^53 included.
  template <class T>
  static T value(std::size_t i, int rank) {
    auto const small = (i * 7 + at(rank) * 5) % 11 + at(rank);
    if constexpr (std::is_floating_point_v<T>)
      return static_cast<T>(small) - T{100};
    else
      return static_cast<T>(small + (std::numeric_limits<T>::max() >> 5));
  }

  static std::byte pattern(std::size_t i, int from, std::size_t salt = 0) {
    return static_cast<std::byte>((i * 31 + at(from) * 101 + salt * 17 + 1) & 0xFFu);
  }

  static std::vector<std::byte> message(std::size_t n, int from, std::size_t salt = 0) {
    std::vector<std::byte> bytes(n);
    for (std::size_t i = 0; i < n; ++i) bytes[i] = pattern(i, from, salt);
    return bytes;
  }

  template <class T>
  void reduce(std::size_t n) {
    for (auto const how : {gradsieve::reduction::sum, gradsieve::reduction::max}) {
      std::vector<T> values(n);
      std::vector<T> expected(n);
      for (std::size_t i = 0; i < n; ++i) {
        values[i] = value<T>(i, comm_.rank());
        expected[i] = value<T>(i, 0);
        for (int r = 1; r < comm_.size(); ++r)
          expected[i] = how == gradsieve::reduction::sum ? static_cast<T>(expected[i] + value<T>(i, r))
                                                         : std::max(expected[i], value<T>(i, r));
      }
      comm_.all_reduce(where_, std::span<T>{values}, how);
      expect(values == expected, how == gradsieve::reduction::sum ? "sum" : "max", n);
    }
  }

  /// A rank's share of what all_reduce would give; `n` values each.
  template <class T>
  void scatter(std::size_t n) {
    if constexpr (gradsieve::has_reduce_scatter<Comm, anywhere, T>)
      for (auto const how : {gradsieve::reduction::sum, gradsieve::reduction::max}) {
        std::vector<T> values(n * at(comm_.size()));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = value<T>(i, comm_.rank());
        auto const given = values;
        std::vector<T> expected(n);
        for (std::size_t i = 0; i < n; ++i) {
          std::size_t const place = at(comm_.rank()) * n + i;
          expected[i] = value<T>(place, 0);
          for (int r = 1; r < comm_.size(); ++r)
            expected[i] = how == gradsieve::reduction::sum ? static_cast<T>(expected[i] + value<T>(place, r))
                                                           : std::max(expected[i], value<T>(place, r));
        }
        std::vector<T> mine(n);
        comm_.reduce_scatter(where_, std::span<T const>{values}, std::span<T>{mine}, how);
        expect(mine == expected, how == gradsieve::reduction::sum ? "reduce_scatter, sum" : "reduce_scatter, max", n);
        expect(values == given, "reduce_scatter leaves what it is given", n);
      }
  }

  /// Sums that round, so that the order of the terms shows: still the same bits on all ranks.
  template <class T>
  void same_bits(std::size_t n) {
    std::vector<T> values(n);
    for (std::size_t i = 0; i < n; ++i)
      values[i] = static_cast<T>((i + at(comm_.rank())) % 3 == 0 ? 1e7 : 1.0 / static_cast<double>(3 + i)) *
                  static_cast<T>(comm_.rank() % 2 == 0 ? 1 : -1);
    comm_.all_reduce(where_, std::span<T>{values}, gradsieve::reduction::sum);

    auto const mine = std::as_bytes(std::span<T const>{values});
    std::vector<std::byte> all(mine.size() * at(comm_.size()));
    comm_.all_gather(where_, mine, std::span{all});
    for (int r = 0; r < comm_.size(); ++r)
      expect(mine.empty() || std::memcmp(all.data() + at(r) * mine.size(), mine.data(), mine.size()) == 0,
             "the same bits on all ranks", n);
  }

  void gather(std::size_t n) {
    auto const mine = message(n, comm_.rank());
    std::vector<std::byte> expected;
    for (int r = 0; r < comm_.size(); ++r)
      for (std::byte const each : message(n, r)) expected.push_back(each);

    std::vector<std::byte> all(expected.size());
    comm_.all_gather(where_, std::span{mine}, std::span{all});
    expect(all == expected, "all_gather", n);

    std::vector<std::byte> in_place(expected.size());
    auto const place = std::span{in_place}.subspan(n * at(comm_.rank()), n);
    std::copy(mine.begin(), mine.end(), place.begin());
    comm_.all_gather(where_, std::span<std::byte const>{place}, std::span{in_place});
    expect(in_place == expected, "all_gather in place", n);
  }

  void gather_sizes(std::size_t n, int shape) {
    std::vector<std::size_t> sizes(at(comm_.size()));
    std::vector<std::byte> expected;
    std::size_t offset = 0;
    for (int r = 0; r < comm_.size(); ++r) {
      std::size_t const choices[] = {n, n + at(r), r % 2 == 0 ? n : 0, r + 1 == comm_.size() ? n : 0,
                                     r == 0 ? 3 * n + 1 : 1};
      sizes[at(r)] = choices[shape];
      if (r == comm_.rank()) offset = expected.size();
      for (std::byte const each : message(sizes[at(r)], r)) expected.push_back(each);
    }
    auto const mine = message(sizes[at(comm_.rank())], comm_.rank());

    std::vector<std::byte> all(expected.size());
    comm_.all_gather(where_, std::span{mine}, std::span{all}, std::span{std::as_const(sizes)});
    expect(all == expected, "all_gather of sizes", n);

    std::vector<std::byte> in_place(expected.size());
    auto const place = std::span{in_place}.subspan(offset, mine.size());
    std::copy(mine.begin(), mine.end(), place.begin());
    comm_.all_gather(where_, std::span<std::byte const>{place}, std::span{in_place}, std::span{std::as_const(sizes)});
    expect(in_place == expected, "all_gather of sizes, in place", n);
  }

  void broadcast(std::size_t n, int root) {
    auto bytes = message(n, comm_.rank(), at(root));
    comm_.broadcast(where_, std::span{bytes}, root);
    expect(bytes == message(n, root, at(root)), "broadcast", n);
  }

  /// Each rank sends to the one `shift` behind it, itself with 0; every message has another size.
  void ring(std::size_t n, int shift) {
    int const size = comm_.size();
    int const to = (comm_.rank() + shift) % size;
    int const from = (comm_.rank() + size - shift) % size;
    auto const out = message(n + 3 * at(comm_.rank()), comm_.rank(), at(to));
    std::vector<std::byte> in(n + 3 * at(from));
    comm_.send_receive(where_, std::span{out}, to, std::span{in}, from);
    expect(in == message(n + 3 * at(from), from, at(comm_.rank())), "send_receive in a ring", n);
  }

  /// Odd ranks give to the even ones before them and get nothing; one left over names itself.
  void pairs(std::size_t n) {
    int const rank = comm_.rank();
    int peer = rank % 2 == 0 ? rank + 1 : rank - 1;
    if (peer >= comm_.size()) peer = rank;
    bool const gives = rank % 2 == 1;
    bool const gets = peer > rank;
    auto const out = message(gives ? n : 0, rank);
    std::vector<std::byte> in(gets ? n : 0);
    comm_.send_receive(where_, std::span{out}, peer, std::span{in}, peer);
    expect(in == message(gets ? n : 0, peer), "send_receive in pairs", n);
  }

  /// Every rank has a message of its own for each, itself too.
  void to_all(std::size_t n, int shape) {
    auto const size_of = [&](int from, int to) {
      std::size_t const choices[] = {n, n + 2 * at(from) + at(to), (from + to) % 2 == 0 ? n : 0,
                                     from == 0 && to + 1 == comm_.size() ? n : 0};
      return choices[shape];
    };
    std::vector<std::byte> out;
    std::vector<std::byte> expected;
    std::vector<std::size_t> out_sizes;
    std::vector<std::size_t> in_sizes;
    for (int r = 0; r < comm_.size(); ++r) {
      out_sizes.push_back(size_of(comm_.rank(), r));
      in_sizes.push_back(size_of(r, comm_.rank()));
      for (std::byte const each : message(out_sizes.back(), comm_.rank(), at(r))) out.push_back(each);
      for (std::byte const each : message(in_sizes.back(), r, at(comm_.rank()))) expected.push_back(each);
    }
    std::vector<std::byte> in(expected.size());
    comm_.all_to_all(where_, std::span<std::byte const>{out}, std::span{std::as_const(out_sizes)}, std::span{in},
                     std::span{std::as_const(in_sizes)});
    expect(in == expected, "all_to_all", n);
  }

  /// Many small calls of all kinds back to back, on changing buffers: what a missing barrier would spoil.
  void mixed() {
    for (std::size_t i = 0; i < 60; ++i) {
      reduce<float>(i % 9);
      scatter<float>(i % 4);
      broadcast(i % 5, static_cast<int>(i) % comm_.size());
      gather(i % 3);
      ring(i % 7, static_cast<int>(i) % comm_.size());
      to_all(i % 4, 1);
    }
  }

  Comm comm_;
  anywhere where_;
  std::string failures_;
};

/// Collective: every rank of `comm` calls it. Returns what this rank saw go wrong.
template <class Comm>
[[nodiscard]] std::string run(Comm comm) {
  static_assert(gradsieve::has_all_reduce<Comm, anywhere, float> && gradsieve::has_all_reduce<Comm, anywhere, double> &&
                gradsieve::has_all_reduce<Comm, anywhere, std::uint32_t> &&
                gradsieve::has_all_reduce<Comm, anywhere, std::uint64_t>);
  static_assert(!gradsieve::has_all_reduce<Comm, anywhere, float const>);
  static_assert(gradsieve::has_all_gather<Comm, anywhere> && gradsieve::has_broadcast<Comm, anywhere> &&
                gradsieve::has_send_receive<Comm, anywhere> && gradsieve::has_all_to_all<Comm, anywhere>);
  return suite<Comm>{comm}.run();
}

}  // namespace comm_conformance
