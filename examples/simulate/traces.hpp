// Traces from files: CSV, JSON, and logs of MG-WFBP's authors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/schedule.hpp>

#include "json.hpp"
#include "options.hpp"
#include "profile.hpp"

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

/// Layers of the library's JSON, with or without the object around them.
inline gs::trace from_layers(std::vector<json> const& items, std::string const& name) {
  std::vector<gs::traced_layer> layers;
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
                      static_cast<std::uint32_t>(whole("dtype", false, 0x1p32))});
  }
  return gs::trace{std::move(layers), name};
}

inline gs::trace from_json(std::istream& in, std::string const& name, std::vector<std::uint64_t> const& sizes) {
  auto const text = std::string{std::istreambuf_iterator<char>{in}, {}};
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
  if (is_list(layers)) return from_layers(layers->items, called && !called->text.empty() ? called->text : name);
  if (listed && begins_with("bytes")) return from_layers(whole.items, name);
  throw std::runtime_error("'" + name +
                           "' is JSON, and no trace: neither 'layers' nor 'traceEvents' nor a list of them");
}

/// Measured times as CSV.
inline priced_network read_network(std::string const& path) {
  auto file = opened(path);
  auto const name = std::filesystem::path{path}.stem().string();
  auto const fail = [&](std::size_t line, std::string const& why) {
    throw std::runtime_error("line " + std::to_string(line) + " of '" + path + "' " + why);
  };
  std::vector<std::string> columns;
  std::vector<std::string> fields;
  std::size_t line = 1;
  gs::schedule_detail::read_csv_record(file, line, columns);
  auto const place = [&](char const* wanted) {
    return static_cast<std::size_t>(std::find(columns.begin(), columns.end(), wanted) - columns.begin());
  };
  std::size_t const bytes = place("bytes"), seconds = place("seconds"), workers = place("workers");
  if (bytes == columns.size() || seconds == columns.size() || columns.size() != (workers < columns.size() ? 3U : 2U))
    fail(1, "names the columns '" + example::joined(columns, ",").substr(0, 60) +
                "', expected bytes, seconds and perhaps workers");
  priced_network made{name, {}, {}};
  for (std::size_t begin = line; gs::schedule_detail::read_csv_record(file, line, fields); begin = line) {
    if (fields.size() == 1 && fields[0].empty()) continue;
    gs::table::point each;
    int of = 0;
    if (fields.size() != columns.size() || !gs::schedule_detail::parse_number(fields[bytes], each.bytes) ||
        !gs::schedule_detail::parse_number(fields[seconds], each.seconds) ||
        (workers < columns.size() && (!gs::schedule_detail::parse_number(fields[workers], of) || of < 1)))
      fail(begin, "is not '" + example::joined(columns, ",") + "'");
    made.measured[of].points.push_back(each);
  }
  if (made.measured.empty()) fail(1, "is followed by no row");
  for (auto const& [of, all] : made.measured) all.check();
  return made;
}

inline std::vector<priced_network> load_networks(settings const& chosen) {
  std::vector<priced_network> all;
  for (auto const& each : chosen.networks) {
    if (std::filesystem::path{each}.extension() != ".csv") {
      all.push_back({each, gs::network_named(each), {}});
      continue;
    }
    if (chosen.exchange_given)
      throw usage_error("--exchange '" + chosen.exchange + "': the times of '" + each +
                        "' are those of its own exchange");
    all.push_back(read_network(each));
    auto const& measured = all.back().measured;
    if (measured.contains(0) && chosen.workers.size() != 1)
      throw usage_error("--network '" + each + "': has no column workers, so that --workers names one number");
    for (int const workers : chosen.workers)
      if (workers > 1 && !measured.contains(0) && !measured.contains(workers))
        throw usage_error("--network '" + each + "': has no times of " + std::to_string(workers) + " workers");
  }
  return all;
}

inline gs::trace load(std::string const& text, std::vector<std::uint64_t> const& sizes) {
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
  return path.extension() == ".json" ? from_json(file, name, sizes) : gs::read_csv(file, name);
}

inline std::vector<gs::trace> load_all(settings const& chosen) {
  std::vector<gs::trace> traces;
  for (auto const& each : chosen.traces) {
    if (each != "all") {
      traces.push_back(load(each, chosen.sizes));
      continue;
    }
    std::vector<std::filesystem::path> paths;
    for (auto const& file : std::filesystem::directory_iterator{GRADSIEVE_EXAMPLE_TRACES})
      if (file.path().extension() == ".csv") paths.push_back(file.path());
    std::sort(paths.begin(), paths.end());
    for (auto const& path : paths) traces.push_back(load(path.stem().string(), chosen.sizes));
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
