// The owner of a recipe, its residual and its scratch: takes a gradient, leaves the averaged sparse update.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/checkpoint.hpp>
#include <gradsieve/codec/limit.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/skipped_layers.hpp>
#include <gradsieve/host/step.hpp>
#include <gradsieve/host/workspace.hpp>
#include <gradsieve/recipe.hpp>
#include <gradsieve/report.hpp>
#include <gradsieve/step_runner.hpp>

namespace gradsieve {

/// Compresses one flat gradient, step after step. With a communicator call exchange(); with a transport of one's own
/// compress() and encode(), and on the other side an averager. One compressor a rank; not for concurrent use. After a
/// move, every member of the moved-from object throws invalid_argument until another compressor is moved into it.
///
/// Nothing is lost: every value is sent or stays in the residual. Bad input throws before anything changes. An
/// exception in mid-step leaves the gradient in the residual and gives nothing up. Steps allocate nothing; the
/// constructor does, and the first exchange with a world of another size.
/// Memory: the residual store's, and 50 to 70 bytes for each entry that a step may send; see the workspace.
///
/// Gradients and results are memory of the space. On a device a step enqueues its work on the stream and returns: it
/// does not wait and allocates no device memory. It can be captured in a CUDA graph; run one step before, as the first
/// exchange allocates the buffers for a world. A graph repeats the density of its capture and does not advance a
/// density schedule; owners that rotate do advance. A step waits for the last upload of budgets and owners if it
/// uploads new ones: where the density has changed, or where they differ from the step before and the partitioner
/// neither needs norms nor rotates. With `non_finite::fail` every step waits. What fails on the device is thrown by the
/// step's report or by the next call, after its own work; the failed step gives nothing up. A rank that throws at once,
/// as for a gradient of another size, leaves the others waiting.
///
/// @include hello.cpp
template <space Space, class Recipe>
class compressor {
  using stages = typename Space::template step<Recipe>;

 public:
  using space_type = Space;                                ///< where it works
  using selector_type = decltype(Recipe::selector);        ///< of the recipe
  using partitioner_type = decltype(Recipe::partitioner);  ///< of the recipe
  using residual_type = decltype(Recipe::residual);        ///< of the recipe
  using codec_type = decltype(Recipe::codec);              ///< of the recipe
  using exchange_type = decltype(Recipe::exchange);        ///< of the recipe
  using selection_type = typename stages::selection_type;  ///< host_selection, or device_selection
  using report_type = typename stages::report_type;        ///< step_report, or device_report
  static_assert(compatible<Recipe, Space>);

  /// Allocates the residual, which is zero, and the scratch. Local.
  /// @throws invalid_argument as recipe::check(), and for a pattern that a caller gave and that fits no layer, see
  /// check_names(); device_error.
  compressor(Space where, layout layers, Recipe recipe) {
    recipe.check();
    stages_ = std::make_unique<stages>(where, std::move(layers), std::move(recipe));
    runner().plan(1);
  }

  // ---- With a communicator ---------------------------------------------------------------------------------

  /// Replaces the gradient (a vector, array or span of float, float16 or bfloat16, or `pieces` of it) by the mean over
  /// all ranks of what they sent: most elements zero, the same bits on every rank; with `reduce_scatter` each rank's
  /// shard of it, and zeros elsewhere. Collective. The ranks compare layout, recipe and step: before anything changes
  /// if a rank is new or restored or the world has another size, else together with the sizes that they send. Allocates
  /// in the first step with a world of another size. A device needs a communicator that works in stream order:
  /// nccl::communicator_ref, self, or a host's as staged{comm}.
  /// @throws invalid_argument if the gradient's size is not the layout's; non_finite_gradient if the recipe asks
  /// for it; mismatch on every rank if they differ, naming what and where; communication_error, corrupt_message;
  /// device_error. A rank that fails before it has sent makes all ranks throw in this step. Damaged bytes at one rank
  /// make all ranks throw where layers pass through or the exchange is `leader`; else only that rank throws, and the
  /// next step is a mismatch on all: restart from a checkpoint.
  template <communicator Comm, class Gradient>
  report_type exchange(Comm const& comm, Gradient&& gradient) {
    return runner().exchange(comm, writable(here().gradient_of(gradient)), {}, held_failure{});
  }

  /// The same where the caller will not use the update of some layers, as no rank used their parameters or they are
  /// frozen. Their gradients are accumulated, and stay: nothing of a skipped layer is sent, also of one that passes
  /// through, none of its elements takes the place of another, and the update is zero there. A later step that does not
  /// skip the layer sends what it has kept; with the residual store `none` it is lost, as all that is not sent. All
  /// ranks skip the same layers in a step. Rollback, checkpoints and rescale() treat these layers as any other.
  /// Cost: a step that skips other layers than the last one walks over all layers, segments and tiles, and may
  /// allocate: 4 bytes for each skipped element, and a little for each layer. Every step reads and writes the skipped
  /// elements twice more. On a device a change of the skipped layers waits and allocates, a capture refuses it, and
  /// graphs that were captured before it must not be launched after it; a graph repeats the layers of its capture.
  /// @throws as exchange(); invalid_argument if `skipped` has neither an element for each layer nor none; mismatch on
  /// every rank if ranks skip different layers.
  template <communicator Comm, class Gradient>
  report_type exchange(Comm const& comm, Gradient&& gradient, skipped_layers const skipped) {
    return runner().exchange(comm, writable(here().gradient_of(gradient)), skipped, held_failure{});
  }

  /// Joins an exchange() of the other ranks as a rank that has failed: theirs throws, and no rank gives anything up.
  /// This rank's residual stays as it is; the step before can no longer be discarded. On the host the gradient is
  /// neither read nor written; on a device it has the layout's size, is overwritten with zeros, and these are
  /// accumulated. Collective. @throws mismatch, communication_error, corrupt_message, device_error as exchange(), not
  /// for this call.
  template <communicator Comm, class Gradient>
  void fail(Comm const& comm, Gradient&& gradient) {
    auto const unused = here().without_values(writable(here().gradient_of(gradient)));
    try {
      runner().exchange(comm, unused, {}, held_failure::by_caller());
    } catch (held_failure::called_for const&) {
    }
  }

  /// Allocates the buffers for this world and compares layout, recipe and step of all ranks, as the first exchange()
  /// does. If one rank makes its device compressor anew, all ranks call connect(). Collective. Allocates; waits.
  /// @throws mismatch, on every rank, naming what differs and where.
  template <communicator Comm>
  void connect(Comm const& comm) {
    static_assert(exchangeable<Recipe, Space, Comm>);
    runner().connect(comm);
  }

  // ---- With a transport of one's own -----------------------------------------------------------------------

  /// Accumulates the gradient, selects what to send and subtracts it from the residual. The views live until the next
  /// step. Local. `rank` is this rank's number among those whose messages are averaged. It is for codecs that round at
  /// random (`qsgd`): ranks with different numbers round independently. All else is as in a world of one rank.
  /// @throws invalid_argument if the gradient's size is not the layout's, or for a negative rank; non_finite_gradient.
  template <class Gradient>
  selection_type compress(Gradient const& gradient, int rank = 0) {
    auto const values = here().gradient_of(gradient);
    return runner().template compress<typename decltype(values)::value_type>(values, rank);
  }

  /// What the last compress() returned, as self-describing bytes in memory of the space; report() then counts them. The
  /// span lives until the next encode(). On a device the span has the largest size that a message may have, and the
  /// message is its beginning; an averager reads its true size. Cost: one copy. Allocates on first use.
  /// @throws invalid_argument unless the last step was a compress() that returned this, and was not discarded.
  [[nodiscard]] std::span<std::byte const> encode(selection_type const& selection) {
    auto& at = here();
    if (at.last.number == 0)
      throw invalid_argument("gradsieve: encode() needs a compress() that succeeded as the last step");
    if (!at.is_last(selection) || selection.number != at.last.number) refuse_selection();
    [[maybe_unused]] arithmetic const exact;
    return at.encode(selection);
  }

  /// Encodes a selection in the caller's own memory on the host, such as a copy of what an earlier compress() returned.
  /// No report counts it.
  /// Cost: a copy, a pass that checks the entries, and for a codec that loses bits another copy. Allocates.
  /// @throws invalid_argument for a selection that no message can hold (indices that do not increase below n, values
  /// that are not finite, other sizes), and for memory of this compressor that the last compress() did not return.
  [[nodiscard]] std::span<std::byte const> encode(selection_view const selection)
    requires std::same_as<Space, host>
  {
    auto& at = here();
    if (at.last.number != 0 && at.is_last(selection)) return encode(at.last);
    if (at.owns_part_of(selection)) refuse_selection();
    [[maybe_unused]] arithmetic const exact;
    return at.encode_copy(selection);
  }

  /// The report of the last step. Reading a device's report waits for the step.
  [[nodiscard]] decltype(auto) report() const { return here().report(); }

  // ---- Around a step ---------------------------------------------------------------------------------------

  /// For an update that was not used (an overflow, a rollback): returns what this rank gave up in the last step to the
  /// residual, bit for bit, so that a later step sends it. The step's gradient stays in the residual. encode() then
  /// refuses the step's selection. Local, but call it on every rank.
  void discard_step() {
    here().rollback();
    here().last = {};
  }

  /// Multiplies the residual: by new / old after a change of loss scale. Elements that would not stay finite keep their
  /// value. Cost: one pass. @throws invalid_argument unless the factor is finite.
  void rescale(float factor) {
    auto& at = here();
    [[maybe_unused]] arithmetic const exact;
    if (!is_finite(factor)) throw invalid_argument("gradsieve: rescale factor is not finite");
    at.memory.flush_pending();
    at.selection.forget_warm_thresholds();  // before anything changes, as it may allocate
    at.memory.rescale(factor, at.passthrough.saved());
  }

  /// L2 norm of what has not been sent, on this rank. Waits. Cost: one pass.
  [[nodiscard]] double residual_norm() {
    auto& at = here();
    [[maybe_unused]] arithmetic const exact;
    return std::sqrt(at.memory.squared_norm());
  }

  /// What has not been sent, one value per element, in memory of the space. Lives until the next step.
  /// Cost: O(entries of the last step).
  [[nodiscard]] auto residual() {
    auto& at = here();
    [[maybe_unused]] arithmetic const exact;
    at.memory.flush_pending();
    return at.memory.state(0);
  }

  /// Steps so far; on a device also those of a graph's launches, and it waits.
  [[nodiscard]] std::uint64_t step() const { return here().selection.steps(); }
  /// Gradients that this object has accumulated so far, also those of steps that failed afterwards: where a step threw,
  /// it says whether the gradient is in the residual. Launches of a graph do not count.
  [[nodiscard]] std::uint64_t accumulated() const { return here().entered; }
  [[nodiscard]] Space const& where() const { return here().work.where(); }  ///< as at construction
  [[nodiscard]] layout const& layers() const { return here().layers; }      ///< as at construction
  [[nodiscard]] Recipe const& recipe() const { return here().recipe; }      ///< as at construction

  /// The layers that pass through, without empty ones. Allocates.
  [[nodiscard]] std::vector<layer> passing() const { return gradsieve::passing(layers(), recipe().passthrough); }

  /// The recipe, and which layers pass through: how many, their elements and their names. Allocates.
  [[nodiscard]] std::string describe() const { return describe_recipe(recipe(), layers()); }

  // ---- Across restarts -------------------------------------------------------------------------------------

  /// Everything that the next steps depend on, as bytes that either space reads. Local. Waits.
  /// Cost: a copy of the residual. Allocates.
  [[nodiscard]] std::vector<std::byte> state() {
    auto& at = here();
    [[maybe_unused]] arithmetic const exact;
    return checkpoint{residual_type::states, kind_of_store(at.recipe.residual), at.info.n, at.info.layout_hash,
                      at.selection.steps(),  at.selection.warm_thresholds(),    {}}
        .write([&](std::size_t s) { return at.memory.read(s); });
  }

  /// Continues where state() was taken. In the next exchange all ranks throw if one is at another step. Local. Waits.
  /// Allocates 4 n bytes. @throws corrupt_state, mismatch, std::bad_alloc and leaves the compressor unchanged;
  /// device_error.
  void restore(std::span<std::byte const> bytes) {
    auto& at = here();
    auto found = checkpoint::read(bytes, at.recipe.residual, at.info.n, at.info.layout_hash);
    std::vector<float> values(at.info.n);
    [[maybe_unused]] arithmetic const exact;
    for (std::size_t s = 0; s < residual_type::states; ++s) {
      wire::load(std::span{values}, found.values.subspan(4 * at.info.n * s));
      at.memory.write(s, values);
    }
    at.selection.set_warm_thresholds(std::move(found.warm_thresholds));
    at.selection.set_steps(found.step);
    at.origin = preflight::origin::restored;
    if constexpr (stages::holds_failures) at.met = false;  // others that do not meet early still hear of a failure
    at.forget_step();
  }

  /// Adds the residual of a rank that left the world, so that what it had not sent is not lost. When the world shrinks
  /// or grows, call rescale(new size / old size) on all ranks that remain. Elements whose sum would not be finite keep
  /// their value. The last step can no longer be discarded. Local. Waits.
  /// @throws corrupt_state, mismatch, std::bad_alloc, device_error as restore().
  void absorb(std::span<std::byte const> bytes) {
    auto& at = here();
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

  [[nodiscard]] stages& here() const {
    if (!stages_) throw invalid_argument("gradsieve: this compressor was moved from");
    return *stages_;
  }
  [[nodiscard]] step_runner<Space, Recipe> runner() const { return step_runner<Space, Recipe>{here()}; }

  [[noreturn]] static void refuse_selection() {
    throw invalid_argument("gradsieve: encode() was given a selection that the last compress() did not return");
  }

  std::unique_ptr<stages> stages_;
};

}  // namespace gradsieve
