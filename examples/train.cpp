// Data-parallel training of a real model on real data: compares gradsieve's recipes with the dense exchange,
// on worker threads or, started by mpirun, on its ranks. `train --help` lists the options.

#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/comm/threads.hpp>
#if defined(GRADSIEVE_EXAMPLE_MPI)
#include <gradsieve/comm/mpi.hpp>
#endif

#include "train/communicator.hpp"
#include "train/data.hpp"
#include "train/options.hpp"
#include "train/recipes.hpp"
#include "train/report.hpp"
#include "train/worker.hpp"

namespace {

using namespace example;

constexpr auto introduction =
    R"(Trains a multi-layer perceptron on P workers, once a recipe, and compares what the gradients cost.

usage: train [option value]...

)";
constexpr auto explanation = R"(
A recipe is dense, or names joined by '+' in any order: radix+deft, laplacian+deft+momentum; what it leaves
open comes from --selector, --partitioner and --residual. momentum is momentum correction: the compressor
carries the momentum, the optimiser does not. cyclic goes with radix or laplacian, and with momentum or
filtered in radix+cyclic only; micro goes with radix or laplacian; adacomp (which is layerwise, and finds its own
density) and chunked stand alone, as trimmed, threshold_search, ldte, sidco, random_k and fixed_threshold do.
Codecs go with adacomp, chunked and radix.

With --optimiser adamw each worker steps parameters of its own, and what that has changed is compressed and exchanged:
compressed gradients fail optimisers that normalise, as adam shows at 0.001. All workers clip to the norm that the mean
gradient has about; it and the factors of second moments come from a thousandth of the gradient. It goes with
error_feedback.

Warm-up: at density 0.01 on the digits no recipe of all needs one with the default steps and 4 workers. Short
runs (100 steps) fall behind the dense exchange by points; a warm-up did not close that gap, more steps do.

The table's columns:
  final loss   of the training batches of the last tenth of the steps
  sent         handed to the transport by a worker in a step; its algorithm may move it several times
  received     taken from the transport: grows with the workers where selections overlap
  of dense     sent, as a share of what the dense exchange sends
  select       accumulate, partition and select, per step; a partitioner that asks for norms waits here
  exchange     encode, exchange (waiting for the slowest worker included) and apply, per step
  step         the whole step, forward and backward included
  entries sent by a worker in a step after the warm-up, without layers that pass through; and entries updated:
               those of the averaged update. At equal density one recipe may update several times as many as another
  build-up     entries of the update / entries asked for, after the warm-up

With --overlap every rank first times its layers and its recipe's exchange on this link, and rank 0 plans; then groups
are exchanged while the backward pass runs, and a second table has predicted and measured iterations (medians).

--compare all trains
)";

void print_help(std::ostream& out) {
  out << introduction;
  for (auto const& each : option_table())
    out << std::left << std::setw(32) << "  " + each.name + " " + each.value << each.help << '\n';
  out << explanation << "  " << joined(every_recipe, "\n  ") << '\n';
}

/// `launch(workers, job)` runs job(communicator) on that many ranks.
template <class Launch>
void compare(options const& chosen, bool speaks, Launch const& launch) {
  auto const recipes = parse_recipes(chosen);
  if (chosen.overlap != "none" && chosen.space != "host")
    throw usage_error("--overlap '" + chosen.overlap + "': goes with --space host only");
  for (int const workers : chosen.workers)
    if (workers > chosen.batch)
      throw usage_error("--batch '" + std::to_string(chosen.batch) + "': choose at least one sample for each of " +
                        std::to_string(workers) + " workers");
  if (chosen.overlap != "none" && !(chosen.trace_layers + chosen.accumulators).empty())
    throw usage_error("--overlap '" + chosen.overlap +
                      "': has no accumulators of a whole gradient: leave out "
                      "--trace-layers and --accumulators");
  if (chosen.optimiser == "adamw") {
    if (chosen.overlap != "none" || chosen.space != "host")
      throw usage_error(
          "--optimiser 'adamw': exchanges parameters after the step: goes with --space host and without "
          "--overlap");
    if (!(chosen.trace_layers + chosen.accumulators).empty())
      throw usage_error(
          "--optimiser 'adamw': has no accumulators of gradients: leave out --trace-layers and --accumulators");
  }
  for (auto const& recipe : recipes)
    if (recipe.carries_momentum() && chosen.optimiser != "sgd")
      throw usage_error("--optimiser '" + chosen.optimiser + "': '" + recipe.name +
                        "' corrects the momentum of sgd; choose error_feedback");
  auto const data = load(chosen.data);
  auto const output = [&](std::string const& path) {
    return speaks && !path.empty() ? open_output(path) : std::ofstream{};
  };
  auto csv = output(chosen.csv);
  auto curves = output(chosen.curves);
  auto trace = output(chosen.trace);
  auto trace_layers = output(chosen.trace_layers);
  auto accumulators = output(chosen.accumulators);

  auto watch = progress{speaks, recipes.size() * chosen.workers.size() * static_cast<std::uint64_t>(chosen.steps)};
  std::vector<result> results;
  for (int const workers : chosen.workers)
    for (auto const& recipe : recipes) {
      results.emplace_back();
      launch(workers, [&](auto ranks) {
        auto const comm = communicator{ranks};
        auto mine = train(comm, recipe, chosen, data, watch);
        if (comm.rank() == 0) results.back() = std::move(mine);
      });
    }
  if (!speaks) return;
  watch.clear();
  std::cout << data.train.count() << " training and " << data.test.count() << " test samples of "
            << data.train.features.rows() << " features; " << chosen.steps << " steps of " << chosen.batch
            << " samples, density " << chosen.density << ", warm-up " << chosen.warmup << " steps, seed " << chosen.seed
            << "\n\n";
  print_results(std::cout, results);
  print_rates(std::cout, results);
  print_thresholds(std::cout, results);
  print_forecasts(std::cout, results);
  if (chosen.workers.size() > 1) print_growth(std::cout, results, chosen);
  if (csv.is_open()) write_csv(csv, results, chosen.steps);
  if (curves.is_open()) write_curves(curves, results);
  auto const write_rows = [&](std::ofstream& file, std::string const& columns, std::string trace_rows::*rows) {
    if (!file.is_open()) return;
    file << columns;
    for (auto const& each : results) file << each.rows.*rows;
  };
  write_rows(trace, trace_rows::step_columns, &trace_rows::steps);
  write_rows(trace_layers, trace_rows::layer_columns, &trace_rows::layers);
  write_rows(accumulators, trace_rows::accumulator_columns(), &trace_rows::accumulators);
}

/// Runs the job and turns what it throws into an exit code: 2 for a command line, 1 for all else.
template <class Job>
int guarded(bool speaks, Job const& job) {
  try {
    job();
    return EXIT_SUCCESS;
  } catch (usage_error const& error) {
    if (speaks) std::cerr << "train: " << error.what() << "\ntrain --help lists all options\n";
    return 2;
  } catch (std::exception const& error) {
    std::cerr << "train: " + std::string{error.what()} + '\n';  // at once: other ranks write as well
    return EXIT_FAILURE;
  }
}

#if defined(GRADSIEVE_EXAMPLE_MPI)
bool under_mpirun() { return std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMI_SIZE"); }

int run_ranks(int argc, char** argv) {
  // Serialised: with --overlap a thread exchanges gradients, and the one that trains calls MPI between steps.
  auto const session = gs::mpi::session{argc, argv, MPI_THREAD_SERIALIZED};
  auto const world = gs::mpi::communicator_ref{MPI_COMM_WORLD};
  bool const speaks = world.rank() == 0;
  int const code = guarded(speaks, [&] {
    auto chosen = parse({argv + 1, argv + argc});
    if (chosen.help) return speaks ? print_help(std::cout) : void();
    if (chosen.workers_given && speaks)
      std::cerr << "train: mpirun started " << world.size() << " workers; --workers is ignored\n";
    chosen.workers = {world.size()};
    auto const comm = gs::mpi::communicator_ref{MPI_COMM_WORLD, gs::mpi::communicator_ref::default_max_count,
                                                std::chrono::microseconds{chosen.pause}};
    compare(chosen, speaks, [&](int, auto const& job) { job(comm); });
  });
  // All ranks refuse a command line alike; anything else may have hit this one only, and the others would
  // wait.
  if (code == EXIT_FAILURE && world.size() > 1) MPI_Abort(MPI_COMM_WORLD, code);
  return code;
}
#endif

int run_threads(int argc, char** argv) {
  return guarded(true, [&] {
    auto const chosen = parse({argv + 1, argv + argc});
    if (chosen.help) return print_help(std::cout);
    compare(chosen, true, [](int workers, auto const& job) { gs::threads::run(workers, job); });
  });
}

}  // namespace

int main(int argc, char** argv) {
#if defined(GRADSIEVE_EXAMPLE_MPI)
  if (under_mpirun()) return run_ranks(argc, argv);
#endif
  return run_threads(argc, argv);
}
