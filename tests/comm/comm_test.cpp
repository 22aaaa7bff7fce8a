// The communicators that need no transport: self and threads.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/comm/threads.hpp>

#include "allocations.hpp"
#include "comm_conformance.hpp"

namespace gs = gradsieve;
using comm_conformance::anywhere;
using comm_conformance::at;
using gs::reduction;
using communicator = gs::threads::communicator_ref;

namespace {

/// What each rank's call ended with: empty, or the kind of exception and its message.
std::vector<std::string> endings(int ranks, std::function<void(communicator)> const& f) {
  std::vector<std::string> said(at(ranks));
  gs::threads::run(ranks, [&](communicator comm) {
    auto& mine = said[at(comm.rank())];
    try {
      f(comm);
    } catch (gs::mismatch const& error) {
      mine = std::string{"mismatch "} + error.what();
    } catch (gs::communication_error const& error) {
      mine = std::string{"communication_error "} + error.what();
    }
  });
  return said;
}

bool has(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

/// Every rank throws this mismatch, naming these, and the next collective works.
void all_refuse(int ranks, std::vector<std::string> const& parts, std::function<void(communicator)> const& f) {
  auto const said = endings(ranks, [&](communicator comm) {
    std::exception_ptr refused;
    try {
      f(comm);
    } catch (gs::mismatch const&) {
      refused = std::current_exception();
    }
    float one = 1;
    try {
      comm.all_reduce(anywhere{}, std::span{&one, 1}, reduction::sum);
    } catch (gs::mismatch const& error) {
      throw std::logic_error(std::string{"refused for ever: "} + error.what());
    }
    if (one != static_cast<float>(comm.size())) throw std::logic_error("the next collective is wrong");
    if (refused) std::rethrow_exception(refused);
  });
  for (auto const& each : said) {
    CHECK(each == said[0]);
    CHECK(has(each, "mismatch gradsieve: "));
    for (auto const& part : parts) CHECK_MESSAGE(has(each, part), each << " lacks " << part);
  }
}

/// Any collective, by number.
void call(communicator comm, int which) {
  auto const ranks = at(comm.size());
  std::vector<std::byte> mine(4);
  std::vector<std::byte> all(4 * ranks);
  std::vector<std::byte> room(4 * ranks);
  std::vector<std::size_t> const sizes(ranks, 4);
  std::vector<float> values(9);
  switch (which) {
    case 0:
      return comm.all_reduce(anywhere{}, std::span{values}, reduction::sum);
    case 1:
      return comm.all_gather(anywhere{}, std::span{mine}, std::span{all});
    case 2:
      return comm.all_gather(anywhere{}, std::span{mine}, std::span{all}, std::span{sizes});
    case 3:
      return comm.broadcast(anywhere{}, std::span{mine}, 0);
    case 4:
      return comm.all_to_all(anywhere{}, std::span{all}, std::span{sizes}, std::span{room}, std::span{sizes});
    case 5: {
      std::vector<float> const all_values(ranks);
      return comm.reduce_scatter(anywhere{}, std::span{all_values}, std::span{values}.first(1), reduction::sum);
    }
    default: {
      int const to = (comm.rank() + 1) % comm.size();
      int const from = (comm.rank() + comm.size() - 1) % comm.size();
      return comm.send_receive(anywhere{}, std::span{mine}, to, std::span{all}.first(4), from);
    }
  }
}
constexpr int calls = 7;

}  // namespace

// ---- Self
// --------------------------------------------------------------------------------------------------

TEST_CASE("self does what every communicator must") {
  CHECK(comm_conformance::run(gs::self{}) == "");
  CHECK(gs::self{} == gs::self{});
  static_assert(std::is_empty_v<gs::self> && std::is_trivially_copyable_v<gs::self>);
}

TEST_CASE("self refuses sizes and ranks that do not fit") {
  gs::self const alone;
  std::vector<std::byte> four(4);
  std::vector<std::byte> five(5);
  std::size_t const sizes[] = {4, 5};
  auto const size = [&](std::size_t i) { return std::span{sizes}.subspan(i, 1); };
  CHECK_THROWS_WITH_AS(alone.all_gather(0, std::span{four}, std::span{five}),
                       "gradsieve: all_gather: rank 0 gives 4 bytes, rank 0 has room for 5", gs::mismatch);
  CHECK_THROWS_AS(alone.all_gather(0, std::span{four}, std::span{five}, size(0)), gs::mismatch);
  CHECK_THROWS_AS(alone.all_gather(0, std::span{four}, std::span{four}, size(1)), gs::mismatch);
  CHECK_THROWS_AS(alone.all_gather(0, std::span{four}, std::span{four}, std::span{sizes}), gs::mismatch);
  CHECK_THROWS_AS(alone.all_gather(0, std::span{four}, std::span{four}, size(0).first(0)), gs::mismatch);
  CHECK_THROWS_AS(alone.send_receive(0, std::span{five}, 0, std::span{four}, 0), gs::mismatch);
  CHECK_THROWS_AS(alone.send_receive(0, std::span{four}, 1, std::span{four}, 0), gs::mismatch);
  CHECK_THROWS_AS(alone.send_receive(0, std::span{four}, 0, std::span{four}, -1), gs::mismatch);
  auto const to_all = [&](std::size_t given, std::size_t got, std::span<std::size_t const> out_sizes,
                          std::span<std::size_t const> in_sizes) {
    alone.all_to_all(0, std::span{four}.first(given), out_sizes, std::span{five}.first(got), in_sizes);
  };
  to_all(4, 4, size(0), size(0));
  CHECK_THROWS_WITH_AS(to_all(4, 5, size(0), size(1)),
                       "gradsieve: all_to_all: rank 0 gives 4 bytes, rank 0 has room for 5", gs::mismatch);
  CHECK_THROWS_AS(to_all(4, 4, size(1), size(0)), gs::mismatch);
  CHECK_THROWS_AS(to_all(4, 4, size(0), size(1)), gs::mismatch);
  CHECK_THROWS_AS(to_all(4, 4, std::span{sizes}, size(0)), gs::mismatch);
  CHECK_THROWS_AS(to_all(4, 4, size(0), size(0).first(0)), gs::mismatch);
  std::vector<float> two(2);
  CHECK_THROWS_WITH_AS(alone.reduce_scatter(0, std::span<float const>{two}, std::span{two}.first(1), reduction::sum),
                       "gradsieve: reduce_scatter: rank 0 gives 8 bytes, rank 0 has room for 4", gs::mismatch);
  CHECK_THROWS_WITH_AS(alone.broadcast(0, std::span{four}, 1),
                       "gradsieve: broadcast: rank 1 named, there is only rank 0", gs::mismatch);
}

namespace {

/// A space that makes copies itself, as a device does.
struct copying {
  int* copies;
  void copy(std::span<std::byte const> from, std::span<std::byte> to) const {
    ++*copies;
    std::memmove(to.data(), from.data(), from.size());
  }
};

}  // namespace

TEST_CASE("self leaves its copies to a space that can copy") {
  int copies = 0;
  copying const where{&copies};
  std::byte const mine[] = {std::byte{1}, std::byte{2}};
  std::size_t const sizes[] = {2};
  gs::self const alone;
  auto const copied = [&](auto const& call) {
    std::byte all[] = {std::byte{7}, std::byte{7}};
    call(std::span<std::byte>{all});
    return all[0] == mine[0] && all[1] == mine[1];
  };
  CHECK(copied([&](std::span<std::byte> all) { alone.all_gather(where, std::span{mine}, all); }));
  CHECK(copied([&](std::span<std::byte> all) { alone.all_gather(where, std::span{mine}, all, std::span{sizes}); }));
  CHECK(copied([&](std::span<std::byte> all) { alone.send_receive(where, std::span{mine}, 0, all, 0); }));
  CHECK(copied([&](std::span<std::byte> all) {
    alone.all_to_all(where, std::span{mine}, std::span{sizes}, all, std::span{sizes});
  }));
  CHECK(copies == 4);
  CHECK_THROWS_AS(alone.all_gather(where, std::span{mine}, std::span<std::byte>{}), gs::mismatch);
  CHECK(copies == 4);
}

// ---- Threads: values
// ---------------------------------------------------------------------------------------

TEST_CASE("threads do what every communicator must") {
  for (int const ranks : {1, 2, 3, 4, 8}) {
    std::vector<std::string> failures(at(ranks));
    gs::threads::run(ranks, [&](communicator comm) { failures[at(comm.rank())] = comm_conformance::run(comm); });
    for (auto const& each : failures) CHECK(each == "");
  }
}

TEST_CASE("threads add in rank order, whatever the slices") {
  for (int const ranks : {2, 3, 4, 8}) {
    for (std::size_t const n : {1u, 5u, 1023u, 1024u, 1025u, 10'007u}) {
      auto const value = [](std::size_t i, int rank) {
        return (at(rank) + i) % 2 == 0 ? 1e8f / static_cast<float>(i + 1) : -0.1f * static_cast<float>(rank + 1);
      };
      std::vector<float> expected(n);
      for (std::size_t i = 0; i < n; ++i) {
        expected[i] = value(i, 0);
        for (int r = 1; r < ranks; ++r) expected[i] += value(i, r);
      }
      std::vector<std::vector<float>> values(at(ranks), std::vector<float>(n));
      gs::threads::run(ranks, [&](communicator comm) {
        auto& mine = values[at(comm.rank())];
        for (std::size_t i = 0; i < n; ++i) mine[i] = value(i, comm.rank());
        comm.all_reduce(anywhere{}, std::span{mine}, reduction::sum);
      });
      for (auto const& each : values) CHECK(std::memcmp(each.data(), expected.data(), n * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("a late rank is waited for: no buffer is left while another still reads it") {
  auto const said = endings(3, [](communicator comm) {
    for (int i = 0; i < 5; ++i) {
      if (comm.rank() == i % 3) std::this_thread::sleep_for(std::chrono::milliseconds{5});
      std::vector<std::byte> mine(100'000, static_cast<std::byte>(comm.rank() + i));
      std::vector<std::byte> all(mine.size() * 3);
      comm.all_gather(anywhere{}, std::span{mine}, std::span{all});
      for (std::size_t r = 0; r < 3; ++r)
        for (std::size_t at_end : {std::size_t{0}, mine.size() - 1})
          if (all[r * mine.size() + at_end] != static_cast<std::byte>(static_cast<int>(r) + i))
            throw gs::mismatch("wrong bytes");
    }
  });
  for (auto const& each : said) CHECK(each == "");
}

TEST_CASE("threads: reduce_scatter gives the bits of all_reduce, also where sums round") {
  for (int const ranks : {1, 2, 3, 5, 8}) {
    std::vector<int> same(at(ranks));
    gs::threads::run(ranks, [&](communicator comm) {
      std::size_t const n = 2500;  // more than a block
      std::vector<float> values(n * at(ranks));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = ((i + at(comm.rank())) % 3 == 0 ? 1e7f : 1.0f / static_cast<float>(3 + i)) *
                    (comm.rank() % 2 == 0 ? 1.0f : -1.0f);
      std::vector<float> mine(n);
      comm.reduce_scatter(anywhere{}, std::span<float const>{values}, std::span{mine}, reduction::sum);
      comm.all_reduce(anywhere{}, std::span{values}, reduction::sum);
      same[at(comm.rank())] = std::memcmp(mine.data(), values.data() + n * at(comm.rank()), 4 * n) == 0;
    });
    CHECK(same == std::vector<int>(at(ranks), 1));
  }
}

TEST_CASE("a collective of threads allocates nothing") {
  for (int const ranks : {1, 2, 4}) {
    std::size_t counted = 0;
    gs::threads::run(ranks, [&](communicator comm) {
      auto const n = at(comm.size());
      std::vector<float> values(100);
      std::vector<float> shares(10);
      std::vector<std::byte> mine(8);
      std::vector<std::byte> all(8 * n);
      std::vector<std::byte> other(8 * n);
      std::vector<std::size_t> const sizes(n, 8);
      int const to = (comm.rank() + 1) % comm.size();
      int const from = (comm.rank() + comm.size() - 1) % comm.size();
      anywhere const where;
      comm.all_reduce(where, std::span{values}, reduction::sum);
      auto const before = allocations.load();
      comm.all_reduce(where, std::span{values}, reduction::max);
      comm.reduce_scatter(where, std::span<float const>{values}.first(10 * n), std::span{shares}, reduction::sum);
      comm.all_gather(where, std::span{mine}, std::span{all});
      comm.all_gather(where, std::span{mine}, std::span{all}, std::span{sizes});
      comm.broadcast(where, std::span{mine}, 0);
      comm.send_receive(where, std::span{mine}, to, std::span{all}.first(8), from);
      comm.all_to_all(where, std::span{all}, std::span{sizes}, std::span{other}, std::span{sizes});
      auto const copy = comm;
      auto const after = allocations.load();
      if (copy.rank() == 0) counted = after - before;
      comm.all_reduce(where, std::span{values},
                      reduction::sum);  // nobody ends, and frees, before all counted
    });
    CHECK(counted == 0);
  }
}

// ---- Threads: disagreement
// ---------------------------------------------------------------------------------

TEST_CASE("sizes that differ are a mismatch on every rank") {
  all_refuse(3, {"all_reduce", "rank 2 passes 28 bytes", "rank 0 expects 32"}, [](communicator comm) {
    std::vector<float> values(comm.rank() == 2 ? 7 : 8);
    comm.all_reduce(anywhere{}, std::span{values}, reduction::sum);
  });
  all_refuse(3, {"reduce_scatter", "rank 1 passes 36 bytes", "rank 0 expects 24"}, [](communicator comm) {
    std::size_t const share = comm.rank() == 1 ? 3 : 2;
    std::vector<float> const values(3 * share);
    std::vector<float> mine(share);
    comm.reduce_scatter(anywhere{}, std::span{values}, std::span{mine}, reduction::sum);
  });
  all_refuse(3, {"reduce_scatter", "rank 2 expects 36", "rank 0 passes 24 bytes"}, [](communicator comm) {
    std::vector<float> const values(6);
    std::vector<float> mine(comm.rank() == 2 ? 3 : 2);
    comm.reduce_scatter(anywhere{}, std::span{values}, std::span{mine}, reduction::sum);
  });
  all_refuse(3, {"all_gather", "rank 1 passes 5 bytes", "rank 0 expects 4"}, [](communicator comm) {
    std::vector<std::byte> mine(comm.rank() == 1 ? 5 : 4);
    std::vector<std::byte> all(12);
    comm.all_gather(anywhere{}, std::span{mine}, std::span{all});
  });
  for (std::size_t const room : {0u, 11u, 13u, 16u})
    all_refuse(3, {"all_gather", "rank 2 has room for " + std::to_string(room), "expects 12"}, [&](communicator comm) {
      std::vector<std::byte> mine(4);
      std::vector<std::byte> all(comm.rank() == 2 ? room : 12);
      comm.all_gather(anywhere{}, std::span{mine}, std::span{all});
    });
  all_refuse(2, {"broadcast", "rank 0 passes 4 bytes", "rank 1 expects 1"}, [](communicator comm) {
    std::vector<std::byte> bytes(comm.rank() == 0 ? 4 : 1);
    comm.broadcast(anywhere{}, std::span{bytes}, 0);
  });
  all_refuse(3, {"send_receive", "rank 0 passes 4 bytes", "rank 1 expects 3"}, [](communicator comm) {
    std::vector<std::byte> out(4);
    std::vector<std::byte> in(comm.rank() == 1 ? 3 : 4);
    comm.send_receive(anywhere{}, std::span{out}, (comm.rank() + 1) % 3, std::span{in}, (comm.rank() + 2) % 3);
  });
}

TEST_CASE("sizes of shares that differ are a mismatch on every rank") {
  auto const with = [](std::size_t give, std::vector<std::size_t> sizes, std::size_t room) {
    return [=](communicator comm) {
      bool const odd = comm.rank() == 1;
      std::vector<std::byte> mine(odd ? give : at(comm.rank()));
      std::vector<std::byte> all(odd ? room : 3);
      std::vector<std::size_t> const agreed{0, 1, 2};
      comm.all_gather(anywhere{}, std::span{mine}, std::span{all}, std::span{odd ? sizes : agreed});
    };
  };
  all_refuse(3, {"rank 1 passes 7 bytes", "rank 0 expects 1"}, with(7, {0, 1, 2}, 3));
  all_refuse(3, {"rank 2 passes 2 bytes", "rank 1 expects 9"}, with(1, {0, 1, 9}, 10));
  all_refuse(3, {"rank 1 passes 2 sizes", "rank 2 is the last"}, with(1, {0, 1}, 3));
  all_refuse(3, {"rank 1 has room for 2 bytes", "expects 3"}, with(1, {0, 1, 2}, 2));
  all_refuse(3, {"rank 1 has room for 4 bytes", "expects 3"}, with(1, {0, 1, 2}, 4));
  std::size_t const most = static_cast<std::size_t>(-1);
  all_refuse(3, {"rank 2 passes 2 bytes", "rank 1 expects " + std::to_string(most)}, with(1, {0, 1, most}, 0));
}

TEST_CASE("sizes of messages to all that differ are a mismatch on every rank, and nothing is copied") {
  using sizes = std::vector<std::size_t>;
  auto const with = [](sizes given, std::size_t bytes, sizes got, std::size_t room) {
    return [=](communicator comm) {
      bool const odd = comm.rank() == 1;
      std::vector<std::byte> out(odd ? bytes : 6, std::byte{1});
      std::vector<std::byte> in(odd ? room : 6);
      sizes const agreed{1, 2, 3};
      sizes const column(3, at(comm.rank()) + 1);
      std::vector<std::byte> const before(in.size());
      in.resize(odd ? room : 3 * column[0]);
      try {
        comm.all_to_all(anywhere{}, std::span{out}, std::span{odd ? given : agreed}, std::span{in},
                        std::span{odd ? got : column});
      } catch (...) {
        for (auto const each : in)
          if (each != std::byte{}) throw std::logic_error("something was copied");
        throw;
      }
    };
  };
  auto const said = endings(3, with({1, 2, 3}, 6, {2, 2, 2}, 6));
  for (auto const& each : said) CHECK(each == "");
  all_refuse(3, {"all_to_all", "rank 1 passes 4 bytes", "rank 2 expects 3"}, with({1, 2, 4}, 7, {2, 2, 2}, 6));
  all_refuse(3, {"all_to_all", "rank 0 passes 2 bytes", "rank 1 expects 5"}, with({1, 2, 3}, 6, {5, 2, 2}, 9));
  all_refuse(3, {"rank 1 passes 2 sizes", "rank 2 is the last"}, with({1, 2}, 3, {2, 2, 2}, 6));
  all_refuse(3, {"rank 1 passes 0 sizes", "rank 2 is the last"}, with({1, 2, 3}, 6, {}, 0));
  std::string const sum = "rank 1 passes sizes that do not sum to its ";
  all_refuse(3, {sum + "7 bytes, or its room for 6"}, with({1, 2, 3}, 7, {2, 2, 2}, 6));
  all_refuse(3, {sum + "6 bytes, or its room for 5"}, with({1, 2, 3}, 6, {2, 2, 2}, 5));
  std::size_t const most = static_cast<std::size_t>(-1);
  all_refuse(3, {sum + "2 bytes, or its room for 6"}, with({1, 2, most}, 2, {2, 2, 2}, 6));
}

TEST_CASE("roots, peers, types and calls that differ are a mismatch on every rank") {
  all_refuse(3, {"broadcast", "rank 0", "rank 2", "kind 1", "kind 0"}, [](communicator comm) {
    std::vector<std::byte> bytes(4);
    comm.broadcast(anywhere{}, std::span{bytes}, comm.rank() == 2 ? 1 : 0);
  });
  for (int const root : {-1, 3, 1'000'000})
    all_refuse(3, {"broadcast", "names rank " + std::to_string(root)}, [&](communicator comm) {
      std::vector<std::byte> bytes(4);
      comm.broadcast(anywhere{}, std::span{bytes}, root);
    });
  for (int const peer : {-1, 2}) {
    auto const text = "rank 1 names rank " + std::to_string(peer);
    all_refuse(2, {"send_receive", text}, [&](communicator comm) {
      comm.send_receive(anywhere{}, {}, comm.rank() == 1 ? peer : 1, std::span<std::byte>{}, 1 - comm.rank());
    });
    all_refuse(2, {"send_receive", text}, [&](communicator comm) {
      comm.send_receive(anywhere{}, {}, 1 - comm.rank(), std::span<std::byte>{}, comm.rank() == 1 ? peer : 1);
    });
  }
  all_refuse(3, {"send_receive", "rank 2 receives from rank 0", "rank 0 sends to rank 1"}, [](communicator comm) {
    int const to[] = {1, 0, 1};
    int const from[] = {1, 0, 0};
    auto const r = at(comm.rank());
    comm.send_receive(anywhere{}, {}, to[r], std::span<std::byte>{}, from[r]);
  });
  all_refuse(2, {"all_reduce", "rank 0 calls", "rank 1 calls"}, [](communicator comm) {
    float one = 1;
    comm.all_reduce(anywhere{}, std::span{&one, 1}, comm.rank() == 0 ? reduction::sum : reduction::max);
  });
  all_refuse(2, {"all_reduce", "rank 0 calls", "rank 1 calls"}, [](communicator comm) {
    float one = 1;
    std::uint32_t other = 1;
    if (comm.rank() == 0)
      comm.all_reduce(anywhere{}, std::span{&one, 1}, reduction::sum);
    else
      comm.all_reduce(anywhere{}, std::span{&other, 1}, reduction::sum);
  });
  for (int a = 0; a < calls; ++a)
    for (int b = 0; b < calls; ++b)
      if (a != b)
        all_refuse(3, {"rank 0 calls", "rank 2 calls"},
                   [&](communicator comm) { call(comm, comm.rank() == 2 ? b : a); });
}

// ---- Threads: ranks that leave
// -----------------------------------------------------------------------------

TEST_CASE("a rank that throws ends the others, wherever they wait, and run rethrows what it threw") {
  for (int which = 0; which < calls; ++which) {
    for (int const leaver : {0, 1, 3}) {
      std::vector<std::string> told(4);
      CHECK_THROWS_WITH_AS(gs::threads::run(4,
                                            [&](communicator comm) {
                                              call(comm, 0);
                                              if (comm.rank() == leaver) throw std::out_of_range("my own fault");
                                              try {
                                                for (;;) call(comm, which);
                                              } catch (gs::communication_error const& error) {
                                                told[at(comm.rank())] = error.what();
                                                throw;
                                              }
                                            }),
                           "my own fault", std::out_of_range);
      for (int r = 0; r < 4; ++r) {
        std::string const expected = "gradsieve: rank " + std::to_string(leaver) + " has left the group, rank " +
                                     std::to_string(r) + " cannot go on";
        CHECK(told[at(r)] == (r == leaver ? "" : expected));
      }
    }
  }
}

TEST_CASE("a rank that comes after another has left throws as well, however often it tries") {
  gs::threads::group all{2};
  all.leave(1);
  auto const comm = all.communicator(0);
  for (int which = 0; which < calls; ++which) CHECK_THROWS_AS(call(comm, which), gs::communication_error);
  CHECK(all.was_told(0));
  CHECK_FALSE(all.was_told(1));
  CHECK_THROWS_WITH_AS(call(all.communicator(1), 0), "gradsieve: rank 1 has left the group, rank 1 cannot go on",
                       gs::communication_error);
}

TEST_CASE("run rethrows the exception of the lowest rank that failed by itself") {
  auto const both = [](communicator comm) {
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds{20});  // later, and still first
    if (comm.rank() != 0) throw std::runtime_error("rank " + std::to_string(comm.rank()));
    call(comm, 0);
  };
  CHECK_THROWS_WITH(gs::threads::run(3, both), "rank 1");

  auto const wrapped = [](communicator comm) {  // rank 0 turns what it was told into something of its own
    if (comm.rank() == 1) throw std::runtime_error("the cause");
    try {
      call(comm, 1);
    } catch (gs::communication_error const&) {
      throw std::logic_error("the consequence");
    }
  };
  CHECK_THROWS_WITH(gs::threads::run(2, wrapped), "the cause");

  auto const own = [](communicator comm) {  // a communication_error that is no consequence
    if (comm.rank() == 1) throw gs::communication_error("a cable");
    call(comm, 1);
  };
  CHECK_THROWS_WITH(gs::threads::run(3, own), "a cable");
}

TEST_CASE("a rank that returns early ends the others too") {
  CHECK_THROWS_WITH_AS(gs::threads::run(3,
                                        [](communicator comm) {
                                          if (comm.rank() != 2) call(comm, 3);
                                        }),
                       "gradsieve: rank 2 has left the group, rank 0 cannot go on", gs::communication_error);
}

TEST_CASE("ranks that end after their last collective disturb nobody") {
  for (int i = 0; i < 200; ++i) gs::threads::run(4, [&](communicator comm) { call(comm, i % calls); });
}

TEST_CASE("a group serves threads of one's own") {
  gs::threads::group all{2};
  float values[] = {1, 2};
  auto const work = [&](int rank) {
    all.communicator(rank).all_reduce(anywhere{}, std::span{values}.subspan(at(rank), 1), reduction::sum);
  };
  std::thread other{work, 1};
  work(0);
  other.join();
  CHECK(values[0] == 3);
  CHECK(values[1] == 3);
}

TEST_CASE("with a deadline a rank that others do not come to meet throws, and the others cannot go on") {
  using std::chrono::milliseconds;
  for (int which = 0; which < calls; ++which) {
    std::vector<std::string> said(3);
    gs::threads::group all{3, milliseconds{30}};
    auto const work = [&](int rank) {
      try {
        call(all.communicator(rank), which);
      } catch (gs::communication_error const& error) {
        said[at(rank)] = error.what();
      }
    };
    std::thread other{work, 1};
    work(0);
    other.join();
    std::string const names[] = {"all_reduce", "all_gather",     "all_gather of sizes", "broadcast",
                                 "all_to_all", "reduce_scatter", "send_receive"};
    int const late = has(said[0], "has waited") ? 0 : 1;
    auto const start = "gradsieve: " + names[which] + ": rank " + std::to_string(late) + " has waited 30 ms, ";
    auto const end = " of 3 ranks have come; it has left the group";
    CHECK_MESSAGE((said[at(late)] == start + "1" + end || said[at(late)] == start + "2" + end), said[at(late)]);
    CHECK(said[at(1 - late)] == "gradsieve: rank " + std::to_string(late) + " has left the group, rank " +
                                    std::to_string(1 - late) + " cannot go on");
    work(2);  // who comes late is told
    CHECK(has(said[2], "has left the group, rank 2 cannot go on"));
  }
}

TEST_CASE("run rethrows what the rank threw whose deadline passed; who is in time does not notice it") {
  std::atomic<bool> over{false};
  CHECK_THROWS_WITH_AS(gs::threads::run(
                           2,
                           [&](communicator comm) {
                             if (comm.rank() == 0) {
                               try {
                                 call(comm, 0);
                               } catch (...) {
                                 over = true;
                                 throw;
                               }
                             }
                             while (!over) std::this_thread::yield();
                           },
                           std::chrono::milliseconds{30}),
                       "gradsieve: all_reduce: rank 0 has waited 30 ms, 1 of 2 ranks have come; it has left the group",
                       gs::communication_error);
  gs::threads::run(
      3,
      [](communicator comm) {
        for (int i = 0; i < 50; ++i) call(comm, i % calls);
      },
      std::chrono::minutes{10});
}

TEST_CASE("groups refuse numbers out of range") {
  CHECK_THROWS_WITH_AS(gs::threads::group{0}, "gradsieve: a group of 0 ranks; the least is 1", gs::invalid_argument);
  CHECK_THROWS_AS(gs::threads::group{-1}, gs::invalid_argument);
  CHECK_THROWS_WITH_AS((gs::threads::group{2, std::chrono::milliseconds{-1}}),
                       "gradsieve: a deadline of -1 milliseconds; the least is 0", gs::invalid_argument);
  CHECK_THROWS_AS(gs::threads::run(0, [](communicator) {}), gs::invalid_argument);
  gs::threads::group all{2};
  CHECK(all.size() == 2);
  CHECK_THROWS_AS(static_cast<void>(all.communicator(2)), gs::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(all.communicator(-1)), gs::invalid_argument);
  static_assert(!std::is_copy_constructible_v<gs::threads::group>);
  static_assert(std::is_trivially_copyable_v<communicator>);
}
