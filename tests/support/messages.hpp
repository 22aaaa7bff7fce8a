// Messages of any codec: there and back between guards, and what decode() says against bytes that are none.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/selection.hpp>

namespace messages {

namespace gs = gradsieve;

using bytes = std::vector<std::byte>;

struct content {
  std::vector<gs::index_type> indices;
  std::vector<float> values;
  std::vector<float> passthrough;
  [[nodiscard]] gs::selection_view view() const { return {indices, values, passthrough}; }
  friend bool operator==(content const&, content const&) = default;
};

/// Checks on the way that max_bytes() is enough and that encode() writes nothing behind what it says.
template <class Codec>
bytes encoded(Codec const& codec, gs::message_info const& info, content const& from) {
  auto const most = codec.max_bytes(info.n, from.indices.size(), from.passthrough.size());
  bytes to(most + 16, std::byte{0x5A});
  auto const size = codec.encode(info, from.view(), std::span{to}.first(most));
  CHECK(size <= most);
  CHECK(std::all_of(to.begin() + static_cast<std::ptrdiff_t>(most), to.end(),
                    [](std::byte b) { return b == std::byte{0x5A}; }));
  to.resize(size);
  return to;
}

/// Room for a decoded message between guards.
class guarded {
 public:
  guarded(std::uint64_t capacity, std::uint64_t passthrough)
      : indices_(capacity + 2 * guard, 0xABAB'ABABu),
        values_(capacity + 2 * guard, -77.0f),
        passthrough_(passthrough + 2 * guard, -77.0f) {}

  [[nodiscard]] gs::selection_span span() { return {inner(indices_), inner(values_), inner(passthrough_)}; }
  [[nodiscard]] bool untouched_outside() const {
    return ends(indices_, 0xABAB'ABABu) && ends(values_, -77.0f) && ends(passthrough_, -77.0f);
  }

 private:
  static constexpr std::size_t guard = 16;
  template <class T>
  static std::span<T> inner(std::vector<T>& all) {
    return std::span{all}.subspan(guard, all.size() - 2 * guard);
  }
  template <class T>
  static bool ends(std::vector<T> const& all, T expected) {
    auto const same = [&](T x) { return x == expected; };
    return std::all_of(all.begin(), all.begin() + guard, same) && std::all_of(all.end() - guard, all.end(), same);
  }

  std::vector<gs::index_type> indices_;
  std::vector<float> values_, passthrough_;
};

/// What every decoded selection promises.
inline bool is_valid(gs::message_info const& info, gs::selection_view const& got, std::uint64_t capacity) {
  bool good = got.indices.size() == got.values.size() && got.indices.size() <= capacity &&
              got.passthrough.size() == info.passthrough;
  for (std::size_t i = 0; good && i < got.indices.size(); ++i)
    good = got.indices[i] < info.n && (i == 0 || got.indices[i - 1] < got.indices[i]) && std::isfinite(got.values[i]);
  for (float const x : got.passthrough) good = good && std::isfinite(x);
  return good;
}

template <class Codec>
content decoded(Codec const& codec, gs::message_info const& info, std::span<std::byte const> from,
                std::uint64_t capacity) {
  guarded room{capacity, info.passthrough};
  auto const got = codec.decode(info, from, room.span());
  CHECK(room.untouched_outside());
  return {{got.indices.begin(), got.indices.end()},
          {got.values.begin(), got.values.end()},
          {got.passthrough.begin(), got.passthrough.end()}};
}

/// What decode() says against a message; "" if it takes it.
template <class Codec>
std::string verdict(Codec const& codec, gs::message_info const& info, std::span<std::byte const> from,
                    std::uint64_t capacity) {
  guarded room{capacity, info.passthrough};
  std::string text;
  try {
    auto const got = codec.decode(info, from, room.span());
    if (!is_valid(info, got, capacity)) FAIL_CHECK("an invalid selection was handed out");
  } catch (gs::corrupt_message const& error) {
    text = error.what();
  }
  if (!room.untouched_outside()) FAIL_CHECK("decode wrote outside of its destination");
  return text;
}

template <class T>
void poke(bytes& message, std::size_t at, T value) {
  gs::wire::store_one(std::span{message}.subspan(at), value);
}

/// Makes the checksum right again, as an attacker would.
inline void reseal(bytes& message) {
  poke(message, 40, std::uint64_t{0});
  poke(message, 40, gs::wire::checksum(message));
}

/// Calls f(bytes) with the same bit turned in two words, for each pair of whole words from byte `first` on.
template <class F>
void for_each_equal_flip(bytes all, std::size_t first, F const& f) {
  for (unsigned const bit : {63u, 62u, 31u, 0u}) {
    auto const turn = [&](std::size_t word) { all[8 * word + bit / 8] ^= static_cast<std::byte>(1u << bit % 8); };
    for (std::size_t i = first / 8; i < all.size() / 8; ++i)
      for (std::size_t j = first / 8; j < i; ++j) {
        turn(i), turn(j);
        f(all);
        turn(i), turn(j);
      }
  }
}

/// How many of those decode() does not refuse by the checksum; none are expected.
template <class Codec>
int unnoticed_flips(Codec const& codec, gs::message_info const& info, bytes const& message, std::uint64_t capacity) {
  int unnoticed = 0;
  for_each_equal_flip(message, gs::message_header::bytes, [&](bytes const& damaged) {
    unnoticed += verdict(codec, info, damaged, capacity).find("checksum") == std::string::npos ? 1 : 0;
  });
  return unnoticed;
}

inline std::string hex(std::span<std::byte const> all) {
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    constexpr char digits[] = "0123456789abcdef";
    auto const value = std::to_integer<unsigned>(all[i]);
    if (i > 0) text += ' ';
    text += digits[value / 16];
    text += digits[value % 16];
  }
  return text;
}

}  // namespace messages
