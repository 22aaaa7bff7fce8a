// A communicator of your own, over plain sockets: ranks are processes, each with a socket to rank 0.
#include <gradsieve/compressor.hpp>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <vector>

namespace gs = gradsieve;

//! [communicator]
/// Everything goes through rank 0. `peers`: on rank 0 a socket to every other rank, in order; else one to rank 0.
class socket_star {
 public:
  socket_star(int rank, int size, std::vector<int> const& peers) : rank_{rank}, size_{size}, peers_{&peers} {}
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  /// Rank 0 adds up in rank order, so that all ranks get the same bits.
  template <class T>
  void all_reduce(gs::host const&, std::span<T> in_out, gs::reduction how) const {
    auto const bytes = std::as_writable_bytes(in_out);
    if (rank_ != 0) {
      send((*peers_)[0], bytes);
      return receive((*peers_)[0], bytes);
    }
    std::vector<T> other(in_out.size());
    for (int const peer : *peers_) {
      receive(peer, std::as_writable_bytes(std::span{other}));
      for (std::size_t i = 0; i < other.size(); ++i)
        in_out[i] = how == gs::reduction::sum ? in_out[i] + other[i] : std::max(in_out[i], other[i]);
    }
    for (int const peer : *peers_) send(peer, bytes);
  }

  void all_gather(gs::host const& where, std::span<std::byte const> mine, std::span<std::byte> all) const {
    std::vector<std::size_t> const sizes(static_cast<std::size_t>(size_), mine.size());
    all_gather(where, mine, all, sizes);
  }

  void all_gather(gs::host const&, std::span<std::byte const> mine, std::span<std::byte> all,
                  std::span<std::size_t const> sizes) const {
    if (rank_ != 0) {
      send((*peers_)[0], mine);
      return receive((*peers_)[0], all);
    }
    if (!mine.empty()) std::memmove(all.data(), mine.data(), mine.size());
    std::size_t at = sizes[0];
    for (std::size_t r = 1; r < sizes.size(); at += sizes[r++]) receive((*peers_)[r - 1], all.subspan(at, sizes[r]));
    for (int const peer : *peers_) send(peer, all);
  }

 private:
  static void send(int to, std::span<std::byte const> bytes) {
    while (!bytes.empty()) {
      auto const sent = ::send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) throw std::runtime_error("a socket is closed");
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
  }
  static void receive(int from, std::span<std::byte> bytes) {
    while (!bytes.empty()) {
      auto const got = ::recv(from, bytes.data(), bytes.size(), 0);
      if (got <= 0) throw std::runtime_error("a socket is closed");
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    }
  }

  int rank_;
  int size_;
  std::vector<int> const* peers_;
};
static_assert(gs::has_all_reduce<socket_star, gs::host, float> && gs::has_all_gather<socket_star, gs::host>);
//! [communicator]

/// One rank's program: the same update everywhere, as an exit status.
int train(socket_star const& comm) {
  auto reducer = gs::compressor{gs::host{.threads = 1}, gs::layout::flat(10'000), gs::recipe{.density = 0.01}};
  std::vector<float> gradient(10'000);
  for (std::size_t i = 0; i < gradient.size(); ++i)
    gradient[i] = static_cast<float>((i * 31 + static_cast<std::size_t>(comm.rank()) * 7) % 997);
  auto const report = reducer.exchange(comm, gradient);
  std::vector<float> largest = gradient;
  comm.all_reduce(gs::host{}, std::span{largest}, gs::reduction::max);
  if (comm.rank() == 0) std::cout << report << '\n';
  return largest == gradient && report.union_size >= report.selected ? 0 : 1;
}

int main() {
  constexpr int ranks = 3;
  std::vector<int> peers;
  for (int rank = 1; rank < ranks; ++rank) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 1;
    if (::fork() == 0) {
      std::vector<int> const root{ends[1]};
      return train(socket_star{rank, ranks, root});
    }
    ::close(ends[1]);
    peers.push_back(ends[0]);
  }
  int failed = train(socket_star{0, ranks, peers});
  for (int rank = 1; rank < ranks; ++rank) {
    int status = 1;
    ::wait(&status);
    failed += status == 0 ? 0 : 1;
  }
  return failed;
}
