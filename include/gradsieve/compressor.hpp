// The owner of a recipe, its residual and its scratch: a gradient goes in, the averaged sparse update comes out.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/checkpoint.hpp>
#include <gradsieve/codec/account.hpp>
#include <gradsieve/codec/limit.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/dense_layers.hpp>
#include <gradsieve/exchange/dense.hpp>
#include <gradsieve/exchange/inbox.hpp>
#include <gradsieve/exchange/preflight.hpp>
#include <gradsieve/exchange/round.hpp>
#include <gradsieve/float_environment.hpp>
#include <gradsieve/recipe.hpp>
#include <gradsieve/report.hpp>
#include <gradsieve/residual/memory.hpp>
#include <gradsieve/segmentation.hpp>
#include <gradsieve/selector/select.hpp>
#include <gradsieve/space/host.hpp>

namespace gradsieve {

/// Compresses one flat gradient, step after step. With a communicator: exchange(). With a transport of one's own:
/// compress(), encode(), and on the other side apply(). One compressor a rank; not for concurrent use. One that
/// was moved from throws invalid_argument from every member that is not noexcept, until another is moved into it.
///
/// Nothing is lost: what came in is sent or stays in the residual. An exception in mid-step leaves the gradient
/// in the residual and nothing given up; one that is thrown for bad input comes before anything changes.
/// Steps allocate nothing; the constructor does, and the first exchange with a world of another size.
/// Memory: the residual store's, and 50 to 70 bytes for each entry that a step may send; see host_workspace.
template <space Space, class Recipe>
class compressor {
 public:
  using workspace = typename Space::workspace;
  using selector_type = decltype(Recipe::selector);
  using partitioner_type = decltype(Recipe::partitioner);
  using residual_type = decltype(Recipe::residual);
  using codec_type = decltype(Recipe::codec);
  using exchange_type = decltype(Recipe::exchange);
  static_assert(selector<selector_type, workspace>,
                "recipe.selector needs fit(workspace, accumulator, k) and a noexcept keep(value, cut), or "
                "select(workspace, accumulator, k, out); it must be comparable and trivially copyable");
  static_assert(!bin_selector<selector_type> || !partitioner_type::needs_norms,
                "a selector that has bins chooses in the accumulate pass: it needs a partitioner without norms");
  static_assert(partitioner<partitioner_type>,
                "recipe.partitioner needs default_exchange, needs_norms, disjoint, cut(layers, world, segments) and "
                "assign(segments, squared_norms, budget, scratch)");
  static_assert(residual_store<residual_type>,
                "recipe.residual needs states, a noexcept enter(gradient, state) and a noexcept leave(sent, state, "
                "whole_layer)");
  static_assert(std::is_same_v<stored_t<residual_type>, float>, "on the host a residual is kept as float");
  static_assert(codec<codec_type>, "recipe.codec needs max_bytes, encode and decode");
  static_assert(
      requires { bool{exchange_type::encodes}; },
      "recipe.exchange needs encodes: whether what is sent went through the codec");
  static_assert(quantise_fits<codec_type>,
                "recipe.codec's quantise must be quantise(info, indices, std::span<float>) const noexcept");

  /// @throws what the recipe's check() throws.
  compressor(Space where, layout layers, Recipe recipe)
      : layers_{std::move(layers)},
        recipe_{checked(std::move(recipe))},
        split_{layers_, recipe_.dense},
        info_{layers_.size(), layers_.hash(), split_.dense_elements},
        work_{where, layers_.size()},
        memory_{work_, layers_.size()},
        preflight_{layers_, recipe_.hash(), work_.arithmetic(recipe_.residual)} {
    plan(1);
  }

  // ---- With a communicator ---------------------------------------------------------------------------------

  /// Replaces the gradient (a vector, array or span of float, float16 or bfloat16) by the mean over all ranks of
  /// what they sent: most elements zero, the same bits on every rank. Collective. Where a rank is new, was restored, or
  /// the world has another size, the ranks compare layout, recipe and step before anything changes; in all other steps
  /// once this rank knows what it sends. Allocates in the first step with a world of another size.
  /// @throws invalid_argument if the gradient's size is not the layout's; non_finite_gradient if the recipe asks
  /// for it; mismatch on every rank if they differ, naming what and where; communication_error, corrupt_message. A rank
  /// that fails before it has sent makes all ranks throw in this step. Bytes that are damaged on their way to one rank
  /// make all throw where something is sent dense or the exchange is `leader`; else that rank alone, and the next step
  /// is a mismatch: begin again from a checkpoint.
  template <communicator Comm, class Gradient>
  step_report exchange(Comm const& comm, Gradient&& gradient) {
    require_here();
    return exchange_span(comm, checked_span(gradient), {});
  }

  /// Takes part in an exchange() of the other ranks as one that has failed: it throws on them, and no rank gives
  /// anything up. What this rank holds stays as it is; its step before cannot be discarded any more. The gradient is
  /// neither read nor written. Collective. @throws as exchange(), but not for this rank's own failure.
  template <communicator Comm, class Gradient>
  void fail(Comm const& comm, Gradient&& gradient) {
    require_here();
    struct own_failure {};
    try {
      exchange_span(comm, checked_span(gradient).first(0), std::make_exception_ptr(own_failure{}));
    } catch (own_failure const&) {
    }
  }

  /// Makes the buffers for this world, and compares layout, recipe and step of all ranks: what the first exchange()
  /// does. Collective. Allocates. @throws mismatch, on every rank, naming what differs and where.
  template <communicator Comm>
  void connect(Comm const& comm) {
    require_here();
    std::exception_ptr failure;
    attempt(failure, [&] { preflight_.reserve(comm.size()); });
    attempt(failure, [&] { plan(comm.size()); });
    meet_early(comm, 0, failure);
  }

  // ---- With a transport of one's own -----------------------------------------------------------------------

  /// Selects what to send of this gradient and takes it out of the residual. The view lives until the next step.
  /// @throws invalid_argument if the gradient's size is not the layout's; non_finite_gradient.
  template <class Gradient>
  selection_view compress(Gradient const& gradient) {
    require_here();
    std::span const values = checked_span(gradient);
    return compress_span(std::span<typename decltype(values)::value_type const>{values});
  }

  /// The report of the last compress().
  [[nodiscard]] step_report const& report() const noexcept { return report_; }

  /// The last compress() as bytes that describe themselves. The span lives until the next encode().
  /// Cost: one copy. Allocates on first use. @throws invalid_argument unless the last step was a compress().
  [[nodiscard]] std::span<std::byte const> encode() {
    require_here();
    if (!compressed_) throw invalid_argument("gradsieve: encode() needs a compress() that succeeded as the last step");
    float_environment const mode;
    auto const bytes = recipe_.codec.max_bytes(info_.n, capacity_, info_.dense);
    if (outgoing_.size() < bytes) outgoing_ = typename workspace::template buffer<std::byte>(bytes);
    report_.bytes_sent = recipe_.codec.encode(info(), last_, outgoing_.span());
    auto const message = outgoing_.first(report_.bytes_sent);
    account(last_, last_.dense.empty() ? std::span<range const>{} : dense_.ranges(), message, report_);
    return message;
  }

  /// Overwrites the gradient with the mean of what the messages hold, added in their order; zero where none has an
  /// entry. All messages are read and checked before the gradient is written. Does not touch the residual.
  /// Returns how many elements any message has, and how many are cut to the largest value of the gradient's format.
  /// Cost: n writes and O(entries). Memory: 8 bytes for each entry that the messages' headers and sizes allow, and half
  /// as much again, 4 for each element that passes through and message, kept for the next call. Allocates where that is
  /// more than ever before.
  /// @throws corrupt_message, invalid_argument; std::bad_alloc, and the next call works.
  template <class Gradient>
  applied_update apply(std::span<std::span<std::byte const> const> messages, Gradient&& gradient) {
    require_here();
    float_environment const mode;
    auto const out = checked_span(gradient);
    check_size(out.size());
    std::uint64_t entries = 0;
    for (auto const& each : messages) {
      wire::expect(each.size() >= 4 * info_.dense, "size", each.size(), "at least ", 4 * info_.dense);
      entries += most_entries(recipe_.codec, info_, each, each.size());
    }
    inbox_.reserve(messages.size(), entries, info_.dense * messages.size());
    work_.reserve_updates(messages.size());
    if (dense_mean_.size() < info_.dense) dense_mean_ = typename workspace::template buffer<float>(info_.dense);
    for (auto const& each : messages)
      inbox_.add(recipe_.codec, info(), each, most_entries(recipe_.codec, info_, each, each.size()));
    auto const divisor = static_cast<float>(std::max<std::size_t>(messages.size(), 1));
    auto applied = work_.apply(inbox_.messages(), divisor, out);
    for (std::size_t i = 0; i < info_.dense; ++i) dense_mean_[i] = mean_of_dense(i, divisor);
    applied.saturated += write_ranges(std::span<range const>{split_.dense},
                                      std::span<float const>{dense_mean_.first(info_.dense)}, 1.0f, out);
    return applied;
  }

  // ---- Around a step ---------------------------------------------------------------------------------------

  /// The last step's update was not used (an overflow, a rollback): what this rank gave up for it returns to the
  /// residual, bit for bit, and goes out with a later step. The step's gradient stays in. Call it on every rank.
  void discard_step() {
    require_here();
    memory_.give_back(work_);
  }

  /// Multiplies the residual, after a change of loss scale by new / old. Elements that would not stay finite keep
  /// their value. @throws invalid_argument unless the factor is finite.
  void rescale(float factor) {
    require_here();
    float_environment const mode;
    if (!is_finite(factor)) throw invalid_argument("gradsieve: rescale factor is not finite");
    settle();
    segments_.hints().assign(segments_.size(), {});  // before anything changes, as it may allocate
    memory_.rescale(work_, factor);
  }

  /// L2 norm of what has not been sent. Cost: one pass.
  [[nodiscard]] double residual_norm() {
    require_here();
    float_environment const mode;
    settle();
    return std::sqrt(work_.sum_squares(std::span<float const>{memory_.state(0)}));
  }

  /// What has not been sent, element by element. Lives until the next step. Cost: O(entries of the last step).
  [[nodiscard]] std::span<float const> residual() {
    require_here();
    settle();
    return memory_.state(0);
  }

  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  [[nodiscard]] layout const& layers() const noexcept { return layers_; }
  [[nodiscard]] Recipe const& policies() const noexcept { return recipe_; }

  // ---- Across restarts -------------------------------------------------------------------------------------

  /// Everything that the next steps depend on, as bytes. Local to a rank. Cost: a copy of the residual. Allocates.
  [[nodiscard]] std::vector<std::byte> state() {
    require_here();
    settle();
    return checkpoint{residual_type::states,
                      kind_of_store(recipe_.residual),
                      info_.n,
                      info_.layout_hash,
                      step_,
                      segments_.hints(),
                      {}}
        .write([&](std::size_t s) { return memory_.state(s); });
  }

  /// Continues where state() was taken. Ranks that are at another step in the next exchange make all ranks throw there.
  /// @throws corrupt_state, mismatch; std::bad_alloc. This compressor is unchanged then.
  void restore(std::span<std::byte const> bytes) {
    require_here();
    auto found = checkpoint::read(bytes, recipe_.residual, info_.n, info_.layout_hash);
    settle();
    for (std::size_t s = 0; s < residual_type::states; ++s)
      wire::load(memory_.state(s), found.values.subspan(4 * info_.n * s));
    segments_.hints() = std::move(found.hints);  // perhaps of another world: kept until a step begins
    step_ = found.step;
    origin_ = preflight::origin::restored;
    met_ = false;
    begin_step();
  }

  /// Adds the residual of a rank that left the world, so that what it had not sent is not lost. When the world
  /// shrinks or grows, rescale(new size / old size) all that remain. Elements whose sum would not be finite keep
  /// their value. The last step cannot be discarded any more. @throws as restore().
  void absorb(std::span<std::byte const> bytes) {
    require_here();
    auto const found = checkpoint::read(bytes, recipe_.residual, info_.n, info_.layout_hash);
    std::vector<float> values(info_.n);
    begin_step();
    settle();
    for (std::size_t s = 0; s < residual_type::states; ++s) {
      wire::load(std::span{values}, found.values.subspan(4 * info_.n * s));
      memory_.absorb(work_, s, values);
    }
  }

 private:
  template <class Comm, class T>
  step_report exchange_span(Comm const& comm, std::span<T> gradient, std::exception_ptr failure) {
    static_assert(
        has_all_gather<Comm, Space> && has_all_reduce<Comm, Space, float> && has_all_reduce<Comm, Space, double>,
        "this communicator needs all_gather and all_reduce for float and double");
    static_assert(
        !requires { exchange_type::needs_broadcast; } || has_broadcast<Comm, Space>,
        "this communicator needs broadcast, as the recipe's exchange sends from one rank to all");
    float_environment const mode;
    begin_step();
    preflight_.forget_bytes();
    attempt(failure, [&] { preflight_.reserve(comm.size()); });
    attempt(failure, [&] { check_size(gradient.size()); });
    attempt(failure, [&] {
      if (world_ != comm.size()) plan(comm.size());
    });
    step_report report = start_report(sizeof(T), comm.size());
    stopwatch watch;
    std::span<T const> const incoming = gradient;
    bool const fails = recipe_.on_non_finite == non_finite::fail;
    bool const meets_first = fails || !met_;
    if (meets_first) {
      std::uint64_t bad = 0;
      attempt(failure, [&] { bad = fails ? count_non_finite(incoming) : 0; });
      try {
        meet_early(comm, bad, failure);
      } catch (communication_error const&) {  // another rank's: this one keeps its gradient, as later in the step
        if (!failure && bad == 0) enter(incoming, comm.rank(), report);
        throw;
      }
      if (auto const all = preflight_.total(); fails && all > 0)
        throw non_finite_gradient(non_finite_text(all) + " (all ranks together)");
    }
    attempt(failure, [&] { enter(incoming, comm.rank(), report); });
    watch.charge(report.seconds.accumulate);
    try {
      float const summed = largest_summand(comm.size());
      if constexpr (partitioner_type::needs_norms) {
        if (!meets_first) meet_early(comm, 0, failure);
        share_norms(comm, failure, report);
      }
      if (!failure) take_dense(true, std::min(summed, largest_value<T>), report);
      watch.charge(report.seconds.partition);
      selection_view own;
      attempt(failure, [&] { own = select_own(comm.rank(), true, report); });
      watch.charge(report.seconds.select);
      if constexpr (exchange_type::encodes) attempt(failure, [&] { quantise(own, largest_value<T>, report); });
      auto const result = buffers_.run(exchange_round<Comm, workspace, codec_type>{
          comm, work_, recipe_.codec, info(), preflight_, word(), segments_.decision(step_), failure, own,
          memory_.state(0), std::min(summed, largest_value<T>)});
      auto const dense_bytes = dense_.share(comm, work_, result.damage != nullptr);
      if (result.damage) std::rethrow_exception(result.damage);
      if (dense_.failed()) throw communication_error("gradsieve: a message was damaged on its way to another rank");
      report.bytes_sent += preflight_.sent() + result.bytes_sent + dense_bytes;
      report.bytes_received += preflight_.received() + result.bytes_received + dense_bytes;
      report.saturated += result.saturated;
      account(result.sent, dense_.ranges(), result.message, report);
      if (*result.index_codec != 0) report.message.indices = result.index_codec;
      memory_.leave(result.sent);
      watch.charge(report.seconds.exchange);
      auto const applied = work_.apply(result.updates, static_cast<float>(world_), gradient);
      report.union_size = applied.entries;
      report.union_size += report.dense_elements - split_.dense_elements;  // segments that were sent whole
      report.saturated += applied.saturated;
      report.saturated += write_ranges(dense_.ranges(), dense_.sum(), static_cast<float>(world_), gradient);
      watch.charge(report.seconds.apply);
    } catch (...) {
      memory_.give_back(work_);
      throw;
    }
    ++step_;
    met_ = true;
    origin_ = preflight::origin::continued;
    return report;
  }

  template <class T>
  selection_view compress_span(std::span<T const> gradient) {
    float_environment const mode;
    begin_step();
    check_size(gradient.size());
    if (world_ == no_world) plan(1);
    if (recipe_.on_non_finite == non_finite::fail)
      if (auto const bad = count_non_finite(gradient); bad > 0) throw non_finite_gradient(non_finite_text(bad));
    report_ = start_report(sizeof(T), 1);
    stopwatch watch;
    enter(gradient, 0, report_);
    watch.charge(report_.seconds.accumulate);
    try {
      if constexpr (partitioner_type::needs_norms) {
        measure_norms();
        assign(1);
      }
      take_dense(false, largest_value<T>, report_);
      watch.charge(report_.seconds.partition);
      last_ = select_own(0, false, report_);
      quantise(last_, largest_value<T>, report_);
      last_.dense = dense_.own();
      watch.charge(report_.seconds.select);
    } catch (...) {
      last_ = {};
      memory_.give_back(work_);
      throw;
    }
    memory_.leave(last_);
    report_.union_size = last_.indices.size();
    compressed_ = true;
    ++step_;
    return last_;
  }

  /// True until the compressor is moved from.
  class presence {
   public:
    presence() = default;
    presence(presence&& other) noexcept : here_{std::exchange(other.here_, false)} {}
    presence& operator=(presence&& other) noexcept {
      bool const itself = &other == this;  // whose buffers are empty then
      here_ = std::exchange(other.here_, false) && !itself;
      return *this;
    }
    [[nodiscard]] explicit operator bool() const noexcept { return here_; }

   private:
    bool here_ = true;
  };

  void require_here() const {
    if (!here_) throw invalid_argument("gradsieve: this compressor was moved from");
  }

  /// A caller's vector, array or span, as a span.
  template <class Gradient>
  [[nodiscard]] static auto checked_span(Gradient& gradient) {
    std::span const values{gradient};
    static_assert(gradient_value<typename decltype(values)::value_type>,
                  "a gradient is contiguous memory of float, gradsieve::float16 or gradsieve::bfloat16");
    return std::span<typename decltype(values)::element_type>{values};
  }

  [[nodiscard]] static Recipe checked(Recipe recipe) {
    recipe.check();
    return recipe;
  }

  [[nodiscard]] static std::string non_finite_text(std::uint64_t count) {
    return "gradsieve: " + std::to_string(count) + " gradient elements are NaN or infinite";
  }

  /// The mean of an element that passes through, over the messages in the inbox.
  [[nodiscard]] GRADSIEVE_PRECISE float mean_of_dense(std::size_t i, float divisor) const noexcept {
    auto const all = inbox_.messages();
    float sum = all.empty() ? 0.0f : all[0].dense[i];
    for (std::size_t m = 1; m < all.size(); ++m) sum = add(sum, all[m].dense[i]);
    if (is_finite(sum)) return divide(sum, divisor);
    double wide = 0;  // a sum that overflows
    for (auto const& each : all) wide += static_cast<double>(each.dense[i]);
    return static_cast<float>(wide / static_cast<double>(divisor));
  }

  template <class Body>
  static void attempt(std::exception_ptr& failure, Body const& body) {
    if (failure) return;
    try {
      body();
    } catch (...) {
      failure = std::current_exception();
    }
  }

  void check_size(std::size_t size) const {
    if (size != info_.n)
      throw invalid_argument("gradsieve: gradient has " + std::to_string(size) + " elements, the layout has " +
                             std::to_string(info_.n));
  }

  /// What a message of this compressor is about. Made anew: a compressor may be moved, and its layout with it.
  [[nodiscard]] message_info info() const noexcept {
    auto about = info_;
    about.layers = &layers_;
    return about;
  }

  /// The values of this rank's own selection become what its receivers will decode: cut to the largest value that the
  /// codec and the output can hold, then rounded as the codec does. The residual keeps what that leaves.
  /// @throws corrupt_message if a codec makes one that is not finite: no receiver takes it, and what is left of it
  /// would never leave the residual.
  void quantise(selection_view const own, float limit, step_report& report) {
    auto const values = values_.first(own.values.size());
    report.saturated += work_.saturate(values, largest_coded(recipe_.codec, info(), limit));
    if constexpr (quantises<codec_type>) {
      recipe_.codec.quantise(info(), own.indices, values);
      wire::check_finite(own.values);
    }
  }

  /// Where the bytes of a message went, as far as it can be told, and with it all other bytes of the step.
  void account(selection_view const sent, std::span<range const> dense, std::span<std::byte const> message,
               step_report& report) const {
    if (message.empty()) return;
    report.message = account_of(recipe_.selector, recipe_.codec, info(), sent, dense, message);
    report.message.share_out(static_cast<double>(report.bytes_sent) - report.message.bytes());
  }

  /// The step before can no longer be discarded, nor encoded.
  void begin_step() noexcept {
    memory_.begin_step();
    last_ = {};
    compressed_ = false;
  }

  /// What the last step sent leaves the residual.
  void settle() { memory_.settle(work_, recipe_.residual); }

  /// Segments and buffers for a world of this size. Allocates. After an exception there is no plan: the next step makes
  /// one.
  void plan(int world) {
    float_environment const mode;
    begin_step();
    settle();
    world_ = no_world;
    met_ = false;
    segments_.plan(recipe_.partitioner, split_.selected, split_.selected_elements, recipe_.density.most(), world);
    auto const most = static_cast<index_type>(segments_.most());
    capacity_ = std::min<std::uint64_t>(selection_capacity(recipe_.selector, most), split_.selected_elements);
    auto const dense_most = split_.dense_elements + segments_.most();
    work_.plan(segments_.all(), split_.dense, capacity_, bin_lengths_of(recipe_.selector, layers_, segments_.all()));
    lower_.assign(segments_.size(), 0);
    indices_ = typename workspace::template buffer<index_type>(capacity_);
    values_ = typename workspace::template buffer<float>(capacity_);
    dense_.reserve(2 * split_.dense.size() + segments_.size() + 1, dense_most);
    buffers_.reserve(work_, recipe_.codec, info_, world, capacity_, partitioner_type::disjoint);
    memory_.reserve(std::max<std::uint64_t>(capacity_, buffers_.most_sent()), dense_most);
    world_ = world;
  }

  [[nodiscard]] step_report start_report(std::size_t value_bytes, int world) const {
    step_report report;
    report.step = step_;
    report.world = world;
    report.capacity = static_cast<index_type>(capacity_);
    report.bytes_dense = value_bytes * info_.n;
    return report;
  }

  [[nodiscard]] accumulator_ref accumulator(std::size_t s) noexcept {
    return segments_.view(memory_.state(0), s, step_);
  }

  template <class T>
  [[nodiscard]] float gradient_factor(std::span<T const> gradient) {
    if constexpr (requires { recipe_.residual.factor(0.0, 1); })
      if (recipe_.residual.needs_norm()) return recipe_.residual.factor(std::sqrt(work_.sum_squares(gradient)), world_);
    return 1.0f;
  }

  template <class T>
  [[nodiscard]] std::uint64_t count_non_finite(std::span<T const> gradient) {
    settle();
    return work_.count_non_finite(recipe_.residual, memory_.pointers(), gradient, gradient_factor(gradient));
  }

  [[nodiscard]] preflight::word word() const noexcept { return {step_, origin_}; }

  /// The ranks' meeting before anything changes.
  template <class Comm>
  void meet_early(Comm const& comm, std::uint64_t count, std::exception_ptr const& failure) {
    preflight_.meet_early(comm, work_.where(), word(), count, failure);
    met_ = true;
  }

  void assign(int world) { segments_.assign(recipe_.partitioner, recipe_.density(step_), step_, world); }

  /// Whether this rank selects from a segment; one that every rank sends whole it does not.
  [[nodiscard]] bool selects(std::size_t s, int rank, bool whole_taken) const noexcept {
    auto const& each = segments_[s];
    return segments_.gives(each) &&
           !(whole_taken && gives_whole_segments<selector_type> && segments_.sent_whole(each)) &&
           (each.owner == segment::every_rank || each.owner == rank);
  }

  /// The gradient into the residual; where segments are known beforehand, candidates in the same pass, of those that
  /// this rank selects from.
  template <class T>
  void enter(std::span<T const> gradient, int rank, step_report& report) {
    if (segments_.hints().size() != segments_.size()) segments_.hints().assign(segments_.size(), {});
    float const factor = gradient_factor(gradient);
    auto const states = memory_.pointers();
    bool measure = partitioner_type::needs_norms;
    std::fill(lower_.begin(), lower_.end(), 0);
    if constexpr (bin_selector<selector_type>) {
      assign(report.world);
      for (std::size_t s = 0; s < segments_.size(); ++s) lower_[s] = selects(s, rank, false) ? 1 : 0;
      report.non_finite = work_.accumulate_bins(recipe_.selector, segments_.all(), recipe_.residual, states, gradient,
                                                factor, step_, lower_, memory_.owed());
      return memory_.settled();
    } else if constexpr (!partitioner_type::needs_norms) {
      assign(report.world);  // compress() is a world of its own, whatever the last exchange was in
      auto const settled = [&] { settle(); };
      work_.before_accumulate(recipe_.residual, states, gradient, factor, settled, [&] {
        for (std::size_t s = 0; s < segments_.size(); ++s)
          if (selects(s, rank, false))
            lower_[s] = predicted_key(recipe_.selector, work_, accumulator(s), segments_[s].k);
      });
      for (std::size_t s = 0; s < segments_.size(); ++s)
        measure = measure || (lower_[s] == 0 && selects(s, rank, false));
    }
    report.non_finite = work_.accumulate(recipe_.residual, states, gradient, factor, measure, lower_, memory_.owed());
    memory_.settled();
  }

  void measure_norms() {
    for (std::size_t s = 0; s < segments_.size(); ++s) segments_.norms()[s] = work_.measure(accumulator(s)).sum_squares;
  }

  /// Sums the norms over the ranks, and with them whether one failed: all go on, or all throw.
  template <class Comm>
  void share_norms(Comm const& comm, std::exception_ptr const& failure, step_report& report) {
    auto const norms = segments_.norms();
    std::fill(norms.begin(), norms.end(), 0.0);
    if (!failure) measure_norms();
    norms.back() = failure ? 1 : 0;
    comm.all_reduce(work_.where(), norms, reduction::sum);
    report.bytes_sent += norms.size_bytes();
    report.bytes_received += norms.size_bytes();
    if (failure) std::rethrow_exception(failure);
    if (norms.back() > 0) throw communication_error("gradsieve: another rank failed in this step; nothing was sent");
    assign(world_);
  }

  /// Takes out the layers that pass through and, in an exchange, the segments that are sent whole; of each value as
  /// much as `limit`.
  void take_dense(bool whole_segments, float limit, step_report& report) {
    dense_.choose(split_.dense, segments_, whole_segments && gives_whole_segments<selector_type>);
    auto const [count, cut] = memory_.take(work_, recipe_.residual, dense_.ranges(), dense_.room(), limit);
    report.dense_elements = count;
    report.saturated += cut;
    dense_.set_count(count);
  }

  /// This rank's entries of its segments, in index order.
  [[nodiscard]] selection_view select_own(int rank, bool whole_taken, step_report& report) {
    auto const mine = [&](std::size_t s) { return selects(s, rank, whole_taken); };
    if constexpr (partitioner_type::needs_norms) {
      for (std::size_t s = 0; s < segments_.size(); ++s)
        lower_[s] = mine(s) ? predicted_key(recipe_.selector, work_, accumulator(s), segments_[s].k) : 0;
      work_.collect(memory_.state(0), lower_);
    }
    std::size_t count = 0;
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      if (!mine(s)) continue;
      auto const room =
          std::min<std::size_t>(selection_capacity(recipe_.selector, segments_[s].k), indices_.size() - count);
      count += std::min<std::size_t>(
          room, select(recipe_.selector, work_, accumulator(s), segments_[s].k,
                       {indices_.span().subspan(count, room), values_.span().subspan(count, room), {}}));
    }
    report.budget = segments_.budget();
    report.selected = static_cast<index_type>(count);
    return {indices_.first(count), values_.first(count), {}};
  }

  presence here_;
  layout layers_;
  Recipe recipe_;
  layer_split split_;
  message_info info_;
  workspace work_;
  residual_memory<workspace, residual_type> memory_;
  typename exchange_type::template buffers<workspace> buffers_;
  static constexpr int no_world = 0;
  int world_ = no_world;  // that segments and buffers are planned for
  std::uint64_t step_ = 0;
  preflight preflight_;
  preflight::origin origin_ = preflight::origin::made;
  bool met_ = false;  // the other ranks of this world, in this state

  segmentation<partitioner_type> segments_;
  std::vector<key_type> lower_;  // of each segment
  std::uint64_t capacity_ = 0;   // entries that one rank selects at most
  typename workspace::template buffer<index_type> indices_;
  typename workspace::template buffer<float> values_;
  dense_part<workspace> dense_;

  bool compressed_ = false;  // the last step was a compress()
  selection_view last_;
  step_report report_;
  typename workspace::template buffer<std::byte> outgoing_;
  inbox<workspace> inbox_;
  typename workspace::template buffer<float> dense_mean_;
};

}  // namespace gradsieve
