// One type for every transport, so that what communicates is compiled once: a training loop, every recipe's compressor.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include <gradsieve/concepts.hpp>
#include <gradsieve/space/host.hpp>

namespace example {

namespace gs = gradsieve;

/// Passes every call on to the communicator it was made of.
class communicator {
 public:
  template <class Comm>
  explicit communicator(Comm comm)
      : rank_{comm.rank()},
        size_{comm.size()},
        floats_{[comm](std::span<float> values, gs::reduction how) { comm.all_reduce(gs::host{}, values, how); }},
        doubles_{[comm](std::span<double> values, gs::reduction how) { comm.all_reduce(gs::host{}, values, how); }},
        equal_{[comm](bytes mine, room all) { comm.all_gather(gs::host{}, mine, all); }},
        sized_{[comm](bytes mine, room all, sizes each) { comm.all_gather(gs::host{}, mine, all, each); }},
        from_one_{[comm](room in_out, int root) { comm.broadcast(gs::host{}, in_out, root); }} {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  void all_reduce(gs::host const&, std::span<float> values, gs::reduction how) const { floats_(values, how); }
  void all_reduce(gs::host const&, std::span<double> values, gs::reduction how) const { doubles_(values, how); }

  using bytes = std::span<std::byte const>;
  using room = std::span<std::byte>;
  using sizes = std::span<std::size_t const>;
  void all_gather(gs::host const&, bytes mine, room all) const { equal_(mine, all); }
  void all_gather(gs::host const&, bytes mine, room all, sizes each) const { sized_(mine, all, each); }
  void broadcast(gs::host const&, room in_out, int root) const { from_one_(in_out, root); }

 private:
  int rank_;
  int size_;
  std::function<void(std::span<float>, gs::reduction)> floats_;
  std::function<void(std::span<double>, gs::reduction)> doubles_;
  std::function<void(bytes, room)> equal_;
  std::function<void(bytes, room, sizes)> sized_;
  std::function<void(room, int)> from_one_;
};
static_assert(gs::has_all_gather<communicator, gs::host> && gs::has_all_reduce<communicator, gs::host, float> &&
              gs::has_broadcast<communicator, gs::host>);

}  // namespace example
