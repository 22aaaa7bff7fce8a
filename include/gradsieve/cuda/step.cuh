// The stages of a step on a device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/codec/byte_breakdown.hpp>
#include <gradsieve/codec/message.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/cuda/codec/codec.cuh>
#include <gradsieve/cuda/exchange/device_exchange.cuh>
#include <gradsieve/cuda/exchange/through_device.cuh>
#include <gradsieve/cuda/faults.cuh>
#include <gradsieve/cuda/memory.cuh>
#include <gradsieve/cuda/passthrough.cuh>
#include <gradsieve/cuda/pieces.cuh>
#include <gradsieve/cuda/report.cuh>
#include <gradsieve/cuda/selection_stage.cuh>
#include <gradsieve/cuda/workspace.cuh>
#include <gradsieve/exchange/preflight.hpp>
#include <gradsieve/exchange/round.hpp>
#include <gradsieve/step/parts.hpp>
#include <gradsieve/step/recipe.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// step_parts on a device.
template <class Recipe>
class device_step_parts : public step_parts<Recipe> {
 public:
  device_step_parts(device where, layout about, Recipe policies)
      : step_parts<Recipe>{std::move(about), std::move(policies)}, work{where, this->layers.size()} {}

  /// Wraps a caller's gradient, which check() has not seen.
  template <class Gradient>
  [[nodiscard]] auto gradient_of(Gradient& gradient) const {
    return checked_device_gradient(gradient, this->layers);
  }

  /// @throws invalid_argument unless the gradient is as large as the layout
  template <class T>
  void check(gradient_ref<T> const gradient) const {
    gradient.check(this->layers);
  }

  /// Zeroes the gradient of a failed rank, whose step goes on in the stream.
  template <class T>
  [[nodiscard]] gradient_ref<T> without_values(gradient_ref<T> const gradient) const {
    check(gradient);
    gradient.for_each_run(0, gradient.size(), [&](std::span<T> const run) {
      throw_on_error(cudaMemsetAsync(run.data(), 0, run.size_bytes(), work.where().stream), "cudaMemsetAsync");
    });
    return gradient;
  }

  /// Communicator and space for the handshake before a step.
  template <class Comm>
  [[nodiscard]] through_device<Comm> for_host(Comm const& comm) const {
    return {work.where(), comm, meeting_.span()};
  }
  [[nodiscard]] static host on_host() noexcept { return {}; }

  /// Allocates for the words of `ranks` ranks.
  void reserve_meeting(int ranks) {
    meeting_ = cuda_buffer<std::byte>{
        work.where(), 256 + sizeof(preflight::packed_word) * static_cast<std::uint64_t>(ranks)};
  }

  cuda_workspace work;

 private:
  cuda_buffer<std::byte> meeting_;  // for the ranks' words
};

/// Breakdown of a message that this rank has sent, in host memory.
template <class Recipe>
[[nodiscard]] byte_breakdown own_breakdown(Recipe const& recipe, message_info info, std::uint64_t capacity,
                                           std::span<range const> passed, std::span<std::byte const> message) {
  info.passthrough =
      wire::load_one<std::uint64_t>(message.subspan(message_header::passthrough_at));  // none in an exchange
  auto const count = wire::load_one<std::uint64_t>(message.subspan(message_header::count_at));
  wire::check_count(count, capacity);
  std::vector<index_type> indices(count);
  std::vector<float> values(indices.size());
  std::vector<float> through(info.passthrough);
  auto const found = recipe.codec.decode(info, message, {indices, values, through});
  return byte_breakdown_of(recipe.selector, recipe.codec, info, found, passed, message);
}

/// The stages that compressor<device, Recipe> calls in order. They enqueue their work and return. A failure in the
/// stream sets a word in device memory, which later stages of the step check, and the report or a later call throws.
template <class Recipe>
class device_step : public device_step_parts<Recipe> {
  using parts = device_step_parts<Recipe>;
  using selector_type = typename parts::selector_type;
  using codec_type = typename parts::codec_type;
  using residual_type = typename parts::residual_type;
  using stored_type = stored_t<residual_type>;

 public:
  struct [[maybe_unused]] arithmetic {};         ///< a device rounds in one way only
  static constexpr bool holds_failures = false;  ///< other ranks learn of them in stream order
  using entries = cuda_workspace::entry_list;    ///< of this rank, before they are sent
  using selection_type = device_selection;       ///< what compress() returns
  using report_type = device_report;
  template <class T>
  using incoming = cuda_kernels::incoming<T, residual_type>;

  using parts::capacity;
  using parts::info;
  using parts::layers;
  using parts::recipe;
  using parts::split;
  using parts::work;
  using parts::world;

  device_step(device where, layout about, Recipe policies)
      : parts{where, std::move(about), std::move(policies)},
        memory{work, recipe.residual},
        passthrough{work, memory, split, parts::now},
        ranks{layers, recipe.hash(), 0},
        faults_{work},
        exchange_{exchange_buffers_of<decltype(exchange_)>(recipe.exchange)},
        selection{recipe, work, memory, exchange_, record_} {}
  ~device_step() { cudaStreamSynchronize(work.where().stream); }  // enqueued work uses this memory

  [[nodiscard]] preflight::word word() const { return {selection.steps(), this->origin}; }  // waits

  /// Allocates for the segments in a world of `ranks_planned_for` ranks. Waits.
  void reserve(int ranks_planned_for) {
    record_ = {};
    parts::reserve_meeting(ranks_planned_for);
    auto const& segments = selection.segments();
    selection.reserve(capacity, layers);
    exchange_.reserve(work, recipe.codec, info, ranks_planned_for, capacity, is_disjoint(recipe.partitioner));
    memory.reserve(std::max<std::uint64_t>(capacity, exchange_.most_sent()));
    passthrough.reserve(segments.size(), segments.most());
    passthrough.choose(segments, false);
    memory.forget();
    work.where().synchronize();
  }

  /// Holds the error of an earlier exchange, if any, until end_step(). @throws invalid_argument in a capture, before
  /// anything is enqueued, if the ranks have to meet or elements to be counted.
  void begin_step(std::size_t value_bytes, step_role const role) {
    auto const reported = faults_.take_reported(work);
    if (earlier_fault_ == 0) earlier_fault_ = reported;  // not 0: kept by a step that threw
    if (recipe.on_non_finite == non_finite::fail || (role.exchanging && !this->met))
      work.where().refuse_capture("it waits for the stream");
    info.rank = static_cast<std::uint32_t>(role.rank);
    ranks.forget_bytes();
    selection.begin_step();
    entered_ = taken_passthrough_ = false;
    last = {};
    record_ = {};
    record_.where = work.where();
    record_.faults = &faults_;
    record_.selected = memory.taken().count;
    record_.non_finite = work.counts().non_finite();
    record_.saturated = work.counts().saturated();
    record_.thresholds = work.counts().thresholds();
    record_.steps = work.step().data();
    auto& known = record_.known;
    known.step = selection.steps_begun();
    known.world = role.world;
    known.capacity = static_cast<index_type>(capacity);
    known.baseline_bytes = value_bytes * info.n;
    if constexpr (layer_bin_selector<selector_type> || accounting_codec<codec_type>)
      record_.breakdown = [this](std::span<std::byte const> message) {
        return own_breakdown(recipe, info, capacity, split.passthrough, message);
      };
  }

  /// Makes the last step final: it can no longer be discarded or encoded. @pre nothing is pending
  void forget_step() {
    memory.forget();
    last = {};
  }

  /// Throws the error of an earlier exchange; the other ranks have received what they wait for.
  void end_step() {
    selection.end_step();
    selection.rethrow();
    device_faults::raise(std::exchange(earlier_fault_, 0));
  }

  /// Copies a gradient in pieces to contiguous memory.
  template <class T>
  [[nodiscard]] incoming<T> prepare(gradient_ref<T const> const gradient, int in_world) {
    return selection.prepare(flat_.read(work.where(), gradient), in_world);
  }

  template <class T>
  void accumulate(incoming<T> const& in, step_role const role) {
    selection.accumulate(in, role);
    entered_ = true;
  }

  /// Call before the skipped layers change. @throws invalid_argument in a capture.
  void may_exclude() const { work.where().refuse_capture("it skips other layers than the step before"); }

  /// Excludes the layers to skip from selection. Waits, allocates.
  void exclude(std::span<std::uint32_t const> bins) {
    auto warm_thresholds = selection.warm_thresholds();
    memory.flush_pending();  // by the segments as they still are
    record_ = {};
    work.plan(selection.segments().all(), parts::now.excluded(), capacity, bins);
    selection.plan_again(std::move(warm_thresholds), parts::now.hash());
    passthrough.reserve_skipped();
    passthrough.choose(selection.segments(), false);
    work.where().synchronize();
  }

  /// Moves passthrough values, clamped to +-limit, out of the residual; holds back skipped layers until put_back().
  void take_passthrough(float limit) {
    passthrough.take(limit, work.counts().saturated(), work.counts().stays());
    record_.known.passthrough_layers = static_cast<std::uint32_t>(parts::now.passthrough().size());
    record_.known.passthrough_elements = passthrough.size();
    record_.known.skipped_elements = parts::now.skipped_elements();
    taken_passthrough_ = true;
  }

  void put_back() { passthrough.put_back(work.counts().stays()); }  // idempotent

  [[nodiscard]] entries select(step_role const role) { return selection.select(role); }
  void quantise(entries const& own, float limit) { selection.quantise(own, info, limit); }

  /// Sends this rank's entries, receives the others', and sums passthrough values. If that fails on any rank, nothing
  /// is given up and the updates are empty. Collective.
  template <class Comm>
  [[nodiscard]] device_updates exchange(Comm const& comm, entries const&, float limit, held_failure const& failure) {
    failed_here_ = bool{failure};
    if (failed_here_)
      work.template launch<cuda_kernels::set_failed<>>(1, 1, static_cast<std::uint32_t>(comm.rank()), faults_.error());
    cuda_kernels::exchange_end end{memory.taken(), work.tables().cell_count, passthrough.size() == 0, faults_.touched(),
                                   faults_.reported(failed_here_)};
    auto const result = exchange_.run(device_round<Comm, stored_type, codec_type>{
        comm, work, selection.codec(), info, memory.taken(), memory.accumulator(), selection.decision(),
        faults_.error(), limit, work.counts().saturated(), end});
    auto const* const errors = passthrough.share(comm, faults_.error(), result.after_kernel);
    end.fills = result.unlisted > 0;
    if (!result.ended)
      work.template over_early_if<cuda_kernels::end_exchange<>>(
          errors == nullptr && result.after_kernel, result.senders * (result.unlisted + end.cells + 1), errors,
          result.updates, result.senders, faults_.error(), end);
    passthrough.return_rest(faults_.error(), work.counts().stays(), true);
    count_bytes(comm, result);
    return result;
  }

  /// Does nothing: the next accumulate pass subtracts what is listed in the residual memory.
  template <class Sent>
  static void mark_pending(Sent const&) noexcept {}

  template <class T>
  void apply(device_updates const& result, gradient_ref<T> const gradient) {
    auto const divisor = static_cast<float>(world);
    auto const out = flat_.target(work.where(), gradient);
    write_update(work, result, divisor, out, range{0, work.size()}, faults_.touched(), work.counts().saturated());
    passthrough.write(divisor, faults_.error(), out, work.counts().saturated());
    flat_.write(work.where(), gradient);
    if (failed_here_) faults_.clear(work);
  }

  void rollback() {  // idempotent
    memory.rollback();
    passthrough.rollback_if(&work.taken()->open);
    memory.forget();
  }

  /// After an exception in a step: restores what was taken out. A gradient that was accumulated stays in the residual.
  void abandon() noexcept {
    try {
      put_back();
      if (taken_passthrough_) {
        faults_.set(work);
        passthrough.rollback_if(faults_.error());
        faults_.clear(work);
      }
      if (entered_) {
        work.forget_counts();
        memory.forget();
      } else {
        memory.close();
      }
      if (record_.words == nullptr) record_.faults = nullptr;  // device memory has the last step's numbers
    } catch (...) {  // the device is gone: the exception that is under way says so
    }
  }

  [[nodiscard]] selection_type selected(entries const& own) noexcept {
    record_.union_is_selected = true;
    last = {own.indices, own.values, own.count, capacity, passthrough.own(), ++compressions_};
    return last;
  }

  /// True if `chosen` is what the last compress() returned, in the same memory.
  [[nodiscard]] bool is_last(selection_type const& chosen) const noexcept {
    return chosen.indices == last.indices && chosen.values == last.values && chosen.count == last.count &&
           chosen.passthrough.data() == last.passthrough.data() && chosen.passthrough.size() == last.passthrough.size();
  }

  /// Encodes the last selection, in memory for the largest message. The first use allocates and waits.
  [[nodiscard]] std::span<std::byte const> encode(selection_type const&) {
    auto const most = (recipe.codec.max_bytes(info.n, capacity, info.passthrough) + 7) / 8 * 8;
    if (outgoing_.size() < most) {
      work.where().synchronize();  // an earlier message may still be written
      outgoing_ = work.template zeroed<std::byte>(most);
      outgoing_state_ = work.template zeroed<cuda_kernels::message_state>(1);
    }
    selection.codec().send(work, info, memory.taken(), passthrough.own().data(),
                           {outgoing_.data(), most, outgoing_state_.data()}, {});
    std::span<std::byte const> const bytes = outgoing_.first(most);
    record_.known.bytes_sent = bytes.size();
    record_.message = outgoing_state_.data();
    record_.sent = bytes.data();
    return bytes;
  }

  [[nodiscard]] report_type report() const noexcept { return report_type{record_}; }

  device_residual_memory<residual_type> memory;
  device_passthrough_part<residual_type> passthrough;
  preflight ranks;

 private:
  device_faults faults_;
  device_step_record record_;
  device_exchange<typename parts::exchange_type, codec_type> exchange_;

 public:
  device_selection_stage<Recipe> selection;
  device_selection last;  ///< of the last step, if that was a compress(); else its number is 0

 private:
  template <class Comm>
  void count_bytes(Comm const& comm, device_updates const& result) {
    auto& known = record_.known;
    std::uint64_t const passthrough_bytes = passthrough.size() > 0 ? 4 * (passthrough.size() + 1) : 0;
    known.bytes_sent += ranks.sent() + result.bytes_sent + passthrough_bytes;
    known.bytes_received += ranks.received() + result.bytes_received + passthrough_bytes;
    record_.message = result.message;
    record_.sent = result.sent;
    known.staged = is_staging(comm);
  }

  std::uint64_t compressions_ = 0;
  std::uint64_t earlier_fault_ = 0;  // an exchange_fault that this step throws at its end
  flat_gradient flat_;
  cuda_buffer<std::byte> outgoing_;
  cuda_buffer<cuda_kernels::message_state> outgoing_state_;
  bool entered_ = false;  // this step's gradient is in the residual
  bool taken_passthrough_ = false;
  bool failed_here_ = false;
};

}  // namespace gradsieve::detail
