// Overlap on ranks that are MPI processes: the thread that exchanges calls MPI, and a rank that cancels tells the
// others. Runs under mpirun with any number of ranks; its result is that of all.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gradsieve/comm/mpi.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/host/dense_mean.hpp>
#include <gradsieve/overlap.hpp>

#include "groups.hpp"
#include "steps.hpp"
#include "watchdog.hpp"

namespace gs = gradsieve;
using namespace std::chrono_literals;

namespace {

/// Steps against the same groups without overlap; in every third one rank's backward pass throws, and in one a rank
/// brings a gradient of another size.
template <class Make>
std::string check(gs::mpi::communicator_ref const& comm, Make const& make) {
  steps::findings found;
  auto const layers = steps::mixed_layers();
  auto const order = groups::backwards(layers.count());
  auto const chosen = groups::plan_of(layers, order, {2, 5, 9});
  groups::one_by_one reference{layers, chosen, order, make};
  auto tested = gs::overlap{comm, layers, chosen, make};
  bool same = true;  // until a step fails: then residuals hold what the reference never got
  for (std::uint64_t step = 0; step < 9; ++step) {
    auto expected = steps::gradient(layers.size(), comm.rank(), step);
    auto gradient = expected;
    bool const fails = step >= 3 && step % 3 == 0 && comm.rank() == static_cast<int>(step / 3) % comm.size();
    if (step == 7 && comm.rank() == 0) gradient.pop_back();
    auto const thrown = steps::ending([&] {
      tested.run(gradient, [&](auto const& ready) {
        for (auto const layer : order) {
          if (fails && layer == 4) throw std::runtime_error("backward failed");
          ready(layer);
        }
      });
    });
    auto const where = "step " + std::to_string(step) + ": " + thrown;
    if (fails)
      found.expect(thrown == "exception: backward failed", where);
    else if (step == 7 && comm.rank() == 0)
      found.expect(steps::contains(thrown, "invalid_argument: gradsieve: gradient has"), where);
    else if ((step >= 3 && step % 3 == 0) || step == 7)
      found.expect(steps::contains(thrown, " failed in this step"), where);
    else
      found.expect(thrown.empty(), where);
    same = same && step < 3;
    if (!same) continue;
    reference.exchange(comm, std::span{expected});
    found.expect(steps::same_bits(gradient, expected), where + "another result");
  }
  return found.text();
}

auto const means = [](gs::layout const&) { return gs::dense_mean{}; };

template <class Recipe>
auto compressors_of(Recipe const& recipe) {
  return [recipe](gs::layout const& part) { return gs::compressor{gs::host{.threads = 1}, part, recipe}; };
}

}  // namespace

TEST_CASE("overlap over MPI, with steps that a rank cancels") {
  watchdog const guard{"overlap over MPI"};
  constexpr auto most = gs::mpi::communicator_ref::default_max_count;
  for (auto const& comm :
       {gs::mpi::communicator_ref{MPI_COMM_WORLD}, gs::mpi::communicator_ref{MPI_COMM_WORLD, most, 20us},
        gs::mpi::communicator_ref{MPI_COMM_WORLD, most, 20us, 10min}}) {
    CHECK_NOTHROW(comm.require_threads());
    CHECK(check(comm, means) == "");
    CHECK(check(comm, compressors_of(gs::recipe{.density = 0.05})) == "");
    CHECK(check(comm, compressors_of(gs::recipe{.density = 0.05, .partitioner = gs::deft{}})) == "");
  }
}

int main(int argc, char** argv) {
  gs::mpi::session const mpi{argc, argv, MPI_THREAD_SERIALIZED};
  gs::mpi::communicator_ref const world{MPI_COMM_WORLD};
  doctest::Context context{argc, argv};
  context.setOption("minimal", world.rank() != 0);  // the others speak only of failures
  std::uint32_t result = context.run() == 0 ? 0 : 1;
  world.all_reduce(gs::host{}, std::span{&result, 1}, gs::reduction::max);
  return static_cast<int>(result);
}
