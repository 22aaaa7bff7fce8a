// Is compression worth its while here? Predicts what exchanges take on a link that is named, or under mpirun on the one
// at hand, which it measures, and then also what they really take. `advise --help` lists the options.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/codec/index/elias_fano.hpp>
#include <gradsieve/codec/packed.hpp>
#include <gradsieve/codec/value/half.hpp>
#include <gradsieve/comm/self.hpp>
#include <gradsieve/compressor.hpp>
#include <gradsieve/exchange/reduce_scatter.hpp>
#include <gradsieve/overlap.hpp>
#include <gradsieve/partitioner/cyclic.hpp>
#include <gradsieve/partitioner/deft.hpp>
#include <gradsieve/plan.hpp>
#if defined(GRADSIEVE_EXAMPLE_MPI)
#include <gradsieve/comm/mpi.hpp>
#include <gradsieve/comm/mpi_session.hpp>
#endif

#include "advise/advise.hpp"
#include "advise/exchange_choice.hpp"
#include "command_line.hpp"
#include "text_file.hpp"

#if !defined(GRADSIEVE_EXAMPLE_TRACES)
#define GRADSIEVE_EXAMPLE_TRACES "examples/traces"
#endif

namespace gs = gradsieve;

namespace {

constexpr char const* usage = R"(advise [option value]...
  --trace NAME|FILE  a model's layers as CSV, or a trace of the examples [resnet50]
  --elements N       instead: one layer of so many, fewer than 2^51
  --workers P        [8]
  --bandwidth RATE   of a link, each way: 100mbit, 1gbit, 12.5gbit, ... [1gbit]
  --latency-us X     seconds a message, in millionths [30]
  --cores X          of each rank; less than 1 where ranks share cores, such as 0.5 for 4 ranks on 2 [2]
  --byte-ns X        of a core to send or receive a byte, in billionths of a second: 1 or 2 where it runs TCP [0]
  --wire X           bytes on the link for each of a message [1.062, TCP's on Ethernet]
  --density X        [0.01]
  --optimizer NAME   adds what compression has cost in loss with it: sgd, momentum or adam
  --csv FILE         writes speed-ups from 1 Mbit/s to 400 Gbit/s, for plot_advise.py
  --measure          under mpirun, with two ranks or more: workers and link are what it finds, the local cost is
                     measured, and so is what the exchanges really take
  --append FILE      with --measure: adds a row a choice to a CSV, for plot_advise.py; its bandwidth is --bandwidth, or
                     without that the measured one
)";

struct settings {
  std::string trace = "resnet50";
  std::uint64_t elements = 0;
  double cores = 2;
  double byte = 0;
  std::optional<double> wire;
  bool transport_given = false;
  int workers = 8;
  std::optional<double> bits_a_second;
  double latency = 30e-6;
  double density = 0.01;
  std::string optimizer;
  std::string csv;
  std::string append;
  bool measure = false;
};

double rate(std::string const& text) {
  for (auto const& [unit, bits] : {std::pair{"mbit", 1e6}, {"gbit", 1e9}})
    if (text.ends_with(unit)) return bits * example::number("--bandwidth", text.substr(0, text.size() - 4), 1e-3, 1e6);
  throw example::usage_error("--bandwidth '" + text + "': choose a rate such as 100mbit or 10gbit");
}

/// What was measured with an optimizer; null for one that is not known. From examples/study/TRANSFORMERS.md.
char const* loss_with(std::string const& optimizer) {
  if (optimizer == "adam")
    return "adam and others that divide gradients by their size: exchange what the optimizer changes\n"
           "(parameter_exchange with a momentum; CompressedStep in PyTorch). A GPT of 0.8 million parameters, 1,500 steps of\n"
           "AdamW, loss behind dense: changes, 6 % as signs: -0.01 on 2 ranks with 72 times fewer bytes than a dense ring,\n"
           "0.00 on 4 with 36, 0.01 on 8 with 39; 1 %: -0.01 on 4 with 147; gradients, 6 % as signs, on 4: 0.28.\n";
  if (optimizer == "sgd" || optimizer == "momentum")
    return "sgd, also with momentum: gradients or, with less loss, what the optimizer changes (parameter_exchange;\n"
           "CompressedStep in PyTorch). An LSTM of 0.15 million parameters, 400 steps of SGD with momentum, 2 ranks, 1 %, 49\n"
           "times fewer bytes, loss behind dense: changes 0.02, gradients 0.07, gradients with momentum_correction 0.08.\n";
  return nullptr;
}

std::string known_optimizer(std::string const& value) {
  if (loss_with(value) == nullptr)
    throw example::usage_error("--optimizer '" + value + "': choose sgd, momentum or adam");
  return value;
}

settings parse(std::span<char*> arguments) {
  settings chosen;
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    std::string const name = arguments[i];
    if (name == "--measure") {
      chosen.measure = true;
      --i;
      continue;
    }
    if (i + 1 == arguments.size()) throw example::usage_error(name + " needs a value, or is no option; see --help");
    std::string const value = arguments[i + 1];
    if (name == "--trace")
      chosen.trace = value;
    else if (name == "--elements")
      chosen.elements = example::number<std::uint64_t>(name, value, 1, (1ull << 51) - 1);
    else if (name == "--workers")
      chosen.workers = example::number(name, value, 1, 1 << 20);
    else if (name == "--bandwidth")
      chosen.bits_a_second = rate(value);
    else if (name == "--latency-us")
      chosen.latency = 1e-6 * example::number(name, value, 0.0, 1e9);
    else if (name == "--cores")
      chosen.cores = example::number(name, value, 1e-3, 1e6), chosen.transport_given = true;
    else if (name == "--byte-ns")
      chosen.byte = 1e-9 * example::number(name, value, 0.0, 1e9), chosen.transport_given = true;
    else if (name == "--wire")
      chosen.wire = example::number(name, value, 1.0, 1e3), chosen.transport_given = true;
    else if (name == "--density")
      chosen.density = example::number(name, value, 0.0, 1.0);
    else if (name == "--optimizer")
      chosen.optimizer = known_optimizer(value);
    else if (name == "--csv")
      chosen.csv = value;
    else if (name == "--append")
      chosen.append = value;
    else
      throw example::usage_error("no option " + name + "; see --help");
  }
  if (!chosen.append.empty() && !chosen.measure) throw example::usage_error("--append goes with --measure");
  if (chosen.measure && chosen.transport_given)
    throw example::usage_error(
        "--cores, --byte-ns and --wire go without --measure, which measures what they stand for");
  if (chosen.measure && chosen.append.empty() && chosen.bits_a_second)
    throw example::usage_error("--bandwidth with --measure goes with --append: the link is measured");
  return chosen;
}

gs::trace trace_of(settings const& chosen) {
  if (chosen.elements > 0) return gs::trace{{"", 4 * chosen.elements, 0, 0, 0}};
  auto const shipped = std::filesystem::path{GRADSIEVE_EXAMPLE_TRACES} / (chosen.trace + ".csv");
  auto const path = std::filesystem::exists(shipped) ? shipped : std::filesystem::path{chosen.trace};
  if (!std::filesystem::exists(path))
    throw example::usage_error("--trace '" + chosen.trace + "': no such file, and no trace of the examples");
  auto const text = example::read_text(path);
  if (example::begins_as_json(text))
    throw std::runtime_error("'" + path.string() + "' is JSON, which simulate reads, profiles of PyTorch too: " +
                             "simulate --trace '" + path.string() +
                             "' --write-trace layers.csv; advise --trace layers.csv");
  std::istringstream file{text};
  return gs::read_csv(file, path.stem().string());
}

#if defined(GRADSIEVE_EXAMPLE_MPI)
/// @throws gs::invalid_argument for more elements than a compressor holds
gs::layout layers_of(gs::trace const& of) {
  std::vector<gs::layer> layers;
  for (auto const& each : of) layers.push_back({each.name, each.elements()});
  return gs::layout{layers};
}
#endif

tools::transport_cost transport_of(settings const& chosen) {
  auto made = tools::transport_cost::ethernet(chosen.cores, chosen.byte);
  made.wire = chosen.wire.value_or(made.wire);
  return made;
}

void print(tools::advice const& made) {
  std::cout << std::fixed << std::right << std::setw(28) << "" << std::setw(12) << "link ms" << std::setw(12)
            << "local ms" << std::setw(12) << "all ms" << std::setw(11) << "speed-up" << '\n';
  for (auto const& each : made.choices)
    std::cout << std::left << std::setw(28) << each.choice.name << std::right << std::setprecision(3) << std::setw(12)
              << 1e3 * each.exchange << std::setw(12) << 1e3 * each.local << std::setw(12) << 1e3 * each.total()
              << std::setprecision(2) << std::setw(10) << each.speedup << "x\n";
  std::cout << made.sentence << '\n';
}

/// One line a choice and bandwidth.
void sweep(settings const& chosen, tools::model_size const& size, std::vector<tools::exchange_choice> const& menu,
           tools::transport_cost const& transport) {
  std::ofstream csv{chosen.csv};
  gs::plain_output const plain{csv};
  csv << "choice,gbit_per_second,milliseconds,speedup\n";
  for (int step = 0; step <= 56; ++step) {
    double const gbit = 1e-3 * std::pow(10.0, step / 10.0);
    gs::network_link const link{.alpha = chosen.latency, .beta = 8e-9 / gbit};
    for (auto const& each : tools::advise(size, chosen.workers, link, std::span{menu}, transport).choices)
      csv << '"' << each.choice.name << "\"," << gbit << ',' << 1e3 * each.total() << ',' << each.speedup << '\n';
  }
  csv.flush();
  if (!csv) throw std::runtime_error("cannot write '" + chosen.csv + "'");
}

#if defined(GRADSIEVE_EXAMPLE_MPI)
using clock = std::chrono::steady_clock;
using communicator = gs::mpi::communicator_ref;

/// Median seconds of some calls, of which each is the slowest rank's.
template <class Call>
double measured(communicator const& comm, int calls, Call const& call) {
  std::vector<double> taken;
  for (int i = 0; i < calls + 2; ++i) {
    double seconds = 0;
    comm.all_reduce(gs::host{1}, std::span{&seconds, 1}, gs::reduction::max);  // a barrier
    auto const start = clock::now();
    call();
    seconds = std::chrono::duration<double>(clock::now() - start).count();
    comm.all_reduce(gs::host{1}, std::span{&seconds, 1}, gs::reduction::max);
    if (i >= 2) taken.push_back(seconds);  // the first ones warm up
  }
  std::nth_element(taken.begin(), taken.begin() + calls / 2, taken.end());
  return taken[static_cast<std::size_t>(calls) / 2];
}

std::vector<float> noise(std::uint64_t n, int rank) {
  std::vector<float> values(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    auto const bits = gs::mix(i + n * static_cast<std::uint64_t>(rank));
    float const uniform = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;
    values[i] = (bits & 1) == 0 ? std::log(uniform) : -std::log(uniform);
  }
  return values;
}

template <class Recipe, class Comm>
double step_seconds(communicator const& ranks, Comm const& comm, gs::layout const& layers, Recipe const& recipe) {
  gs::compressor compressor{gs::host{1}, layers, recipe};
  auto const gradient = noise(layers.size(), ranks.rank());
  auto update = gradient;
  return measured(ranks, 9, [&] {
    std::copy(gradient.begin(), gradient.end(), update.begin());
    compressor.exchange(comm, std::span{update});
  });
}

/// From steps without a link, of all ranks at once, at two densities.
tools::local_cost local_cost_of(communicator const& comm, gs::layout const& layers, double density) {
  auto const n = static_cast<double>(layers.size());
  double const many = step_seconds(comm, gs::self{}, layers, gs::recipe{.density = density});
  double const few = step_seconds(comm, gs::self{}, layers, gs::recipe{.density = density / 10});
  double const entry = std::max(0.0, (many - few) / (0.9 * density * n));
  double const element = std::max(0.0, (few - entry * density / 10 * n) / n);
  return {element, entry / 2, entry / 2};
}

/// What it costs that ranks work and then meet, beyond the work and a meeting by themselves: those that wait take the
/// cores of those that still work, where cores are shared.
double wait_of(communicator const& comm, gs::layout const& layers, double density) {
  gs::compressor compressor{gs::host{1}, layers, gs::recipe{.density = density}};
  auto const gradient = noise(layers.size(), comm.rank());
  auto update = gradient;
  auto const work = [&] {
    std::copy(gradient.begin(), gradient.end(), update.begin());
    compressor.exchange(gs::self{}, std::span{update});
  };
  auto const meet = [&] {
    std::array<std::byte, 32> const mine{};
    std::vector<std::byte> all(32 * static_cast<std::size_t>(comm.size()));
    comm.all_gather(gs::host{1}, std::span<std::byte const>{mine}, std::span{all});
  };
  double const both = measured(comm, 9, [&] { work(), meet(); });
  return std::max(0.0, both - measured(comm, 9, work) - measured(comm, 9, meet));
}

/// One line for each choice that was measured, and for the dense one.
void append(settings const& chosen, double gbit, tools::advice const& made, std::span<double const> taken) {
  bool const fresh = !std::filesystem::exists(chosen.append);
  std::ofstream csv{chosen.append, std::ios::app};
  gs::plain_output const plain{csv};
  if (fresh) csv << "choice,workers,gbit_per_second,predicted_ms,measured_ms\n";
  for (std::size_t i = 0; i < taken.size(); ++i)
    if (taken[i] > 0)
      csv << '"' << made.choices[i].choice.name << "\"," << chosen.workers << ',' << gbit << ','
          << 1e3 * made.choices[i].total() << ',' << 1e3 * taken[i] << '\n';
  csv.flush();
  if (!csv) throw std::runtime_error("cannot write '" + chosen.append + "'");
}

int run_on(communicator const& comm, settings chosen, gs::layout const& layers) {
  chosen.workers = comm.size();
  gs::measure_options options;
  options.largest = std::clamp<std::uint64_t>(4 * layers.size(), 1 << 20, std::uint64_t{1} << 28);
  auto const fit = gs::measure_all_reduce(comm, options);
  auto const link = gs::link_of_ring(fit.cost, comm.size());
  auto const local = local_cost_of(comm, layers, chosen.density);
  double const wait = wait_of(comm, layers, chosen.density);
  auto menu = tools::usual_choices(chosen.density, local);
  auto const size = tools::model_size::of(layers);
  // Large messages may be faster than a line through all sizes says: what was measured at a dense size counts there.
  auto const at_size = fit.measured();
  for (auto& each : menu)
    if (double const bytes = static_cast<double>(layers.size()) * each.entry_bytes;
        each.kind != tools::exchange_kind::dense) {
      each.local.element += wait / static_cast<double>(layers.size());  // a dense exchange begins with no work
    } else if (fit.cost.b > 0) {
      double const moving = at_size(static_cast<std::uint64_t>(bytes)) - fit.cost.a;
      each.wire = std::clamp(moving / (fit.cost.b * bytes), 0.0, 1e3);
    }
  auto const made = tools::advise(size, comm.size(), link, std::span{menu});

  std::vector<double> taken(menu.size());
  auto const bytes = noise(layers.size(), comm.rank());
  auto sums = bytes;
  taken[0] = measured(comm, 9, [&] {
    std::copy(bytes.begin(), bytes.end(), sums.begin());
    comm.all_reduce(gs::host{1}, std::span{sums}, gs::reduction::sum);
  });
  double const d = chosen.density;
  taken[2] = step_seconds(comm, comm, layers, gs::recipe{.density = d});
  taken[3] =
      step_seconds(comm, comm, layers, gs::recipe{.density = d, .codec = gs::packed<gs::elias_fano, gs::fp16>{}});
  taken[4] = step_seconds(comm, comm, layers, gs::recipe{.density = d, .partitioner = gs::deft{}});
  taken[5] = step_seconds(comm, comm, layers, gs::recipe{.density = d, .partitioner = gs::cyclic{}});
  taken[6] = step_seconds(
      comm, comm, layers,
      gs::recipe{.density = d, .codec = gs::packed<gs::elias_fano, gs::fp16>{}, .exchange = gs::coded_all_reduce{}});
  if (comm.rank() != 0) return EXIT_SUCCESS;
  std::cout << comm.size() << " workers, measured link: " << 1e6 * link.alpha << " us a message, " << 8e-9 / link.beta
            << " Gbit/s; " << 1e3 * wait << " ms of waiting\n";
  print(made);
  if (!chosen.optimizer.empty()) std::cout << loss_with(chosen.optimizer);
  std::cout << "predicted and measured, ms:\n" << std::setprecision(3);
  for (std::size_t i = 0; i < menu.size(); ++i)
    if (taken[i] > 0)
      std::cout << std::left << std::setw(28) << menu[i].name << std::right << std::setw(12)
                << 1e3 * made.choices[i].total() << std::setw(12) << 1e3 * taken[i] << std::setw(8)
                << std::setprecision(2) << made.choices[i].total() / taken[i] << std::setprecision(3) << '\n';
  if (!chosen.csv.empty()) sweep(chosen, size, menu, {});
  if (!chosen.append.empty()) append(chosen, chosen.bits_a_second.value_or(8 / link.beta) * 1e-9, made, taken);
  return EXIT_SUCCESS;
}
#endif

int run(settings const& chosen) {
  auto const size = tools::model_size::of(trace_of(chosen));
  auto const menu = tools::usual_choices(chosen.density);
  auto const transport = transport_of(chosen);
  double const bits_a_second = chosen.bits_a_second.value_or(1e9);
  std::cout << size.elements << " elements, " << chosen.workers << " workers, " << 1e-9 * bits_a_second << " Gbit/s, "
            << 1e6 * chosen.latency << " us a message, density " << chosen.density << '\n';
  gs::network_link const link{.alpha = chosen.latency, .beta = 8 / bits_a_second};
  print(tools::advise(size, chosen.workers, link, std::span{menu}, transport));
  if (!chosen.optimizer.empty()) std::cout << '\n' << loss_with(chosen.optimizer);
  if (!chosen.csv.empty()) sweep(chosen, size, menu, transport);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) try {
  for (int i = 1; i < argc; ++i)
    if (std::string{argv[i]} == "--help") {
      std::cout << usage;
      return EXIT_SUCCESS;
    }
  auto const chosen = parse(std::span{argv + 1, static_cast<std::size_t>(argc - 1)});
  if (!chosen.measure) return run(chosen);
#if defined(GRADSIEVE_EXAMPLE_MPI)
  gs::mpi::session const session{argc, argv};
  gs::mpi::communicator_ref const comm{MPI_COMM_WORLD};
  if (comm.size() < 2) throw example::usage_error("--measure needs two ranks or more: mpirun -n 2 advise --measure");
  return run_on(comm, chosen, layers_of(trace_of(chosen)));
#else
  throw example::usage_error("--measure: this program was built without MPI");
#endif
} catch (example::usage_error const& problem) {
  std::cerr << "advise: " << problem.what() << '\n';
  return 2;
} catch (std::exception const& problem) {
  std::cerr << "advise: " << problem.what() << '\n';
  return EXIT_FAILURE;
}
