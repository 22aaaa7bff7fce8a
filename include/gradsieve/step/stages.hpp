// Concepts of everything that a compressor calls in a space.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/node_share.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/exchange/preflight.hpp>
#include <gradsieve/step/parts.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// The residual's memory, one array per state, in memory of the space. `read`, `write` and `absorb` (adds if the sum is
/// finite) are for checkpoints, in host memory. `flush_pending` subtracts what was sent. `rescale` also multiplies
/// passthrough values that are held outside the residual.
template <class M, class Saved>
concept stage_memory = requires(M& memory, std::size_t state, std::span<float const> values, float factor,
                                Saved saved) {
  memory.flush_pending();
  memory.rescale(factor, saved);
  { memory.squared_norm() } -> std::convertible_to<double>;
  memory.state(state);
  { memory.read(state) } -> std::convertible_to<std::span<float const>>;
  memory.write(state, values);
  memory.absorb(state, values);
};

/// Segments, a step's decisions about them, the number of steps, and the thresholds stored for the next step. `decide`
/// and `decide_by_norms` return true if a decision on the host may have changed; the latter is collective.
template <class S, class Incoming>
concept stage_selection =
    requires(S& selection, S const& seen, Incoming const& in, detail::step_role const role,
             detail::held_failure& failure, std::uint64_t steps, std::vector<warm_threshold> thresholds) {
      selection.segments();
      { selection.decide(role) } -> std::same_as<bool>;
      { selection.decide_by_norms(detail::no_ranks{}, role, failure) } -> std::same_as<bool>;
      { selection.count_non_finite(in) } -> std::same_as<std::uint64_t>;
      { seen.steps() } -> std::same_as<std::uint64_t>;
      selection.set_steps(steps);
      { seen.warm_thresholds() } -> std::same_as<std::vector<warm_threshold>>;
      selection.set_warm_thresholds(thresholds);
      selection.forget_warm_thresholds();
    };

/// The ranges that are sent in full: `choose` selects those of a step; `saved` returns the values that they had in the
/// residual, which a rollback restores.
template <class P, class Segments>
concept stage_passthrough = requires(P& passthrough, Segments const& segments) {
  passthrough.choose(segments, bool{});
  passthrough.saved();
};

/// The calls of a compressor in a space, in the order of a step. A model derives from detail::step_parts<Recipe> and
/// has the parts `work` (the space's workspace), `memory`, `passthrough`, `ranks`, `selection` and `last`. When a call
/// returns, its work is either done or enqueued.
/// - `holds_failures`: every exchange begins with the handshake of `detail::preflight` on the host. A rank's failure is
/// held until then, and no call of a step throws before. Otherwise it is thrown at once, and other ranks learn of it in
/// stream order.
/// - Types: `arithmetic`, an object that every call that computes holds and that may set how the processor rounds;
/// `entries`, a rank's selection; `incoming<T>`, a gradient as the accumulate pass reads it.
/// - `gradient_of(gradient)` converts a caller's gradient to a gradient_ref; `check` throws unless its size is the
/// layout's; `without_values` returns what fail() exchanges in its place.
/// - `for_host(comm)`, `on_host()`: communicator and space of the handshake. `word`: what this rank sends in it.
/// - A `detail::step_role` has the number of ranks, this rank, and whether the step exchanges or is a compress().
/// - `reserve` allocates for a number of ranks. Then, in each step: `begin_step`; `prepare` and `accumulate` (the
/// gradient); `take_passthrough`; `select`; `quantise`; `exchange` (collective); `put_back`; `mark_pending` (what was sent);
/// `apply` (the update); `end_step`.
/// - `take_passthrough(limit)` moves values out of the residual, and sets aside what stays there but must not be
/// selected: what clamping to `limit` left over, and skipped layers. `put_back` returns only what was set aside, in
/// every step that got so far.
/// - `exclude`, after `may_exclude`: other layers are skipped. `forget_step`: the last step can no longer be discarded.
/// - `rollback` restores all that the last step subtracted, passthrough values included; `abandon` all that a failed
/// step has. Both are idempotent.
/// - `selected`, `is_last`, `encode`: what compress() returns, and its message. `report`: of the last step.
template <class S, class Space, class Recipe>
concept step_stages =
    std::derived_from<S, detail::step_parts<Recipe>> && std::constructible_from<S, Space, layout, Recipe> &&
    requires {
      typename std::bool_constant<S::holds_failures>;
      typename S::arithmetic;
      typename S::report_type;
      requires std::default_initializable<typename S::entries>;
      requires std::default_initializable<typename S::selection_type>;
      requires std::default_initializable<typename S::template incoming<float>>;
    } &&
    requires(S& at, S const& seen, gradient_ref<float> const gradient, gradient_ref<float const> const read,
             typename S::template incoming<float> const& in, typename S::entries const& own,
             typename S::selection_type const& chosen, detail::step_role const role,
             detail::held_failure const& failure, float limit, std::size_t bytes, std::span<std::uint32_t const> bins) {
      requires stage_selection<std::remove_cvref_t<decltype(at.selection)>, typename S::template incoming<float>>;
      requires stage_passthrough<std::remove_cvref_t<decltype(at.passthrough)>, decltype(at.selection.segments())>;
      requires stage_memory<std::remove_cvref_t<decltype(at.memory)>, decltype(at.passthrough.saved())>;
      requires std::same_as<std::remove_cvref_t<decltype(at.ranks)>, detail::preflight>;
      requires std::same_as<std::remove_cvref_t<decltype(at.last)>, typename S::selection_type>;
      { at.work.where() } -> std::same_as<Space const&>;
      at.work.plan(at.selection.segments().all(), at.now.excluded(), at.capacity, bins);
      at.check(gradient);
      { at.without_values(gradient) } -> std::same_as<gradient_ref<float>>;
      at.for_host(detail::no_ranks{});
      at.on_host();
      { at.word() } -> std::same_as<detail::preflight::word>;
      at.reserve(int{});
      at.begin_step(bytes, role);
      at.forget_step();
      { at.template prepare<float>(read, int{}) } -> std::same_as<typename S::template incoming<float>>;
      at.accumulate(in, role);
      at.may_exclude();
      at.exclude(bins);
      at.take_passthrough(limit);
      { at.select(role) } -> std::same_as<typename S::entries>;
      at.quantise(own, limit);
      at.put_back();
      at.mark_pending(own);
      at.mark_pending(at.exchange(detail::no_ranks{}, own, limit, failure));
      at.apply(at.exchange(detail::no_ranks{}, own, limit, failure), gradient);
      at.end_step();
      at.rollback();
      at.abandon();
      { at.selected(own) } -> std::same_as<typename S::selection_type>;
      { chosen.number } -> std::convertible_to<std::uint64_t>;
      { seen.is_last(chosen) } -> std::same_as<bool>;
      { at.encode(chosen) } -> std::same_as<std::span<std::byte const>>;
      { seen.report() } -> std::convertible_to<typename S::report_type>;
    };

/// The calls of a two_level_compressor in a space, for gradients of float. `reserve<scatters>` checks a gradient and
/// allocates, `meet` compares the node's ranks, `average` leaves this rank's part of the mean in `values()`, `collect`
/// gathers the parts of all ranks into the gradient; the last three are collective. `holds_failures`: as in
/// step_stages.
template <class N, class Space>
concept node_exchange = std::constructible_from<N, Space, node_share> &&
                        requires(N& node, gradient_ref<float> const gradient, layout const& layers, std::uint64_t hash,
                                 detail::held_failure& failure) {
                          typename std::bool_constant<N::holds_failures>;
                          typename N::arithmetic;
                          node.template reserve<true>(gradient, layers);
                          node.meet(detail::no_ranks{}, hash, hash, hash, failure);
                          node.average(detail::no_ranks{}, gradient);
                          { node.template values<float>() } -> std::same_as<std::span<float>>;
                        };

}  // namespace gradsieve
