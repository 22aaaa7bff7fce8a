// Gradients handed over while the backward pass runs: times the layers, measures the link, plans, and says how long an
// iteration will be.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/compressor.hpp>
#include <gradsieve/overlap.hpp>
#include <gradsieve/parameters.hpp>
#include <gradsieve/plan.hpp>

#include "../simulate/optimal_sparse.hpp"
#include "../simulate/simulate.hpp"
#include "batches.hpp"
#include "communicator.hpp"
#include "mlp.hpp"
#include "optimiser.hpp"
#include "options.hpp"
#include "recipes.hpp"
#include "report.hpp"

namespace example {

/// What a training loop does with its gradients: begin(gradient), ready(layer) as they are there, finish().
struct handover {
  std::function<void(std::span<float>)> begin;
  std::function<void(std::size_t)> ready;
  std::function<gs::overlap_report()> finish;
  std::function<forecast()> predicted;
  std::function<std::span<float const>()> residual = {};  ///< what has not been sent; without overlap
  std::function<std::span<float const>()> factors = {};   ///< of second moments, with parameters of each rank's own
  std::function<gs::step_report(std::span<float>)> after_step = {};  ///< exchanges these, once they were stepped
  std::function<std::span<float const>()> common = {};               ///< what they have in common
};

/// Everything after the backward pass.
[[nodiscard]] inline handover without_overlap(exchanger const& exchange) {
  auto const gradient = std::make_shared<std::span<float>>();
  return {.begin = [gradient](std::span<float> values) { *gradient = values; },
          .ready = [](std::size_t) {},
          .finish =
              [gradient, exchange] {
                gs::overlap_report report;
                report.exchanged = exchange(*gradient);
                return report;
              },
          .predicted = [] { return forecast{}; },
          .residual = exchange.residual};
}

/// Makes computing take at least so long: a third is the forward pass, the rest the backward pass, layer by layer. What
/// is left is slept, so that cores are as free for the exchange as beside a device.
class pacemaker {
 public:
  pacemaker(gs::layout const& layers, double milliseconds) : layers_{layers}, seconds_{1e-3 * milliseconds} {}

  void begin() { start_ = clock::now(); }
  void forward_is_done() const { until(1.0 / 3); }
  /// Layers from `layer` on have their gradients.
  void backward_reached(std::size_t layer) const {
    auto const left = static_cast<double>(layers_.offset(layer)) / static_cast<double>(layers_.size());
    until(1 - 2.0 / 3 * left);
  }

 private:
  using clock = std::chrono::steady_clock;
  void until(double share) const {
    if (seconds_ > 0)
      std::this_thread::sleep_until(
          start_ + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(share * seconds_)));
  }

  gs::layout layers_;
  double seconds_;
  clock::time_point start_;
};

/// A step without its exchange.
struct compute_profile {
  gs::trace layers;
  double rest = 0;  ///< seconds of a step that are neither forward nor backward pass
};

/// Times some steps on copies, all ranks at once: of each moment the median over the steps, then the latest of all
/// ranks. Collective.
[[nodiscard]] inline compute_profile time_layers(communicator const& comm, mlp model, batches batch, pacemaker pace,
                                                 float scale) {
  using clock = std::chrono::steady_clock;
  auto const layers = model.layers();
  auto const count = layers.count();
  auto update = optimiser{"sgd", 0.0, 0.0, model.layers()};
  constexpr std::uint64_t warm = 3;
  constexpr std::uint64_t steps = 12;
  std::vector<std::vector<double>> moments(count + 2);  // the layers in ready order; the forward pass; the rest
  for (std::uint64_t step = 0; step < warm + steps; ++step) {
    double together = 0;
    comm.all_reduce(gs::host{}, std::span{&together, 1}, gs::reduction::max);
    auto last = clock::now();
    auto const since = [&last] { return std::chrono::duration<double>(clock::now() - last).count(); };
    auto const note = [&](std::size_t moment, double seconds) {
      if (step >= warm) moments[moment].push_back(seconds);
    };
    pace.begin();
    batch.load(step);
    model.evaluate(batch.features(), batch.labels());
    pace.forward_is_done();
    note(count, since());
    last = clock::now();
    model.backward(batch.features(), batch.labels(), scale, [&](std::size_t layer) {
      pace.backward_reached(layer);
      note(count - 1 - layer, since());
    });
    last = clock::now();
    update.step(model.parameters(), model.gradient());
    note(count + 1, since());
  }
  std::vector<double> at;
  for (auto const& each : moments) at.push_back(gs::median(each));
  comm.all_reduce(gs::host{}, std::span{at}, gs::reduction::max);

  std::vector<gs::traced_layer> traced;
  double ready = 0;
  for (std::size_t i = 0; i < count; ++i) {
    auto const& each = layers[count - 1 - i];
    traced.push_back({each.name, 4 * each.size, std::max(0.0, at[i] - ready), i == 0 ? at[count] : 0.0});
    ready = std::max(ready, at[i]);
  }
  return {gs::trace{std::move(traced), "mlp"}, at[count + 1]};
}

/// What the recipe's exchange of a gradient of so many bytes takes: on the link, and on this rank's cores.
struct exchange_costs {
  gs::affine_fit whole;
  tools::selection_seconds local;
};

struct any_exchange {
  exchanger run;
  gs::step_report exchange(communicator const&, std::span<float> gradient) { return run(gradient); }
};

template <class Make>
[[nodiscard]] exchange_costs measure_costs(communicator const& comm, Make const& make, std::uint64_t largest,
                                           options const& chosen) {
  auto settings = gs::measure_options{.smallest = std::min<std::uint64_t>(largest, 1u << 12), .largest = largest};
  settings.seconds = chosen.measure_seconds;
  exchange_costs costs{gs::measure_exchange(comm, make, settings), {}};
  settings.seconds /= 2;
  auto const local = gs::measure_cost(
      comm,
      [&](std::uint64_t size) {
        return [&comm, exchange = make(gs::layout::flat(size / 4)), gradient = std::vector<float>(size / 4)]() mutable {
          for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(gs::mix(i) >> 40);
          auto const seconds = exchange.exchange(comm, std::span{gradient}).seconds;
          return seconds.accumulate + seconds.select + seconds.apply;
        };
      },
      settings);
  costs.local = {.fixed = local.cost.a, .per_element = 4 * local.cost.b};
  return costs;
}

template <class Cost>
[[nodiscard]] gs::plan plan_by(std::string const& schedule, gs::trace const& layers, Cost const& cost,
                               tools::selection_seconds const& selection) {
  if (schedule == "wfbp") return gs::make_plan(layers, cost, gs::wfbp{});
  if (schedule == "mgwfbp") return gs::make_plan(layers, cost, gs::mgwfbp{});
  if (schedule == "single") return gs::make_plan(layers, cost, gs::single{});
  if (selection(1) > 0) return gs::make_plan(layers, cost, tools::optimal_sparse{.selection = selection});
  return gs::make_plan(layers, cost, gs::optimal{});
}

/// Collective; the prediction is rank 0's on all ranks that print it.
[[nodiscard]] inline handover with_overlap(communicator const& comm, named_recipe const& recipe, options const& chosen,
                                           mlp const& model, batches const& batch, double scale) {
  auto const layers = model.layers();
  static_cast<void>(gs::passthrough_layers{.patterns = chosen.passthrough_layers}.of(layers));  // refuses wrong ones
  auto const pace = pacemaker{layers, chosen.compute_ms};
  auto const profile = time_layers(comm, model, batch, pace, static_cast<float>(scale));
  auto const make = [&](gs::layout const& some) {
    return any_exchange{make_exchanger(recipe, chosen, layers.part({some.begin(), some.end()}), comm)};
  };
  auto const costs = measure_costs(comm, make, profile.layers.bytes(), chosen);

  // Where ranks have a core to spare, a group's exchange is all on the communication thread; else what it takes of a
  // core is taken from the backward pass.
  auto const selection = chosen.shared_cores ? costs.local : tools::selection_seconds{};
  bool const straight = costs.whole.max_error <= 0.15;
  auto const on_link = [=, measured = costs.whole.measured()](std::uint64_t size) {
    double const whole = straight ? costs.whole.cost(size) : measured(size);
    return std::max(0.0, whole - selection(size));
  };
  auto const plan = plan_by(chosen.overlap, profile.layers, on_link, selection);
  auto const played = tools::simulate(profile.layers, plan, on_link, {.workers = comm.size(), .selection = selection});

  forecast predicted{.schedule = chosen.overlap,
                     .groups = plan.groups().size(),
                     .cost = {},
                     .compute_ms = 1e3 * (profile.layers.compute() + profile.rest),
                     .step_ms = 1e3 * (played.metrics.iteration + profile.rest)};
  auto text = gs::plain_text();
  text << costs.whole << (straight ? "" : ": planned with the measured times") << "; of it on its own core fixed "
       << gs::shortest{costs.local.fixed} << " + " << gs::shortest{costs.local.per_element} << " an element; " << plan;
  predicted.cost = text.str();

  for (auto const& each : plan.groups()) predicted.planned.push_back({each.start, each.finish});

  using owner = gs::overlap<gs::host, any_exchange, communicator>;
  auto const running = std::make_shared<owner>(comm, layers, plan, make);
  auto const seen = std::make_shared<std::vector<std::array<std::vector<double>, 2>>>(plan.groups().size());
  return {.begin = [running](std::span<float> gradient) { running->begin(gradient); },
          .ready = [running](std::size_t layer) { running->ready(layer); },
          .finish =
              [running, seen] {
                auto const report = running->wait();
                for (std::size_t g = 0; g < seen->size(); ++g) {
                  (*seen)[g][0].push_back(running->times()[g].start);
                  (*seen)[g][1].push_back(running->times()[g].finish);
                }
                return report;
              },
          .predicted =
              [predicted, seen] {
                auto all = predicted;
                for (auto const& each : *seen) all.measured.push_back({gs::median(each[0]), gs::median(each[1])});
                return all;
              }};
}

/// With AdamW: of a recipe the gradient stays this rank's own, and its step is exchanged; dense gradients are averaged.
/// All ranks clip alike, to a norm of the mean gradient: as estimated, and of dense ones as it is.
[[nodiscard]] inline handover with_adamw(communicator const& comm, named_recipe const& recipe, options const& chosen,
                                         mlp& model) {
  auto const most = static_cast<float>(chosen.clip);
  auto const layers = model.layers();
  if (!recipe.policies) {
    auto const alone = std::make_shared<gs::second_moments<gs::host>>(gs::host{.threads = chosen.threads}, layers);
    auto const mean = dense_exchanger(comm);
    return without_overlap(exchanger{[=](std::span<float> gradient) {
      auto const report = mean(gradient);
      alone->measure(gs::self{}, gradient);
      alone->clip(gradient, most);
      return report;
    }});
  }
  auto const moments = std::make_shared<gs::second_moments<gs::host>>(gs::host{.threads = chosen.threads}, layers,
                                                                      gs::moment_options{.seed = chosen.seed});
  auto made = without_overlap(exchanger{[=](std::span<float> gradient) {
    moments->measure(comm, gradient);
    moments->clip(gradient, most);
    gs::step_report report;
    report.bytes_sent = report.bytes_received = moments->bytes();
    return report;
  }});
  auto const exchange = parameter_exchanger(recipe, chosen, layers, model.parameters(), comm);
  made.factors = [moments] { return moments->factors(); };
  made.after_step = exchange;
  made.common = exchange.common;
  return made;
}

[[nodiscard]] inline handover make_handover(communicator const& comm, named_recipe const& recipe, options const& chosen,
                                            mlp& model, batches const& batch, double scale) {
  if (chosen.optimiser == "adamw") return with_adamw(comm, recipe, chosen, model);
  if (chosen.overlap == "none") return without_overlap(make_exchanger(recipe, chosen, model.layers(), comm));
  return with_overlap(comm, recipe, chosen, model, batch, scale);
}

}  // namespace example
