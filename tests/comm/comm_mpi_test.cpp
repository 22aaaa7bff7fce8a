// The communicator of MPI processes. Runs under mpirun with any number of ranks; its result is that of all.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/comm/mpi.hpp>
#include <gradsieve/comm/mpi_nodes.hpp>
#include <gradsieve/host/dense_mean.hpp>
#include <gradsieve/overlap.hpp>

#include "allocations.hpp"
#include "comm_conformance.hpp"
#include "groups.hpp"

namespace gs = gradsieve;
using comm_conformance::anywhere;
using comm_conformance::at;
using gs::reduction;

// MPI's profiling interface shows how large the counts are that reach MPI.
static int largest_count = 0;

int MPI_Allreduce(void const* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  largest_count = std::max(largest_count, count);
  return PMPI_Allreduce(from, to, count, type, op, comm);
}
int MPI_Reduce_scatter_block(void const* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  largest_count = std::max(largest_count, count * size);
  return PMPI_Reduce_scatter_block(from, to, count, type, op, comm);
}
int MPI_Reduce(void const* from, void* to, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  largest_count = std::max(largest_count, count);
  return PMPI_Reduce(from, to, count, type, op, root, comm);
}
int MPI_Allgather(void const* from, int given, MPI_Datatype type, void* to, int count, MPI_Datatype other,
                  MPI_Comm comm) {
  largest_count = std::max(largest_count, count);
  return PMPI_Allgather(from, given, type, to, count, other, comm);
}
int MPI_Bcast(void* bytes, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  largest_count = std::max(largest_count, count);
  return PMPI_Bcast(bytes, count, type, root, comm);
}
int MPI_Sendrecv(void const* out, int count, MPI_Datatype type, int to, int tag, void* in, int room, MPI_Datatype other,
                 int from, int other_tag, MPI_Comm comm, MPI_Status* status) {
  largest_count = std::max({largest_count, count, room});
  return PMPI_Sendrecv(out, count, type, to, tag, in, room, other, from, other_tag, comm, status);
}

namespace {

std::string said_before_init;
bool gave_up = false;  // whether a deadline has passed on this rank

/// A communicator of the test's own, which returns errors instead of ending the program.
class returning_errors {
 public:
  returning_errors() {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  returning_errors(returning_errors const&) = delete;
  returning_errors& operator=(returning_errors const&) = delete;
  ~returning_errors() { MPI_Comm_free(&comm_); }
  [[nodiscard]] MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// What the construction throws, as text.
std::string refusal(MPI_Comm comm) {
  try {
    gs::mpi::communicator_ref const unused{comm};
    return "";
  } catch (gs::mpi::error const& error) {
    return std::string{"error "} + error.what();
  } catch (gs::communication_error const& error) {
    return error.what();
  }
}

}  // namespace

static std::optional<gs::mpi::session>* the_session = nullptr;

// First, as a deadline that has passed, of a case below, leaves everything alone too.
TEST_CASE("a forked child leaves MPI to its parent") {
  auto own = std::make_unique<gs::mpi::nodes>(MPI_COMM_WORLD, 1);
  auto const child = fork();
  if (child == 0) {
    alarm(20);
    own.reset();
    the_session->reset();
    int finalised = 0;
    MPI_Finalized(&finalised);
    _exit(finalised);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  std::uint32_t ranks = 1;
  gs::mpi::communicator_ref{own->inside()}.all_reduce(anywhere{}, std::span{&ranks, 1}, reduction::sum);
  CHECK(ranks == 1);
}

TEST_CASE("MPI does what every communicator must, in one piece and in many") {
  CHECK(comm_conformance::run(gs::mpi::communicator_ref{MPI_COMM_WORLD}) == "");
  for (std::size_t const max_count : {1u, 7u, 64u, 4096u}) {
    INFO("max_count " << max_count);
    largest_count = 0;
    CHECK(comm_conformance::run(gs::mpi::communicator_ref{MPI_COMM_WORLD, max_count}) == "");
    CHECK(at(largest_count) == max_count);
  }
}

TEST_CASE("with a pause a call that waits sleeps, and does the same") {
  for (std::size_t const max_count : {gs::mpi::communicator_ref::default_max_count, std::size_t{64}})
    CHECK(comm_conformance::run(gs::mpi::communicator_ref{MPI_COMM_WORLD, max_count, std::chrono::microseconds{1}}) ==
          "");

  // The last rank comes late: the others' calls take as long, and next to no time of a processor.
  gs::mpi::communicator_ref const comm{MPI_COMM_WORLD, 1024, std::chrono::microseconds{500}};
  if (comm.size() < 2) return;
  bool const late = comm.rank() == comm.size() - 1;
  float value = 1;
  comm.all_reduce(anywhere{}, std::span{&value, 1}, reduction::sum);
  if (late) std::this_thread::sleep_for(std::chrono::milliseconds{300});
  auto const start = std::clock();
  comm.all_reduce(anywhere{}, std::span{&value, 1}, reduction::sum);
  if (!late) CHECK(std::clock() - start < CLOCKS_PER_SEC / 10);
}

TEST_CASE("with a deadline a call that is in time does the same, and then allocates nothing") {
  using namespace std::chrono_literals;
  CHECK(comm_conformance::run(gs::mpi::communicator_ref{MPI_COMM_WORLD, 1024, 0us, 10min}) == "");

  gs::mpi::communicator_ref const comm{MPI_COMM_WORLD, 7, 1us, 10min};
  std::vector<float> values(100);
  std::vector<float> const shares(100);
  std::vector<std::byte> bytes(100);
  int const to = (comm.rank() + 1) % comm.size();
  int const from = (comm.rank() + comm.size() - 1) % comm.size();
  for (bool const first : {true, false}) {
    auto const before = allocations.load();
    comm.all_reduce(anywhere{}, std::span{values}, reduction::sum);
    for (std::size_t const share : {std::size_t{1}, shares.size() / at(comm.size())})
      comm.reduce_scatter(anywhere{}, std::span{shares}.first(share * at(comm.size())), std::span{values}.first(share),
                          reduction::sum);
    comm.broadcast(anywhere{}, std::span{bytes}, 0);
    comm.send_receive(anywhere{}, std::span{bytes}.first(50), to, std::span{bytes}.last(50), from);
    if (!first) CHECK(allocations.load() == before);
  }
}

TEST_CASE("once the deadline has passed a call throws, its buffers are free, and so do all calls after it") {
  using namespace std::chrono_literals;
  gs::mpi::communicator_ref const world{MPI_COMM_WORLD};
  if (world.size() < 2) return;
  auto const meet = [&] {
    float one = 1;
    world.all_reduce(anywhere{}, std::span{&one, 1}, reduction::sum);
  };
  bool const late = world.rank() == 0;  // and root of everything
  auto const told = [](auto const& call) {
    try {
      call();
    } catch (gs::communication_error const& error) {
      return std::string{error.what()};
    }
    return std::string{};
  };
  auto const check = [&](std::string const& name, auto const& call) {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    gs::mpi::communicator_ref const hasty{comm, gs::mpi::communicator_ref::default_max_count, 100us, late ? 0ms : 50ms};
    auto const copy = hasty;
    std::vector<float> values(2000, 1.0f);
    if (!late) {
      auto const text = told([&] { call(hasty, values); });
      auto const start = "gradsieve: " + name + ": rank " + std::to_string(world.rank()) + " of " +
                         std::to_string(world.size()) + " has waited ";
      CHECK_MESSAGE(text.starts_with(start), text);
      CHECK_MESSAGE(text.ends_with(" ms for the other ranks; this communicator makes no further call"), text);
      gave_up = true;
      float one = 1;
      CHECK(told([&] { copy.all_reduce(anywhere{}, std::span{&one, 1}, reduction::sum); }) == text);
      CHECK(told([&] { call(copy, values); }) == text);
    }
    auto const given = values;
    meet();
    if (late) call(hasty, values);  // now MPI completes what the others have given up
    meet();
    meet();
    if (!late) CHECK(values == given);
  };
  check("MPI_Ibcast", [](auto const& comm, std::vector<float>& values) {
    comm.broadcast(anywhere{}, std::as_writable_bytes(std::span{values}), 0);
  });
  check("MPI_Iallreduce", [](auto const& comm, std::vector<float>& values) {
    comm.all_reduce(anywhere{}, std::span{values}, reduction::sum);
  });
  check("MPI_Ireduce_scatter_block", [](auto const& comm, std::vector<float>& values) {
    std::vector<float> const all(2 * at(comm.size()));
    comm.reduce_scatter(anywhere{}, std::span{all}, std::span{values}.first(2), reduction::sum);
  });
  if (world.size() == 2)
    check("MPI_Irecv", [](auto const& comm, std::vector<float>& values) {
      auto const bytes = std::as_writable_bytes(std::span{values});
      comm.send_receive(anywhere{}, bytes.first(8), 1 - comm.rank(), bytes.last(8), 1 - comm.rank());
    });
}

TEST_CASE("what was moved from is as good, and a thread of an algorithm's own needs MPI_THREAD_SERIALIZED") {
  gs::mpi::communicator_ref comm{MPI_COMM_WORLD};
  auto const moved = std::move(comm);
  auto const mine = static_cast<std::byte>(comm.rank());
  std::vector<std::byte> all(at(comm.size()));
  std::vector<std::size_t> const sizes(all.size(), 1);
  comm.all_gather(anywhere{}, std::span{&mine, 1}, std::span{all}, std::span{sizes});  // NOLINT: on purpose
  for (int r = 0; r < comm.size(); ++r) CHECK(all[at(r)] == static_cast<std::byte>(r));
  std::string const sentence =
      "gradsieve: another thread is to call MPI, which needs MPI_THREAD_SERIALIZED; MPI was initialised with "
      "MPI_THREAD_FUNNELED";
  CHECK_THROWS_WITH_AS(moved.require_threads(), sentence.c_str(), gs::communication_error);
  auto const layers = gs::layout{{"a", 3}};
  auto const plan = groups::plan_of(layers, {0}, {1});
  auto const make = [](gs::layout const&) { return gs::dense_mean{}; };
  CHECK_THROWS_WITH_AS((gs::overlap{comm, layers, plan, make}), sentence.c_str(), gs::communication_error);
}

TEST_CASE("ranks in another order, and fewer of them") {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  gs::mpi::communicator_ref const comm{half, 7};
  CHECK(comm.size() == (size + 1 - rank % 2) / 2);
  CHECK(comm.rank() == comm.size() - 1 - rank / 2);
  CHECK(comm_conformance::run(comm) == "");
  MPI_Comm_free(&half);
}

TEST_CASE("copies of a communicator are as good, and outlive it") {
  auto const copy = [] { return gs::mpi::communicator_ref{MPI_COMM_WORLD}; }();
  auto other = gs::mpi::communicator_ref{MPI_COMM_SELF};
  CHECK(other.size() == 1);
  other = copy;
  CHECK(comm_conformance::run(other) == "");
  auto const moved = std::move(other);
  CHECK(comm_conformance::run(other) == "");  // NOLINT: a move copies
}

TEST_CASE("a collective allocates nothing, in pieces neither") {
  for (std::size_t const max_count : {gs::mpi::communicator_ref::default_max_count, std::size_t{7}}) {
    gs::mpi::communicator_ref const comm{MPI_COMM_WORLD, max_count};
    auto const n = at(comm.size());
    std::vector<float> values(100);
    std::vector<float> shares(9);
    std::vector<std::byte> mine(8);
    std::vector<std::byte> all(8 * n);
    std::vector<std::byte> other(8 * n);
    std::vector<std::size_t> const sizes(n, 8);
    int const to = (comm.rank() + 1) % comm.size();
    int const from = (comm.rank() + comm.size() - 1) % comm.size();
    anywhere const where;

    auto const before = allocations.load();
    comm.all_reduce(where, std::span{values}, reduction::sum);
    comm.reduce_scatter(where, std::span<float const>{values}.first(9 * n), std::span{shares}, reduction::sum);
    comm.all_gather(where, std::span{mine}, std::span{all});
    comm.all_gather(where, std::span{mine}, std::span{all}, std::span{sizes});
    comm.broadcast(where, std::span{mine}, 0);
    comm.send_receive(where, std::span{mine}, to, std::span{all}.first(8), from);
    comm.all_to_all(where, std::span{all}, std::span{sizes}, std::span{other}, std::span{sizes});
    auto const copy = comm;
    auto const after = allocations.load();
    CHECK(after == before);
    CHECK(copy.size() == comm.size());
  }
}

TEST_CASE("what MPI reports becomes an error with call, code, text and place") {
  returning_errors const own;
  gs::mpi::communicator_ref const comm{own.get()};
  std::vector<std::byte> bytes(4);
  bool thrown = false;
  try {
    comm.broadcast(anywhere{}, std::span{bytes}, comm.size() + 5);
  } catch (gs::mpi::error const& error) {
    thrown = true;
    std::string const text = error.what();
    int error_class = 0;
    MPI_Error_class(error.code(), &error_class);
    CHECK(error_class == MPI_ERR_ROOT);
    for (std::string const part : {"gradsieve: MPI_Bcast failed", "root", "comm/mpi.hpp:"})
      CHECK_MESSAGE(text.find(part) != std::string::npos, text);
    CHECK_MESSAGE(text.find("code " + std::to_string(error.code())) != std::string::npos, text);
  }
  CHECK(thrown);
  CHECK_THROWS_AS(comm.send_receive(anywhere{}, std::span{bytes}, comm.size(), std::span{bytes}.first(0), 0),
                  gs::communication_error);
  static_assert(std::is_base_of_v<gs::communication_error, gs::mpi::error>);

  // It is still a communicator. A receipt that was begun before a send failed does not wait for the next message.
  for (auto const deadline : {std::chrono::milliseconds{}, std::chrono::milliseconds{60'000}}) {
    gs::mpi::communicator_ref const patient{own.get(), 1024, std::chrono::microseconds{1}, deadline};
    std::vector<std::byte> room(4);
    int const to = (comm.rank() + 1) % comm.size();
    int const from = (comm.rank() + comm.size() - 1) % comm.size();
    CHECK_THROWS_AS(patient.send_receive(anywhere{}, std::span{bytes}, comm.size(), std::span{room}, from),
                    gs::mpi::error);
    float all_have_failed = 1;
    patient.all_reduce(anywhere{}, std::span{&all_have_failed, 1}, reduction::sum);
    std::vector<std::byte> const mine(4, static_cast<std::byte>(1 + comm.rank()));
    std::vector<std::byte> theirs(4);
    patient.send_receive(anywhere{}, std::span{mine}, to, std::span{theirs}, from);
    CHECK(theirs == std::vector<std::byte>(4, static_cast<std::byte>(1 + from)));
    CHECK(room == std::vector<std::byte>(4));
  }
  CHECK(comm_conformance::run(comm) == "");
}

TEST_CASE("a message that is shorter or longer than its room is refused") {
  returning_errors const own;
  gs::mpi::communicator_ref const comm{own.get()};
  int const to = (comm.rank() + 1) % comm.size();
  int const from = (comm.rank() + comm.size() - 1) % comm.size();
  std::vector<std::byte> three(3);
  std::vector<std::byte> five(5);
  CHECK_THROWS_WITH_AS(comm.send_receive(anywhere{}, std::span{three}, to, std::span{five}, from),
                       ("gradsieve: rank " + std::to_string(comm.rank()) + " receives bytes: 3, expected 5").c_str(),
                       gs::mismatch);
  CHECK_THROWS_AS(comm.send_receive(anywhere{}, std::span{three}, to, std::span{five}.first(0), from), gs::mpi::error);
}

TEST_CASE("own sizes that do not fit together are refused before anything is sent") {
  gs::mpi::communicator_ref const comm{MPI_COMM_WORLD};
  auto const n = at(comm.size());
  std::vector<std::byte> mine(4);
  std::vector<std::byte> room(4 * n + 1);
  std::vector<std::size_t> sizes(n + 1, 4);
  auto const gather = [&](std::size_t all, std::size_t count) {
    comm.all_gather(anywhere{}, std::span{mine}, std::span{room}.first(all),
                    std::span{std::as_const(sizes)}.first(count));
  };
  for (std::size_t const all : {4 * n - 1, 4 * n + 1, std::size_t{0}}) {
    CHECK_THROWS_AS(comm.all_gather(anywhere{}, std::span{mine}, std::span{room}.first(all)), gs::mismatch);
    CHECK_THROWS_AS(gather(all, n), gs::mismatch);
  }
  std::vector<float> const values(2 * n + 1);
  std::vector<float> share(2);
  CHECK_THROWS_AS(comm.reduce_scatter(anywhere{}, std::span{values}, std::span{share}, reduction::sum), gs::mismatch);
  CHECK_THROWS_AS(gather(4 * n, n - 1), gs::mismatch);
  CHECK_THROWS_AS(gather(4 * n, n + 1), gs::mismatch);
  gather(4 * n, n);
  std::vector<std::byte> to(4 * n + 1);
  auto const to_all = [&](std::size_t given, std::size_t out_count, std::size_t got, std::size_t in_count) {
    comm.all_to_all(anywhere{}, std::span{room}.first(given), std::span{std::as_const(sizes)}.first(out_count),
                    std::span{to}.first(got), std::span{std::as_const(sizes)}.first(in_count));
  };
  to_all(4 * n, n, 4 * n, n);
  for (std::size_t const bytes : {4 * n - 1, 4 * n + 1, std::size_t{0}}) {
    CHECK_THROWS_AS(to_all(bytes, n, 4 * n, n), gs::mismatch);
    CHECK_THROWS_AS(to_all(4 * n, n, bytes, n), gs::mismatch);
  }
  CHECK_THROWS_AS(to_all(4 * n, n + 1, 4 * n, n), gs::mismatch);
  CHECK_THROWS_AS(to_all(4 * n, n, 4 * n, n - 1), gs::mismatch);
  sizes[n] = 0;
  CHECK_THROWS_AS(gather(4 * n, n + 1), gs::mismatch);

  sizes[at(comm.rank())] = 3;
  CHECK_THROWS_AS(gather(4 * n - 1, n), gs::mismatch);
  sizes[at(comm.rank())] = 4;
  sizes[n > 1 ? at((comm.rank() + 1) % comm.size()) : 0] = static_cast<std::size_t>(-4);  // a sum that wraps round
  CHECK_THROWS_AS(gather(n > 1 ? 4 * (n - 2) : 0, n), gs::mismatch);
}

TEST_CASE("constructors refuse what is no communicator") {
  CHECK(said_before_init == "gradsieve: MPI is not initialised");
  CHECK(refusal(MPI_COMM_NULL) == "gradsieve: the communicator is MPI_COMM_NULL");
  CHECK(refusal(MPI_COMM_WORLD) == "");
  CHECK_THROWS_WITH_AS((gs::mpi::communicator_ref{MPI_COMM_WORLD, 0}),
                       "gradsieve: max_count 0 is not from 1 to 2147483647", gs::invalid_argument);
  CHECK_THROWS_AS((gs::mpi::communicator_ref{MPI_COMM_WORLD, std::size_t{INT_MAX} + 1}), gs::invalid_argument);
  CHECK_THROWS_WITH_AS(
      (gs::mpi::communicator_ref{MPI_COMM_WORLD, 1, std::chrono::microseconds{}, std::chrono::milliseconds{-1}}),
      "gradsieve: a deadline of -1 milliseconds; the least is 0", gs::invalid_argument);
  for (int const pause : {-1, 1'000'001})
    CHECK_THROWS_WITH_AS(
        (gs::mpi::communicator_ref{MPI_COMM_WORLD, 1, std::chrono::microseconds{pause}}),
        ("gradsieve: a pause of " + std::to_string(pause) + " microseconds is not from 0 to a second").c_str(),
        gs::invalid_argument);

  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 2) return;
  MPI_Comm side = MPI_COMM_NULL;
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : 1, rank, &side);
  MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 1, &between);
  CHECK(refusal(between) == "gradsieve: the communicator is an intercommunicator");
  MPI_Comm_free(&between);
  MPI_Comm_free(&side);
}

TEST_CASE("a session cannot be copied") {
  static_assert(!std::is_copy_constructible_v<gs::mpi::session> && !std::is_copy_assignable_v<gs::mpi::session>);
}

int main(int argc, char** argv) {
  said_before_init = refusal(MPI_COMM_WORLD);
  int failed = 0;
  {
    std::optional<gs::mpi::session> mpi{std::in_place, argc, argv};
    the_session = &mpi;
    gs::mpi::communicator_ref const world{MPI_COMM_WORLD};
    doctest::Context context{argc, argv};
    context.setOption("minimal", world.rank() != 0);  // the others speak only of failures
    std::uint32_t result = context.run() == 0 ? 0 : 1;
    world.all_reduce(anywhere{}, std::span{&result, 1}, reduction::max);
    failed = static_cast<int>(result);
  }
  // A session leaves this out where a deadline has passed. Here all that was given up has come to its end.
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (finalised != (gave_up ? 0 : 1)) {
    std::cerr << "MPI is " << (finalised ? "" : "not ") << "finalised\n";
    failed = 1;
  }
  if (!finalised) MPI_Finalize();
  if (refusal(MPI_COMM_WORLD) != "gradsieve: MPI is finalised") {
    std::cerr << "a communicator is constructed after the end of MPI\n";
    failed = 1;
  }
  return failed;
}
