// Plans the exchange of a model's gradients in several ways and plays it on a network, for any number of workers:
// which gradients to merge, what stays exposed, how far it scales. `simulate --help` lists the options.

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

#include <gradsieve/overlap.hpp>
#include <gradsieve/plan.hpp>

#include "simulate/chrome_trace.hpp"
#include "simulate/options.hpp"
#include "simulate/simulate.hpp"
#include "simulate/timeline.hpp"
#include "simulate/traces.hpp"

namespace {

using namespace simulation;

link_cost cost_of(settings const& chosen, priced_network const& from, int workers) {
  if (!from.measured.empty()) {
    link_cost made;
    if (workers == 1) return made;
    made.measured = from.measured.contains(workers) ? from.measured.at(workers) : from.measured.at(0);
    for (auto& each : made.measured.points) each.seconds += chosen.overhead;
    return made;
  }
  auto const& on = from.by_name;
  gs::affine cost = on.cost(workers);
  if (chosen.exchange == "gather") cost = gs::gather_cost(on.link, workers, chosen.density);
  if (chosen.exchange == "index_union") cost = gs::index_union_cost(on.link, workers, chosen.density);
  if (chosen.exchange == "leader") cost = gs::leader_cost(on.link, workers, chosen.density);
  if (chosen.exchange == "shared_choice") cost = gs::shared_choice_cost(on.link, workers, chosen.density);
  if (chosen.exchange == "reduce_scatter") cost = gs::reduce_scatter_cost(on.link, workers, chosen.density);
  if (chosen.exchange == "coded_all_reduce")
    cost = gs::coded_all_reduce_cost(on.link, workers, chosen.density, 8, std::min(2.0, 1 / chosen.density));
  if (workers > 1) cost.a += chosen.overhead;
  return {cost, {}};
}

struct outcome {
  gs::plan plan;
  tools::timeline line;
};

outcome play(settings const& chosen, planner const& by, gs::trace const& of, link_cost const& cost, int workers) {
  auto options = chosen.run;
  options.workers = workers;
  options.two_halves = by.name == "optimal_rs_ag";
  if (options.iterations == 1 && (options.two_halves || options.overlap_forward)) options.iterations = 4;
  outcome made{by.plan(of, cost, chosen.run.selection), {}};
  made.line = tools::simulate(of, made.plan, cost, options);
  return made;
}

void compare(settings const& chosen) {
  std::vector<planner> methods;
  for (auto const& each : chosen.planners) methods.push_back(planner_named(each));
  auto const networks = load_networks(chosen);
  auto const traces = load_all(chosen);
  auto csv = chosen.csv.empty() ? std::ofstream{} : created(chosen.csv);
  csv << "trace,network,workers,planner,groups,iteration_ms,exposed_ms,speedup,efficiency\n";
  outcome last;
  int last_workers = 0;

  for (auto const& on : networks) std::cout << on.note;
  std::cout << std::fixed << std::right;
  for (auto const& of : traces)
    for (auto const& on : networks) {
      std::cout << of.name() << " on " << on.name << ": " << of.count() << " layers, " << std::setprecision(1)
                << static_cast<double>(of.bytes()) / 1e6 << " MB, " << 1e3 * of.compute()
                << " ms on one worker; ms an iteration (efficiency in %), fewest in *\n  workers";
      for (auto const& each : methods) std::cout << std::setw(18) << each.name;
      std::cout << '\n';
      for (int const workers : workers_on(chosen, on)) {
        last_workers = workers;
        auto const cost = cost_of(chosen, on, workers);
        std::vector<tools::schedule_metrics> row;
        for (auto const& by : methods) {
          last = play(chosen, by, of, cost, workers);
          auto const& metrics = last.line.metrics;
          row.push_back(metrics);
          gs::detail::write_csv_text(csv, of.name());
          csv << ',';
          gs::detail::write_csv_text(csv, on.name);
          csv << ',' << workers << ',' << by.name << ',' << last.plan.groups().size() << std::fixed
              << std::setprecision(4) << ',' << 1e3 * metrics.iteration << ',' << 1e3 * metrics.exposed() << ','
              << metrics.speedup() << ',' << metrics.efficiency() << '\n';
        }
        double least = row.front().iteration;
        for (auto const& each : row) least = std::min(least, each.iteration);
        std::cout << std::setw(9) << workers;
        for (auto const& each : row) {
          auto text = gs::plain_text();
          text << std::fixed << std::setprecision(1) << (each.iteration <= least * (1 + 1e-9) ? "*" : "")
               << 1e3 * each.iteration << " (" << std::setprecision(0) << 100 * each.efficiency() << ')';
          std::cout << std::setw(18) << text.str();
        }
        std::cout << '\n';
      }
      std::cout << '\n';
    }

  if (!chosen.chrome.empty()) {
    auto file = created(chosen.chrome);
    tools::write_chrome_trace(file, last.line, traces.back(), last.plan);
    finish(file, chosen.chrome);
    std::cout << "wrote " << chosen.chrome << ": " << methods.back().name << ", " << last_workers
              << " workers; open it at ui.perfetto.dev\n";
  }
  if (!chosen.write_trace.empty()) {
    auto file = created(chosen.write_trace);
    if (std::filesystem::path{chosen.write_trace}.extension() == ".json")
      gs::write_json(file, traces.back());
    else
      gs::write_csv(file, traces.back());
    finish(file, chosen.write_trace);
  }
  if (!chosen.csv.empty()) finish(csv, chosen.csv);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto const chosen = parse({argv + 1, argv + argc});
    if (chosen.help)
      print_help();
    else
      compare(chosen);
    return EXIT_SUCCESS;
  } catch (usage_error const& problem) {
    std::cerr << "simulate: " << problem.what() << '\n';
    return 2;
  } catch (gs::invalid_argument const& problem) {
    std::cerr << "simulate: " << problem.what() << '\n';
    return 2;
  } catch (std::exception const& problem) {
    std::cerr << "simulate: " << problem.what() << '\n';
    return EXIT_FAILURE;
  }
}
