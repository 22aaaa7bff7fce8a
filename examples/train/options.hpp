// The command line: every option with its value, its limits and its help in one table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "../command_line.hpp"
#include "../recipes.hpp"
#include "optimiser.hpp"

#if !defined(GRADSIEVE_EXAMPLE_DATA)
#define GRADSIEVE_EXAMPLE_DATA "examples/data"
#endif

namespace example {

#if defined(GRADSIEVE_EXAMPLE_CUDA)
inline names const spaces{"host", "device"};
#else
inline names const spaces{"host"};
#endif
inline names const codec_names{"coo",  "packed", "raw32", "delta",   "elias_fano", "bitmap", "fp16",        "bf16",
                               "int8", "int4",   "int2",  "ternary", "sign",       "qsgd",   "fixed_width", "binned"};
inline names const sharing_names{"by_layer", "by_fragment"};  // as deft_sharing
inline names const schedules{"none", "single", "wfbp", "mgwfbp", "optimal"};
inline names const every_recipe{"dense",
                                "radix",
                                "hierarchical",
                                "laplacian",
                                "radix+layerwise",
                                "radix+deft",
                                "hierarchical+deft",
                                "laplacian+deft",
                                "radix+momentum",
                                "laplacian+deft+momentum",
                                "radix+cyclic",
                                "radix+micro",
                                "chunked",
                                "adacomp",
                                "trimmed",
                                "threshold_search",
                                "ldte",
                                "sidco",
                                "fixed_threshold"};

struct options {
  std::string data = GRADSIEVE_EXAMPLE_DATA;
  std::vector<int> hidden{256, 128};
  double density = 0.01;
  int warmup = 0;
  std::string selector = "radix";
  std::string partitioner = "whole";
  std::string residual = "error_feedback";
  std::string codec;  ///< empty: coo, and with adacomp binned, on a device elias_fano
  int bins = 0;       ///< 0: AdaComp's own
  names passthrough_layers;
  names compare;
  std::vector<int> workers{4};
  bool workers_given = false;
  std::string space = "host";
  int threads = 1;
  int steps = 500;
  int batch = 128;
  std::string overlap = "none";
  double measure_seconds = 10;
  bool shared_cores = false;
  double compute_ms = 0;
  int pause = 0;  ///< microseconds
  std::uint64_t seed = 1;
  std::string optimiser = "sgd";
  double learning_rate = -1;  ///< negative: the usual one of the optimiser
  double momentum = 0.9;
  double init_scale = 1;
  double decay = 0.01;
  double clip = 1;
  double beta = 0.5;
  double threshold = 0.01;
  double most = 1;
  std::string sharing = "by_layer";
  int rotate_every = 100;
  std::string csv;
  std::string curves;
  std::string trace;
  std::string trace_layers;
  std::string accumulators;
  int accumulators_every = 50;
  bool help = false;
  names given;  ///< the options that were written
};

struct option {
  std::string name;
  std::string value;  ///< what follows the name, for people; empty: nothing follows
  std::string help;
  std::function<void(options&, std::string const&)> set;
};

[[nodiscard]] inline std::vector<option> option_table() {
  using o = options&;
  using s = std::string const&;
  constexpr int many = 100'000'000;
  return {
      {"--data", "DIR", "digits.csv, or MNIST-style IDX files (also .gz) [the UCI digits]",
       [](o to, s v) { to.data = v; }},
      {"--hidden", "N,N", "widths of the hidden layers [256,128]",
       [](o to, s v) { to.hidden = numbers("--hidden", v, 1, 65536); }},
      {"--density", "X", "fraction of the gradient to send [0.01]",
       [](o to, s v) { to.density = number("--density", v, 0.0, 1.0); }},
      {"--warmup", "STEPS", "steps over which the density falls from 0.25 to --density [0]",
       [](o to, s v) { to.warmup = number("--warmup", v, 0, many); }},
      {"--selector", "NAME", joined(selector_names) + " [radix]",
       [](o to, s v) { to.selector = one_of("--selector", v, selector_names); }},
      {"--partitioner", "NAME", joined(partitioner_names) + " [whole]",
       [](o to, s v) { to.partitioner = one_of("--partitioner", v, partitioner_names); }},
      {"--residual", "NAME", joined(residual_names) + " [error_feedback]",
       [](o to, s v) { to.residual = one_of("--residual", v, residual_names); }},
      {"--codec", "NAME", joined(codec_names) + " [coo; with adacomp binned, on a device elias_fano]",
       [](o to, s v) { to.codec = one_of("--codec", v, codec_names); }},
      {"--bins", "N", "elements of adacomp's bins in every layer [50 in convolutions, else 500]",
       [](o to, s v) { to.bins = number("--bins", v, 1, 16383); }},
      {"--passthrough-layers", "PATTERNS", "layers that are sent in full, such as '*.bias,fc3.*' [none]",
       [](o to, s v) { to.passthrough_layers = split(v, ','); }},
      {"--compare", "NAMES", "recipes to train, by comma, or all [dense and the three names above]",
       [](o to, s v) { to.compare = v == "all" ? every_recipe : split(v, ','); }},
      {"--workers", "P,P", "worker threads; a list adds the build-up table; mpirun's size wins [4]",
       [](o to, s v) { to.workers = numbers("--workers", v, 1, 1024), to.workers_given = true; }},
      {"--space", "NAME", "where gradients are compressed: host, or device in a build with CUDA [host]",
       [](o to, s v) { to.space = one_of("--space", v, spaces); }},
      {"--overlap", "NAME", "exchange during the backward pass, in groups by: " + joined(schedules) + " [none]",
       [](o to, s v) { to.overlap = one_of("--overlap", v, schedules); }},
      {"--measure-seconds", "X", "with --overlap: seconds to measure what exchanges take [10]",
       [](o to, s v) { to.measure_seconds = number("--measure-seconds", v, 0.0, 3600.0); }},
      {"--shared-cores", "", "with --overlap: no core is free beside the backward pass; selecting stops it",
       [](o to, s) { to.shared_cores = true; }},
      {"--compute-ms", "X", "forward and backward pass take at least so long, as if a device computed [0]",
       [](o to, s v) { to.compute_ms = number("--compute-ms", v, 0.0, 1e6); }},
      {"--pause", "US", "under mpirun: a rank that waits sleeps so long at a time [0: it spins]",
       [](o to, s v) { to.pause = number("--pause", v, 0, 1'000'000); }},
      {"--threads-per-worker", "N", "threads of each worker's compressor [1]",
       [](o to, s v) { to.threads = number("--threads-per-worker", v, 1, 1024); }},
      {"--steps", "N", "optimiser steps [500]", [](o to, s v) { to.steps = number("--steps", v, 1, many); }},
      {"--batch", "N", "samples per step, all workers together [128]",
       [](o to, s v) { to.batch = number("--batch", v, 1, many); }},
      {"--seed", "N", "of the weights and the order of the samples [1]",
       [](o to, s v) { to.seed = number<std::uint64_t>("--seed", v, 0, UINT64_MAX); }},
      {"--optimiser", "NAME", joined(optimiser_names) + " [sgd]",
       [](o to, s v) { to.optimiser = one_of("--optimiser", v, optimiser_names); }},
      {"--learning-rate", "X", "[sgd 0.03, adam and adamw 0.001, novograd 0.01]",
       [](o to, s v) { to.learning_rate = number("--learning-rate", v, 1e-12, 1000.0); }},
      {"--momentum", "X", "of adamw below a density of 6 % less, see parameter_options::of_beta() [0.9]",
       [](o to, s v) { to.momentum = number("--momentum", v, 0.0, 1.0); }},
      {"--init-scale", "X", "of the first weights, over He's deviation [1]",
       [](o to, s v) { to.init_scale = number("--init-scale", v, 1e-12, 1e12); }},
      {"--decay", "X", "of adamw: of weights, not biases [0.01]",
       [](o to, s v) { to.decay = number("--decay", v, 0.0, 1000.0); }},
      {"--clip", "X", "of adamw: the norm that the mean gradient is clipped to [1]",
       [](o to, s v) { to.clip = number("--clip", v, 1e-12, 1e30); }},
      {"--beta", "X", "of the residual filtered [0.5]", [](o to, s v) { to.beta = number("--beta", v, 0.0, 1.0); }},
      {"--threshold", "X", "magnitude that fixed_threshold's entries reach [0.01]",
       [](o to, s v) { to.threshold = number("--threshold", v, 1e-30, 1e30); }},
      {"--most", "X", "entries that fixed_threshold sends at most, over k [1]",
       [](o to, s v) { to.most = number("--most", v, 1.0, 1e6); }},
      {"--sharing", "NAME", "how deft shares out k: " + joined(sharing_names) + " [by_layer]",
       [](o to, s v) { to.sharing = one_of("--sharing", v, sharing_names); }},
      {"--rotate-every", "STEPS", "for which a rank of deft selects from the same fragments [100]",
       [](o to, s v) { to.rotate_every = number("--rotate-every", v, 1, many); }},
      {"--csv", "FILE", "writes one row a recipe", [](o to, s v) { to.csv = v; }},
      {"--curves", "FILE", "writes one row a recipe and step, for plot.py", [](o to, s v) { to.curves = v; }},
      {"--trace", "FILE", "writes one row a recipe and step: density asked and real, residual, seconds of each part",
       [](o to, s v) { to.trace = v; }},
      {"--trace-layers", "FILE", "writes one row a recipe, step and layer: entries sent by rank 0 and updated",
       [](o to, s v) { to.trace_layers = v; }},
      {"--accumulators", "FILE",
       "writes moments, histogram and distances of rank 0's accumulators, and ranks' likeness",
       [](o to, s v) { to.accumulators = v; }},
      {"--accumulators-every", "STEPS", "[50]",
       [](o to, s v) { to.accumulators_every = number("--accumulators-every", v, 1, many); }},
      {"--help", "", "prints this", [](o to, s) { to.help = true; }},
  };
}

/// @throws usage_error naming the option or the value, and the choices.
[[nodiscard]] inline options parse(std::vector<std::string> const& arguments) {
  auto const table = option_table();
  options chosen;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto const equals = arguments[i].find('=');  // --name=value and --name value mean the same
    auto const name = arguments[i].substr(0, equals);
    names known;
    option const* found = nullptr;
    for (auto const& each : table) {
      known.push_back(each.name);
      if (each.name == name) found = &each;
    }
    if (!found) throw usage_error("unknown option '" + name + "': choose one of " + joined(known));
    bool const attached = equals != std::string::npos;
    if (found->value.empty() && attached) throw usage_error(name + " takes no value");
    if (!found->value.empty() && !attached && i + 1 == arguments.size())
      throw usage_error(name + " needs a value: " + found->value + ", " + found->help);
    chosen.given.push_back(name);
    if (found->value.empty()) {
      found->set(chosen, "");
    } else {
      found->set(chosen, attached ? arguments[i].substr(equals + 1) : arguments[++i]);
    }
  }
  return chosen;
}

}  // namespace example
