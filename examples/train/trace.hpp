// Rows of a run, step by step: what was asked for, sent and updated, how long it took, and what accumulators look like.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <gradsieve/core/report.hpp>

#include "communicator.hpp"
#include "recorder.hpp"

namespace example {

/// Text of three CSV files; on rank 0 only. Of steps, `asked` is k, with adacomp its limit, and `sent` what a rank
/// sends of its own choice. Of layers, `sent` are entries that left rank 0's accumulator: with deft, cyclic and micro a
/// rank gives its values at all ranks' choices. Empty where the recipe has no plain error feedback. Of accumulators
/// there are rows with the residual filtered too.
struct trace_rows {
  std::string steps;
  std::string layers;
  std::string accumulators;

  static constexpr char const* step_columns =
      "recipe,workers,step,loss,elements,asked,sent,updated,density_asked,density_sent,density_updated,build_up,"
      "bytes_sent,residual_norm,accumulate_s,partition_s,select_s,exchange_s,apply_s\n";
  static constexpr char const* layer_columns = "recipe,workers,step,layer,elements,sent,density_sent,updated\n";
  [[nodiscard]] static std::string accumulator_columns() {
    auto text = gradsieve::plain_text();
    text << "recipe,workers,step,layer,elements,zeros,mean,deviation,mean_magnitude,skewness,kurtosis,largest,emd_"
            "laplace,"
            "emd_gauss,residual_cosine,top_overlap";
    for (double const each : shape_of_values::thresholds) text << ",above_" << each;
    for (std::size_t i = 0; i < shape_of_values::bins; ++i)
      text << ",bin_" << static_cast<int>(i) + shape_of_values::lowest_bin;
    text << '\n';
    return text.str();
  }
};

/// Writes them, outside of the step's clock. Numbers of ranks are averaged; layers' entries and
/// accumulators are rank 0's.
class tracer {
 public:
  /// What to write.
  struct wishes {
    bool steps = false;
    bool layers = false;
    int accumulators_every = 0;  ///< 0: never
  };

  /// `residual` gives the residual store's first state, what an accumulator keeps after its entries were sent; empty
  /// without one. `share`: memory = (1 - share) memory + share * residual, and the next accumulator is memory +
  /// gradient. With share 1 the memory is the residual and what was sent is what changed; 0: neither is known.
  tracer(communicator const& comm, std::string recipe, gradsieve::layout const& layers, double density, wishes wanted,
         std::function<std::span<float const>()> residual, double share)
      : comm_{comm},
        recipe_{std::move(recipe)},
        layers_{layers},
        density_{density},
        wanted_{wanted},
        residual_{std::move(residual)},
        share_{residual_ ? share : 0},
        memory_(share_ == 0 || share_ == 1 ? 0 : static_cast<std::size_t>(layers.size())) {}

  /// Before the exchange: takes the accumulator.
  void before(std::span<float const> gradient) {
    if (share_ == 0 || !(wanted_.layers || samples())) return;
    auto const stays = memory();
    accumulator_.resize(gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) accumulator_[i] = stays[i] + gradient[i];
  }

  /// After it; collective.
  void after(std::span<float const> update, gradsieve::step_report const& report, double loss) {
    if (wanted_.steps) add_step(update, report, loss);
    if (wanted_.accumulators_every > 0) filter();
    if (wanted_.layers) add_layers(update);
    if (samples()) add_accumulators();
    ++step_;
  }

  [[nodiscard]] trace_rows take() && { return std::move(rows_); }

 private:
  [[nodiscard]] bool feedback() const { return share_ == 1; }

  [[nodiscard]] std::span<float const> memory() const {
    return feedback() ? residual_() : std::span<float const>{memory_};
  }

  void filter() {
    if (share_ == 0 || feedback()) return;
    auto const stays = residual_();
    for (std::size_t i = 0; i < stays.size(); ++i) memory_[i] += static_cast<float>(share_) * (stays[i] - memory_[i]);
  }

  [[nodiscard]] bool samples() const {
    return wanted_.accumulators_every > 0 && step_ % static_cast<std::uint64_t>(wanted_.accumulators_every) == 0;
  }

  [[nodiscard]] std::ostringstream begun() const {
    auto row = gradsieve::plain_text();
    row << recipe_ << ',' << comm_.size() << ',' << step_ + 1;
    return row;
  }

  void add_step(std::span<float const> update, gradsieve::step_report const& report, double loss) {
    auto const n = static_cast<double>(update.size());
    bool const dense = report.budget == 0 && report.selected == 0;
    double norm = 0;
    if (residual_)
      for (float const x : residual_()) norm += static_cast<double>(x) * x;
    auto const passed = static_cast<double>(report.passthrough_elements);
    auto const& took = report.seconds;
    std::array<double, 10> mean{dense ? n : static_cast<double>(report.budget) + passed,
                                dense ? n : static_cast<double>(report.selected) + passed,
                                dense ? n : static_cast<double>(report.union_size) + passed,
                                static_cast<double>(report.bytes_sent),
                                std::sqrt(norm),
                                took.accumulate,
                                took.partition,
                                took.select,
                                took.exchange,
                                took.apply};
    comm_.all_reduce(gradsieve::host{}, std::span<double>{mean}, gradsieve::reduction::sum);
    if (comm_.rank() != 0) return;
    for (double& each : mean) each /= comm_.size();
    auto row = begun();
    row << ',' << loss << ',' << n;
    for (std::size_t i = 0; i < 3; ++i) row << ',' << mean[i];
    for (std::size_t i = 0; i < 3; ++i) row << ',' << (n == 0 ? 0 : mean[i] / n);
    row << ',' << (dense ? 1 : report.build_up()) << ',' << mean[3] << ',';
    if (residual_) row << mean[4];
    for (std::size_t i = 5; i < mean.size(); ++i) row << ',' << mean[i];
    rows_.steps += row.str() + '\n';
  }

  template <class Body>
  void each_layer(Body const& body) const {
    for (std::size_t i = 0; i < layers_.count(); ++i)
      body(layers_[i].name, static_cast<std::size_t>(layers_.offset(i)), static_cast<std::size_t>(layers_[i].size));
  }

  void add_layers(std::span<float const> update) {
    if (comm_.rank() != 0) return;
    auto const stays = feedback() ? residual_() : std::span<float const>{};
    each_layer([&](std::string const& name, std::size_t begin, std::size_t size) {
      std::size_t sent = 0, updated = 0;
      for (std::size_t i = begin; i < begin + size; ++i) {
        sent += feedback() && gradsieve::stored_bits(accumulator_[i]) != gradsieve::stored_bits(stays[i]);
        updated += update[i] != 0;
      }
      auto row = begun();
      row << ',' << name << ',' << size << ',';
      if (feedback()) row << sent;
      row << ',';
      if (feedback()) row << static_cast<double>(sent) / static_cast<double>(std::max<std::size_t>(size, 1));
      row << ',' << updated << '\n';
      rows_.layers += row.str();
    });
  }

  void add_accumulators() {
    if (share_ == 0) return;
    auto const n = static_cast<double>(accumulator_.size());
    auto const alike = likeness_of(comm_, memory(), static_cast<std::uint64_t>(density_ * n));
    auto const chosen = likeness_of(comm_, accumulator_, static_cast<std::uint64_t>(density_ * n));
    if (comm_.rank() != 0) return;
    auto const add = [&](std::string const& name, std::span<float const> values) {
      auto const it = shape_of(values);
      auto row = begun();
      row << ',' << name << ',' << values.size() << ',' << it.zeros << ',' << it.mean << ',' << it.deviation << ','
          << it.mean_magnitude << ',' << it.skewness << ',' << it.kurtosis << ',' << it.largest << ',' << it.to_laplace
          << ',' << it.to_gauss << ',' << alike.cosine << ',' << chosen.overlap;
      for (double const share : it.above) row << ',' << share;
      for (double const share : it.histogram) row << ',' << share;
      rows_.accumulators += row.str() + '\n';
    };
    add("all", accumulator_);
    each_layer([&](std::string const& name, std::size_t begin, std::size_t size) {
      add(name, std::span{accumulator_}.subspan(begin, size));
    });
  }

  communicator comm_;
  std::string recipe_;
  gradsieve::layout layers_;
  double density_;
  wishes wanted_;
  std::function<std::span<float const>()> residual_;
  double share_;
  std::uint64_t step_ = 0;
  std::vector<float> accumulator_;
  std::vector<float> memory_;  ///< where it is not the residual
  trace_rows rows_;
};

}  // namespace example
