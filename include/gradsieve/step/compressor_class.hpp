// The compressor: owns a recipe, its residual and its scratch, and replaces a gradient by the averaged sparse update.
// Programs include compressor.hpp or cuda/compressor.cuh, which have the steps of a space too.
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

/// Compresses one flat gradient in every step. With a communicator call exchange(); with a transport of your own call
/// compress() and encode(), and on the receiving side use an averager. One compressor per rank; not for concurrent use.
/// After a move, all members of the moved-from object throw invalid_argument until another one is moved into it.
///
/// Nothing is lost: every value is either sent or kept in the residual. Invalid input throws before anything changes.
/// If a step throws later, the gradient is in the residual and nothing was subtracted from it. Steps do not allocate;
/// the constructor does, and the first exchange with a world of another size.
/// Memory: that of the residual store, and 50 to 70 bytes for each entry that a step may send. On the host also 4 MiB
/// for a sample, 18 bytes for each 1,024 elements and, for each thread, 1 MiB and 32 bytes for each of these entries.
///
/// Gradients and results are memory of the space. On a device a step enqueues its work on the stream and returns; it
/// does not wait and allocates no device memory. A CUDA graph can capture it; run one step first, as the first exchange
/// allocates the buffers for a world. A graph repeats the density of its capture and does not advance a density
/// schedule; rotating owners do advance. A step that uploads new budgets and owners waits for the last upload: when the
/// density has changed, or when they differ from the previous step's and the partitioner neither needs norms nor
/// rotates. With `non_finite::fail` every step waits. A failure on the device is thrown by the step's report or, after
/// its own work, by the next call; the failed step subtracts nothing. A rank that throws at once, as for a gradient of
/// the wrong size, leaves the others waiting.
///
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

  /// Allocates the residual, which is zero, and the scratch. Local.
  /// @throws invalid_argument as recipe::check(), and for a pattern given by the caller that matches no layer, see
  /// check_names(); device_error.
  compressor(Space where, layout layers, Recipe recipe) {
    recipe.check();
    stages_ = std::make_unique<stages>(where, std::move(layers), std::move(recipe));
    runner().plan(1);
  }

  // ---- With a communicator ---------------------------------------------------------------------------------

  /// Replaces the gradient (a vector, array or span of float, float16 or bfloat16, or `pieces` of it) by the mean over
  /// all ranks of what they sent. Most elements are zero; all ranks get the same bits. With `reduce_scatter` each rank
  /// gets its shard, and zeros elsewhere. Collective. The ranks compare layout, recipe and step: before anything
  /// changes if a rank is new or restored or the world has another size, otherwise together with their message sizes.
  /// Allocates in the first step with a world of another size. A device needs a communicator that works in stream
  /// order: nccl::communicator_ref, self, or a host communicator as staged{comm}.
  /// @throws invalid_argument if the gradient's size is not the layout's; non_finite_gradient with non_finite::fail;
  /// mismatch on every rank if ranks differ, naming what and where; communication_error, corrupt_message; device_error.
  /// If a rank fails before it has sent, all ranks throw in this step. If a message to one rank is corrupted, all ranks
  /// throw when layers pass through or the exchange is `leader`; otherwise only that rank throws, and the next step
  /// throws mismatch on all ranks: restart from a checkpoint.
  template <communicator Comm, class Gradient>
  report_type exchange(Comm const& comm, Gradient&& gradient) {
    auto const in_out = detail::writable<Gradient>(here().gradient_of(gradient));
    return runner().exchange(comm, in_out, {}, detail::held_failure{});
  }

  /// The same if the caller will not use the update of some layers: no rank used their parameters, or they are frozen.
  /// Their gradients are accumulated and kept. Nothing of a skipped layer is sent, even if it passes through; it
  /// displaces no other element, and its update is zero. A later step that does not skip the layer sends what was kept.
  /// With the residual store `none` it is lost. All ranks skip the same layers in a step. Rollback, checkpoints and
  /// rescale() treat skipped layers like all others.
  /// Cost: a step that skips other layers than the previous one visits all layers, segments and tiles, and may
  /// allocate: 4 bytes for each skipped element, and little for each layer. Every step reads and writes the skipped
  /// elements twice more. On a device a change of the skipped layers waits and allocates, a capture refuses it, and
  /// graphs captured before it must not be launched after it; a graph repeats the skipped layers of its capture.
  /// @throws as exchange(); invalid_argument unless `skipped` is empty or has an element for each layer; mismatch on
  /// every rank if ranks skip different layers.
  template <communicator Comm, class Gradient>
  report_type exchange(Comm const& comm, Gradient&& gradient, skipped_layers const skipped) {
    auto const in_out = detail::writable<Gradient>(here().gradient_of(gradient));
    return runner().exchange(comm, in_out, skipped, detail::held_failure{});
  }

  /// Takes part in an exchange() of the other ranks as a failed rank: they throw, and no rank subtracts anything. This
  /// rank's residual does not change; the previous step can no longer be discarded. On the host the gradient is neither
  /// read nor written. On a device it must have the layout's size; it is overwritten with zeros, which are accumulated.
  /// Collective. @throws mismatch, communication_error, corrupt_message, device_error as exchange(), but not for the
  /// failure that this call reports.
  template <communicator Comm, class Gradient>
  void fail(Comm const& comm, Gradient&& gradient) {
    auto const unused = here().without_values(detail::writable<Gradient&>(here().gradient_of(gradient)));
    try {
      runner().exchange(comm, unused, {}, detail::held_failure::by_caller());
    } catch (detail::held_failure::called_for const&) {
    }
  }

  /// Allocates the buffers for this world and compares layout, recipe and step of all ranks, as the first exchange()
  /// does. If one rank recreates its device compressor, call connect() on all ranks. Collective. Allocates; waits.
  /// @throws mismatch, on every rank, naming what differs and where.
  template <communicator Comm>
  void connect(Comm const& comm) {
    static_assert(exchangeable<Recipe, Space, Comm>);
    runner().connect(comm);
  }

  // ---- With a transport of your own ------------------------------------------------------------------------

  /// Accumulates the gradient, selects what to send and subtracts it from the residual. The views are valid until the
  /// next step. Local. `rank` is this rank's number among those whose messages are averaged; only codecs that round at
  /// random (`qsgd`) use it, so that ranks round independently. Everything else is as in a world of one rank.
  /// @throws invalid_argument if the gradient's size is not the layout's, or for a negative rank; non_finite_gradient.
  template <class Gradient>
  selection_type compress(Gradient const& gradient, int rank = 0) {
    auto const values = here().gradient_of(gradient);
    return runner().template compress<typename decltype(values)::value_type>(values, rank);
  }

  /// Encodes what the last compress() returned as self-describing bytes in memory of the space; report() then counts
  /// them. The span is valid until the next encode(). On a device it has the largest size that a message may have, and
  /// the message is its beginning; an averager reads the true size. Cost: one copy. Allocates on first use.
  /// @throws invalid_argument unless the last step was a compress() that returned this, and was not discarded.
  [[nodiscard]] std::span<std::byte const> encode(selection_type const& selection) {
    auto& at = here();
    if (at.last.number == 0)
      throw invalid_argument("gradsieve: encode() needs a compress() that succeeded as the last step");
    if (!at.is_last(selection) || selection.number != at.last.number) refuse_selection();
    [[maybe_unused]] arithmetic const exact;
    return at.encode(selection);
  }

  /// Encodes a selection in the caller's own host memory, such as a copy of what an earlier compress() returned. No
  /// report counts it.
  /// Cost: a copy, a pass that checks the entries, and for a lossy codec another copy. Allocates.
  /// @throws invalid_argument for a selection that no message can hold (indices that do not increase below n, values
  /// that are not finite, other sizes), and for memory of this compressor that the last compress() did not return.
  [[nodiscard]] std::span<std::byte const> encode(selection_view const selection)
    requires(!Space::stream_ordered)
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

  /// For an update that was not used (an overflow, a rollback): adds what this rank sent in the last step back to the
  /// residual, bit for bit, so that a later step sends it. The step's gradient stays in the residual. Afterwards
  /// encode() refuses the step's selection. Local, but call it on every rank.
  void discard_step() {
    here().rollback();
    here().last = {};
  }

  /// Multiplies the residual; after a change of the loss scale pass new / old. Elements that would not stay finite keep
  /// their value. Cost: one pass. @throws invalid_argument unless the factor is finite.
  void rescale(float factor) {
    auto& at = here();
    [[maybe_unused]] arithmetic const exact;
    if (!is_finite(factor)) throw invalid_argument("gradsieve: rescale factor is not finite");
    at.memory.flush_pending();
    at.selection.forget_warm_thresholds();  // before anything changes, as it may allocate
    at.memory.rescale(factor, at.passthrough.saved());
  }

  /// L2 norm of the residual of this rank. Waits. Cost: one pass.
  [[nodiscard]] double residual_norm() {
    auto& at = here();
    [[maybe_unused]] arithmetic const exact;
    return std::sqrt(at.memory.squared_norm());
  }

  /// The residual: what has not been sent, one value per element, in memory of the space. Valid until the next step.
  /// Cost: O(entries of the last step).
  [[nodiscard]] auto residual() {
    auto& at = here();
    [[maybe_unused]] arithmetic const exact;
    at.memory.flush_pending();
    return at.memory.state(0);
  }

  /// Number of steps so far; on a device this includes those of launched graphs, and the call waits.
  [[nodiscard]] std::uint64_t step() const { return here().selection.steps(); }
  /// Number of gradients that this object has accumulated, including those of steps that failed later. After a step
  /// threw, it shows whether the gradient is in the residual. Launches of a graph do not count.
  [[nodiscard]] std::uint64_t accumulated() const { return here().entered; }
  [[nodiscard]] Space const& where() const { return here().work.where(); }  ///< as at construction
  [[nodiscard]] layout const& layers() const { return here().layers; }      ///< as at construction
  [[nodiscard]] Recipe const& recipe() const { return here().recipe; }      ///< as at construction

  /// The layers that pass through, without empty ones. Allocates.
  [[nodiscard]] std::vector<layer> passing() const { return gradsieve::passing(layers(), recipe().passthrough); }

  /// The recipe as text, with the layers that pass through: their number, elements and names. Allocates.
  [[nodiscard]] std::string describe() const { return detail::describe_recipe(recipe(), layers()); }

  // ---- Across restarts -------------------------------------------------------------------------------------

  /// Everything that later steps depend on, as bytes that compressors of either space can read. Local. Waits.
  /// Cost: a copy of the residual. Allocates.
  [[nodiscard]] std::vector<std::byte> state() {
    auto& at = here();
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

  /// Continues from a state(). In the next exchange all ranks throw if one of them is at another step. Local. Waits.
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
    at.origin = detail::preflight::origin::restored;
    if constexpr (stages::holds_failures) at.met = false;  // others without an early handshake still get a failure
    at.forget_step();
  }

  /// Adds the residual of a rank that left the world, so that what it had not sent is not lost. When the world shrinks
  /// or grows, call rescale(new size / old size) on all remaining ranks. Elements whose sum would not be finite keep
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
  [[nodiscard]] detail::step_runner<Space, Recipe> runner() const { return detail::step_runner<Space, Recipe>{here()}; }

  [[noreturn]] static void refuse_selection() {
    throw invalid_argument("gradsieve: encode() was given a selection that the last compress() did not return");
  }

  std::unique_ptr<stages> stages_;
};

}  // namespace gradsieve
