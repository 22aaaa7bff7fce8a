// The stages of a step on the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>

#include <gradsieve/codec/byte_breakdown.hpp>
#include <gradsieve/codec/checked.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/float_environment.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/report.hpp>
#include <gradsieve/exchange/preflight.hpp>
#include <gradsieve/exchange/round.hpp>
#include <gradsieve/host/memory.hpp>
#include <gradsieve/host/passthrough.hpp>
#include <gradsieve/host/selection_stage.hpp>
#include <gradsieve/host/stopwatch.hpp>
#include <gradsieve/host/workspace.hpp>
#include <gradsieve/step/parts.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The stages that compressor<host, Recipe> calls, in order. Each runs on the whole team and throws on failure.
template <class Recipe>
class host_step : public step_parts<Recipe> {
  using parts = step_parts<Recipe>;
  using codec_type = typename parts::codec_type;
  using exchange_type = typename parts::exchange_type;
  using residual_type = typename parts::residual_type;

 public:
  using arithmetic = float_environment;  ///< held during a call that computes
  static constexpr bool holds_failures = true;  ///< until the ranks meet, at the begin of the exchange
  using entries = selection_view;         ///< this rank's, before they are sent
  using selection_type = host_selection;  ///< what compress() returns
  using report_type = step_report;
  template <class T>
  using incoming = host_incoming<T>;

  using parts::capacity;
  using parts::info;
  using parts::layers;
  using parts::recipe;
  using parts::split;
  using parts::world;

  host_step(host where, layout about, Recipe policies)
      : parts{std::move(about), std::move(policies)},
        work{where, layers.size()},
        memory{work, recipe.residual, layers.size()},
        passthrough{work, memory, split, parts::now},
        ranks{layers, recipe.hash(), work.arithmetic(recipe.residual)},
        selection{recipe, work, memory, report_},
        buffers_{exchange_buffers_of<decltype(buffers_)>(recipe.exchange)} {}

  // ---- A caller's memory and ranks -----------------------------------------------------------------------------

  /// A caller's gradient, not yet checked.
  template <class Gradient>
  [[nodiscard]] auto gradient_of(Gradient& gradient) const noexcept {
    return checked_gradient(gradient, layers);
  }

  /// @throws invalid_argument unless the gradient is as large as the layout
  template <class T>
  void check(gradient_ref<T> const gradient) const {
    gradient.check(layers);
  }

  /// The empty gradient of a failed rank.
  template <class T>
  [[nodiscard]] static gradient_ref<T> without_values(gradient_ref<T> const gradient) noexcept {
    return gradient.part(0, 0);
  }

  /// The communicator for the handshake before a step.
  template <class Comm>
  [[nodiscard]] static Comm const& for_host(Comm const& comm) noexcept {
    return comm;
  }
  [[nodiscard]] host const& on_host() const noexcept { return work.where(); }

  [[nodiscard]] preflight::word word() const noexcept { return {selection.steps(), this->origin}; }

  // ---- Begin -------------------------------------------------------------------------------------------------

  /// Buffers for the segments in a world of `ranks_planned_for`. Allocates.
  void reserve(int ranks_planned_for) {
    auto const& segments = selection.segments();
    selection.reserve(capacity);
    passthrough.reserve(segments.size(), segments.most());
    buffers_.reserve(work, recipe.codec, info, ranks_planned_for, capacity, is_disjoint(recipe.partitioner));
    memory.reserve(std::max<std::uint64_t>(capacity, buffers_.most_sent()));
  }

  void begin_step(std::size_t value_bytes, step_role const role) {
    forget_step();
    info.step = selection.steps();
    info.rank = static_cast<std::uint32_t>(role.rank);
    ranks.forget_bytes();
    watch_ = {};
    report_ = {};
    report_.step = selection.steps();
    report_.world = role.world;
    report_.capacity = static_cast<index_type>(capacity);
    report_.baseline_bytes = value_bytes * info.n;
  }

  /// From now on the previous step can be neither discarded nor encoded.
  void forget_step() noexcept {
    memory.forget();
    passthrough.forget();
    last = {};
  }

  void end_step() noexcept { selection.end_step(); }

  // ---- Accumulate, select, exchange and apply ----------------------------------------------------------------

  template <class T>
  [[nodiscard]] incoming<T> prepare(gradient_ref<T const> const gradient, int in_world) {
    return selection.prepare(gradient, in_world);
  }

  template <class T>
  void accumulate(incoming<T> const& in, step_role const role) {
    selection.accumulate(in, role);
    watch_.charge(report_.seconds.accumulate);
  }

  /// Called before the set of skipped layers changes; always allowed on the host.
  static constexpr void may_exclude() noexcept {}

  /// Excludes the skipped layers from selection. Allocates.
  void exclude(std::span<std::uint32_t const> bins) {
    passthrough.reserve_skipped();
    work.plan(selection.segments().all(), parts::now.excluded(), capacity, bins);
  }

  /// Moves passthrough values, clamped to +-limit, out of the residual; holds skipped layers' until put_back().
  void take_passthrough(float limit) {
    report_.saturated += passthrough.take(limit);
    report_.passthrough_layers = static_cast<std::uint32_t>(parts::now.passthrough().size());
    report_.passthrough_elements = passthrough.size();
    report_.skipped_elements = parts::now.skipped_elements();
    watch_.charge(report_.seconds.partition);
  }

  /// Returns to the accumulators what take_passthrough() kept for them.
  void put_back() { passthrough.put_back(); }

  [[nodiscard]] entries select(step_role const role) {
    auto const own = selection.select(role);
    watch_.charge(report_.seconds.select);
    return own;
  }
  void quantise(entries const& own, float limit) {
    selection.quantise(own, info, limit);
    watch_.charge(report_.seconds.select);
  }

  /// Sends this rank's entries, receives the others', and sums the passthrough values. Collective. @throws the failure,
  /// and what the exchange throws; communication_error if a message was damaged.
  template <class Comm>
  [[nodiscard]] exchange_result exchange(Comm const& comm, entries const& own, float limit,
                                         held_failure const& failure) {
    auto const result = buffers_.run(exchange_round<Comm, host_workspace, codec_type>{
        comm, work, recipe.codec, info, ranks, word(), preflight::decision(selection.decision(), parts::now.hash()),
        failure.why(), own, memory.state(0), limit});
    auto const passthrough_bytes = passthrough.share(comm, result.damage != nullptr);
    if (result.damage) std::rethrow_exception(result.damage);
    if (passthrough.failed()) throw communication_error("gradsieve: a message was damaged on its way to another rank");
    if (!passthrough.finite())
      throw corrupt_message("gradsieve: a sum over the ranks holds a value that is not finite");
    report_.bytes_sent += ranks.sent() + result.bytes_sent + passthrough_bytes;
    report_.bytes_received += ranks.received() + result.bytes_received + passthrough_bytes;
    report_.saturated += result.saturated;
    breakdown(result.sent, passthrough.ranges(), result.message);
    if (*result.index_codec != 0) report_.message.index_codec = result.index_codec;
    watch_.charge(report_.seconds.exchange);
    return result;
  }

  /// Makes what was sent pending: the next accumulate pass subtracts it from the residual.
  void mark_pending(exchange_result const& result) noexcept { memory.remove_sent(result.sent); }
  void mark_pending(entries const& own) noexcept { memory.remove_sent(own); }

  /// Writes the mean to the gradient.
  template <class T>
  void apply(exchange_result const& result, gradient_ref<T> const gradient) {
    auto const divisor = static_cast<float>(world);
    auto const applied = work.apply(result.updates, divisor, gradient);
    report_.union_size = applied.entries;
    report_.saturated += applied.saturated + passthrough.write(divisor, gradient);
    watch_.charge(report_.seconds.apply);
  }

  /// Restores what this step has removed, during the step or after it. Idempotent.
  void rollback() {
    memory.rollback();
    passthrough.rollback();
  }
  void abandon() { rollback(); }

  // ---- Messages and reports --------------------------------------------------------------------------------------

  [[nodiscard]] selection_type selected(entries const& own) noexcept {
    report_.union_size = own.indices.size();
    last = {{own.indices, own.values, passthrough.own()}, ++compressions_};
    return last;
  }

  /// True if `chosen` is what the last compress() selected, in the same memory.
  [[nodiscard]] bool is_last(selection_view const chosen) const noexcept {
    auto const same = [](auto const a, auto const b) { return a.data() == b.data() && a.size() == b.size(); };
    return same(chosen.indices, last.indices) && same(chosen.values, last.values) &&
           same(chosen.passthrough, last.passthrough);
  }

  [[nodiscard]] bool owns_part_of(selection_view const chosen) const noexcept {
    return selection.owns_part_of(chosen) ||
           shares_memory(std::as_bytes(chosen.passthrough), std::as_bytes(passthrough.memory()));
  }

  /// Encodes the last selection; the report counts its bytes. Allocates on first use.
  [[nodiscard]] std::span<std::byte const> encode(selection_type const& chosen) {
    auto const message = write_message(chosen);
    report_.bytes_sent = message.size();
    breakdown(chosen, chosen.passthrough.empty() ? std::span<range const>{} : passthrough.ranges(), message);
    return message;
  }

  /// Encodes a caller's selection. @throws invalid_argument as check_selection()
  [[nodiscard]] std::span<std::byte const> encode_copy(selection_view const chosen) {
    check_selection(recipe.codec, info, std::span<range const>{split.passthrough}, chosen, capacity);
    return write_message(chosen);
  }

  [[nodiscard]] step_report const& report() const noexcept { return report_; }

  host_workspace work;
  residual_memory<host_workspace, residual_type> memory;
  passthrough_part<host_workspace, residual_type> passthrough;
  preflight ranks;
  host_selection_stage<Recipe> selection;
  host_selection last;  ///< of the last step, if that was a compress(); otherwise its number is 0

 private:
  /// Attributes the bytes of a message, as far as known, and all other bytes of the step.
  void breakdown(selection_view const sent, std::span<range const> passed, std::span<std::byte const> message) {
    if (message.empty()) return;
    report_.message = byte_breakdown_of(recipe.selector, recipe.codec, info, sent, passed, message);
    report_.message.share_out(static_cast<double>(report_.bytes_sent) - report_.message.bytes());
  }

  /// @pre no more entries than capacity
  [[nodiscard]] std::span<std::byte const> write_message(selection_view const chosen) {
    auto const bytes = recipe.codec.max_bytes(info.n, capacity, info.passthrough);
    if (outgoing_.size() < bytes) outgoing_ = host_buffer<std::byte>(bytes);
    return outgoing_.first(encode_checked(recipe.codec, info, chosen, outgoing_.span()));
  }

  typename exchange_type::template buffers<host_workspace> buffers_;
  host_buffer<std::byte> outgoing_;
  std::uint64_t compressions_ = 0;
  step_report report_;  // of the last step
  stopwatch watch_;
};

}  // namespace gradsieve::detail
