// One type for every transport, so that what communicates is compiled once: a training loop, every recipe's compressor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>

#include <gradsieve/concepts.hpp>
#include <gradsieve/host/workspace.hpp>

namespace example {

namespace gs = gradsieve;

/// Passes every call on to the communicator it was made of. For a device that one works in stream order.
template <class Space>
class communicator_of {
 public:
  static constexpr bool stream_ordered = !std::is_same_v<Space, gs::host>;

  template <class Comm>
  explicit communicator_of(Comm comm)
      : rank_{comm.rank()},
        size_{comm.size()},
        floats_{
            [comm](Space const& where, std::span<float> all, gs::reduction how) { comm.all_reduce(where, all, how); }},
        doubles_{
            [comm](Space const& where, std::span<double> all, gs::reduction how) { comm.all_reduce(where, all, how); }},
        words_{[comm](Space const& where, std::span<std::uint32_t> all, gs::reduction how) {
          comm.all_reduce(where, all, how);
        }},
        equal_{[comm](Space const& where, bytes mine, room all) { comm.all_gather(where, mine, all); }},
        sized_{
            [comm](Space const& where, bytes mine, room all, sizes each) { comm.all_gather(where, mine, all, each); }},
        from_one_{[comm](Space const& where, room in_out, int root) { comm.broadcast(where, in_out, root); }},
        pairs_{[comm](Space const& where, bytes out, int to, room in, int from) {
          comm.send_receive(where, out, to, in, from);
        }},
        to_all_{[comm](Space const& where, bytes out, sizes given, room in, sizes got) {
          comm.all_to_all(where, out, given, in, got);
        }},
        threads_{[comm] {
          [[maybe_unused]] auto const& it = comm;
          if constexpr (requires { it.require_threads(); }) it.require_threads();
        }} {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  void all_reduce(Space const& where, std::span<float> all, gs::reduction how) const { floats_(where, all, how); }
  void all_reduce(Space const& where, std::span<double> all, gs::reduction how) const { doubles_(where, all, how); }
  void all_reduce(Space const& where, std::span<std::uint32_t> all, gs::reduction how) const {
    words_(where, all, how);
  }

  using bytes = std::span<std::byte const>;
  using room = std::span<std::byte>;
  using sizes = std::span<std::size_t const>;
  void all_gather(Space const& where, bytes mine, room all) const { equal_(where, mine, all); }
  void all_gather(Space const& where, bytes mine, room all, sizes each) const { sized_(where, mine, all, each); }
  void broadcast(Space const& where, room in_out, int root) const { from_one_(where, in_out, root); }
  void send_receive(Space const& where, bytes out, int to, room in, int from) const {
    pairs_(where, out, to, in, from);
  }
  void all_to_all(Space const& where, bytes out, sizes given, room in, sizes got) const {
    to_all_(where, out, given, in, got);
  }
  void require_threads() const { threads_(); }

 private:
  int rank_;
  int size_;
  std::function<void(Space const&, std::span<float>, gs::reduction)> floats_;
  std::function<void(Space const&, std::span<double>, gs::reduction)> doubles_;
  std::function<void(Space const&, std::span<std::uint32_t>, gs::reduction)> words_;
  std::function<void(Space const&, bytes, room)> equal_;
  std::function<void(Space const&, bytes, room, sizes)> sized_;
  std::function<void(Space const&, room, int)> from_one_;
  std::function<void(Space const&, bytes, int, room, int)> pairs_;
  std::function<void(Space const&, bytes, sizes, room, sizes)> to_all_;
  std::function<void()> threads_;
};
using communicator = communicator_of<gs::host>;
static_assert(gs::has_all_gather<communicator, gs::host> && gs::has_all_reduce<communicator, gs::host, float> &&
              gs::has_broadcast<communicator, gs::host> && gs::has_send_receive<communicator, gs::host> &&
              gs::has_all_to_all<communicator, gs::host>);

}  // namespace example
