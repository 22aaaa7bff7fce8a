// A communicator of one rank: no transport, for programs that train alone and for tests.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A communicator of one rank. Every collective is a copy if the buffers differ, and otherwise does nothing. A space
/// with `copy(from, to)`, such as a device, makes the copy in its own order.
/// Memory: none. Ranks: local. Threads: no state; any thread, any time.
/// @throws mismatch if sizes differ or a rank other than 0 is named, before anything is copied; exceptions of `copy`.
class self {
 public:
  static constexpr bool stream_ordered = true;

  [[nodiscard]] static constexpr int rank() noexcept { return 0; }  ///< 0
  [[nodiscard]] static constexpr int size() noexcept { return 1; }  ///< 1

  /// Does nothing: one rank's values are their sum and maximum.
  template <class Space, class T, std::size_t Extent>
    requires(std::is_arithmetic_v<T> && !std::is_const_v<T>)
  void all_reduce(Space const&, std::span<T, Extent>, reduction) const noexcept {}

  /// Copies all values, which are the share of the only rank.
  template <class Space, class T>
    requires(std::is_arithmetic_v<T> && !std::is_const_v<T>)
  void reduce_scatter(Space const& where, std::span<T const> all, std::span<T> mine, reduction) const {
    copy(where, "reduce_scatter", std::as_bytes(all), std::as_writable_bytes(mine));
  }

  template <class Space>
  void all_gather(Space const& where, std::span<std::byte const> mine, std::span<std::byte> all) const {
    copy(where, "all_gather", mine, all);
  }

  template <class Space>
  void all_gather(Space const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  std::span<std::size_t const> sizes) const {
    if (sizes.size() != 1 || sizes[0] != mine.size())
      throw mismatch("gradsieve: all_gather: " + std::to_string(sizes.size()) +
                     " sizes for 1 rank, or another size than the " + std::to_string(mine.size()) + " bytes of rank 0");
    copy(where, "all_gather", mine, all);
  }

  template <class Space>
  void broadcast(Space const&, std::span<std::byte>, int root) const {
    only_rank("broadcast", root);
  }

  template <class Space>
  void send_receive(Space const& where, std::span<std::byte const> out, int to, std::span<std::byte> in,
                    int from) const {
    only_rank("send_receive", to);
    only_rank("send_receive", from);
    copy(where, "send_receive", out, in);
  }

  template <class Space>
  void all_to_all(Space const& where, std::span<std::byte const> out, std::span<std::size_t const> out_sizes,
                  std::span<std::byte> in, std::span<std::size_t const> in_sizes) const {
    for (auto const& [sizes, bytes] : {std::pair{out_sizes, out.size()}, std::pair{in_sizes, in.size()}})
      if (sizes.size() != 1 || sizes[0] != bytes)
        throw mismatch("gradsieve: all_to_all: " + std::to_string(sizes.size()) +
                       " sizes for 1 rank, or another size than the " + std::to_string(bytes) + " bytes of rank 0");
    copy(where, "all_to_all", out, in);
  }

  friend bool operator==(self const&, self const&) = default;

 private:
  static void only_rank(char const* call, int rank) {
    if (rank != 0)
      throw mismatch("gradsieve: " + std::string{call} + ": rank " + std::to_string(rank) +
                     " named, there is only rank 0");
  }

  template <class Space>
  static void copy(Space const& where, char const* call, std::span<std::byte const> from, std::span<std::byte> to) {
    if (from.size() != to.size())
      throw mismatch("gradsieve: " + std::string{call} + ": rank 0 gives " + std::to_string(from.size()) +
                     " bytes, rank 0 has room for " + std::to_string(to.size()));
    if constexpr (requires { where.copy(from, to); })
      where.copy(from, to);
    else if (!from.empty())
      std::memmove(to.data(), from.data(), from.size());
  }
};

static_assert(communicator<self> && has_all_reduce<self, int, float> && has_reduce_scatter<self, int, float> &&
              has_all_gather<self, int> && has_broadcast<self, int> && has_send_receive<self, int> &&
              has_all_to_all<self, int>);

}  // namespace gradsieve
