// What becomes of the other ranks when one is killed in mid-exchange, under an MPI that lets them live: with a deadline
// they throw. killed_rank.sh runs it on 3 ranks, of which rank 1 dies; every survivor that finds all well says so.
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gradsieve/comm/mpi.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/overlap.hpp>

#include "groups.hpp"
#include "steps.hpp"

namespace gs = gradsieve;
using namespace std::chrono_literals;

namespace {

/// Kills its process instead of the call after `left` more.
struct mortal {
  gs::mpi::communicator_ref real;
  int* left;

  [[nodiscard]] int rank() const { return real.rank(); }
  [[nodiscard]] int size() const { return real.size(); }
  void require_threads() const { real.require_threads(); }
  template <class T>
  void all_reduce(gs::host const& where, std::span<T> in_out, gs::reduction how) const {
    count();
    real.all_reduce(where, in_out, how);
  }
  template <class... Sizes>
  void all_gather(gs::host const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  Sizes const&... sizes) const {
    count();
    real.all_gather(where, mine, all, sizes...);
  }
  void broadcast(gs::host const& where, std::span<std::byte> in_out, int root) const {
    count();
    real.broadcast(where, in_out, root);
  }

 private:
  void count() const {
    if (*left >= 0 && (*left)-- == 0) std::raise(SIGKILL);
  }
};

constexpr int never = -1;
auto const layers = gs::layout{{"a", 3000}, {"b", 2000}, {"c", 100}};
auto const recipe = gs::recipe{.density = 0.05};

bool is_told(std::string const& text) {
  return text.starts_with("communication_error: gradsieve: MPI_I") && steps::contains(text, " ms for the other ranks");
}

/// Rank 1 has said how much it sends, and dies before it does.
std::string exchange_with(gs::mpi::communicator_ref const& world) {
  steps::findings found;
  int left = never;
  mortal const comm{world, &left};
  gs::compressor reducer{gs::host{.threads = 1}, layers, recipe};
  for (std::uint64_t step = 0; step < 3; ++step) {
    auto gradient = steps::gradient(layers.size(), comm.rank(), step);
    reducer.exchange(comm, gradient);
  }
  auto expected = steps::residual_of(reducer);
  auto const last = steps::gradient(layers.size(), comm.rank(), 3);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += last[i];
  if (comm.rank() == 1) left = 1;
  std::string first;
  {
    auto gradient = last;
    first = steps::ending([&] { reducer.exchange(comm, gradient); });
  }
  found.expect(is_told(first), first);
  found.expect(steps::same_bits(steps::residual_of(reducer), expected), "something was given up");
  found.expect(reducer.step() == 3, "the step counts");
  auto gradient = last;
  found.expect(steps::ending([&] { reducer.exchange(comm, gradient); }) == first, "the next call does not throw");
  return found.text();
}

/// Rank 1 dies in the second of three groups, on the thread that exchanges them.
std::string overlap_with(gs::mpi::communicator_ref const& world) {
  steps::findings found;
  int left = never;
  mortal const comm{world, &left};
  auto const chosen = groups::plan_of(layers, groups::backwards(3), {1, 2, 3});
  auto exchange = gs::overlap{comm, layers, chosen, [](gs::layout const& part) {
                                return gs::compressor{gs::host{.threads = 1}, part, recipe};
                              }};
  std::string thrown;
  for (std::uint64_t step = 0; step < 3; ++step) {
    if (step == 2 && comm.rank() == 1) left = 2;
    auto gradient = steps::gradient(layers.size(), comm.rank(), step);
    thrown = steps::ending([&] {
      exchange.run(gradient, [](auto const& ready) {
        for (std::size_t const each : {2u, 1u, 0u}) ready(each);
      });
    });
    found.expect(step == 2 ? is_told(thrown) : thrown.empty(), "step " + std::to_string(step) + ": " + thrown);
  }
  found.expect(exchange.exchange_of(0).step() == 3 && exchange.exchange_of(1).step() == 2, "which groups count");
  std::vector<float> gradient(layers.size());
  exchange.begin(gradient);  // the destructor finds nobody to cancel with
  return found.text();
}

}  // namespace

int main(int argc, char** argv) {
  gs::mpi::session const mpi{argc, argv, MPI_THREAD_SERIALIZED};
  std::string library(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(library.data(), &length);
  if (!library.starts_with("Open MPI v4.")) {
    std::puts("skipped: how the survivors live on is known of Open MPI 4 only");
    return 0;
  }
  std::string said;
  {
    gs::mpi::communicator_ref const world{MPI_COMM_WORLD, gs::mpi::communicator_ref::default_max_count, 200us, 3s};
    if (world.size() != 3) return 2;
    said = argc > 1 && std::string{argv[1]} == "overlap" ? overlap_with(world) : exchange_with(world);
  }
  std::this_thread::sleep_for(50ms);  // for whatever might be written late
  std::puts(said.empty() ? "a survivor is well" : said.c_str());
  std::fflush(stdout);
  return said.empty() ? 0 : 1;
}
