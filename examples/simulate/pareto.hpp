// Optimal plans where the state after a prefix of the gradients is a pair of times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <gradsieve/plan/planners/arrivals.hpp>

namespace tools {

using namespace gradsieve;

namespace parts {

using gradsieve::detail::never, gradsieve::detail::refuse_infinite, gradsieve::detail::seconds_of;

/// Two times of a plan for a prefix; smaller is better for both.
struct two_times {
  double first = 0;
  double second = 0;
};

/// The best groups by labels: extend(times, i, j, seconds) returns the times after one more group [i, j) of that cost,
/// and must not decrease either; value(times) of all gradients is minimised. Groups of infinite cost are left out. A
/// label of a prefix is dropped if another one is better in both times. If there are more than `most_labels`, they are
/// thinned out evenly; the plan is then approximate and has no certificate. O(L^2) extensions of each label.
/// @throws invalid_argument if every plan has a group of infinite cost, or if a cost is negative.
template <cost_model Cost, class Extend, class Value>
[[nodiscard]] grouping pareto_grouping(arrivals const& in, Cost const& cost, std::size_t most_labels,
                                       Extend const& extend, Value const& value) {
  struct label {
    two_times times;
    std::size_t from = 0;   // the prefix before its last group
    std::size_t which = 0;  // and the label of that prefix
  };
  std::size_t const count = in.count();
  std::vector<std::vector<label>> labels(count + 1);
  labels[0].push_back({});
  bool thinned = false;
  std::vector<label> found;
  for (std::size_t j = 1; j <= count; ++j) {
    found.clear();
    for (std::size_t i = in.first_with(j); i < j; ++i) {
      double const seconds = seconds_of(cost, in.bytes(i, j));
      if (!(seconds < never)) continue;
      for (std::size_t l = 0; l < labels[i].size(); ++l) {
        two_times const times = extend(labels[i][l].times, i, j, seconds);
        if (times.first < never && times.second < never) found.push_back({times, i, l});
      }
    }
    std::sort(found.begin(), found.end(), [](label const& x, label const& y) {
      return std::tie(x.times.first, x.times.second, x.from, x.which) <
             std::tie(y.times.first, y.times.second, y.from, y.which);
    });
    auto& kept = labels[j];
    double least = never;
    for (auto const& each : found) {
      if (each.times.second >= least) continue;
      least = each.times.second;
      kept.push_back(each);
    }
    if (kept.size() > most_labels && most_labels > 1) {
      thinned = true;
      std::size_t const last = kept.size() - 1;
      for (std::size_t k = 0; k < most_labels; ++k) kept[k] = kept[k * last / (most_labels - 1)];
      kept.resize(most_labels);
    }
  }
  if (count == 0) return {{}, 0.0, {}};
  if (labels[count].empty()) {
    std::size_t planned = count;
    while (labels[planned].empty()) --planned;
    refuse_infinite(in, planned);
  }
  auto const& all = labels[count];
  auto const best = std::min_element(all.begin(), all.end(),
                                     [&](label const& x, label const& y) { return value(x.times) < value(y.times); });
  std::vector<std::size_t> ends;
  std::size_t j = count;
  label at = *best;
  while (j > 0) {
    ends.push_back(j);
    j = at.from;
    at = labels[j][at.which];
  }
  std::reverse(ends.begin(), ends.end());
  return {std::move(ends), thinned ? std::nullopt : std::optional{0.0}, {}};
}

}  // namespace parts

}  // namespace tools
