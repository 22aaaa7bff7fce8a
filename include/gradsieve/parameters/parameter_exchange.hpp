// Exchanges parameter changes instead of gradients, for Adam and similar optimizers; a rank's own parameters.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/arguments.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/skipped_layers.hpp>
#include <gradsieve/host/parameters.hpp>
#include <gradsieve/parameters/agreement.hpp>
#include <gradsieve/parameters/parameter_state.hpp>
#include <gradsieve/step/parts.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Compressed training with an optimizer that normalises (Adam, Lion, Adafactor), or with any other: every rank steps
/// its own parameters with its own optimizer, on its own gradient, and the *change* is compressed and exchanged, with
/// error feedback. A rank trains on `own` = common + weight * residual, plus a look ahead with a momentum; the common
/// ones are the same bits on every rank, the residual is what a rank has not sent of its changes. After the optimizer's
/// step, or every H steps, call exchange_parameters(); evaluate and save common(). parameters/README.md has the law,
/// the balance, second moments, weights of ranks, and why an optimizer's momentum belongs into
/// parameter_options::momentum.
///
/// All calls with `own` (a vector, array or span of `Value`, in memory of the space) get the parameters that the last
/// call wrote, with the optimizer's changes since. The initial ones are equal on all ranks: broadcast them, and if in
/// doubt call check_common(). One object per rank; not for concurrent use. Members of a moved-from object throw
/// invalid_argument until another one is moved into it.
///
/// `Compressor`: a compressor of any space, or an any_compressor. Its store keeps one state: error_feedback, none
/// (nothing is kept then), in_bfloat16 of them, or one of your own whose state is what was not sent. `Value`: of own
/// parameters; common ones are float.
/// Cost: the compressor's exchange, and two passes: 16 bytes per element before it, 20 after it (with `Value` float).
/// On a device both are enqueued, and a CUDA graph can capture them.
/// Memory: besides the compressor 4 bytes per element for the common parameters, 4 for a momentum, which takes 4 more
/// in the first pass and 8 in the second, and for 16-bit parameters 4 for the change.
/// Source: own derivation. Weight 1 is the error reset of CSER (Xie et al. 2020).
///
/// @include parameters.cpp
template <class Compressor, gradient_value Value = float>
class parameter_exchange {
  static_assert(detail::parameter_rules<Compressor>::fit);
  using parts = typename Compressor::space_type::template parameters<Value>;
  using arithmetic = typename parts::arithmetic;

 public:
  using compressor_type = Compressor;  ///< exchanges the optimizer's changes
  /// The result of an exchange: the compressor's report.
  using report_type = std::remove_cvref_t<decltype(std::declval<Compressor const&>().report())>;

  /// Initialises the common parameters with `own`. Allocates. Local. @throws invalid_argument if `own` has another size
  /// than the layout or a value that is not finite, the weight is not in [0, 1], or an any_compressor's store keeps
  /// several states; std::bad_alloc, device_error.
  parameter_exchange(Compressor with, std::span<Value const> own, parameter_options options = {})
      : compressor_{std::move(with)},
        options_{options},
        keeps_nothing_{detail::parameter_rules<Compressor>::keeps_nothing(compressor_)} {
    options_.check();
    check_size(own.size());
    parts_ = std::make_unique<parts>(compressor_.where(), own.size());
    if (auto const bad = parts_->start(own); bad > 0)
      throw invalid_argument("gradsieve: " + std::to_string(bad) + " parameters are NaN or infinite");
    if (options_.momentum > 0) parts_->set_momentum({}, 0.0f);
  }

  // ---- With a communicator ---------------------------------------------------------------------------------

  /// Exchanges the changes of `own` since the last call, and rewrites it. Skipped layers send nothing, as in
  /// compressor::exchange(); a momentum moves them on. A change that is not finite counts as zero and in the report,
  /// and `own` becomes finite there; with non_finite::fail all ranks throw before anything changes. If it throws,
  /// nothing is lost: either the change is in the residual, and `own` was rewritten, or it is in `own` as before, to
  /// rounding; continue with the next step or call again. `factor`: of this rank's change, see mean_factor(); 0 drops
  /// the change, whatever it is. A CUDA graph repeats its capture's. Collective. @throws as compressor::exchange();
  /// invalid_argument if `own` has another size, for a wrong factor, or if an update was taken and neither apply_mean()
  /// nor discard_step() was called: then the other ranks throw as if this one had failed.
  template <class Comm, class Own>
  report_type exchange_parameters(Comm const& comm, Own&& own, skipped_layers const skipped = {}, float factor = 1) {
    static_assert(!detail::temporary_memory<Own>, "own parameters are rewritten: they must not be a temporary");
    auto const values = checked_by_all(comm, own, factor);
    auto const update = take(values, factor);
    try {
      auto report = compressor_.exchange(comm, update, skipped);
      put(values, comm.size());
      return report;
    } catch (...) {  // the update was not overwritten, as applying comes last
      give_back(values, keeps_nothing_);
      throw;
    }
  }

  /// Takes part in an exchange_parameters() of the other ranks as a failed rank: they throw; no rank subtracts
  /// anything. Changes of `own` stay in it. Collective. @throws as compressor::fail(); invalid_argument as
  /// exchange_parameters().
  template <class Comm, class Own>
  requires requires(Compressor& it, Comm const& comm, std::span<float> none) { it.fail(comm, none); }
  void fail(Comm const& comm, Own&& own) {
    change(checked_by_all(comm, own), [&] { compressor_.fail(comm, alive().no_update()); });
  }

  /// Compares the ranks' common parameters. Collective. Waits. Cost: one pass. @throws mismatch on every rank.
  template <class Comm>
  void check_common(Comm const& comm) {
    auto const values = alive().read();
    detail::agreement<1> sum{{wire::checksum(std::as_bytes(std::span{values}))}};
    alive().reduce_largest(comm, compressor_.where(), sum.words());
    if (!sum.on(0)) throw mismatch("gradsieve: the ranks have different common parameters");
  }

  // ---- With a transport of your own ------------------------------------------------------------------------

  /// The first half: moves the changes out of `own` and returns them, as a gradient for compressor().compress() or
  /// exchange(). With `Value` float they are in the memory of `own`. Then overwrite them with the mean of what the
  /// ranks have sent, for example by averager::apply(), and call apply_mean(); or call discard_step(). Compress on
  /// every rank or on none: otherwise ranks are at different steps, and later exchanges throw mismatch. `factor`: as in
  /// exchange_parameters(). Local. @throws invalid_argument if `own` has another size, or an update was taken already;
  /// for a wrong factor.
  template <class Own>
  std::span<float> take_update(Own&& own, float factor = 1) {
    return take(checked(own), factor);
  }

  /// The second half: adds the mean, which has replaced the update, to the common parameters, and rewrites `own`.
  /// `ranks`: the number of ranks of the mean. Local. @throws invalid_argument unless an update was taken.
  template <class Own>
  void apply_mean(Own&& own, int ranks) {
    auto const values = checked(own, true);
    if (ranks < 1) throw invalid_argument("gradsieve: a mean of " + std::to_string(ranks) + " ranks");
    put(values, ranks);
  }

  /// Replaces the second half for an update that will not be applied: what the compressor has subtracted returns to the
  /// residual, and `own` is rewritten; if the update was not compressed, it returns to `own`. Call it on every rank.
  /// Local. @throws invalid_argument unless an update was taken, or if it was compressed and exchange_parameters() was
  /// called then, which ended the compressor's step.
  template <class Own>
  void discard_step(Own&& own) {
    auto const values = checked(own, true);
    if (ended_)
      throw invalid_argument(
          "gradsieve: exchange_parameters() was called after this update was compressed, which can no longer be "
          "discarded: overwrite it with the mean of what the ranks have sent, and call apply_mean()");
    if (was_accumulated()) compressor_.discard_step();
    give_back(values, false);
  }

  // ---- The parts -------------------------------------------------------------------------------------------

  /// The common parameters, in memory of the space: to evaluate and to save. Valid as long as this object exists.
  [[nodiscard]] std::span<float const> common() const { return alive().common(); }
  /// The compressor of the changes: its residual, its step, its layers.
  [[nodiscard]] Compressor& compressor() { return alive(), compressor_; }
  /// @copydoc compressor()
  [[nodiscard]] Compressor const& compressor() const { return alive(), compressor_; }
  /// The report of the last step.
  [[nodiscard]] report_type report() const { return compressor_.report(); }
  /// The factor of this rank's unsent changes that is in `own` now.
  [[nodiscard]] float weight() const { return alive(), shares_.weight; }

  // ---- Across restarts, and with another number of ranks -----------------------------------------------------

  /// The common parameters and the compressor's state(), as bytes. Changes of `own` since the last exchange are not
  /// included. Local. Waits. Allocates. Cost: some copies.
  [[nodiscard]] std::vector<std::byte> state() {
    auto const& from = alive();
    auto const common = from.read();
    auto const size = options_.momentum > 0 ? from.momentum_size() : 0.0f;
    using held = decltype(from.momentum());
    return detail::parameter_state{common.size(), compressor_.layers().hash(), shares_.weight, size, {}, {}, {}}.write(
        common, size > 0 ? from.momentum() : held{}, compressor_.state());
  }

  /// Continues from a state(), and writes `own`. Local. Waits. Allocates. @throws corrupt_state, mismatch,
  /// std::bad_alloc and leaves everything unchanged; device_error.
  template <class Own>
  void restore(std::span<std::byte const> bytes, Own&& own) {
    arithmetic const exact;
    auto const values = checked(own);
    auto const found = detail::parameter_state::read(bytes, values.size(), compressor_.layers().hash());
    if (found.momentum_size > 0 && options_.momentum <= 0)
      throw mismatch("gradsieve: the parameter state has a momentum: set parameter_options::momentum");
    auto const values_of = [](std::span<std::byte const> from) {
      std::vector<float> read(from.size() / 4);
      wire::load(std::span{read}, from);
      return read;
    };
    auto const common = values_of(found.common), held = values_of(found.momentum);
    compressor_.restore(found.compressor);
    alive().write(common);
    if (options_.momentum > 0) alive().set_momentum(held, found.momentum_size);
    shares_ = shares_of(found.weight);
    write(values);
  }

  /// Continues as a new rank, with the common parameters of any other rank's state of the same step and a residual of
  /// zero. The others call rescale(). Local. @throws as restore().
  template <class Own>
  void join(std::span<std::byte const> bytes, Own&& own) {
    arithmetic const exact;
    restore(bytes, own);
    compressor_.rescale(0.0f);
    write(span_of(own));
  }

  /// Adds what a rank that left has not sent, from its state(). When the world shrinks or grows call rescale(new size /
  /// old size) on all ranks that were there. `own` keeps its changes. Local.
  /// @throws as compressor::absorb(), and leaves everything unchanged; invalid_argument as take_update().
  template <class Own>
  void absorb(std::span<std::byte const> bytes, Own&& own) {
    auto const values = checked(own);
    auto const found = detail::parameter_state::read(bytes, values.size(), compressor_.layers().hash());
    change(values, [&] { compressor_.absorb(found.compressor); });
  }

  /// Multiplies the residual, see absorb(). `own` keeps its changes. Local. @throws invalid_argument unless the factor
  /// is finite, or as take_update().
  template <class Own>
  void rescale(float factor, Own&& own) {
    change(checked(own), [&] { compressor_.rescale(factor); });
  }

 private:
  /// The parts. @throws invalid_argument if the object was moved from
  parts& alive() const {
    if (!parts_) throw invalid_argument("gradsieve: this parameter_exchange was moved from");
    return *parts_;
  }

  template <class Own>
  [[nodiscard]] static auto span_of(Own& own) {
    auto const values = parts::span_of(own);
    static_assert(std::same_as<decltype(values), std::span<Value> const>,
                  "own parameters are writable and of the format that the parameter_exchange was made for");
    return values;
  }

  /// A caller's own parameters. @throws invalid_argument unless they have the layout's size, and an update was `taken`
  /// or not
  template <class Own>
  [[nodiscard]] std::span<Value> checked(Own& own, bool taken = false) const {
    alive();
    auto const values = span_of(own);
    check_size(values.size());
    if (taken_ != taken)
      throw invalid_argument(
          taken ? "gradsieve: no update was taken: call take_update() before"
                : "gradsieve: an update was taken already: call apply_mean() or discard_step() before");
    return values;
  }

  /// As checked(), at the begin of an exchange: if it throws, the other ranks learn of the failure. Collective.
  template <class Comm, class Own>
  [[nodiscard]] std::span<Value> checked_by_all(Comm const& comm, Own& own, float factor = 1) {
    auto& at = alive();
    try {
      check_factor(factor);
      return checked(own);
    } catch (invalid_argument const&) {
      ended_ = taken_ && was_accumulated();
      try {
        compressor_.fail(comm, at.no_update());
      } catch (...) {  // this rank throws its own
      }
      if (!ended_) accumulated_ = compressor_.accumulated();
      throw;
    }
  }

  /// @throws invalid_argument unless it may be a factor of a change
  static void check_factor(float factor) {
    if (!detail::is_factor(factor)) throw invalid_argument("gradsieve: a factor of a change is negative or not finite");
  }

  /// The first half; multiplies the change by a factor. @pre checked()
  std::span<float> take(std::span<Value> own, float factor = 1) {
    check_factor(factor);
    arithmetic const exact;
    auto const unsent = compressor_.residual();  // may throw: nothing has changed yet
    accumulated_ = compressor_.accumulated();
    ended_ = false;
    alive().take(own, unsent, shares_, factor_ = factor);
    taken_ = true;
    return alive().update_of(own);
  }

  /// The second half; `own` has the mean of so many ranks in place of the update.
  void put(std::span<Value> own, int ranks) {
    arithmetic const exact;
    auto const unsent = compressor_.residual();
    shares_ = shares_of(options_.among(ranks, factor_, density()));
    std::uint64_t const* fault = nullptr;  // in memory of a device not 0 if the step has failed; a host throws at once
    if constexpr (requires { compressor_.report().fault(); }) fault = compressor_.report().fault();
    alive().put(own, unsent, shares_, options_.momentum, fault);
    taken_ = false;
  }

  /// Changes the residual by body(), and keeps the changes of `own`.
  template <class Body>
  void change(std::span<Value> own, Body const& body) {
    arithmetic const exact;
    take(own);
    detail::held_failure failure;
    failure.attempt(body);
    write(own, factor_);
    taken_ = false;
    if (failure) std::rethrow_exception(failure.why());
  }

  /// Writes `own` from the common parameters and the residual; with a factor, with the optimizer's changes.
  void write(std::span<Value> own, float factor = 0) { alive().write(own, compressor_.residual(), shares_, factor); }

  void check_size(std::size_t size) const {
    if (auto const n = compressor_.layers().size(); size != n)
      throw invalid_argument("gradsieve: " + std::to_string(size) + " own parameters, the layout has " +
                             std::to_string(n) + " elements");
  }

  [[nodiscard]] detail::own_shares shares_of(float weight) const {  // with nothing kept nothing is late
    return keeps_nothing_ ? detail::own_shares{} : detail::own_shares{weight, options_.ahead(density())};
  }
  [[nodiscard]] double density() const { return compressor_.recipe().density.ramp().final; }
  [[nodiscard]] bool was_accumulated() const { return compressor_.accumulated() != accumulated_; }

  /// Rewrites `own` if the update was accumulated; otherwise, or if it `must`, adds the update back.
  void give_back(std::span<Value> own, bool must) {
    arithmetic const exact;
    write(own, was_accumulated() && !must ? 0.0f : factor_);
    taken_ = false;
  }

  Compressor compressor_;
  parameter_options options_;
  bool keeps_nothing_;  // true if the residual store drops what is not sent
  std::unique_ptr<parts> parts_;
  detail::own_shares shares_;      // of the last write of `own`, which is common at first, whatever the residual
  float factor_ = 1;               // of the update that was taken last
  bool taken_ = false;             // true while an update is in the memory of `own`
  bool ended_ = false;             // true if it was compressed in a step that another one has followed
  std::uint64_t accumulated_ = 0;  // the compressor's count when it was taken
};

/// Deduces the format of the own parameters, a vector, array or span.
template <class Compressor, class Own>
parameter_exchange(Compressor, Own const&, parameter_options = {})
    -> parameter_exchange<Compressor, detail::value_format<Own>>;

}  // namespace gradsieve
