// The compressor class. Programs include compressor.hpp or cuda/compressor.cuh, which have the steps of a space too.
#pragma once

#if defined(GRADSIEVE_LIGHT_COMPRESSOR)
#error "gradsieve: light.hpp and compressor.hpp, or gradsieve.hpp, have a compressor each: include one in a unit"
#endif
/// @cond internal
#define GRADSIEVE_FULL_COMPRESSOR
/// @endcond

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/report.hpp>
#include <gradsieve/core/skipped_layers.hpp>
#include <gradsieve/step/checkpoint.hpp>
#include <gradsieve/step/recipe.hpp>
#include <gradsieve/step/runner.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Compresses one flat gradient in every step. With a communicator call exchange(); with a transport of your own
/// compress() and encode(), and an averager for the messages. One compressor per rank; not for concurrent use. After a
/// move, all members throw invalid_argument until another one is moved into it. Every value is sent or kept in the
/// residual. Invalid input throws before anything changes. If a step throws later, its gradient is in the residual and
/// nothing was subtracted. Steps do not allocate, except the first exchange with a world of another size.
///
/// Gradients and results are memory of the space. On a device a step enqueues its work on the stream and returns. A
/// CUDA graph can capture it after a first step, which allocates the buffers for a world. A graph repeats the density
/// of its capture; rotating owners advance. A step waits with `non_finite::fail`, and for the last upload of budgets
/// and owners if it uploads new ones: if the density has changed, or if they differ from the previous step's and the
/// partitioner neither needs norms nor rotates. A failure on the device is thrown by the step's report or, after its
/// own work, by the next call. A rank that throws at once, as for a wrong size, leaves the others waiting.
/// Memory: that of the residual store, and 50 to 70 bytes for each entry that a step may send. On the host also 4 MiB
/// for a sample, 18 bytes for each 1,024 elements and, for each thread, 1 MiB and 32 bytes for each of these entries.
/// @include hello.cpp
template <space Space, detail::has_policies Recipe>
class compressor {
  using stages = typename Space::template step<Recipe>;

 public:
  using space_type = Space;                                ///< where memory lives and work runs
  using selector_type = decltype(Recipe::selector);        ///< of the recipe
  using partitioner_type = decltype(Recipe::partitioner);  ///< of the recipe
  using residual_type = decltype(Recipe::residual);        ///< of the recipe
  using codec_type = decltype(Recipe::codec);              ///< of the recipe
  using exchange_type = decltype(Recipe::exchange);        ///< of the recipe
  using selection_type = typename stages::selection_type;  ///< host_selection, or device_selection
  using report_type = typename stages::report_type;        ///< step_report, or device_report
  static_assert(compatible<Recipe, Space>);

  /// Allocates the residual, which is zero, and the scratch. Local. @throws invalid_argument as recipe::check(), and
  /// for a caller's pattern that matches no layer, see check_names(); device_error.
  compressor(Space where, layout layers, Recipe recipe) {
    recipe.check();
    stages_ = std::make_unique<stages>(where, std::move(layers), std::move(recipe));
    runner().plan(1);
  }

  /// Replaces the gradient (vector, array or span of float, float16 or bfloat16, or `pieces` of it) by the mean over
  /// all ranks of what they sent; most elements are zero. All ranks get the same bits; with `reduce_scatter` each gets
  /// its shard, and zeros elsewhere. Collective. The ranks compare layout, recipe and step: before anything changes if
  /// a rank is new or restored or the world has another size, otherwise with their message sizes. A device needs a
  /// communicator in stream order: nccl::communicator_ref, self, or staged{comm} of a host communicator.
  /// @throws invalid_argument for a wrong size; non_finite_gradient with non_finite::fail; mismatch on every rank if
  /// ranks differ, naming what and where; communication_error, corrupt_message; device_error. If a rank fails before it
  /// has sent, all throw. If a message to one rank is corrupted, all throw when layers pass through or the exchange is
  /// `leader`; otherwise only that rank does, and all throw mismatch in the next step: restart from a checkpoint.
  ///
  /// `skipped`: layers whose update the caller does not use: frozen, or used by no rank. They are accumulated and not
  /// sent, even if they pass through; they displace no other element, and their update is zero. A later step sends what
  /// was kept (not with the store `none`). Rollback, checkpoints and rescale() include skipped layers. All ranks skip
  /// the same layers. Cost: every step reads and writes skipped elements twice more. A step that skips other layers
  /// than the previous one visits all layers, segments and tiles, and may allocate 4 bytes per skipped element and
  /// little per layer. On a device such a change waits and allocates, a capture refuses it, and graphs captured before
  /// must not be launched after it; a graph repeats the skipped layers of its capture. @throws also invalid_argument
  /// unless `skipped` is empty or has an element per layer; mismatch on every rank if they differ.
  template <communicator Comm, class Gradient>
  report_type exchange(Comm const& comm, Gradient&& gradient, skipped_layers const skipped = {}) {
    auto const in_out = detail::writable<Gradient>(alive().gradient_of(gradient));
    return runner().exchange(comm, in_out, skipped, detail::held_failure{});
  }

  /// Takes part in an exchange() of the other ranks as a failed rank: they throw, and no rank subtracts anything. The
  /// residual does not change; the previous step can no longer be discarded. On the host the gradient is not touched;
  /// on a device it needs the layout's size and is set to zero, which is accumulated. Collective. @throws mismatch,
  /// communication_error, corrupt_message, device_error for other failures.
  template <communicator Comm, class Gradient>
  void fail(Comm const& comm, Gradient&& gradient) {
    auto const unused = alive().without_values(detail::writable<Gradient&>(alive().gradient_of(gradient)));
    try {
      runner().exchange(comm, unused, {}, detail::held_failure::by_caller());
    } catch (detail::held_failure::called_for const&) {
    }
  }

  /// Allocates the buffers for this world and compares the ranks as the first exchange() does. Call it on all ranks if
  /// one recreates its device compressor. Collective. Waits. @throws mismatch on every rank, naming what and where.
  template <communicator Comm>
  void connect(Comm const& comm) {
    static_assert(exchangeable<Recipe, Space, Comm>);
    runner().connect(comm);
  }

  /// Accumulates the gradient, selects what to send and subtracts it from the residual. Views are valid until the next
  /// step. Local. `rank`, among those whose messages are averaged, makes random rounding (`qsgd`) independent; all else
  /// is as for one rank. @throws invalid_argument for a wrong size or negative rank; non_finite_gradient.
  template <class Gradient>
  selection_type compress(Gradient const& gradient, int rank = 0) {
    auto const values = alive().gradient_of(gradient);
    return runner().template compress<typename decltype(values)::value_type>(values, rank);
  }

  /// Encodes what the last compress() returned as bytes in the space's memory, valid until the next encode(); report()
  /// counts them. A device's span has the largest size and begins with the message; an averager finds its end. Cost: a
  /// copy. Allocates on first use. @throws invalid_argument unless the last step returned this and was not discarded.
  [[nodiscard]] std::span<std::byte const> encode(selection_type const& selection) {
    auto& at = alive();
    if (at.last.number == 0)
      throw invalid_argument("gradsieve: encode() needs a compress() that succeeded as the last step");
    if (!at.is_last(selection) || selection.number != at.last.number) refuse_selection();
    [[maybe_unused]] arithmetic const exact;
    return at.encode(selection);
  }

  /// Encodes the caller's copy of a selection, in host memory; no report counts it. Cost: a copy (two if lossy) and a
  /// check. Allocates. @throws invalid_argument if no message can hold it (indices not increasing below n, a value not
  /// finite, other sizes), or for memory of this compressor that the last compress() did not return.
  [[nodiscard]] std::span<std::byte const> encode(selection_view const selection)
    requires(!Space::stream_ordered)
  {
    auto& at = alive();
    if (at.last.number != 0 && at.is_last(selection)) return encode(at.last);
    if (at.owns_part_of(selection)) refuse_selection();
    [[maybe_unused]] arithmetic const exact;
    return at.encode_copy(selection);
  }

  [[nodiscard]] decltype(auto) report() const { return alive().report(); }  ///< last step's; reading a device's waits

  /// Undoes a step whose update was not used (an overflow): adds what this rank sent back to the residual, bit for bit;
  /// the gradient stays there. Then encode() refuses the step's selection. Local, but call it on every rank.
  void discard_step() {
    alive().rollback();
    alive().last = {};
  }

  /// Multiplies the residual; after a change of the loss scale pass new / old. Elements that would not stay finite keep
  /// their value. Cost: one pass. @throws invalid_argument unless the factor is finite.
  void rescale(float factor) {
    auto& at = alive();
    [[maybe_unused]] arithmetic const exact;
    if (!is_finite(factor)) throw invalid_argument("gradsieve: rescale factor is not finite");
    at.memory.flush_pending();
    at.selection.forget_warm_thresholds();  // before anything changes, as it may allocate
    at.memory.rescale(factor, at.passthrough.saved());
  }

  /// L2 norm of the residual of this rank. Waits. Cost: one pass.
  [[nodiscard]] double residual_norm() {
    auto& at = alive();
    [[maybe_unused]] arithmetic const exact;
    return std::sqrt(at.memory.squared_norm());
  }

  /// The residual, one value per element, in the space's memory; valid until the next step. Cost: O(entries of a step).
  [[nodiscard]] auto residual() {
    auto& at = alive();
    [[maybe_unused]] arithmetic const exact;
    at.memory.flush_pending();
    return at.memory.state(0);
  }

  /// Number of steps so far; on a device this includes those of launched graphs, and the call waits.
  [[nodiscard]] std::uint64_t step() const { return alive().selection.steps(); }
  /// Number of accumulated gradients, without graph launches. After a step threw, it shows if its gradient is included.
  [[nodiscard]] std::uint64_t accumulated() const { return alive().entered; }
  [[nodiscard]] Space const& where() const { return alive().work.where(); }  ///< as at construction
  [[nodiscard]] layout const& layers() const { return alive().layers; }      ///< as at construction
  [[nodiscard]] Recipe const& recipe() const { return alive().recipe; }      ///< as at construction
  /// The layers that pass through, without empty ones. Allocates.
  [[nodiscard]] std::vector<layer> passing() const { return gradsieve::passing(layers(), recipe().passthrough); }
  /// The recipe as text, with the layers that pass through: their number, elements and names. Allocates.
  [[nodiscard]] std::string describe() const { return detail::describe_recipe(recipe(), layers()); }

  /// All that later steps depend on, as bytes for either space. Local. Waits. Allocates. Cost: a copy of the residual.
  [[nodiscard]] std::vector<std::byte> state() {
    auto& at = alive();
    [[maybe_unused]] arithmetic const exact;
    return checkpoint{residual_type::states,
                      detail::kind_of_store(at.recipe.residual),
                      at.info.n,
                      at.info.layout_hash,
                      at.selection.steps(),
                      at.selection.warm_thresholds(),
                      {}}
        .write([&](std::size_t s) { return at.memory.read(s); });
  }

  /// Continues from a state(); in the next exchange all ranks throw if one is at another step. Local. Waits. Allocates
  /// 4 n bytes. @throws corrupt_state, mismatch, std::bad_alloc, leaving the compressor unchanged; device_error.
  void restore(std::span<std::byte const> bytes) {
    auto& at = alive();
    auto found = checkpoint::read(bytes, at.recipe.residual, at.info.n, at.info.layout_hash);
    std::vector<float> values(at.info.n);
    [[maybe_unused]] arithmetic const exact;
    for (std::size_t s = 0; s < residual_type::states; ++s) {
      wire::load(std::span{values}, found.values.subspan(4 * at.info.n * s));
      at.memory.write(s, values);
    }
    at.selection.set_warm_thresholds(std::move(found.warm_thresholds));
    at.selection.set_steps(found.step);
    at.origin = detail::preflight::origin::restored;
    if constexpr (stages::holds_failures) at.met = false;  // others without an early handshake still get a failure
    at.forget_step();
  }

  /// Adds the state() of a rank that left, so that nothing unsent is lost. When the world shrinks or grows, call
  /// rescale(new size / old size) on all remaining ranks. Elements whose sum would not be finite keep their value. The
  /// last step can no longer be discarded. Local. Waits. @throws corrupt_state, mismatch, std::bad_alloc, device_error.
  void absorb(std::span<std::byte const> bytes) {
    auto& at = alive();
    auto const found = checkpoint::read(bytes, at.recipe.residual, at.info.n, at.info.layout_hash);
    std::vector<float> values(at.info.n);
    [[maybe_unused]] arithmetic const exact;
    for (std::size_t s = 0; s < residual_type::states; ++s) {
      wire::load(std::span{values}, found.values.subspan(4 * at.info.n * s));
      at.memory.absorb(s, values);
    }
    at.forget_step();
  }

 private:
  using arithmetic = typename stages::arithmetic;

  [[nodiscard]] stages& alive() const {
    if (!stages_) throw invalid_argument("gradsieve: this compressor was moved from");
    return *stages_;
  }
  [[nodiscard]] auto runner() const { return detail::step_runner<Space, Recipe>{alive()}; }

  [[noreturn]] static void refuse_selection() {
    throw invalid_argument("gradsieve: encode() was given a selection that the last compress() did not return");
  }

  std::unique_ptr<stages> stages_;
};

}  // namespace gradsieve
