// Traces from files: CSV, JSON, and logs of MG-WFBP's authors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/schedule.hpp>
#if defined(GRADSIEVE_EXAMPLE_JSON)
#include <nlohmann/json.hpp>
#endif

#include "options.hpp"

#if !defined(GRADSIEVE_EXAMPLE_TRACES)
#define GRADSIEVE_EXAMPLE_TRACES "examples/traces"
#endif

namespace simulation {

inline std::ifstream opened(std::filesystem::path const& path) {
  std::ifstream file{path, std::ios::binary};
  if (!file) throw std::runtime_error("cannot read '" + path.string() + "'");
  return file;
}

inline std::ofstream created(std::string const& path) {
  std::ofstream file{path, std::ios::binary};
  if (!file) throw std::runtime_error("cannot write '" + path + "'");
  return file;
}

inline gs::trace from_json([[maybe_unused]] std::istream& in, [[maybe_unused]] std::string const& name) {
#if defined(GRADSIEVE_EXAMPLE_JSON)
  try {
    auto const json = nlohmann::json::parse(in);
    std::vector<gs::traced_layer> layers;
    for (auto const& each : json.at("layers"))
      layers.push_back({each.value("name", ""), each.at("bytes").get<std::uint64_t>(),
                        each.at("backward").get<double>(), each.value("forward", 0.0),
                        each.value("dtype", std::uint32_t{0})});
    return gs::trace{std::move(layers), json.value("name", name)};
  } catch (nlohmann::json::exception const& problem) {
    throw std::runtime_error("'" + name + "' is no trace: " + problem.what());
  }
#else
  throw usage_error("--trace " + name + ": this program was built without nlohmann/json.hpp and reads CSV only");
#endif
}

inline gs::trace load(std::string const& text) {
  namespace fs = std::filesystem;
  auto const shipped = fs::path{GRADSIEVE_EXAMPLE_TRACES} / (text + ".csv");
  fs::path const path = fs::exists(shipped) ? shipped : fs::path{text};
  if (!fs::exists(path)) {
    names known;
    for (auto const& each : fs::directory_iterator{GRADSIEVE_EXAMPLE_TRACES})
      if (each.path().extension() == ".csv") known.push_back(each.path().stem().string());
    std::sort(known.begin(), known.end());
    throw usage_error("--trace '" + text + "': choose a file, all, or one of " + joined(known));
  }
  auto file = opened(path);
  auto const name = path.stem().string();
  return path.extension() == ".json" ? from_json(file, name) : gs::read_csv(file, name);
}

inline std::vector<gs::trace> load_all(settings const& chosen) {
  std::vector<gs::trace> traces;
  for (auto const& each : chosen.traces) {
    if (each != "all") {
      traces.push_back(load(each));
      continue;
    }
    std::vector<std::filesystem::path> paths;
    for (auto const& file : std::filesystem::directory_iterator{GRADSIEVE_EXAMPLE_TRACES})
      if (file.path().extension() == ".csv") paths.push_back(file.path());
    std::sort(paths.begin(), paths.end());
    for (auto const& path : paths) traces.push_back(load(path.stem().string()));
  }
  for (auto const& each : chosen.logs) {
    auto file = opened(each);
    traces.push_back(gs::read_mgwfbp_log(file, std::filesystem::path{each}.stem().string()));
  }
  if (chosen.bytes == 4) return traces;
  for (auto& of : traces) {
    auto layers = of.layers();
    for (auto& each : layers)
      each.bytes = static_cast<std::uint64_t>(static_cast<double>(each.bytes) * chosen.bytes / 4);
    of = gs::trace{std::move(layers), of.name()};
  }
  return traces;
}

}  // namespace simulation
