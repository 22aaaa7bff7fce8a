// Random traces and costs for the tests of schedules, and oracles that are slow and obvious.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <gradsieve/plan.hpp>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/simulate/published_networks.hpp"
#include "data.hpp"

namespace schedules {

namespace gs = gradsieve;

double const not_a_number = std::numeric_limits<double>::quiet_NaN();
double const infinity = std::numeric_limits<double>::infinity();

inline bool near(double value, double expected) { return value == doctest::Approx(expected).epsilon(1e-12); }

inline gs::trace const small_trace{
    {"fc", 8, 0.5, 0.25, 0}, {"relu, \"a\"", 0, 0.25, 0.5, 0}, {"conv", 12, 1, 0.5, 1}};

/// One of the traces of examples/traces.
inline gs::trace shipped(std::string const& name) {
  std::ifstream file{std::string{GRADSIEVE_TRACES_DIR} + "/" + name + ".csv"};
  if (!file) throw std::runtime_error("no trace " + name);
  return gs::read_csv(file, name);
}

/// The gradients of a trace: its layers that have bytes.
struct gradient {
  double ready = 0;
  std::uint64_t bytes = 0;
  std::size_t layer = 0;
  std::uint32_t dtype = 0;
  double forward = 0;  // of all layers up to it
};
inline std::vector<gradient> gradients_of(gs::trace const& of) {
  std::vector<gradient> all;
  double ready = 0;
  double forward = 0;
  for (std::size_t l = 0; l < of.count(); ++l) {
    ready += of[l].backward;
    forward += of[l].forward;
    if (of[l].bytes > 0) all.push_back({ready, of[l].bytes, l, of[l].dtype, forward});
  }
  if (!all.empty()) all.back().forward = forward;
  return all;
}

/// Whether gradients from to before end may be one group.
inline bool allowed(std::vector<gradient> const& all, std::size_t from, std::size_t end,
                    gs::merge_constraints const& constraints) {
  std::uint64_t bytes = all[from].bytes;
  for (std::size_t i = from + 1; i < end; ++i) {
    bytes += all[i].bytes;
    if (!constraints.mix_dtypes && all[i].dtype != all[i - 1].dtype) return false;
    for (auto const b : constraints.barriers)
      if (b > all[i - 1].layer && b <= all[i].layer) return false;
  }
  return end == from + 1 || bytes <= constraints.most_bytes;
}

/// Calls visit(ends) for every way to cut n gradients into groups.
template <class Visit>
void for_every_cut(std::size_t n, Visit const& visit) {
  std::vector<std::size_t> ends;
  for (std::uint64_t borders = 0; borders < std::uint64_t{1} << (n - 1); ++borders) {
    ends.clear();
    for (std::size_t i = 1; i < n; ++i)
      if ((borders >> (i - 1) & 1) != 0) ends.push_back(i);
    ends.push_back(n);
    visit(ends);
  }
}

inline std::uint64_t bytes_of(std::vector<gradient> const& all, std::size_t begin, std::size_t end) {
  std::uint64_t sum = 0;
  for (; begin < end; ++begin) sum += all[begin].bytes;
  return sum;
}

/// When the exchange is through if each group is selected from first, on the stream that computes. `threshold`: where
/// groups end.
template <class Cost, class Selection>
double finish_of_sparse(std::vector<gradient> const& all, std::vector<std::size_t> const& cut, Cost const& cost,
                        Selection const& selection) {
  double selected = 0;
  double end = 0;
  std::size_t begin = 0;
  for (auto const each : cut) {
    auto const bytes = bytes_of(all, begin, each);
    selected += selection(bytes);
    end = std::max(end, all[each - 1].ready + selected) + cost(bytes);
    begin = each;
  }
  return end;
}

/// When the last of these groups is through, by the recurrence.
template <class Cost>
double finish(std::vector<gradient> const& all, std::vector<std::size_t> const& ends, Cost const& cost) {
  double end = 0;
  std::size_t begin = 0;
  for (auto const each : ends) {
    end = std::max(end, all[each - 1].ready) + cost(bytes_of(all, begin, each));
    begin = each;
  }
  return end;
}

/// The least finish of all allowed cuts.
template <class Cost>
double brute_force(gs::trace const& of, Cost const& cost, gs::merge_constraints const& constraints = {}) {
  auto const all = gradients_of(of);
  if (all.empty()) return 0;
  double least = std::numeric_limits<double>::infinity();
  for_every_cut(all.size(), [&](auto const& ends) {
    std::size_t begin = 0;
    for (auto const each : ends) {
      if (!allowed(all, begin, each, constraints)) return;
      begin = each;
    }
    least = std::min(least, finish(all, ends, cost));
  });
  return least;
}

/// Groups of a plan as ends of gradients; a trace without bytes has none.
inline std::vector<std::size_t> ends_of(gs::trace const& of, gs::plan const& made) {
  std::vector<std::size_t> ends;
  std::size_t gradients = 0;
  for (auto const& group : made.groups()) {
    for (std::size_t l = group.begin; l < group.end; ++l) gradients += of[l].bytes > 0;
    if (group.bytes > 0) ends.push_back(gradients);
  }
  return ends;
}

/// Up to `most` layers; some empty, some ready together. With `round` all numbers are small multiples of 1/8, so that
/// sums are exact and ties are many.
inline gs::trace random_trace(data::generator& random, std::size_t most, bool round, bool some_empty = true) {
  std::vector<gs::traced_layer> layers(random.below(most + 1), {"l", 0, 0, 0, 0});
  double const pace = std::vector{0.1, 1.0, 10.0}[random.below(3)];
  for (auto& each : layers) {
    each.bytes = random.below(20) == 0 && some_empty ? 0 : 1 + random.below(round ? 4 : 1000);
    if (random.below(5) > 0)
      each.backward = round ? static_cast<double>(random.below(24)) / 8 : pace * random.uniform();
    each.forward = round ? static_cast<double>(random.below(24)) / 8 : pace * random.uniform();
    each.dtype = random.below(12) == 0 ? 1 : 0;
  }
  return gs::trace{std::move(layers)};
}

inline gs::affine random_affine(data::generator& random, bool round) {
  if (round) return {static_cast<double>(random.below(32)) / 8, static_cast<double>(random.below(9)) / 8};
  std::vector<double> const scales{0, 1e-9, 0.1, 1, 10, 1e9};
  return {scales[random.below(6)] * random.uniform(), scales[random.below(5)] * random.uniform() / 500};
}

inline gs::merge_constraints random_constraints(data::generator& random, gs::trace const& of) {
  gs::merge_constraints made;
  if (random.below(3) == 0) made.most_bytes = 1 + random.below(of.bytes() + 1);
  while (random.below(3) == 0) made.barriers.push_back(random.below(of.count() + 1));
  made.mix_dtypes = random.below(2) == 0;
  return made;
}

}  // namespace schedules
