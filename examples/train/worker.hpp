// One worker: forward and backward on its part of every batch, exchange, step.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "communicator.hpp"
#include "batches.hpp"
#include "data.hpp"
#include "mlp.hpp"
#include "optimiser.hpp"
#include "options.hpp"
#include "overlap.hpp"
#include "recipes.hpp"
#include "report.hpp"
#include "trace.hpp"

namespace example {

inline void average_over_ranks(communicator const& comm, std::span<double> values) {
  comm.all_reduce(gs::host{}, values, gs::reduction::sum);
  for (double& value : values) value /= comm.size();
}

/// Every rank applied the same updates to the same start: one differing bit means a broken exchange.
inline void verify_replicas(communicator const& comm, std::span<float const> parameters) {
  std::uint64_t hash = 0xCBF2'9CE4'8422'2325u;
  for (float const value : parameters) hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 0x0000'0100'0000'01B3u;
  auto all = std::vector<std::uint64_t>(static_cast<std::size_t>(comm.size()));
  comm.all_gather(gs::host{}, std::as_bytes(std::span{&hash, 1}), std::as_writable_bytes(std::span{all}));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw std::runtime_error("replicas differ after the last step: rank " + std::to_string(rank) +
                               " does not hold rank 0's parameters");
}

/// Fraction of the test set that is classified right; each rank judges its part.
[[nodiscard]] inline double accuracy(communicator const& comm, mlp& model, samples const& test) {
  auto const mine = share{static_cast<std::uint64_t>(test.count()), comm.rank(), comm.size()};
  constexpr std::uint64_t at_once = 512;  // bounds the memory of the activations
  double correct = 0;
  for (auto first = mine.first; first < mine.last; first += at_once) {
    auto const count = std::min(at_once, mine.last - first);
    auto const features = test.features.middleCols(static_cast<Eigen::Index>(first), static_cast<Eigen::Index>(count));
    correct += model.evaluate(features, std::span{test.labels}.subspan(first, count)).correct;
  }
  comm.all_reduce(gs::host{}, std::span{&correct, 1}, gs::reduction::sum);
  return correct / static_cast<double>(test.count());
}

/// Gathers a run's means: what ranks measured is averaged over them, step by step.
class tally {
 public:
  tally(named_recipe const& recipe, options const& chosen)
      : dense_{!recipe.policies},
        steps_{chosen.steps},
        settled_{std::min(chosen.warmup, chosen.steps - 1)},
        tail_{std::max(1, chosen.steps / 10)} {
    total_.recipe = recipe.name;
    total_.density = !recipe.policies ? 1.0 : chosen.density;
  }

  /// Collective. `exchange` and `whole` are this rank's seconds of this step. Returns the batch's mean loss.
  double add(communicator const& comm, double loss, gs::overlap_report const& step, double exchange, double whole) {
    auto const& report = step.exchanged;
    double const select = report.seconds.accumulate + report.seconds.partition + report.seconds.select;
    bool const settled = step_ >= settled_;
    auto const elements = static_cast<double>(report.passthrough_elements);
    std::array<double, 10> mean{loss,
                                static_cast<double>(report.bytes_sent),
                                static_cast<double>(report.bytes_received),
                                select,
                                exchange - select,
                                whole,
                                step.busy,
                                step.exposed,
                                dense_ ? elements : static_cast<double>(report.selected),
                                dense_ ? elements : static_cast<double>(report.union_size)};
    average_over_ranks(comm, mean);
    total_.workers = comm.size();
    total_.sent += mean[1] / steps_;
    total_.received += mean[2] / steps_;
    total_.select_ms += 1e3 * mean[3] / steps_;
    total_.exchange_ms += 1e3 * mean[4] / steps_;
    total_.step_ms += 1e3 * mean[5] / steps_;
    total_.dense_sent = static_cast<double>(report.baseline_bytes);
    if (step_ >= steps_ - tail_) total_.loss += mean[0] / tail_;
    total_.thresholds.add(report.thresholds);
    for (auto const& kind : report.message.kinds)
      if (kind.elements > 0 && kind.bin_length > 0) add_rate(kind);
    if (settled) {
      total_.build_up += (dense_ ? 1.0 : report.build_up()) / (steps_ - settled_);
      total_.entries_sent += mean[8] / (steps_ - settled_);
      total_.entries_updated += mean[9] / (steps_ - settled_);
    }
    bytes_ += mean[1];
    seconds_ += mean[5];
    step_seconds_.push_back(mean[5]);
    busy_.push_back(mean[6]);
    exposed_.push_back(mean[7]);
    total_.curve.push_back({mean[0], bytes_, seconds_});
    ++step_;
    return mean[0];
  }

  [[nodiscard]] result finish(double accuracy, forecast predicted) && {
    total_.accuracy = accuracy;
    total_.predicted = std::move(predicted);
    total_.median_step_ms = 1e3 * gs::median(step_seconds_);
    total_.busy_ms = 1e3 * gs::median(busy_);
    total_.exposed_ms = 1e3 * gs::median(exposed_);
    return std::move(total_);
  }

 private:
  /// Rates of this rank's messages. Their means are those of bytes: 1 over the mean of 1 over the rates.
  void add_rate(gs::layer_kind_bytes const& kind) {
    auto found = std::find_if(total_.rates.begin(), total_.rates.end(),
                              [&](auto const& each) { return each.bin_length == kind.bin_length; });
    if (found == total_.rates.end()) found = total_.rates.insert(found, {kind.bin_length, kind.rate(), 0, 0});
    double const share = 1 / kind.rate();
    found->mean = 1 / ((step_ == 0 ? 0 : step_ / found->mean) / (step_ + 1) + share / (step_ + 1));
    int const in_tail = step_ - (steps_ - tail_);
    if (in_tail >= 0)
      found->last = 1 / ((in_tail == 0 ? 0 : in_tail / found->last) / (in_tail + 1) + share / (in_tail + 1));
  }

  bool dense_;
  int steps_;
  int settled_;  ///< from this step on the density stands still
  int tail_;     ///< the steps that make the final loss
  int step_ = 0;
  double bytes_ = 0;
  double seconds_ = 0;
  std::vector<double> step_seconds_;
  std::vector<double> busy_;
  std::vector<double> exposed_;
  result total_;
};

/// Trains one recipe; collective. The same numbers on every rank.
/// @throws std::runtime_error if the ranks' parameters differ in a single bit at the end.
[[nodiscard]] inline result train(communicator const& comm, named_recipe const& recipe, options const& chosen,
                                  dataset const& data, progress& watch) {
  using clock = std::chrono::steady_clock;
  auto widths = chosen.hidden;
  widths.insert(widths.begin(), static_cast<int>(data.train.features.rows()));
  widths.push_back(data.classes);
  auto model = mlp{widths, chosen.seed, chosen.init_scale};
  bool const common_momentum = recipe.policies && chosen.optimiser == "adamw";  // of the parameters that are exchanged
  auto optimise = optimiser{chosen.optimiser, chosen.learning_rate,
                            recipe.carries_momentum() || common_momentum ? 0.0 : chosen.momentum, model.layers(),
                            chosen.decay};

  auto const size = static_cast<std::uint64_t>(chosen.batch);
  auto batch = batches{data.train, size, share{size, comm.rank(), comm.size()}, chosen.seed};
  // With P/batch times each rank's sum, the mean over ranks is the batch's mean, equal shares or not.
  double const scale = static_cast<double>(comm.size()) / chosen.batch;

  auto const exchange = make_handover(comm, recipe, chosen, model, batch, scale);

  auto pace = pacemaker{model.layers(), chosen.compute_ms};
  auto sums = tally{recipe, chosen};
  auto rows = tracer{comm,
                     recipe.name,
                     model.layers(),
                     chosen.density,
                     {!chosen.trace.empty(), !chosen.trace_layers.empty(),
                      chosen.accumulators.empty() ? 0 : chosen.accumulators_every},
                     exchange.residual,
                     recipe.memory_share()};
  for (int step = 0; step < chosen.steps; ++step) {
    auto start = clock::now();
    pace.begin();
    batch.load(static_cast<std::uint64_t>(step));
    auto const part = model.evaluate(batch.features(), batch.labels());
    pace.forward_is_done();
    exchange.begin(model.gradient());
    model.backward(batch.features(), batch.labels(), static_cast<float>(scale), [&](std::size_t layer) {
      pace.backward_reached(layer);
      exchange.ready(layer);
    });
    auto const computed = clock::now();
    rows.before(model.gradient());
    auto const exchange_start = clock::now();
    start += exchange_start - computed;  // watching is no part of a step
    auto report = exchange.finish();
    std::chrono::duration<double> exchanging = clock::now() - exchange_start;
    optimise.step(model.parameters(), model.gradient(),
                  exchange.factors ? exchange.factors() : std::span<float const>{});
    if (exchange.after_step) {
      auto const stepped = clock::now();
      auto const measured = report.exchanged.bytes_sent;
      report.exchanged = exchange.after_step(model.parameters());
      report.exchanged.bytes_sent += measured;
      report.exchanged.bytes_received += measured;
      exchanging += clock::now() - stepped;
    }
    std::chrono::duration<double> const whole = clock::now() - start;

    double const loss = sums.add(comm, scale * part.loss, report, exchanging.count(), whole.count());
    rows.after(model.gradient(), report.exchanged, loss);
    if (comm.rank() == 0) watch.step(recipe.name, comm.size(), step + 1, chosen.steps, loss);
  }
  if (exchange.common) std::ranges::copy(exchange.common(), model.parameters().begin());
  verify_replicas(comm, model.parameters());
  auto made = std::move(sums).finish(accuracy(comm, model, data.test), exchange.predicted());
  made.optimiser_bytes = optimise.state_bytes();
  made.rows = std::move(rows).take();
  return made;
}

}  // namespace example
