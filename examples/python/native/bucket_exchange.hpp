// The compressors of a model whose gradient comes in buckets that may change.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <gradsieve/host/dense_mean.hpp>
#include <gradsieve/layer_states.hpp>

#include "compression.hpp"
#include "model_layers.hpp"
#include "node_states.hpp"
#include "non_finite_watch.hpp"
#include "parameter_use.hpp"
#include "space_memory.hpp"

namespace example {

/// The state of one group of parameters that are compressed together.
struct group_state {
  std::vector<std::size_t> members;  ///< parameters, in the bucket's order
  std::vector<std::byte> bytes;
};

/// What the steps so far came to on this rank.
struct running_totals {
  std::uint64_t steps = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t baseline_bytes = 0;
  std::uint64_t non_finite = 0;
  std::uint64_t saturated = 0;
  double seconds = 0;

  void add(gs::step_report const& step) {
    ++steps;
    bytes_sent += step.bytes_sent;
    bytes_received += step.bytes_received;
    baseline_bytes += step.baseline_bytes;
    non_finite += step.non_finite;
    saturated += step.saturated;
    seconds += step.seconds.total();
  }
};

/// Whether gradients of doubles are averaged as they are; else they are refused.
[[nodiscard]] inline bool passes_float64(compression const& chosen) {
  auto const& residual = chosen.recipe.residual;
  bool const plain = std::holds_alternative<gs::error_feedback>(residual) || std::holds_alternative<gs::none>(residual);
  return chosen.sends_all() && plain && chosen.on_non_finite != bad_values::fail;
}

/// Whether an update that is still in the gradient when the next one is exchanged goes out again as it is: momentum
/// would count it as a new gradient, `none` drop most of it, and a decay below 1 weaken it.
[[nodiscard]] inline bool updates_may_come_again(compression const& chosen) {
  auto const& residual = chosen.recipe.residual;
  auto const* const feedback = std::get_if<gs::error_feedback>(&residual);
  bool const keeps_all = std::holds_alternative<gs::filtered>(residual) || (feedback && feedback->decay == 1);
  return keeps_all || (chosen.sends_all() && !carries_momentum(chosen.recipe));
}

/// A compressor for each bucket, in place on the bucket's memory. What is kept belongs to parameters and not to
/// buckets: when a bucket comes with other parameters than before, as DDP's do after the first step, residuals move
/// along. After restore() the saved groups stay for one step in which DDP has not formed its buckets yet; so a run that
/// was stopped goes on as if it had not been. With nodes of several ranks each rank keeps what its part of a bucket has
/// not sent; when buckets change, the ranks of a node gather that and cut it anew.
/// Collective: all ranks bring the same buckets in the same order. A step allocates nothing of its own, unless buckets
/// have changed or no rank used a parameter, or steps can be undone, which costs a copy of the residual each. One
/// thread at a time.
template <class Space>
class bucket_exchange {
 public:
  bucket_exchange(Space where, peers_of<Space> peers, gs::layout parameters, compression chosen)
      : where_{where},
        peers_{std::move(peers)},
        parameters_{part_of_model(chosen.model, std::move(parameters))},
        chosen_{std::move(chosen)},
        passing_{example::passing(chosen_, model())},
        unused_{parameters_.count()},
        group_of_(parameters_.count(), none) {
    static_cast<void>(made_for(parameters_.part({})));  // bad numbers are found here
    static_cast<void>(gs::layer_states{parameters_});   // and names that are not unique
  }

  /// Replaces a bucket's gradient by the mean over all ranks of what they sent. `members`: the parameters in the order
  /// of the bucket. `begins`: a step begins with it. Where `mine` says that the framework leaves the gradients of
  /// parameters that no rank used, those stay as they are, and what waits for them goes on waiting. After an exception
  /// the bucket is zero; with bad_values::fail it undoes the step, and what comes until the next step is zero too.
  /// @throws what gs::compressor::exchange and unused_parameters::find do; std::invalid_argument if the members do not
  /// fit the bucket.
  template <class T>
  void exchange(bool begins, std::span<T> bucket, std::span<std::size_t const> members,
                parameter_use const& mine = {}) {
    if (begins) begin_step();
    try {
      check_size(bucket.size(), members);
      if (failed_) return memory::fill_with_zeros(where_, bucket);
      auto const skipped = unused_.find(where_, peers_, parameters_, members, mine);
      skipped_parts<Space, T> const apart{where_, bucket, parameters_, members, skipped};
      try {
        exchange_values(bucket, members, skipped);
      } catch (...) {
        memory::fill_with_zeros(where_, bucket);
        apart.put_back();
        throw;
      }
      apart.put_back();
    } catch (gs::non_finite_gradient const& why) {
      undo_failed_step();
      throw gs::non_finite_gradient(std::string{why.what()} +
                                    "; what is pending is what it was before the step: call zero_grad() and go on");
    } catch (...) {
      undo_failed_step();
      throw;
    }
  }

  /// All buckets of the last step together; with nodes, of this rank's parts. On a device this waits for it.
  [[nodiscard]] gs::step_report report() {
    auto all = uncompressed_;
    for (auto& each : groups_)
      if (each.in_step && !each.failed) all.add(each.compressor.report());
    if (!std::exchange(counted_, true)) {
      totals_.add(all);
      watch_.add(elements_in_step() / parts(), all.non_finite);
    }
    return all;
  }

  /// Of all steps; on a device of those whose report was asked for, as that waits.
  [[nodiscard]] running_totals const& totals() {
    if (!counted_) static_cast<void>(report());
    return totals_;
  }
  void restore(running_totals const& totals) {
    totals_ = totals;
    counted_ = true;
  }

  [[nodiscard]] compression const& chosen() const noexcept { return chosen_; }

  /// All parameters of the model.
  [[nodiscard]] gs::layout const& model() const noexcept {
    return chosen_.model.count() == 0 ? parameters_ : chosen_.model;
  }
  /// Those of them that pass through.
  [[nodiscard]] std::vector<gs::layer> const& passing() const noexcept { return passing_; }

  /// Returns to the residual what this rank gave up in the last step, whose gradient stays in it.
  void discard_step() {
    place_kept();
    for (auto& each : groups_)
      if (each.in_step) each.compressor.discard_step();
  }
  /// What is pending becomes what it was before the last step: neither its update nor its gradient counts.
  /// @throws std::invalid_argument unless compression::undo or bad_values::fail is chosen.
  void undo_step() {
    if (!keeps_before())
      throw std::invalid_argument(
          "gradsieve: undo_step() needs the state before the step: register(..., undo=True) keeps it");
    uncompressed_ = report();  // what was sent was sent
    restore_before();
  }
  /// Multiplies what waits, of the groups of which all are among `members`; of all groups, if there are none.
  void rescale(float factor, std::span<std::size_t const> members = {}) {
    place_kept();
    auto const is_meant = [&](std::size_t member) { return std::ranges::find(members, member) != members.end(); };
    for (auto& each : groups_)
      if (members.empty() || std::ranges::all_of(each.members, is_meant)) each.compressor.rescale(factor);
  }
  [[nodiscard]] double residual_norm() {
    place_kept();
    double sum = 0;
    for (auto& each : groups_) {
      auto const norm = each.compressor.residual_norm();
      sum += norm * norm;
    }
    return std::sqrt(sum);
  }

  /// What has not been sent, of each parameter in the model's order; empty before its first exchange. Valid until the
  /// next call. @throws std::invalid_argument with nodes, whose ranks each keep a part.
  [[nodiscard]] std::vector<std::span<float const>> residuals() {
    if (std::holds_alternative<nodes_of<Space>>(peers_))
      throw std::invalid_argument("gradsieve: with nodes each rank keeps a part of what has not been sent");
    place_kept();
    std::vector<std::span<float const>> all(parameters_.count());
    for (auto& each : groups_) {
      auto rest = each.compressor.residual();
      for (auto const member : each.members) {
        all[member] = rest.first(parameters_[member].size);
        rest = rest.subspan(parameters_[member].size);
      }
    }
    return all;
  }

  /// What this rank must hold on to between steps. Cost: a copy of the residual.
  [[nodiscard]] std::vector<group_state> state() {
    place_kept();
    std::vector<group_state> all;
    for (auto& each : groups_) all.push_back({each.members, each.compressor.state()});
    return all;
  }

  /// Goes on where state() was taken. @throws std::invalid_argument; gs::corrupt_state, gs::mismatch: nothing is
  /// changed.
  void restore(std::vector<group_state> const& saved) {
    std::vector<group> groups;
    std::vector<std::size_t> group_of(parameters_.count(), none);
    for (auto const& each : saved) {
      if (each.members.empty()) throw std::invalid_argument("gradsieve: a saved group has no parameters");
      groups.push_back(make_group(each.members));
      groups.back().compressor.restore(each.bytes);
      for (auto const member : each.members) {
        if (group_of[member] != none)
          throw std::invalid_argument("gradsieve: parameter '" + parameters_[member].name + "' is saved twice");
        group_of[member] = groups.size() - 1;
      }
    }
    groups_ = std::move(groups);
    group_of_ = std::move(group_of);
    kept_.reset();
    keep_groups_ = fresh_ = !groups_.empty();
  }

  /// Adds the residual of a rank that left. @throws as restore(), but what was added before stays;
  /// std::invalid_argument unless its groups are these.
  void absorb(std::vector<group_state> const& saved) {
    for (auto const& each : saved) {
      auto const g = group_with(each.members);
      if (!g) throw std::invalid_argument("gradsieve: the state of another rank has other groups of parameters");
      groups_[*g].compressor.absorb(each.bytes);
    }
  }

 private:
  using memory = memory_of<Space>;
  static constexpr std::size_t none = SIZE_MAX;

  struct group {
    std::vector<std::size_t> members;
    compressor_in<Space> compressor;
    bool in_step = false;           // exchanged in the last step, which it need not be in a sharded model
    bool failed = false;            // in that step: it has no report
    std::vector<std::byte> before;  // the state before that step, where it is kept
  };

  [[nodiscard]] bool keeps_before() const noexcept { return chosen_.undo || chosen_.on_non_finite == bad_values::fail; }

  template <class T>
  void exchange_group(group& one, std::span<T> gradient, gs::skipped_layers skipped) {
    if (keeps_before()) one.before = one.compressor.state();
    one.in_step = one.failed = true;
    std::visit([&](auto const& peers) { one.compressor.exchange(peers, gradient, skipped); }, peers_);
    one.failed = false;
  }

  template <class T>
  void exchange_values(std::span<T> bucket, std::span<std::size_t const> members, gs::skipped_layers skipped) {
    if constexpr (std::is_same_v<T, double>) {
      if (!passes_float64(chosen_))
        throw std::invalid_argument(
            "gradsieve compresses float32, float16 and bfloat16 gradients; that of '" + parameters_[members[0]].name +
            "' is float64, which only density 1 passes on as it is, without momentum, filter or a check for NaN");
      if (auto const* const nodes = std::get_if<nodes_of<Space>>(&peers_)) {
        static_cast<void>(gs::dense_mean{}.exchange(nodes->inside, bucket));
        uncompressed_.add(gs::dense_mean{}.exchange(nodes->across, bucket));
      } else {
        uncompressed_.add(gs::dense_mean{}.exchange(std::get<communicator_of<Space>>(peers_), bucket));
      }
    } else {
      try {
        compress(bucket, members, skipped);
      } catch (gs::non_finite_gradient const&) {
        if (chosen_.on_non_finite != bad_values::propagate) throw;
        memory::fill_with_nan(where_, bucket);
        uncompressed_.non_finite += bucket.size() / parts();
      }
    }
  }

  template <class T>
  void compress(std::span<T> bucket, std::span<std::size_t const> members, gs::skipped_layers skipped) {
    if (auto const g = group_with(members))
      exchange_group(groups_[*g], bucket, skipped);
    else if (keep_groups_ && consists_of_groups(members))
      exchange_by_groups(bucket, members, skipped);
    else
      exchange_group(groups_[regroup(members)], bucket, skipped);
  }

  void undo_failed_step() {
    if (chosen_.on_non_finite != bad_values::fail) return;
    restore_before();
    failed_ = true;
  }

  void restore_before() {
    for (auto& each : groups_)
      if (std::exchange(each.in_step, false)) each.compressor.restore(each.before);
  }

  void begin_step() {
    if (std::is_same_v<Space, gs::host> && !counted_) static_cast<void>(report());
    counted_ = failed_ = false;
    if (watch_.due() && chosen_.warn) chosen_.warn(non_finite_watch::sentence(chosen_.on_non_finite));
    uncompressed_ = {};
    for (auto& each : groups_) each.in_step = false;
    if (!std::exchange(fresh_, false)) keep_groups_ = false;
    place_kept();
  }

  [[nodiscard]] std::uint64_t elements_in_step() const {
    std::uint64_t sum = 0;
    for (auto const& each : groups_)
      if (each.in_step) sum += each.compressor.layers().size();
    return sum;
  }

  /// In how many parts the ranks of a node cut a bucket, of which each counts its own.
  [[nodiscard]] std::uint64_t parts() const {
    auto const* const nodes = std::get_if<nodes_of<Space>>(&peers_);
    return nodes == nullptr ? 1 : static_cast<std::uint64_t>(nodes->inside.size());
  }

  /// What waits for buckets that did not come, as a step was broken off, gets groups of one parameter.
  void place_kept() {
    if (!kept_) return;
    for (std::size_t member = 0; member < parameters_.count(); ++member)
      if (group_of_[member] == none && kept_->has(parameters_[member].name))
        static_cast<void>(regroup(std::span<std::size_t const>{&member, 1}));
    kept_.reset();
  }

  void check_size(std::size_t size, std::span<std::size_t const> members) const {
    std::uint64_t sum = 0;
    for (auto const member : members) sum += size_of(member);
    if (sum != size)
      throw std::invalid_argument("gradsieve: a bucket has " + std::to_string(size) + " elements, its parameters " +
                                  std::to_string(sum));
  }

  [[nodiscard]] std::uint64_t size_of(std::size_t member) const {
    if (member >= parameters_.count())
      throw std::invalid_argument("gradsieve: there is no parameter " + std::to_string(member));
    return parameters_[member].size;
  }

  [[nodiscard]] compressor_in<Space> made_for(gs::layout layers) const {
    if (auto const* const nodes = std::get_if<nodes_of<Space>>(&peers_))
      return {where_, std::move(layers), chosen_.recipe, *nodes};
    return {where_, std::move(layers), chosen_.recipe};
  }

  [[nodiscard]] group make_group(std::span<std::size_t const> members) const {
    std::vector<gs::layer> layers;
    for (auto const member : members) {
      static_cast<void>(size_of(member));  // which checks it
      layers.push_back(parameters_[member]);
    }
    return {{members.begin(), members.end()},
            made_for(parameters_.part(std::move(layers))),
            false,
            false,
            {}};
  }

  /// The group of exactly these parameters in this order.
  [[nodiscard]] std::optional<std::size_t> group_with(std::span<std::size_t const> members) const {
    if (members.empty() || members[0] >= parameters_.count()) return {};
    auto const g = group_of_[members[0]];
    if (g == none || !std::ranges::equal(groups_[g].members, members)) return {};
    return g;
  }

  [[nodiscard]] bool consists_of_groups(std::span<std::size_t const> members) const {
    auto const in_bucket = [&](std::size_t member) { return std::ranges::find(members, member) != members.end(); };
    return std::ranges::all_of(members, [&](std::size_t member) {
      return group_of_[member] != none && std::ranges::all_of(groups_[group_of_[member]].members, in_bucket);
    });
  }

  template <class T>
  void exchange_by_groups(std::span<T> bucket, std::span<std::size_t const> members, gs::skipped_layers skipped) {
    std::vector<std::size_t> offset(parameters_.count(), none);
    std::vector<unsigned char> skips(parameters_.count(), 0);
    std::size_t at = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      offset[members[i]] = at;
      at += parameters_[members[i]].size;
      skips[members[i]] = skipped[i] ? 1 : 0;
    }
    for (auto& each : groups_) {
      if (offset[each.members[0]] == none) continue;
      auto const buffer = memory::template allocate<T>(where_, each.compressor.layers().size());
      auto const packed = buffer.span();
      auto const for_each_part = [&](auto const& copy_part) {
        std::size_t from = 0;
        for (auto const member : each.members) {
          auto const size = parameters_[member].size;
          copy_part(packed.subspan(from, size), bucket.subspan(offset[member], size));
          from += size;
        }
      };
      for_each_part([&](auto to_group, auto of_bucket) { memory::copy(where_, of_bucket, to_group); });
      std::vector<unsigned char> of_group;
      for (auto const member : each.members) of_group.push_back(skips[member]);
      exchange_group(each, packed, of_group);
      for_each_part([&](auto from_group, auto to_bucket) { memory::copy(where_, from_group, to_bucket); });
      memory::finish(where_);
    }
  }

  /// A group of these parameters, who leave those that they are in; these are dissolved, and what they kept of other
  /// parameters waits for the buckets that bring them.
  [[nodiscard]] std::size_t regroup(std::span<std::size_t const> members) {
    auto fresh = make_group(members);
    for (auto const member : members)
      if (group_of_[member] != none) dissolve(group_of_[member]);
    if (kept_) {
      auto const& layers = fresh.compressor.layers();
      fresh.compressor.restore(node_states<Space>{where_, peers_}.part_of(kept_->take(layers), layers));
    }
    for (auto const member : members) group_of_[member] = groups_.size();
    groups_.push_back(std::move(fresh));
    return groups_.size() - 1;
  }

  void dissolve(std::size_t g) {
    if (!kept_) kept_.emplace(parameters_);
    kept_->put(groups_[g].compressor.layers(), node_states<Space>{where_, peers_}.whole_state(groups_[g].compressor));
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(g));
    for (auto& each : group_of_) {
      if (each == g)
        each = none;
      else if (each != none && each > g)
        --each;
    }
  }

  Space where_;
  peers_of<Space> peers_;
  gs::layout parameters_;
  compression chosen_;
  std::vector<gs::layer> passing_;
  unused_parameters<Space> unused_;
  std::vector<group> groups_;
  std::vector<std::size_t> group_of_;     // of each parameter
  std::optional<gs::layer_states> kept_;  // of dissolved groups, while buckets change
  bool keep_groups_ = false;              // those that were restored
  bool fresh_ = false;                    // no step since then
  gs::step_report uncompressed_;  // of the last step, what no compressor reports: doubles, and a step that was undone
  running_totals totals_;
  bool counted_ = true;  // the last step is in totals_
  bool failed_ = false;  // the step that is under way, which was undone
  non_finite_watch watch_;
};

}  // namespace example
