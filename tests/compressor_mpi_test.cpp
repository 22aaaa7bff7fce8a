// The compressor over MPI processes: what threads promise holds there too. Runs under mpirun with any number of ranks.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/comm/mpi.hpp>
#include <gradsieve/gradsieve.hpp>

#include "steps.hpp"

using namespace steps;

namespace {

gs::host const here{.threads = 1};

gs::mpi::communicator_ref world() { return gs::mpi::communicator_ref{MPI_COMM_WORLD}; }

/// The hash of all ranks' values, if it is the same everywhere.
bool same_everywhere(std::uint64_t mine) {
  std::vector<std::uint64_t> all(at(world().size()));
  world().all_gather(here, std::as_bytes(std::span{&mine, 1}), std::as_writable_bytes(std::span{all}));
  for (auto const each : all)
    if (each != all[0]) return false;
  return true;
}

/// Twelve steps: what came in, what was applied and what stays balance, with the same bits on every rank.
template <class Recipe>
void balance(Recipe const& recipe) {
  auto const comm = world();
  auto const n = mixed_layers().size();
  gs::compressor compressor{here, mixed_layers(), recipe};
  auto const policy = recipe.residual;
  constexpr auto states = decltype(recipe.residual)::states;
  std::vector<double> balance(n);  // of all ranks in the end: came in - applied - held
  bool same_bits_everywhere = true;
  for (std::uint64_t step = 0; step < 12; ++step) {
    auto const before = states_of(compressor);
    auto update = gradient(n, comm.rank(), step);
    for (std::size_t i = 0; i < n; ++i) {
      gs::element_state<states> state{};
      for (std::size_t s = 0; s < states; ++s) state[s] = before[s * n + i];
      policy.accumulate_element(update[i], state);
      balance[i] += static_cast<double>(state[0]) - static_cast<double>(before[i]);
    }
    auto const report = compressor.exchange(comm, std::span{update});
    CHECK(report.passthrough_elements >= 64);
    CHECK(report.world == comm.size());
    same_bits_everywhere = same_everywhere(hash(update)) && same_bits_everywhere;
    for (std::size_t i = 0; i < n; ++i) balance[i] -= static_cast<double>(update[i]);
  }
  CHECK(same_bits_everywhere);
  for (std::size_t i = 0; i < n; ++i) balance[i] -= static_cast<double>(compressor.residual()[i]);
  comm.all_reduce(here, std::span{balance}, gs::reduction::sum);
  double worst = 0;
  for (double const each : balance) worst = std::max(worst, std::fabs(each));
  CHECK(worst < 1e-3);
}

/// The same steps by ranks that are threads of this process: this rank's updates and its final state.
template <class Recipe>
std::pair<std::vector<std::vector<float>>, std::vector<std::byte>> by_threads(Recipe const& recipe,
                                                                              std::uint64_t count) {
  auto const n = mixed_layers().size();
  std::vector<std::vector<float>> updates;
  std::vector<std::byte> state;
  int const me = world().rank();
  gs::threads::run(world().size(), [&](communicator comm) {
    gs::compressor compressor{here, mixed_layers(), recipe};
    for (std::uint64_t step = 0; step < count; ++step) {
      auto update = gradient(n, comm.rank(), step);
      compressor.exchange(comm, std::span{update});
      if (comm.rank() == me) updates.push_back(update);
    }
    if (comm.rank() == me) state = compressor.state();
  });
  return {updates, state};
}

}  // namespace

TEST_CASE("mass balance, and the same bits on every rank") {
  balance(gs::recipe{.density = 0.03});
  balance(gs::recipe{.density = 0.03, .selector = gs::laplacian{}, .partitioner = gs::deft{}});
  balance(gs::recipe{.density = 0.03, .partitioner = gs::layerwise{}, .residual = gs::momentum_correction{}});
  balance(gs::recipe{.density = 0.03,
                     .selector = gs::laplacian{},
                     .partitioner = gs::deft{},
                     .residual = gs::momentum_correction{.clip = 1e6f}});
  balance(gs::recipe{.density = 0.03, .selector = gs::hierarchical{}, .exchange = gs::index_union{}});
  balance(gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}});
  auto const fp16 = gs::packed{.indices = gs::delta{}, .values = gs::fp16{}};
  auto const bf16 = gs::packed{.values = gs::bf16{}};
  balance(gs::recipe{.density = 0.03, .partitioner = gs::deft{}, .codec = fp16});
  balance(gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}, .codec = bf16});
}

TEST_CASE("gather gives the bits that threads give") {
  auto const n = mixed_layers().size();
  auto const check = [&](auto recipe) {
    // passthrough layers are summed by MPI, in an order of its own: compressed like the others they are not
    recipe.passthrough = {.patterns = {}};
    auto const expected = by_threads(recipe, 6);
    gs::compressor compressor{here, mixed_layers(), recipe};
    for (std::uint64_t step = 0; step < 6; ++step) {
      auto update = gradient(n, world().rank(), step);
      compressor.exchange(world(), std::span{update});
      CHECK(same_bits(update, expected.first[step]));
    }
    CHECK(compressor.state() == expected.second);
  };
  check(gs::recipe{.density = 0.03});
  check(gs::recipe{.density = 0.03, .selector = gs::laplacian{}, .residual = gs::momentum_correction{}});
  check(gs::recipe{.density = 0.03, .selector = gs::hierarchical{}, .residual = gs::error_feedback{.decay = 0.5f}});
}

TEST_CASE("ranks that disagree all throw, and none waits") {
  auto const comm = world();
  bool const last = comm.rank() == comm.size() - 1 && comm.size() > 1;
  std::vector<float> update(100, 1.0f);
  auto const with = [&](gs::layout const& layers, double density) {
    gs::compressor compressor{here, layers, gs::recipe{.density = density}};
    return ending([&] { compressor.exchange(comm, std::span{update}.first(layers.size())); });
  };
  std::string const start =
      comm.size() == 1 ? "" : "mismatch: gradsieve: rank " + std::to_string(comm.size() - 1) + " and rank 0 differ in ";
  CHECK(with(gs::layout::flat(100), last ? 0.1 : 0.2) == (start.empty() ? "" : start + "recipe or density"));
  CHECK(with(gs::layout::flat(last ? 99 : 100), 0.1) == (start.empty() ? "" : start + "layout"));
  CHECK(with(gs::layout::flat(100), 0.1) == "");
}

TEST_CASE("a rank with a gradient of another size: all throw, and the next step works") {
  auto const comm = world();
  auto const n = mixed_layers().size();
  bool const wrong = comm.rank() == comm.size() - 1;
  auto const check = [&](auto const& recipe) {
    gs::compressor compressor{here, mixed_layers(), recipe};
    std::vector<double> balance(n);
    for (std::uint64_t step = 0; step < 4; ++step) {
      bool const fails = step % 2 == 1;
      auto update = gradient(n, comm.rank(), step);
      if (!(fails && wrong))
        for (std::size_t i = 0; i < n; ++i) balance[i] += static_cast<double>(update[i]);
      if (fails && wrong) update.pop_back();
      auto const how = ending([&] { compressor.exchange(comm, std::span{update}); });
      CHECK(contains(how, !fails  ? ""
                          : wrong ? "invalid_argument: gradsieve: gradient has "
                                  : "communication_error: gradsieve: "));
      CHECK(how.empty() == !fails);
      if (!fails)
        for (std::size_t i = 0; i < n; ++i) balance[i] -= static_cast<double>(update[i]);
    }
    for (std::size_t i = 0; i < n; ++i) balance[i] -= static_cast<double>(compressor.residual()[i]);
    comm.all_reduce(here, std::span{balance}, gs::reduction::sum);
    double worst = 0;
    for (double const each : balance) worst = std::max(worst, std::fabs(each));
    CHECK(worst < 1e-3);
  };
  check(gs::recipe{.density = 0.03});
  check(gs::recipe{.density = 0.03, .partitioner = gs::deft{}});
  check(gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}});
}

TEST_CASE(
    "a rank that is restored or made anew while the others go on: all throw, none waits, and all can go on together") {
  auto const comm = world();
  int const odd = comm.size() - 1;
  auto const check = [&](auto const& recipe) {
    auto const said = [&](std::uint64_t own_step) {
      auto const how = rejoin(comm, recipe, odd, 3, own_step);
      bool const differ = comm.size() > 1 && own_step != 3;
      std::string const start = "mismatch: gradsieve: rank " + std::to_string(odd) + " and rank 0 differ in step: ";
      std::string const origin = own_step == 0 ? "0, made anew" : "1, restored from a checkpoint";
      CHECK(how == (differ ? start + origin + "; and 3" : ""));
    };
    said(0);
    said(1);
    said(3);  // at the step that the others have reached: nothing is amiss
  };
  check(gs::recipe{.density = 0.03});
  check(gs::recipe{.density = 0.03, .partitioner = gs::deft{}});
  check(gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}, .on_non_finite = gs::non_finite::fail});
}

TEST_CASE("cyclic: rank step % world leads, its indices reach all, and no rank waits") {
  auto const comm = world();
  auto const n = mixed_layers().size();
  gs::compressor compressor{here, mixed_layers(), gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}}};
  for (std::uint64_t step = 0; step < 6; ++step) {
    auto update = gradient(n, comm.rank(), step);
    if (step == 3) std::fill(update.begin(), update.end(), 0.0f);  // still there is what waits
    auto const it = compressor.exchange(comm, std::span{update});
    CHECK(it.selected == (at(comm.rank()) == step % at(comm.size()) ? it.budget : 0));
    CHECK(it.union_size == it.budget);
    CHECK(same_everywhere(hash(update)));
  }
  gs::compressor idle{here, mixed_layers(), gs::recipe{.density = 0.0, .partitioner = gs::cyclic{}}};
  auto update = gradient(n, comm.rank(), 0);
  CHECK(idle.exchange(comm, std::span{update}).union_size == 0);
}

TEST_CASE("saved, restored and redistributed") {
  auto const comm = world();
  auto const n = mixed_layers().size();
  auto const recipe =
      gs::recipe{.density = 0.03, .selector = gs::laplacian{}, .partitioner = gs::deft{.rotate_every = 2}};
  gs::compressor straight{here, mixed_layers(), recipe};
  for (std::uint64_t step = 0; step < 3; ++step) {
    auto update = gradient(n, comm.rank(), step);
    straight.exchange(comm, std::span{update});
  }
  gs::compressor restored{here, mixed_layers(), recipe};
  restored.restore(straight.state());
  for (std::uint64_t step = 3; step < 6; ++step) {
    auto a = gradient(n, comm.rank(), step);
    auto b = a;
    straight.exchange(comm, std::span{a});
    restored.exchange(comm, std::span{b});
    CHECK(same_bits(a, b));
  }
  CHECK(straight.state() == restored.state());
}

int main(int argc, char** argv) {
  gs::mpi::session const mpi{argc, argv, MPI_THREAD_FUNNELED};
  doctest::Context context{argc, argv};
  context.setOption("minimal", world().rank() != 0);  // the others speak only of failures
  std::uint32_t result = context.run() == 0 ? 0 : 1;
  world().all_reduce(here, std::span{&result, 1}, gs::reduction::max);
  return static_cast<int>(result);
}
