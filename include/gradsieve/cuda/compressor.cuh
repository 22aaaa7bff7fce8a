// The owner of a recipe, its residual and its scratch on a GPU: a gradient goes in, the averaged sparse update comes
// out.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/checkpoint.hpp>
#include <gradsieve/codec/account.hpp>
#include <gradsieve/compressor.hpp>
#include <gradsieve/cuda/codec/binned.cuh>
#include <gradsieve/cuda/codec/packed.cuh>
#include <gradsieve/cuda/dense_part.cuh>
#include <gradsieve/cuda/exchange.cuh>
#include <gradsieve/cuda/leader.cuh>
#include <gradsieve/cuda/report.cuh>
#include <gradsieve/cuda/residual_memory.cuh>
#include <gradsieve/cuda/staged.cuh>
#include <gradsieve/cuda/step_plan.cuh>
#include <gradsieve/cuda/workspace.cuh>
#include <gradsieve/exchange/preflight.hpp>

namespace gradsieve {

/// What a step on a device sends: index-ordered entries whose number stands in device memory too, and the elements of
/// the layers that pass through.
struct device_selection {
  index_type const* indices = nullptr;
  float const* values = nullptr;
  std::uint32_t const* count = nullptr;
  std::uint64_t capacity = 0;  ///< entries there may be at most
  std::span<float const> dense;
};

/// As the primary template, on a GPU: the same recipes. Gradients and results are device memory. The entries are the
/// host's where the selector is exact; where it samples, the keys that it samples may differ.
/// A step enqueues its work on the device's stream and returns: it does not wait, allocates no device memory, and can
/// be captured in a CUDA graph. Run one step before, as the first exchange makes the buffers for a world. A graph
/// repeats the density it was captured with and does not move a schedule on; owners that rotate do move on. Two steps
/// do wait: one with another density than the step before, or other budgets or owners by a partitioner that neither
/// needs norms nor rotates, for what that one has told the device; and with `non_finite::fail` every one, for its
/// counting pass. What goes wrong on the device in a step is thrown by its report, or by the next call once it has done
/// its part; that step has given up nothing. A rank that throws at once, for a gradient of another size, leaves the
/// others waiting. Neither copied nor moved. Memory: the residual store's, 8 bytes an entry that a step may send, and
/// cuda_workspace's.
template <class Recipe>
class compressor<device, Recipe> {
 public:
  using selector_type = decltype(Recipe::selector);
  using partitioner_type = decltype(Recipe::partitioner);
  using residual_type = decltype(Recipe::residual);
  using codec_type = decltype(Recipe::codec);
  using exchange_type = decltype(Recipe::exchange);
  using stored_type = stored_t<residual_type>;  ///< of the residual in device memory
  using view_type = cuda_kernels::device_view<true, cuda_kernels::from_memory<stored_type>>;
  static_assert(selector<selector_type, view_type>,
                "recipe.selector needs fit(workspace, accumulator, k) and a noexcept keep(value, cut), or "
                "select(workspace, accumulator, k, out), marked GRADSIEVE_HD; it must be comparable and trivially "
                "copyable");
  static_assert(partitioner<partitioner_type>,
                "recipe.partitioner needs default_exchange, needs_norms, disjoint, cut(layers, world, segments) and "
                "assign(segments, squared_norms, budget, scratch)");
  static_assert(residual_store<residual_type>,
                "recipe.residual needs states, a noexcept enter(gradient, state) and a noexcept leave(sent, state, "
                "whole_layer), marked GRADSIEVE_HD");
  static_assert(!bin_selector<selector_type> || !partitioner_type::needs_norms,
                "a selector that has bins chooses in the accumulate pass: it needs a partitioner without norms");
  static_assert(codec<codec_type>, "recipe.codec needs max_bytes, encode and decode");
  static_assert(
      requires { bool{exchange_type::encodes}; },
      "recipe.exchange needs encodes: whether what is sent went through the codec");
  static_assert(
      requires(device_codec<codec_type> how) { requires std::is_default_constructible_v<decltype(how)>; },
      "this codec does not run on a device: specialise device_codec for it, or device_indices or device_values for its "
      "part; an exchange that does not encode still needs one, such as coo");

  /// @throws what the recipe's check() throws; device_error.
  compressor(device where, layout layers, Recipe recipe)
      : layers_{std::move(layers)},
        recipe_{checked(std::move(recipe))},
        split_{layers_, recipe_.dense},
        info_{layers_.size(), layers_.hash(), split_.dense_elements, &layers_},
        work_{where, layers_.size()},
        memory_{work_, recipe_.residual},
        plan_{recipe_, work_} {
    numbers_ = work_.template zeroed<device_numbers>(1);
    votes_ = work_.template zeroed<double>(1);
    last_error_ = pinned_array<std::uint64_t>(1);
    plan(1);
  }
  compressor(compressor const&) = delete;
  compressor& operator=(compressor const&) = delete;
  ~compressor() { cudaStreamSynchronize(work_.where().stream); }  // what is enqueued works on what goes now

  // ---- With a communicator ---------------------------------------------------------------------------------

  /// As the primary template's; the report is read when it is asked for. The communicator works in stream order:
  /// nccl::communicator_ref, self, or a host's as staged{comm}.
  /// @throws invalid_argument if the gradient's size is not the layout's; non_finite_gradient if the recipe asks for
  /// it; what went wrong in the step before; mismatch at first contact; device_error, communication_error.
  template <communicator Comm, class Gradient>
  device_report exchange(Comm const& comm, Gradient&& gradient) {
    return exchange_span(comm, checked_span(gradient), false);
  }

  /// Takes part in an exchange() of the other ranks as one that has failed: their step fails on the device, nothing is
  /// given up on any rank, and it counts as a step, as every exchange does that fails on a device. The gradient, which
  /// is as long as theirs, is overwritten with zeros, which is what enters the residual here. Collective.
  /// @throws as exchange(), and nothing for this step.
  template <communicator Comm, class Gradient>
  void fail(Comm const& comm, Gradient&& gradient) {
    auto const values = checked_span(gradient);
    check_size(values.size());
    throw_on_error(cudaMemsetAsync(values.data(), 0, values.size_bytes(), work_.where().stream), "cudaMemsetAsync");
    exchange_span(comm, values, true);
  }

  /// First contact, as the primary template's: exchange() calls it where the world's size is another one. Where one
  /// rank's compressor is made anew, all ranks are to call it; a rank that was restored to another step is found in the
  /// stream. Waits; not to be captured.
  template <communicator Comm>
  void connect(Comm const& comm) {
    static_assert(
        requires { requires Comm::stream_ordered; },
        "this communicator does not work in stream order: hand it over as staged{comm}");
    static_assert(has_all_gather<Comm, device> && has_all_reduce<Comm, device, float> &&
                      has_all_reduce<Comm, device, double> && has_all_reduce<Comm, device, std::uint32_t>,
                  "this communicator needs all_gather and all_reduce for float, double and std::uint32_t");
    connected_ = false;
    std::vector<preflight::packed_word> all(static_cast<std::size_t>(comm.size()));
    all[0] = preflight{layers_, recipe_.hash(), 0}.pack({step(), origin_}, true, 0, 0, false);
    auto const mine = work_.template uploaded<preflight::packed_word>(std::span{all}.first(1));
    cuda_buffer<preflight::packed_word> const gathered(work_.where(), all.size());
    comm.all_gather(work_.where(), std::as_bytes(mine.span()), std::as_writable_bytes(gathered.span()));
    work_.where().copy(std::as_bytes(gathered.span()), std::as_writable_bytes(std::span{all}));
    work_.where().synchronize();
    preflight::judge(all);
    plan(comm.size());
    connected_ = true;
  }

  // ---- With a transport of one's own -----------------------------------------------------------------------

  /// As the primary template's, in device memory; it lives until the next step.
  template <class Gradient>
  device_selection compress(Gradient const& gradient) {
    auto const values = checked_span(gradient);
    begin_step(values.size());
    auto const pending = pending_error();
    auto const in = memory_.incoming(values.data(), world_);
    refuse_non_finite(alone{}, in);
    enter(alone{}, in, {1, 0, false, false});
    constexpr float most = largest_value<typename decltype(values)::value_type>;
    take_dense(most);
    collect();
    auto const taken = memory_.taken();
    work_.select(recipe_.selector, memory_.accumulator(), measured, taken);
    quantise(taken, most);
    start_report(sizeof(*values.data()), 1);
    step_.union_is_selected = true;
    compressed_ = true;
    ++steps_;
    raise(pending);
    return {taken.indices, taken.values, taken.count, capacity_, dense_.own()};
  }

  /// The report of the last step.
  [[nodiscard]] device_report report() const noexcept { return device_report{step_}; }

  /// The last compress() as bytes that describe themselves, in device memory: room for as many as there may be at most,
  /// of which the message is the first, as apply() will find; none were selected if the last step was another. Lives
  /// until the next encode(). Allocates on first use.
  [[nodiscard]] std::span<std::byte const> encode() {
    auto const bytes = (recipe_.codec.max_bytes(info_.n, capacity_, info_.dense) + 7) / 8 * 8;
    if (outgoing_.size() < bytes) {
      outgoing_ = work_.template zeroed<std::byte>(bytes);
      outgoing_state_ = work_.template zeroed<cuda_kernels::message_state>(1);
      none_ = work_.template zeroed<std::uint32_t>(1);
    }
    auto own = memory_.taken();
    if (!compressed_) own.count = none_.data();
    encode_message(work_, codec_, info_, own, dense_.own().data(), {outgoing_.data(), bytes, outgoing_state_.data()});
    step_.known.bytes_sent = bytes;
    step_.message = outgoing_state_.data();
    step_.sent = outgoing_.data();
    return outgoing_.first(bytes);
  }

  /// As the primary template's: messages of encode(), each in device memory, as they are or longer. Waits for their
  /// headers, and for the check of all messages before the gradient is written. Allocates, and frees it again.
  /// @throws corrupt_message, invalid_argument; device_error.
  template <class Gradient>
  void apply(std::span<std::span<std::byte const> const> messages, Gradient&& gradient) {
    auto const out = checked_span(gradient);
    check_size(out.size());
    auto const senders = static_cast<std::uint32_t>(messages.size());
    std::vector<std::array<std::byte, message_header::bytes>> headers(senders);
    std::vector<std::uint64_t> sizes;
    for (std::size_t m = 0; m < senders; ++m) {
      sizes.push_back(messages[m].size());
      work_.where().copy(messages[m].first(std::min(messages[m].size(), headers[m].size())), headers[m]);
    }
    work_.where().synchronize();
    std::uint64_t most = 0;
    std::uint64_t bytes = message_header::bytes;
    for (std::size_t m = 0; m < senders; ++m) {
      auto const here =
          std::span<std::byte const>{headers[m]}.first(std::min<std::size_t>(sizes[m], headers[m].size()));
      static_cast<void>(wire::open(info_, codec_type::id, here));
      most = std::max(most, most_entries(recipe_.codec, info_, here, sizes[m]));
      bytes = std::max(bytes, (sizes[m] + 7) / 8 * 8);
    }
    auto const inbox = work_.template zeroed<std::byte>(bytes * senders);
    for (std::size_t m = 0; m < senders; ++m)
      work_.where().copy(messages[m], inbox.span().subspan(bytes * m, sizes[m]));
    auto const rooms = work_.template uploaded<std::uint64_t>(sizes);
    auto const fault = work_.template zeroed<std::uint64_t>(1);
    device_inbox<codec_type> reader;
    reader.reserve(work_, recipe_.codec, layers_, most, senders);
    reader.read(work_, info_, inbox.data(), bytes, 0, rooms.data(), fault.data());
    std::uint64_t found = 0;
    work_.where().copy(std::as_bytes(fault.span()), std::as_writable_bytes(std::span{&found, 1}));
    work_.where().synchronize();
    device_step::raise(found);
    auto const divisor = static_cast<float>(std::max<std::size_t>(senders, 1));
    work_.zero_one(&numbers_.data()->touched);
    work_.zero_one(saturated());
    write_update({reader.updates(work_), senders, 0, 0}, divisor, out.data());
    if (info_.dense > 0) {
      reader.sum_dense(work_, info_.dense, dense_.sum().data());
      dense_.write_layers(work_, divisor, out.data(), saturated());
    }
    work_.where().synchronize();  // the messages' memory goes
  }

  // ---- Around a step ---------------------------------------------------------------------------------------

  /// As the primary template's.
  void discard_step() {
    memory_.give_back();
    dense_.restore(work_, memory_.view(), &work_.taken()->open);
    memory_.forget();
  }

  /// As the primary template's. @throws invalid_argument
  void rescale(float factor) {
    if (!is_finite(factor)) throw invalid_argument("gradsieve: rescale factor is not finite");
    memory_.settle();
    memory_.rescale(factor, dense_.saved());
    work_.zero(work_.hints());
    saved_hints_.clear();
  }

  /// L2 norm of what has not been sent. Waits. Cost: one pass.
  [[nodiscard]] double residual_norm() {
    memory_.settle();
    return std::sqrt(memory_.squared_norm());
  }

  /// What has not been sent, in device memory and stream order. Lives until the next step. Cost: O(entries).
  [[nodiscard]] std::span<stored_type const> residual() {
    memory_.settle();
    return memory_.state(0);
  }

  /// Steps so far, also of a graph's launches. Waits.
  [[nodiscard]] std::uint64_t step() const {
    std::uint64_t count = 0;
    work_.where().copy(std::as_bytes(work_.step()), std::as_writable_bytes(std::span{&count, 1}));
    work_.where().synchronize();
    return count;
  }
  [[nodiscard]] layout const& layers() const noexcept { return layers_; }
  [[nodiscard]] Recipe const& policies() const noexcept { return recipe_; }

  // ---- Across restarts -------------------------------------------------------------------------------------

  /// As the primary template's, and readable there: a checkpoint knows no space. Waits.
  [[nodiscard]] std::vector<std::byte> state() {
    memory_.settle();
    auto const count = step();
    return checkpoint{states,  kind_of_store(recipe_.residual),
                      info_.n, info_.layout_hash,
                      count,   saved_hints_.empty() ? hints() : saved_hints_,
                      {}}
        .write([&](std::size_t s) { return memory_.read(s); });
  }

  /// As the primary template's. Waits. @throws corrupt_state, mismatch; device_error.
  void restore(std::span<std::byte const> bytes) {
    auto found = checkpoint::read(bytes, recipe_.residual, info_.n, info_.layout_hash);
    std::vector<float> values(info_.n);
    for (std::size_t s = 0; s < states; ++s) {
      wire::load(std::span{values}, found.values.subspan(4 * info_.n * s));
      memory_.write(s, values);
    }
    saved_hints_ = std::move(found.hints);  // perhaps of another world: kept until a step begins
    take_hints();
    steps_ = found.step;
    work_.upload(std::span<std::uint64_t const>{&steps_, 1}, work_.step());
    work_.zero_one(error());
    work_.where().synchronize();
    last_error_[0] = 0;
    plan_.forget_failure();
    origin_ = preflight::origin::restored;
    memory_.forget();
  }

  /// As the primary template's. Waits. @throws as restore().
  void absorb(std::span<std::byte const> bytes) {
    auto const found = checkpoint::read(bytes, recipe_.residual, info_.n, info_.layout_hash);
    memory_.settle();
    memory_.forget();
    std::vector<float> values(info_.n);
    for (std::size_t s = 0; s < states; ++s) {
      wire::load(std::span{values}, found.values.subspan(4 * info_.n * s));
      memory_.absorb(s, values);
    }
  }

 private:
  static constexpr std::size_t states = residual_type::states;
  static constexpr bool needs_norms = partitioner_type::needs_norms;
  static constexpr bool predicts =
      requires(selector_type const p, view_type& work, accumulator_ref acc) { p.predict(work, acc, index_type{}); };
  static constexpr bool has_bins = bin_selector<selector_type>;
  static constexpr bool measured = needs_norms || !(predicts || has_bins);

  /// In place of a communicator where a step has none.
  struct alone {
    template <class... Anything>
    void all_reduce(Anything const&...) const noexcept {}
  };

  /// The library's name for a format that a caller may have in CUDA's.
  template <class T>
  using library_value = std::conditional_t<std::is_same_v<T, __half>, float16,
                                           std::conditional_t<std::is_same_v<T, __nv_bfloat16>, bfloat16, T>>;

  /// A caller's span of device memory, in the library's formats.
  template <class Gradient>
  [[nodiscard]] static auto checked_span(Gradient& gradient) {
    std::span const values{gradient};
    using element = typename decltype(values)::element_type;
    using value = library_value<std::remove_cv_t<element>>;
    static_assert(gradient_value<value>,
                  "a gradient is device memory of float, gradsieve::float16 or __half, gradsieve::bfloat16 or "
                  "__nv_bfloat16");
    using result = std::conditional_t<std::is_const_v<element>, value const, value>;
    return std::span<result>{reinterpret_cast<result*>(values.data()), values.size()};
  }

  [[nodiscard]] static Recipe checked(Recipe recipe) {
    recipe.check();
    return recipe;
  }

  void check_size(std::size_t size) const {
    if (size != info_.n)
      throw invalid_argument("gradsieve: gradient has " + std::to_string(size) + " elements, the layout has " +
                             std::to_string(info_.n));
  }

  [[nodiscard]] std::uint64_t* error() const noexcept { return &numbers_.data()->error; }
  [[nodiscard]] std::uint64_t* saturated() const noexcept { return &numbers_.data()->saturated; }

  void begin_step(std::size_t size) {
    check_size(size);
    saved_hints_.clear();
    entered_ = taken_dense_ = compressed_ = false;
    work_.zero_one(saturated());
  }

  /// Waits.
  [[nodiscard]] std::vector<cut_hint> hints() const {
    std::vector<cut_hint> all(work_.hints().size());
    work_.where().copy(std::as_bytes(work_.hints().span()), std::as_writable_bytes(std::span{all}));
    work_.where().synchronize();
    return all;
  }

  /// Hints of a checkpoint, or of the world before, where they belong to as many segments; none else.
  void take_hints() {
    work_.zero(work_.hints());
    if (saved_hints_.empty() || saved_hints_.size() != work_.hints().size()) return;
    work_.upload(std::span<cut_hint const>{saved_hints_}, work_.hints().span());
    work_.where().synchronize();
  }

  /// What an earlier exchange has found, as far as the host has heard of it; the device forgets it.
  [[nodiscard]] std::uint64_t pending_error() {
    if (*static_cast<std::uint64_t volatile*>(last_error_.data()) == 0) return 0;
    return read_error();
  }

  /// Waits.
  [[nodiscard]] std::uint64_t read_error() {
    std::uint64_t found = 0;
    work_.where().copy(std::as_bytes(std::span{error(), 1}), std::as_writable_bytes(std::span{&found, 1}));
    work_.zero_one(error());
    work_.where().synchronize();
    last_error_[0] = 0;
    return found;
  }

  /// Throws what an earlier step has left behind: at the end of a call, when the other ranks have got what they wait
  /// for.
  void raise(std::uint64_t found) {
    plan_.rethrow();
    device_step::raise(found);
  }

  /// With non_finite::fail: all ranks learn whether any has such elements, before any of them changes. Waits.
  template <class Comm, class In>
  void refuse_non_finite(Comm const& comm, In const& in) {
    if (recipe_.on_non_finite != non_finite::fail) return;
    std::uint64_t own = 0;
    work_.count_not_finite(in);
    work_.where().copy(std::as_bytes(std::span{work_.non_finite(), 1}), std::as_writable_bytes(std::span{&own, 1}));
    work_.where().synchronize();
    auto total = static_cast<double>(own);
    work_.upload(std::span<double const>{&total, 1}, votes_.span());
    comm.all_reduce(work_.where(), votes_.span(), reduction::sum);
    work_.where().copy(std::as_bytes(votes_.span()), std::as_writable_bytes(std::span{&total, 1}));
    work_.where().synchronize();
    if (total == 0) return;
    memory_.close();
    throw non_finite_gradient("gradsieve: " + std::to_string(static_cast<std::uint64_t>(total)) +
                              " gradient elements are NaN or infinite" +
                              (std::is_same_v<Comm, alone> ? "" : " (all ranks together)"));
  }

  /// The gradient into the residual; segments' budgets onto the device, and where they are known beforehand candidates.
  template <class Comm, class In>
  void enter(Comm const& comm, In const& in, typename step_plan<Recipe>::asker const who) {
    auto const* const accumulator = memory_.accumulator();
    if constexpr (!predicts) work_.forget_candidates();
    if constexpr (!needs_norms) {
      if (plan_.decide_now(who, steps_, exchange_)) name_ranges(who.exchanging);
      bool counting = false;
      if constexpr (predicts) counting = work_.predict(recipe_.selector, read(in), accumulator);
      work_.template accumulate<predicts, measured>(in, counting);
      entered_ = true;
      if constexpr (has_bins) work_.keep_bins(recipe_.selector, in);
    } else {
      work_.template accumulate<false, measured>(in);
      entered_ = true;
      work_.segment_norms(plan_.norms().data());
      if (who.exchanging) comm.all_reduce(work_.where(), plan_.norms(), reduction::sum);
      plan_.decide_later(who, exchange_);
    }
  }

  /// Where the budgets came with the norms: candidates from memory, when what passes through has left.
  void collect() {
    if constexpr (needs_norms && predicts) {
      auto const* const accumulator = memory_.accumulator();
      work_.predict(recipe_.selector, cuda_kernels::from_memory<stored_type>{accumulator}, accumulator);
      work_.collect(accumulator);
    }
  }

  template <class T>
  [[nodiscard]] auto read(cuda_kernels::incoming<T, residual_type> const& in) const {
    return cuda_kernels::from_incoming<T, residual_type>{in, work_.tables()};
  }

  /// The ranges that travel without indices: layers, and in an exchange the segments that are known to be sent whole.
  void name_ranges(bool whole_segments) {
    if constexpr (needs_norms) whole_segments = false;
    dense_.choose(work_, split_.dense, plan_.segments(), whole_segments && gives_whole_segments<selector_type>);
  }

  /// Of each value as much as +-limit.
  void take_dense(float limit) {
    dense_.take(work_, memory_.view(), limit, saturated());
    taken_dense_ = true;
  }

  /// The values of this rank's own entries become what its receivers will decode: cut to the largest value that the
  /// codec and the output can hold, then rounded as the codec does.
  void quantise(cuda_workspace::entry_list const& taken, float limit) {
    limit = largest_coded(recipe_.codec, info_, limit);
    if (magnitude_key(limit) < infinite_key - 1)
      work_.over(capacity_, cuda_kernels::saturate_entries<>, taken, limit, saturated());
    if constexpr (quantises<codec_type>) codec_.quantise(work_, taken);
  }

  /// `fails`: as a rank that has failed, and knows it.
  template <class Comm, class T>
  device_report exchange_span(Comm const& comm, std::span<T> gradient, bool fails) {
    check_size(gradient.size());
    if (!connected_ || world_ != comm.size()) connect(comm);
    begin_step(gradient.size());
    auto const pending = pending_error();
    auto const in = memory_.incoming(gradient.data(), world_);
    refuse_non_finite(comm, in);
    if (fails) work_.launch(cuda_kernels::set_failed<>, 1, 1, static_cast<std::uint32_t>(comm.rank()), error());
    constexpr bool has_places = requires { exchange_.slots(); };
    try {
      enter(comm, in, {world_, comm.rank(), true, has_places});
      float const summed = largest_summand(world_);
      constexpr float most = largest_value<T>;
      take_dense(std::min(summed, most));
      collect();
      auto const taken = memory_.taken();
      auto const* const apart = exchange_.list();
      work_.select(recipe_.selector, memory_.accumulator(), measured, apart != nullptr ? *apart : taken);
      if constexpr (exchange_type::encodes) quantise(taken, most);
      auto const result = exchange_.run(device_round<Comm, stored_type, codec_type>{
          comm, work_, codec_, info_, taken, memory_.accumulator(), plan_.words().data(), error(),
          std::min(summed, most), saturated()});
      auto const* const errors = dense_.share(comm, work_, error());
      work_.launch(cuda_kernels::judge_exchange<>, 1, 1024, errors, taken, work_.tables().cell_count, result.updates,
                   result.senders, error());
      dense_.restore(work_, memory_.view(), error());
      start_report(sizeof(T), world_);
      count_bytes(result);
      step_.message = result.message;
      step_.sent = result.sent;
      if constexpr (requires { Comm::stages; }) step_.known.staged = Comm::stages;
      if (apart != nullptr) step_.selected = apart->count;
      work_.zero_one(&numbers_.data()->touched);
      auto const divisor = static_cast<float>(world_);
      write_update(result, divisor, gradient.data());
      dense_.write(work_, divisor, gradient.data(), saturated());
      if (fails)
        work_.zero_one(error());
      else
        work_.where().copy(std::as_bytes(std::span{error(), 1}), std::as_writable_bytes(last_error_.span()));
    } catch (...) {
      abandon();
      throw;
    }
    ++steps_;
    raise(pending);
    return report();
  }

  void count_bytes(device_updates const& result) {
    std::uint64_t const both = (dense_.size() > 0 ? 4 * (dense_.size() + 1) : 0) +
                               (needs_norms ? plan_.norms().size_bytes() : 0) +
                               (recipe_.on_non_finite == non_finite::fail ? votes_.size() * sizeof(double) : 0);
    step_.known.bytes_sent = result.bytes_sent + both;
    step_.known.bytes_received = result.bytes_received + both;
  }

  /// A call has thrown in mid-step: nothing leaves, whatever had left comes back; the gradient stays in, if it got
  /// there.
  void abandon() noexcept {
    try {
      if (entered_ && taken_dense_) {
        throw_on_error(cudaMemsetAsync(error(), 1, 1, work_.where().stream), "cudaMemsetAsync");
        dense_.restore(work_, memory_.view(), error());
        work_.zero_one(error());
      }
      if (entered_) memory_.forget();
    } catch (...) {  // the device is gone: the exception that is under way says so
    }
  }

  template <class T>
  void write_update(device_updates const& from, float divisor, T* out) {
    if (work_.tables().cell_count > 0)
      work_.launch(cuda_kernels::apply_updates<T>, work_.tables().cell_count, cuda_kernels::apply_threads, from.updates,
                   from.senders, divisor, out, info_.n, &numbers_.data()->touched, saturated());
  }

  void start_report(std::size_t value_bytes, int world) {
    step_.known = {};
    step_.known.step = steps_;
    step_.known.world = world;
    step_.known.capacity = static_cast<index_type>(capacity_);
    step_.known.dense_elements = dense_.size();
    step_.known.union_size = dense_.size() - split_.dense_elements;  // segments that are sent whole
    step_.known.bytes_dense = value_bytes * info_.n;
    step_.selected = memory_.taken().count;
    step_.non_finite = work_.non_finite();
    step_.numbers = numbers_.data();
    step_.steps = work_.step().data();
    step_.words = plan_.words().data();
    step_.union_is_selected = false;
    step_.message = nullptr;
    constexpr bool names = requires(std::span<std::byte const> part) { recipe_.codec.indices.name_of(part); };
    constexpr bool has_kinds = requires { requires selector_type::bins_within_layers; };
    if constexpr (has_kinds || (requires { &codec_type::account; } && !names)) {
      step_.compressor = this;
      step_.account = [](void const* self, std::span<std::byte const> message) {
        return static_cast<compressor const*>(self)->account(message);
      };
    } else if constexpr (names) {  // the codec's state tells as much
      step_.index_codec = [](std::uint32_t id) {
        auto const first = static_cast<std::byte>(id);
        return decltype(codec_type::indices){}.name_of({&first, 1});
      };
    }
  }

  /// Where the bytes of a message of this rank's own went.
  [[nodiscard]] message_account account(std::span<std::byte const> message) const {
    auto info = info_;
    info.dense = wire::load_one<std::uint64_t>(message.subspan(message_header::dense_at));  // none in an exchange
    auto const header = wire::open(info, codec_type::id, message);
    wire::check_count(header.count, capacity_);
    std::vector<index_type> indices(header.count);
    std::vector<float> values(header.count);
    std::vector<float> dense(header.dense);
    auto const entries = recipe_.codec.decode(info, message, {indices, values, dense});
    return account_of(recipe_.selector, recipe_.codec, info, entries, split_.dense, message);
  }

  /// Segments and buffers for a world of this size. Waits, allocates.
  void plan(int world) {
    memory_.settle();
    if (saved_hints_.empty()) saved_hints_ = hints();
    world_ = world;
    auto& segments = plan_.segments();
    step_ = {work_.where(), {}};
    step_.last_error = last_error_.data();
    segments.plan(recipe_.partitioner, split_.selected, split_.selected_elements, recipe_.density.most(), world);
    auto const most = static_cast<index_type>(segments.most());
    capacity_ = std::min<std::uint64_t>(selection_capacity(recipe_.selector, most), split_.selected_elements);
    work_.plan(segments.all(), split_.dense, capacity_, bin_lengths_of(recipe_.selector, layers_, segments.all()));
    plan_.reserve(capacity_);
    exchange_.reserve(work_, recipe_.codec, info_, world, capacity_, segments.size(), partitioner_type::disjoint);
    codec_.reserve_writing(work_, recipe_.codec, layers_, capacity_);
    memory_.reserve(std::max<std::uint64_t>(capacity_, exchange_.most_sent()));
    dense_.reserve(work_, split_, segments.size(), split_.dense_elements + segments.most());
    name_ranges(false);
    take_hints();
    memory_.forget();
    work_.where().synchronize();
  }

  layout layers_;
  Recipe recipe_;
  layer_split split_;
  message_info info_;
  cuda_workspace work_;
  device_residual_memory<residual_type> memory_;
  step_plan<Recipe> plan_;
  device_exchange<exchange_type, codec_type> exchange_;
  device_codec<codec_type> codec_;  // for what this rank gives
  int world_ = 1;
  bool connected_ = false;
  preflight::origin origin_ = preflight::origin::made;
  bool entered_ = false;  // this step's gradient is in the residual
  bool taken_dense_ = false;
  std::uint64_t steps_ = 0;  // that the host has begun; the device counts those of graphs as well
  std::uint64_t capacity_ = 0;
  std::vector<cut_hint> saved_hints_;  // until a step begins: the device's may be for another number of segments

  device_dense_part<residual_type> dense_;

  cuda_buffer<double> votes_;
  cuda_buffer<device_numbers> numbers_;
  pinned_array<std::uint64_t> last_error_;
  device_step step_;
  cuda_buffer<std::byte> outgoing_;
  cuda_buffer<cuda_kernels::message_state> outgoing_state_;
  cuda_buffer<std::uint32_t> none_;
  bool compressed_ = false;  // what was taken is a compress()'s
};

}  // namespace gradsieve
