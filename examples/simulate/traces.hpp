// Traces from files: CSV, JSON, and logs of MG-WFBP's authors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <gradsieve/plan.hpp>

#include "../text_file.hpp"
#include "json.hpp"
#include "networks.hpp"
#include "options.hpp"
#include "profile.hpp"

#if !defined(GRADSIEVE_EXAMPLE_TRACES)
#define GRADSIEVE_EXAMPLE_TRACES "examples/traces"
#endif

namespace simulation {

inline std::ofstream created(std::string const& path) {
  std::ofstream file{path, std::ios::binary};
  file.imbue(std::locale::classic());
  if (!file) throw std::runtime_error("cannot write '" + path + "'");
  return file;
}

/// The end of a file that created() has opened. @throws std::runtime_error if not all of it could be written
inline void finish(std::ofstream& file, std::string const& path) {
  if (!file.flush()) throw std::runtime_error("cannot write '" + path + "'");
}

/// Paths of the traces of this example; none where its folder is not.
inline std::vector<std::filesystem::path> shipped_traces() {
  std::vector<std::filesystem::path> paths;
  std::error_code problem;
  for (auto const& each : std::filesystem::directory_iterator{GRADSIEVE_EXAMPLE_TRACES, problem})
    if (each.path().extension() == ".csv") paths.push_back(each.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Layers of the library's JSON, with or without the object around them.
inline gs::trace from_layers(std::vector<json> const& items, std::string const& name) {
  std::vector<gs::traced_layer> layers;
  bool said = false;  // how many bytes an element has
  for (auto const& each : items) {
    auto const fail = [&](std::string const& why) {
      throw std::runtime_error("'" + name + "' is no trace: layer " + std::to_string(layers.size() + 1) + " " + why);
    };
    auto const number = [&](char const* key, bool needed) {
      auto const* const found = each.find(key);
      if (found ? found->is != json::type::number : needed)
        fail(std::string{found ? "has no number as '" : "has no '"} + key + "'");
      return found ? found->value : 0;
    };
    auto const whole = [&](char const* key, bool needed, double limit) {
      double const value = number(key, needed);
      if (!(value >= 0 && value < limit && value == std::floor(value)))
        fail(std::string{"needs a whole number, not negative, as '"} + key + "'");
      return value;
    };
    auto const* const called = each.find("name");
    layers.push_back({called ? called->text : "", static_cast<std::uint64_t>(whole("bytes", true, 0x1p53)),
                      number("backward", true), number("forward", false),
                      static_cast<std::uint32_t>(whole("dtype", false, 0x1p32)),
                      static_cast<std::uint32_t>(whole("element_bytes", false, 17))});
    said = said || each.find("element_bytes") != nullptr;
  }
  if (said && std::any_of(layers.begin(), layers.end(), [](auto const& each) { return each.element_bytes == 0; }))
    throw std::runtime_error("'" + name +
                             "' is no trace: some of its layers have 'element_bytes', and others none or 0");
  if (!said) gs::detail::guess_element_bytes(layers);
  return gs::trace{std::move(layers), name};
}

inline gs::trace from_json(std::string const& text, std::string const& name, std::vector<std::uint64_t> const& sizes) {
  json whole;
  try {
    whole = json_reader::read(text);
  } catch (std::runtime_error const& problem) {
    throw std::runtime_error("'" + name + "' is " + problem.what());
  }
  auto const* const layers = whole.find("layers");
  auto const* const events = whole.find("traceEvents");
  auto const* const called = whole.find("name");
  auto const is_list = [](json const* it) { return it && it->is == json::type::list; };
  auto const begins_with = [&](char const* key) { return !whole.items.empty() && whole.items[0].find(key); };
  bool const listed = is_list(&whole);
  if (is_list(events)) return from_profile(events->items, name, sizes);
  if (listed && begins_with("ph")) return from_profile(whole.items, name, sizes);
  if (!sizes.empty()) throw usage_error("--sizes: goes with a profile of PyTorch; '" + name + "' is none");
  if (is_list(layers)) return from_layers(layers->items, called && !called->text.empty() ? called->text : name);
  if (listed && begins_with("bytes")) return from_layers(whole.items, name);
  throw std::runtime_error("'" + name +
                           "' is JSON, and no trace: neither 'layers' nor 'traceEvents' nor a list of them");
}

inline gs::trace load(std::string const& text, std::vector<std::uint64_t> const& sizes) {
  namespace fs = std::filesystem;
  auto const shipped = fs::path{GRADSIEVE_EXAMPLE_TRACES} / (text + ".csv");
  fs::path const path = fs::exists(shipped) ? shipped : fs::path{text};
  if (!fs::exists(path)) {
    names known;
    for (auto const& each : shipped_traces()) known.push_back(each.stem().string());
    if (known.empty()) throw usage_error("--trace '" + text + "': no such file, and no folder " GRADSIEVE_EXAMPLE_TRACES);
    throw usage_error("--trace '" + text + "': choose a file, all, or one of " + joined(known));
  }
  auto const content = example::read_text(path);
  auto const name = path.stem().string();
  if (path.extension() == ".json" || example::begins_as_json(content)) return from_json(content, name, sizes);
  if (!sizes.empty())
    throw usage_error("--sizes: goes with a profile of PyTorch; '" + text + "' has the sizes of its gradients");
  std::istringstream file{content};
  return gs::read_csv(file, name);
}

inline std::vector<gs::trace> load_all(settings const& chosen) {
  std::vector<gs::trace> traces;
  for (auto const& each : chosen.traces) {
    if (each != "all") {
      traces.push_back(load(each, chosen.sizes));
      continue;
    }
    auto const paths = shipped_traces();
    if (paths.empty()) throw usage_error("--trace all: there is no folder " GRADSIEVE_EXAMPLE_TRACES);
    for (auto const& path : paths) traces.push_back(load(path.stem().string(), chosen.sizes));
  }
  if (!chosen.logs.empty() && !chosen.sizes.empty()) throw usage_error("--sizes: goes with a profile, not with --log");
  for (auto const& each : chosen.logs) {
    std::istringstream file{example::read_text(each)};
    traces.push_back(gs::read_mgwfbp_log(file, std::filesystem::path{each}.stem().string()));
  }
  // Compressed exchanges send entries of binary32 gradients, whatever the model's own format is.
  bool const sparse = chosen.exchange != "dense";
  if (sparse || chosen.bytes_given)
    for (auto& of : traces) {
      auto layers = of.layers();
      for (auto& each : layers) {
        auto const elements = static_cast<double>(each.bytes) / each.element_bytes;
        each.bytes = static_cast<std::uint64_t>(elements * (sparse ? 4 : chosen.bytes));
      }
      of = gs::trace{std::move(layers), of.name()};
    }
  return traces;
}

}  // namespace simulation
