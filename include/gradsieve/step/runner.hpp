// The order of a step, the same in every space: step_runner calls the stages that a space implements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <gradsieve/codec/limit.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/skipped_layers.hpp>
#include <gradsieve/exchange/preflight.hpp>
#include <gradsieve/selector/select.hpp>
#include <gradsieve/step/parts.hpp>
#include <gradsieve/step/recipe.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

template <space Space, class Recipe>
class step_runner {
  using stages = typename Space::template step<Recipe>;
  using arithmetic = typename stages::arithmetic;
  static constexpr bool may_need_norms = decltype(Recipe::partitioner)::traits.needs_norms;

 public:
  explicit step_runner(stages& at) noexcept : at_{at} {}

  template <class Comm, class T>
  typename stages::report_type exchange(Comm const& comm, gradient_ref<T> const gradient,
                                        skipped_layers const skipped, held_failure failure) {
    static_assert(exchangeable<Recipe, Space, Comm>);
    [[maybe_unused]] arithmetic const exact;
    step_role const role{world_of(comm), comm.rank(), true};
    float const most = largest_value<T>;
    float const most_in_sum = std::min(largest_summand(role.world), most);
    at_.ranks.template set_format<T>();
    attempt(failure, [&] { at_.ranks.reserve(role.world); });
    attempt(failure, [&] { at_.check(gradient); });
    at_.info.rank = static_cast<std::uint32_t>(role.rank);
    attempt(failure, [&] {
      if (at_.world != role.world) plan(role.world);
    });
    attempt(failure, [&] { skip(skipped); });
    begin(sizeof(T), role);
    typename stages::template incoming<T> in{};
    attempt(failure, [&] { in = at_.template prepare<T>(gradient, at_.world); });
    bool const met = meet_before(comm, in, role, failure);
    try {
      attempt(failure, [&] { accumulate(in, role); });
      if constexpr (may_need_norms)
        if (reads_norms(at_.recipe.partitioner)) {
          if (stages::holds_failures && !met) meet(comm, 0, failure);
          if (at_.selection.decide_by_norms(comm, role, failure)) choose_passthrough(true);
        }
      attempt(failure, [&] { at_.take_passthrough(most_in_sum); });
      typename stages::entries own{};
      attempt(failure, [&] { own = at_.select(role); });
      if (encodes_values(at_.recipe.exchange)) attempt(failure, [&] { at_.quantise(own, most); });
      auto const result = at_.exchange(comm, own, most_in_sum, failure);
      at_.put_back();
      at_.mark_pending(result);
      at_.apply(result, gradient);
    } catch (...) {
      at_.abandon();
      throw;
    }
    at_.met = true;
    at_.origin = preflight::origin::continued;
    at_.end_step();
    return at_.report();
  }

  template <class T>
  typename stages::selection_type compress(gradient_ref<T const> const gradient, int rank) {
    [[maybe_unused]] arithmetic const exact;
    step_role const role{};
    if (rank < 0) throw invalid_argument("gradsieve: compress() was given the rank " + std::to_string(rank));
    at_.last = {};
    at_.check(gradient);
    if (at_.world == stages::no_world) plan(1);
    skip({});
    begin(sizeof(T), {role.world, rank, role.exchanging});
    auto const in = at_.template prepare<T>(gradient, role.world);
    if (at_.recipe.on_non_finite == non_finite::fail)
      if (auto const bad = at_.selection.count_non_finite(in); bad > 0) {
        at_.abandon();
        throw non_finite_gradient(non_finite_text(bad));
      }
    typename stages::entries own{};
    try {
      accumulate(in, role);
      if constexpr (may_need_norms)
        if (reads_norms(at_.recipe.partitioner)) {
          held_failure none;
          if (at_.selection.decide_by_norms(no_ranks{}, role, none)) choose_passthrough(false);
        }
      at_.take_passthrough(largest_value<T>);
      own = at_.select(role);
      at_.quantise(own, largest_value<T>);
      at_.put_back();
    } catch (...) {
      at_.abandon();
      throw;
    }
    at_.mark_pending(own);
    auto const made = at_.selected(own);
    at_.end_step();
    return made;
  }

  template <class Comm>
  void connect(Comm const& comm) {
    int const world = world_of(comm);
    held_failure failure;
    at_.ranks.template set_format<void>();
    attempt(failure, [&] { at_.ranks.reserve(world); });
    at_.info.rank = static_cast<std::uint32_t>(comm.rank());
    attempt(failure, [&] { plan(world); });
    meet(comm, 0, failure);
  }

  /// Makes segments and buffers for a world of this size. If it throws there is no plan, and the next step makes one.
  void plan(int world) {
    [[maybe_unused]] arithmetic const exact;
    auto warm_thresholds = at_.selection.warm_thresholds();  // before anything changes, as a device waits here
    at_.memory.flush_pending();
    at_.forget_step();
    at_.world = stages::no_world;
    at_.met = false;
    auto& segments = at_.selection.segments();
    at_.selection.set_warm_thresholds(std::move(warm_thresholds));
    segments.plan(at_.recipe.partitioner, at_.split.selected, at_.split.selected_elements, at_.recipe.density.most(),
                  world);
    auto const entries = static_cast<index_type>(segments.most());
    at_.capacity = std::min<std::uint64_t>(selection_capacity(at_.recipe.selector, entries), at_.split.selected_elements);
    at_.work.plan(segments.all(), at_.now.excluded(), at_.capacity,
                 bin_lengths_of(at_.recipe.selector, at_.layers, segments.all()));
    at_.reserve(world);
    at_.world = world;
  }

 private:
  void skip(skipped_layers const skipped) {
    skipped.check(at_.layers.count());
    if (skipped.hash() == at_.now.hash()) return;
    at_.may_exclude();
    at_.now.skip(skipped);
    int const world = std::exchange(at_.world, stages::no_world);
    at_.exclude(bin_lengths_of(at_.recipe.selector, at_.layers, at_.selection.segments().all()));
    at_.world = world;
  }

  void begin(std::size_t value_bytes, step_role const role) {
    at_.info.skipped = at_.now.skipped();  // also where excluding them failed in the step before
    at_.begin_step(value_bytes, role);
  }

  /// Runs body(). Its exception is held until ranks exchange failures, or thrown at once if they do so in stream order.
  template <class Body>
  static void attempt(held_failure& failure, Body const& body) {
    if constexpr (stages::holds_failures)
      failure.attempt(body);
    else
      body();
  }

  template <class Incoming>
  void accumulate(Incoming const& in, step_role const role) {
    if (!reads_norms(at_.recipe.partitioner) && at_.selection.decide(role)) choose_passthrough(role.exchanging);
    at_.accumulate(in, role);
    ++at_.entered;
  }

  void choose_passthrough(bool full_segments) {
    bool const pass = full_segments && gives_full(at_.recipe) && !codes_full(at_.recipe);
    at_.passthrough.choose(at_.selection.segments(), pass);
  }

  /// The handshake before anything changes: in a new world, and with non_finite::fail. Returns true if it was done.
  template <class Comm, class Incoming>
  bool meet_before(Comm const& comm, Incoming const& in, step_role const role, held_failure& failure) {
    bool const counts = at_.recipe.on_non_finite == non_finite::fail;
    if (at_.met && !counts) return false;
    std::uint64_t bad = 0;
    attempt(failure, [&] { bad = counts ? at_.selection.count_non_finite(in) : 0; });
    try {
      meet(comm, bad, failure);
      if (counts && at_.ranks.total() > 0)
        throw non_finite_gradient(non_finite_text(at_.ranks.total()) + " (all ranks together)");
    } catch (communication_error const&) {  // another rank's: this one keeps its gradient, as later in the step
      if (!(stages::holds_failures && failure) && bad == 0)
        accumulate(in, {role.world, role.rank, role.exchanging, false});
      at_.abandon();
      throw;
    } catch (...) {
      at_.abandon();
      throw;
    }
    return true;
  }

  template <class Comm>
  void meet(Comm const& comm, std::uint64_t count, held_failure const& failure) {
    at_.ranks.meet_early(at_.for_host(comm), at_.on_host(), at_.word(), count,
                        stages::holds_failures ? failure.why() : nullptr);
    at_.met = true;
  }

  [[nodiscard]] static std::string non_finite_text(std::uint64_t count) {
    return "gradsieve: " + std::to_string(count) +
           " gradient elements are NaN or infinite, or would overflow the residual";
  }

  stages& at_;
};

}  // namespace gradsieve::detail
