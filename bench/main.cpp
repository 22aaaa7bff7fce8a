// How near the library comes to the speed of memory, and to what others do. Every row times its job and, in turn with
// it, the floor: the bare loop residual[i] += gradient[i] over floats on arrays of the same size with the same threads;
// for 16-bit gradients their bytes at its speed.
// floor_ratio is median over median; the time of a row is a median too.
// command_line.cpp has the options.
#include <benchmark/benchmark.h>

#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "rows.hpp"

namespace {

/// The processor by name, where the system tells.
std::string processor() {
  std::ifstream file{"/proc/cpuinfo"};
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string compiler() {
#if defined(__clang__)
  return __VERSION__;
#else
  return "g++ " __VERSION__;
#endif
}

/// Facts that the figures depend on, for the head of the output.
void add_context(int argc, char** argv, bench::options const& chosen) {
  std::string command = argv[0];
  for (int i = 1; i < argc; ++i) command.append(" ").append(argv[i]);
  char const* const levels[] = {"portable", "NEON", "AVX2", "AVX-512"};
  benchmark::AddCustomContext("command", command);
  benchmark::AddCustomContext("cpu", processor());
  benchmark::AddCustomContext("compiler", compiler());
  benchmark::AddCustomContext("instructions", levels[static_cast<int>(bench::gs::host_kernels::best_simd())]);
  benchmark::AddCustomContext("threads", std::to_string(chosen.threads));
  benchmark::AddCustomContext("elements", std::to_string(chosen.n));
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<char*> others;
  auto const chosen = bench::parse_command_line(argc, argv, others);
  int count = static_cast<int>(others.size());
  benchmark::Initialize(&count, others.data(), [] {
    bench::print_usage();
    benchmark::PrintDefaultHelp();
  });
  if (benchmark::ReportUnrecognizedArguments(count, others.data())) return 2;
  if (chosen.is_grid()) {
    bench::add_grid(chosen);
  } else {
    bench::add_steps(chosen);
    bench::add_selects(chosen);
    bench::add_deft(chosen);
    bench::add_codecs(chosen);
    bench::add_memory(chosen);
    bench::add_schedule(chosen);
  }
  if (chosen.peers) bench::add_peers(chosen);
  if (chosen.peers) bench::add_torch(chosen);
  add_context(argc, argv, chosen);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
} catch (std::invalid_argument const& error) {
  std::cerr << "gradsieve_bench: " << error.what() << " (--help)\n";
  return 2;
}
