// The command line of simulate: its options, planners and networks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include <gradsieve/overlap.hpp>
#include <gradsieve/plan.hpp>

#include "../command_line.hpp"
#include "optimal_rs_ag.hpp"
#include "optimal_sparse.hpp"
#include "published_networks.hpp"
#include "robust.hpp"
#include "simulate.hpp"

namespace simulation {

namespace gs = gradsieve;
using example::names, example::joined, example::split, example::usage_error;

struct settings {
  names traces;
  names logs;
  names networks;
  std::vector<int> workers{4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
  names planners;
  std::string exchange = "dense";
  double density = 0.01;
  double overhead = 0;
  double bytes = 4;  ///< of an element, if they are given
  tools::simulation_options run;
  std::string csv;
  std::string chrome;
  std::string write_trace;
  std::vector<std::uint64_t> sizes;
  bool exchange_given = false;
  bool workers_given = false;
  bool bytes_given = false;
  bool density_given = false;
  bool help = false;
};

/// A straight line, or what was measured.
struct link_cost {
  gs::affine line;
  gs::table measured;  ///< without points: the line

  [[nodiscard]] double operator()(std::uint64_t bytes) const {
    return measured.points.empty() ? line(bytes) : measured(bytes);
  }
};

using maker = std::function<gs::plan(gs::trace const&, link_cost const&, tools::selection_seconds const&)>;

/// Planners that know straight lines have them as they are; the others are compiled for `link_cost` only.
template <class Policy>
maker planning(Policy const& policy) {
  return [=](gs::trace const& of, link_cost const& cost, tools::selection_seconds const& selection) {
    constexpr bool robust = std::is_same_v<Policy, tools::robust>;
    constexpr bool of_lines = robust || std::is_same_v<Policy, gs::optimal> || std::is_same_v<Policy, gs::mgwfbp>;
    if constexpr (of_lines)
      if (cost.measured.points.empty()) return gs::make_plan(of, cost.line, policy);
    if constexpr (robust)
      throw usage_error("--planners 'robust': goes with a startup and seconds a byte, not with a measured network");
    else if constexpr (std::is_same_v<Policy, tools::optimal_sparse>)
      return gs::make_plan(of, cost, tools::optimal_sparse{.selection = selection});
    else
      return gs::make_plan(of, cost, policy);
  };
}

/// Where costs come from: a name of the library or a link, or a file of measurements.
struct priced_network {
  std::string name;
  tools::network by_name;
  std::map<int, gs::table> measured;  ///< by the number of workers, 0: of the only one; empty: by name
  std::string note;                   ///< what was changed of the times
};

/// The numbers of workers to simulate: those of the command line, or else those that were measured.
inline std::vector<int> workers_on(settings const& chosen, priced_network const& network) {
  if (chosen.workers_given || network.measured.empty()) return chosen.workers;
  std::vector<int> all;
  for (auto const& each : network.measured) all.push_back(each.first);
  return all;
}

struct planner {
  std::string name;
  std::string help;
  maker plan;
  bool always;  ///< part of `all`
};

inline std::vector<planner> const& planners() {
  static std::vector<planner> const all{
      {"wfbp", "every gradient alone", planning(gs::wfbp{}), true},
      {"single", "all together, after the backward pass", planning(gs::single{}), true},
      {"fixed_bucket", "1 MiB, then 25 MiB (PyTorch)", planning(gs::fixed_bucket{}), true},
      {"fusion_buffer", "what is ready within 1 ms, up to 128 MiB (Horovod)", planning(gs::fusion_buffer{}), true},
      {"free_merge", "what is ready before the group starts (ASC-WFBP)", planning(gs::free_merge{}), true},
      {"mgwfbp", "MG-WFBP's greedy rule", planning(gs::mgwfbp{}), true},
      {"optimal", "first to finish, with the fewest groups", planning(gs::optimal{}), true},
      {"optimal_latest", "first to finish, with late groups", planning(gs::optimal{gs::ties::latest}), false},
      {"robust", "for costs that are known to a factor of two", planning(tools::robust{}), true},
      {"optimal_rs_ag", "reduce-scatter, and all-gather in the next forward pass (DeAR)", planning(tools::optimal_rs_ag{}),
       false},
      {"optimal_sparse", "with the time of --selection on the compute stream", planning(tools::optimal_sparse{}), false},
  };
  return all;
}

inline planner const& planner_named(std::string const& name) {
  names known;
  for (auto const& each : planners()) {
    if (each.name == name) return each;
    known.push_back(each.name);
  }
  throw usage_error("--planners '" + name + "': choose from " + joined(known) + ", or all");
}

struct option {
  std::string name;
  std::string value;
  std::string help;
  std::function<void(settings&, std::string const&)> set;
};

inline std::vector<option> option_table() {
  using o = settings&;
  using s = std::string const&;
  constexpr int many = 1 << 20;
  auto const real = [](char const* name, double low, double high, auto field) {
    return [=](o to, s v) { field(to) = example::number(name, v, low, high); };
  };
  return {
      {"--trace", "FILE|NAME",
       "layers as .csv or .json (below), or a trace of this example; several times, or all [resnet50]",
       [](o to, s v) { to.traces.push_back(v); }},
      {"--log", "FILE", "layers from a log of MG-WFBP's authors", [](o to, s v) { to.logs.push_back(v); }},
      {"--sizes", "BYTES,...", "of the gradients of a profile without shapes, in the order in which they are ready",
       [](o to, s v) {
         for (auto const& each : split(v, ','))
           to.sizes.push_back(example::number<std::uint64_t>("--sizes", each, 0, gs::trace::limit - 1));
       }},
      {"--network", "NAME|A,B|FILE",
       "its name, or a ring's seconds a message and a byte, or a file of measured times; several times [v100-10gbe]",
       [](o to, s v) { to.networks.push_back(v); }},
      {"--workers", "P,P", "[4,8,...,2048, or those that were measured]",
       [](o to, s v) {
         to.workers_given = true;
         to.workers = example::numbers("--workers", v, 1, many);
       }},
      {"--planners", "NAMES", "by comma, or all [all]", [](o to, s v) { to.planners = split(v, ','); }},
      {"--exchange", "NAME",
       "dense, or sparse: gather, index_union, leader, shared_choice, reduce_scatter, coded_all_reduce [dense]",
       [](o to, s v) {
         to.exchange_given = true;
         to.exchange = example::one_of(
             "--exchange", v,
             {"dense", "gather", "index_union", "leader", "shared_choice", "reduce_scatter", "coded_all_reduce"});
       }},
      {"--density", "X", "of a sparse exchange [0.01]",
       [](o to, s v) {
         to.density_given = true;
         to.density = example::number("--density", v, 0.0, 1.0);
       }},
      {"--bytes", "X", "bytes of an element in a dense exchange, such as 2 for half precision [as the trace has it]",
       [](o to, s v) {
         to.bytes_given = true;
         to.bytes = example::number("--bytes", v, 1.0, 8.0);
       }},
      {"--overhead", "S", "seconds that each collective costs besides [0]",
       real(
           "--overhead", 0, 1, [](o t) -> auto& { return t.overhead; })},
      {"--selection", "F,E[,C]",
       "seconds of a group's selection on the compute stream: F, E an element, C an element and bit of their number "
       "[0]",
       [](o to, s v) {
         auto const parts = split(v, ',');
         if (parts.size() < 2 || parts.size() > 3) throw usage_error("--selection '" + v + "': two or three numbers");
         std::vector<double> values(3);
         for (std::size_t i = 0; i < parts.size(); ++i) values[i] = example::number("--selection", parts[i], 0.0, 1e9);
         to.run.selection = {values[0], values[1], values[2]};
       }},
      {"--interference", "X", "factor by which computing beside a collective is slower [1]",
       real(
           "--interference", 1, 100, [](o t) -> auto& { return t.run.interference; })},
      {"--jitter", "X", "relative deviation of the layers' times [0]",
       real(
           "--jitter", 0, 10, [](o t) -> auto& { return t.run.jitter; })},
      {"--straggler", "X", "factor by which one worker is slower [1]",
       real(
           "--straggler", 1, 100, [](o t) -> auto& { return t.run.straggler; })},
      {"--streams", "N", "collectives at once [1]",
       [](o to, s v) { to.run.streams = example::number("--streams", v, 1, 64); }},
      {"--iterations", "N", "[1; 4 where the next forward pass overlaps]",
       [](o to, s v) { to.run.iterations = example::number("--iterations", v, 1, 1000); }},
      {"--overlap-forward", "", "a layer's next forward pass waits for its own group only",
       [](o to, s) { to.run.overlap_forward = true; }},
      {"--priority", "BYTES", "pieces of this size, those nearest to the input first",
       [](o to, s v) {
         to.run.chunk = example::number<std::uint64_t>("--priority", v, 1, std::uint64_t{1} << 40);
         to.run.priority = to.run.overlap_forward = true;
       }},
      {"--seed", "N", "of the jitter [1]",
       [](o to, s v) { to.run.seed = example::number<std::uint64_t>("--seed", v, 0, UINT64_MAX); }},
      {"--csv", "FILE", "writes one row a trace, network, number of workers and planner",
       [](o to, s v) { to.csv = v; }},
      {"--chrome", "FILE", "writes the timeline of the last of them as Chrome trace JSON",
       [](o to, s v) { to.chrome = v; }},
      {"--write-trace", "FILE", "writes the last trace as .csv or .json", [](o to, s v) { to.write_trace = v; }},
      {"--help", "", "prints this", [](o to, s) { to.help = true; }},
  };
}

inline settings parse(names const& arguments) {
  auto const table = option_table();
  settings chosen;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto const equals = arguments[i].find('=');
    auto const name = arguments[i].substr(0, equals);
    auto const found = std::find_if(table.begin(), table.end(), [&](option const& each) { return each.name == name; });
    if (found == table.end()) throw usage_error("unknown option '" + name + "'; --help lists them");
    bool const attached = equals != std::string::npos;
    bool const follows = i + 1 < arguments.size() && !arguments[i + 1].starts_with("--");
    if (found->value.empty() ? attached : !attached && !follows)
      throw usage_error(name + (found->value.empty() ? " takes no value" : " needs a value: " + found->value));
    found->set(chosen, found->value.empty() ? "" : attached ? arguments[i].substr(equals + 1) : arguments[++i]);
  }
  if (chosen.bytes_given && chosen.exchange != "dense")
    throw usage_error("--bytes: goes with dense exchanges; '" + chosen.exchange +
                      "' sends entries of binary32 gradients");
  if (chosen.density_given && chosen.exchange == "dense")
    throw usage_error("--density: goes with a sparse --exchange, such as gather");
  if (chosen.traces.empty() && chosen.logs.empty()) chosen.traces = {"resnet50"};
  if (chosen.networks.empty()) chosen.networks = {"v100-10gbe"};
  if (chosen.networks == names{"all"}) {
    chosen.networks.clear();
    for (auto const& each : tools::networks()) chosen.networks.emplace_back(each.name);
  }
  if (chosen.planners.empty() || chosen.planners == names{"all"}) {
    chosen.planners.clear();
    for (auto const& each : planners())
      if (each.always || (each.name == "optimal_sparse" && chosen.run.selection != tools::selection_seconds{}))
        chosen.planners.push_back(each.name);
  }
  return chosen;
}

inline void print_help() {
  std::cout << "Simulates data-parallel training: which gradients travel together, and what that costs.\n\n"
               "usage: simulate [option value]...\n\n";
  for (auto const& each : option_table())
    std::cout << std::left << std::setw(28) << "  " + each.name + " " + each.value << each.help << '\n';
  std::cout << "\nplanners:\n";
  for (auto const& each : planners())
    std::cout << "  " << std::setw(16) << each.name << each.help << (each.always ? "" : " (not in all)") << '\n';
  std::cout << R"(
traces, a row a layer in ready order (the network's last layer first), times in seconds:
  .csv   a line of columns, in any order: bytes (of the gradient), backward (from the gradient before it to its own),
         and if they are there name, forward, dtype (layers of different numbers are not merged), else empty, 0, 0;
         element_bytes (4, or 2 for half precision), else 2 for dtypes 2 and 3, and where only 2 divides all bytes
  .json  {"name": "a", "layers": [{"name": "b", "bytes": 4, "backward": 1e-3, "forward": 5e-4, "dtype": 0,
         "element_bytes": 4}, ...]}, or the list alone; name, forward, dtype, element_bytes may be left out, and
         --write-trace writes it;
         or a profile of PyTorch (torch.profiler, export_chrome_trace) of one training step or several: medians, shapes
         from record_shapes=True, else --sizes; one forward time for all; on a GPU its times are those of launches
  --log  lines with [parameter, elements, backward us, us of its exchange, us of a merged one], from the input on

measured networks:
  .csv   a line of columns, in any order: bytes, seconds (of one exchange of gradients of so many bytes, by whichever
         exchange was measured), and workers; without that column --workers names one number; `inf` forbids a size
  else   what osu_allreduce prints (its average; --workers names one number), or nccl-tests (in place where that was
         measured; the workers are its ranks)
  Sizes rise; straight lines between them, the first time below, the last slope above. A time below that of a smaller
  size is noise: the running maximum is taken, and said.
)";
  std::cout << "\nnetworks:\n";
  for (auto const& each : tools::networks()) std::cout << "  " << std::setw(16) << each.name << each.source << '\n';
}

}  // namespace simulation
