// Weights, their changes, and damaged messages, for tests of weight deltas.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/wire.hpp>

namespace delta_weights {

using bytes = std::vector<std::byte>;

/// Random numbers that are the same on every machine (xorshift).
struct dice {
  std::uint64_t state;

  std::uint64_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }
  std::uint64_t below(std::uint64_t n) { return (next() >> 16) % n; }
};

template <class T>
T of_bits(std::uint64_t bits) {
  T value;
  auto const words = std::bit_cast<std::array<std::byte, 8>>(bits);
  std::memcpy(&value, words.data(), sizeof(T));
  return value;
}

template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
std::vector<T> random_weights(std::uint64_t n, std::uint64_t seed) {
  dice roll{seed};
  std::vector<T> made(n);
  for (auto& each : made) each = of_bits<T>(roll.next());  // any bits: NaNs, infinities, subnormals
  return made;
}

/// Changes the bits of about a part of all elements between two places.
template <class T>
void change(std::vector<T>& weights, double part, dice& roll, std::uint64_t first, std::uint64_t last) {
  auto const limit = static_cast<std::uint64_t>(part * 65'536);
  for (auto i = first; i < last; ++i)
    if (roll.below(65'536) < limit) {
      std::array<unsigned char, sizeof(T)> now;
      std::memcpy(now.data(), &weights[i], sizeof(T));
      now[roll.below(sizeof(T))] ^= static_cast<unsigned char>(1 + roll.below(255));
      std::memcpy(&weights[i], now.data(), sizeof(T));
    }
}
template <class T>
std::vector<T> changed(std::vector<T> weights, double part, std::uint64_t seed) {
  dice roll{seed};
  change(weights, part, roll, 0, weights.size());
  return weights;
}

inline bytes bytes_of(std::span<std::byte const> message) { return {message.begin(), message.end()}; }

/// What apply() throws, and verify() before it; "" if it takes the message.
template <class Decoder, class Weights>
std::string verdict_of(Decoder& decoder, std::span<std::byte const> message, Weights&& weights) {
  auto const caught = [](auto const& call) -> std::string {
    try {
      call();
    } catch (gradsieve::corrupt_message const& error) {
      return std::string("corrupt: ") + error.what();
    } catch (gradsieve::mismatch const& error) {
      return std::string("mismatch: ") + error.what();
    }
    return "";
  };
  std::optional<std::uint64_t> next;
  auto const verified = caught([&] {
    using value = std::remove_cvref_t<decltype(weights[0])>;
    next = decoder.template verify<value>(message);
  });
  auto const verdict = caught([&] { decoder.apply(message, weights); });
  CHECK(verified == verdict);
  if (verdict.empty()) CHECK(next == (decoder.complete() ? std::optional{decoder.version()} : std::nullopt));
  return verdict;
}

/// Makes a chunk's checksum right again.
inline void reseal(std::span<std::byte> chunk) {
  gradsieve::wire::store_one(chunk.subspan(56), gradsieve::wire::checksum_around(chunk, 56));
}

struct mutation {
  bytes bad;
  std::size_t which;  // of the messages it was
  bool forged;        // its checksums are right
};

/// A message that is cut, longer, spliced, or has other bits. `borders`: sizes of each message's chunks.
inline mutation mutated(std::vector<bytes> const& messages, std::vector<std::vector<std::size_t>> const& borders,
                        dice& roll) {
  auto const which = roll.below(messages.size());
  auto bad = messages[which];
  auto const kind = roll.below(8);
  if (kind == 0) {  // cut
    bad.resize(roll.below(bad.size()));
  } else if (kind == 1) {  // longer
    auto const more = 1 + roll.below(80);
    for (std::uint64_t i = 0; i < more; ++i) bad.push_back(static_cast<std::byte>(roll.next()));
  } else if (kind == 2) {  // spliced from two
    auto const& other = messages[roll.below(messages.size())];
    auto const at = roll.below(std::min(bad.size(), other.size()));
    std::copy(other.begin() + static_cast<std::ptrdiff_t>(at), other.end(),
              std::back_inserter(bad = bytes(bad.begin(), bad.begin() + static_cast<std::ptrdiff_t>(at))));
  } else {  // other bits, in half of the cases with a checksum that is right
    auto const changes = 1 + roll.below(4);
    for (std::uint64_t c = 0; c < changes; ++c) {
      auto const place =
          roll.below(2) == 0 ? roll.below(bad.size()) : 48 + roll.below(std::min<std::uint64_t>(bad.size() - 48, 80));
      bad[place] ^= static_cast<std::byte>(kind == 3 ? 1u << roll.below(8) : 1 + roll.below(255));
    }
    if (kind >= 5) {
      std::size_t at = 0;
      for (auto const size : borders[which]) reseal(std::span{bad}.subspan(at, size)), at += size;
    }
  }
  return {bad, which, kind >= 5};
}

}  // namespace delta_weights
