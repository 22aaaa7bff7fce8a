// How near the library comes to the speed of memory, and to what others do. Every row times its job and, in turn with
// it, the floor: the bare loop residual[i] += gradient[i] on arrays of the same size with the same threads.
// floor_ratio is median over median; the time of a row is a median too.
//
//   gradsieve_bench [--full] [--peers] [--n=N] [--threads=N] [--seconds=S] [Google Benchmark's options]
//
//   --full      sweeps n from 2^12 to 2^27, all densities, selectors, laws, formats, and one thread: about 40 minutes
//   --peers     the same job in other ways: std::nth_element, a sort, libtorch, the published selectors
//   --n=N       elements where a sweep does not vary them [2^25]
//   --seconds=S that a row is measured for [1]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
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
  char const* const levels[] = {"portable", "AVX2", "AVX-512"};
  benchmark::AddCustomContext("command", command);
  benchmark::AddCustomContext("cpu", processor());
  benchmark::AddCustomContext("compiler", compiler());
  benchmark::AddCustomContext("instructions", levels[static_cast<int>(bench::gs::host_kernels::best_simd())]);
  benchmark::AddCustomContext("threads", std::to_string(chosen.threads));
  benchmark::AddCustomContext("elements", std::to_string(chosen.n));
}

}  // namespace

int main(int argc, char** argv) {
  bench::options chosen;
  chosen.threads = bench::gs::host_team{0}.size();
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    std::string const argument = argv[i];
    char const* const value = argv[i] + std::min(argument.size(), argument.find('=') + 1);
    if (argument == "--full")
      chosen.full = true;
    else if (argument == "--peers")
      chosen.peers = true;
    else if (argument.starts_with("--n="))
      chosen.n = std::strtoull(value, nullptr, 10);
    else if (argument.starts_with("--threads="))
      chosen.threads = bench::gs::host_team{std::atoi(value)}.size();
    else if (argument.starts_with("--seconds="))
      chosen.seconds = std::atof(value);
    else
      rest.push_back(argv[i]);
  }
  if (chosen.n == 0 || chosen.n >= std::uint64_t{1} << 30) {
    std::cerr << "gradsieve_bench: --n must be from 1 to 2^30 - 1\n";
    return 1;
  }
  bench::add_steps(chosen);
  bench::add_selects(chosen);
  bench::add_deft(chosen);
  bench::add_codecs(chosen);
  bench::add_memory(chosen);
  bench::add_schedule(chosen);
  if (chosen.peers) bench::add_peers(chosen);
  if (chosen.peers) bench::add_torch(chosen);
  add_context(argc, argv, chosen);
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
