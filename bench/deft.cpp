// DEFT: which part of the selection is left to each rank? On the layers of ResNet-50.
#include "networks.hpp"
#include "rows.hpp"

namespace bench {
namespace {

/// A world whose ranks all hold the same gradient, and so the same residual: one array stands for all of theirs. They
/// select one after the other, each on the whole team, as compressor::exchange has each of them do.
template <class Selector>
class world {
 public:
  world(setting const& at, int ranks, Selector selector)
      : at_{at}, ranks_{ranks}, selector_{selector}, work_{gs::host{at.threads}, at.n}, residual_{zeros(team_, at.n)} {
    segments_.plan(gs::deft{}, resnet50_layers(at.n), at.n, at.density, ranks);
    auto const room = gs::selection_capacity(selector, static_cast<gs::index_type>(segments_.most()));
    work_.plan(segments_.all(), {}, room);
    indices_ = gs::host_buffer<gs::index_type>(room);
    values_ = gs::host_buffer<float>(room);
    candidate_thresholds_.assign(segments_.size(), 0);
    warm_thresholds_.assign(static_cast<std::size_t>(ranks), std::vector<gs::warm_threshold>(segments_.size()));
    start();
  }

  /// Seconds of a step's parts: sharing out (on every rank), and each rank's selection.
  struct times {
    double partition = 0;
    double slowest = 0;
    double mean = 0;
    std::uint64_t entries = 0;  // that all ranks give together
  };

  times step(std::span<float const> gradient) {
    times result;
    accumulate(team_, residual_.data(), gradient);
    for (std::size_t s = 0; s < segments_.size(); ++s) segments_.norms()[s] = work_.measure(view(s)).sum_squares;
    result.partition = seconds([&] { segments_.assign(gs::deft{}, at_.density, step_, ranks_); });
    std::size_t count = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      std::swap(segments_.warm_thresholds(), warm_thresholds_[static_cast<std::size_t>(rank)]);
      double const time = seconds([&] { count += select(rank, count); });
      std::swap(segments_.warm_thresholds(), warm_thresholds_[static_cast<std::size_t>(rank)]);
      result.slowest = std::max(result.slowest, time);
      result.mean += time / ranks_;
    }
    result.entries = count;
    for (auto const i : indices_.first(count)) residual_[i] = 0;
    for (auto const& each : segments_.all()) {
      if (!segments_.sent_in_full(each)) continue;
      result.entries += each.size;
      std::fill_n(residual_.data() + each.offset, each.size, 0.0f);
    }
    ++step_;
    return result;
  }

  /// As after a long time, when every rank has met every fragment: who has not yet takes another's warm threshold.
  void share_warm_thresholds() {
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      gs::warm_threshold known;
      for (auto const& each : warm_thresholds_) known = each[s].key != 0 ? each[s] : known;
      for (auto& each : warm_thresholds_) each[s] = each[s].key != 0 ? each[s] : known;
    }
  }

 private:
  /// Where error feedback ends up, as settle() has it: budgets k_i that go with norms sqrt(n_i) * sigma / density_i
  /// leave layer i a density that goes with n_i^(-1/3).
  void start() {
    gradient_source<float> triangle{"triangle", at_.n, at_.threads};
    auto const values = triangle.next();
    auto const layers = resnet50_layers(at_.n);
    double total = 0;
    for (auto const& each : layers) total += std::pow(static_cast<double>(each.size), 2.0 / 3);
    for (auto const& each : segments_.all()) {
      double const density = at_.k() / (total * std::cbrt(static_cast<double>(layers[each.layer].size)));
      double const walk = deviation(at_.law) / std::sqrt(std::min(1.0, density));
      for (auto i = each.offset; i < each.offset + each.size; ++i) residual_[i] = static_cast<float>(walk) * values[i];
    }
  }

  gs::accumulator_ref view(std::size_t s) noexcept { return segments_.view(residual_.span(), s, step_); }

  /// One rank's selection; returns how many entries it has written from `at` on.
  std::size_t select(int rank, std::size_t at) {
    for (std::size_t s = 0; s < segments_.size(); ++s)
      candidate_thresholds_[s] =
          segments_[s].owner == rank ? gs::predict_candidate_threshold(selector_, work_, view(s), segments_[s].k) : 0;
    work_.collect(residual_.span(), candidate_thresholds_);
    std::size_t count = 0;
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      if (segments_[s].owner != rank) continue;
      auto const room =
          std::min<std::size_t>(gs::selection_capacity(selector_, segments_[s].k), indices_.size() - at - count);
      count += std::min<std::size_t>(
          room, gs::select(selector_, work_, view(s), segments_[s].k,
                           {indices_.span().subspan(at + count, room), values_.span().subspan(at + count, room), {}}));
    }
    return count;
  }

  setting at_;
  int ranks_;
  Selector selector_;
  gs::detail::host_team team_{at_.threads};
  gs::host_workspace work_;
  gs::host_buffer<float> residual_;
  gs::detail::segmentation<gs::deft> segments_;
  std::vector<gs::key_type> candidate_thresholds_;
  std::vector<std::vector<gs::warm_threshold>> warm_thresholds_;  // of each rank
  gs::host_buffer<gs::index_type> indices_;
  gs::host_buffer<float> values_;
  std::uint64_t step_ = 0;
};

/// The row's time is the slowest rank's selection; a world of one runs in turn with this one.
template <class Selector>
void add_shares(std::string const& selector_name, Selector selector, int ranks, setting const& at) {
  add("deft/" + selector_name + "/ranks:" + std::to_string(ranks) + "/" + at.name(), [=](benchmark::State& state) {
    row<float> row{state, at};
    world one{at, 1, selector};
    world many{at, ranks, selector};
    for (int i = 0; i < 24; ++i) one.step(row.gradients.next());
    for (int i = 0; i < 24 + ranks; ++i) many.step(row.gradients.next());
    many.share_warm_thresholds();
    std::vector<double> alone, partition, mean;
    std::uint64_t entries = 0;
    auto const step = [&](std::span<float const> gradient) {
      alone.push_back(one.step(gradient).slowest);
      auto const times = many.step(gradient);
      partition.push_back(times.partition);
      mean.push_back(times.mean);
      entries = times.entries;
      return times.slowest;
    };
    row.measure(4 * at.n / static_cast<std::uint64_t>(ranks), step);
    double const slowest = state.counters["ns_per_element"] * 1e-9 * static_cast<double>(at.n);
    row.count("mean_ms", median(mean) * 1e3);
    row.count("partition_ms", median(partition) * 1e3);
    row.count("selected_per_k", static_cast<double>(entries) / at.k());
    row.count("max_over_mean", slowest / median(mean));
    row.count("share_of_one", slowest / median(alone));
    row.count("mean_share_of_one", median(mean) / median(alone));
  });
}

/// A whole step with deft on one rank: the statistics in the accumulate pass, and a selection from every fragment.
void add_deft_step(setting const& at) {
  add("step/radix_deft/" + at.name(), [=](benchmark::State& state) {
    gs::recipe const recipe{.density = at.density, .partitioner = gs::deft{}};
    gs::compressor reducer{gs::host{at.threads}, resnet50_layout(at.n), recipe};
    row<float> row{state, at};
    auto const step = [&](std::span<float const> gradient) {
      return seconds([&] { benchmark::DoNotOptimize(reducer.compress(gradient).indices.data()); });
    };
    settle(at, row.gradients, step);
    row.measure(12 * at.n, step);
  });
}

}  // namespace

void add_deft(options const& chosen) {
  auto at = usual(chosen, 0.001);
  at.n = std::min(at.n, resnet50_parameters);
  for (int ranks = 1; ranks <= 64; ranks *= 2) add_shares("radix", gs::radix{}, ranks, at);
  add_deft_step(at);
  if (!chosen.full) return;
  for (double const density : {0.001, 0.01}) {
    at.density = density;
    for (int ranks = 1; ranks <= 64; ranks *= 2)
      for_each_selector([&](std::string const& name, auto selector) { add_shares(name, selector, ranks, at); });
  }
}

}  // namespace bench
