// A rank's own parameters: how an exchange takes their changes out, and writes them again.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/host/parameters.hpp>
#include <gradsieve/parameters/parameter_rules.hpp>
#include <gradsieve/step/parts.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// What a parameter_exchange consists of: its compressor, the common parameters, and whether an update is taken.
template <class Compressor, class Value>
class own_parameters {
 public:
  using parts = typename Compressor::space_type::template parameters<Value>;
  using arithmetic = typename parts::arithmetic;

  own_parameters(Compressor with, std::span<Value const> own, parameter_options options)
      : compressor{std::move(with)},
        options_{options},
        keeps_nothing_{parameter_rules<Compressor>::keeps_nothing(compressor)} {
    options_.check();
    check_size(own.size());
    parts_ = std::make_unique<parts>(compressor.where(), own.size());
    if (auto const bad = parts_->start(own); bad > 0)
      throw invalid_argument("gradsieve: " + std::to_string(bad) + " parameters are NaN or infinite");
  }

  /// Their memory. @throws invalid_argument if the object was moved from
  parts& here() const {
    if (!parts_) throw invalid_argument("gradsieve: this parameter_exchange was moved from");
    return *parts_;
  }

  // ---- Checks ------------------------------------------------------------------------------------------------

  template <class Own>
  [[nodiscard]] static auto span_of(Own& own) {
    auto const values = parts::span_of(own);
    static_assert(std::same_as<decltype(values), std::span<Value> const>,
                  "own parameters are writable and of the format that the parameter_exchange was made for");
    return values;
  }

  /// A caller's own parameters. @throws invalid_argument unless they have the layout's size, and an update was taken or
  /// not, as `taken` says
  template <class Own>
  [[nodiscard]] std::span<Value> checked(Own& own, bool taken = false) const {
    here();
    auto const values = span_of(own);
    check_size(values.size());
    if (taken_ != taken)
      throw invalid_argument(
          taken ? "gradsieve: no update was taken: call take_update() before"
                : "gradsieve: an update was taken already: call apply_mean() or discard_step() before");
    return values;
  }

  /// The same at the begin of an exchange: if it throws, the other ranks learn that this one has failed. Collective.
  template <class Comm, class Own>
  [[nodiscard]] std::span<Value> checked_by_all(Comm const& comm, Own& own, float factor = 1) {
    auto& at = here();
    try {
      check_factor(factor);
      return checked(own);
    } catch (invalid_argument const&) {
      ended_ = taken_ && was_accumulated();
      try {
        compressor.fail(comm, at.no_update());
      } catch (...) {  // this rank throws its own
      }
      if (!ended_) accumulated_ = compressor.accumulated();
      throw;
    }
  }

  /// @throws invalid_argument unless it may be a factor of a change
  static void check_factor(float factor) {
    if (!is_factor(factor)) throw invalid_argument("gradsieve: a factor of a change is negative or not finite");
  }

  // ---- The halves of an exchange -----------------------------------------------------------------------------

  /// The first half; the change is multiplied by a factor. @pre checked()
  std::span<float> take(std::span<Value> own, float factor = 1) {
    check_factor(factor);
    arithmetic const exact;
    auto const unsent = compressor.residual();  // may throw: nothing has changed yet
    accumulated_ = compressor.accumulated();
    ended_ = false;
    here().take(own, unsent, weight_, factor_ = factor);
    taken_ = true;
    return here().update_of(own);
  }

  /// The second half, with the mean of so many ranks in place of the update.
  void put(std::span<Value> own, int ranks) {
    arithmetic const exact;
    auto const unsent = compressor.residual();
    weight_ = keeps_nothing_ ? 0.0f : options_.among(ranks, factor_);
    here().put(own, unsent, weight_);
    taken_ = false;
  }

  /// The second half where an exchange has failed: its update was not overwritten, as applying comes last.
  void fail(std::span<Value> own) { give_back(own, keeps_nothing_); }

  /// The second half for an update that will not be applied.
  void discard(std::span<Value> own) {
    if (ended_)
      throw invalid_argument(
          "gradsieve: exchange_parameters() was called after this update was compressed, which can no longer be "
          "discarded: overwrite it with the mean of what the ranks have sent, and call apply_mean()");
    if (was_accumulated()) compressor.discard_step();
    give_back(own, false);
  }

  // ---- Between steps -----------------------------------------------------------------------------------------

  /// Changes the residual by body(), and keeps the changes of `own`.
  template <class Body>
  void change(std::span<Value> own, Body const& body) {
    arithmetic const exact;
    take(own);
    held_failure failure;
    failure.attempt(body);
    here().write_updated(own, compressor.residual(), weight_, factor_);
    taken_ = false;
    if (failure) std::rethrow_exception(failure.why());
  }

  /// Writes `own` without changes, with the residual as it is.
  void write(std::span<Value> own) { here().write_own(own, compressor.residual(), weight_); }
  /// The same, with a weight from a saved state.
  void write(std::span<Value> own, float weight) {
    weight_ = keeps_nothing_ ? 0.0f : weight;
    write(own);
  }

  [[nodiscard]] float weight() const { return here(), weight_; }

  Compressor compressor;

 private:
  void check_size(std::size_t size) const {
    if (auto const n = compressor.layers().size(); size != n)
      throw invalid_argument("gradsieve: " + std::to_string(size) + " own parameters, the layout has " +
                             std::to_string(n) + " elements");
  }

  [[nodiscard]] bool was_accumulated() const { return compressor.accumulated() != accumulated_; }

  /// Rewrites `own` once the update is accumulated; otherwise, or if it `must`, adds the update back.
  void give_back(std::span<Value> own, bool must) {
    arithmetic const exact;
    if (was_accumulated() && !must)
      write(own);
    else
      here().write_updated(own, compressor.residual(), weight_, factor_);
    taken_ = false;
  }

  parameter_options options_;
  bool keeps_nothing_;  // whether what is not sent is dropped
  std::unique_ptr<parts> parts_;
  float weight_ = 0;               // of the last write of `own`, which at first is common, whatever the residual
  float factor_ = 1;               // of the update that was taken last
  bool taken_ = false;             // whether an update is in the memory of `own`
  bool ended_ = false;             // whether it was compressed in a step that another one has followed
  std::uint64_t accumulated_ = 0;  // the compressor's count when it was taken
};

}  // namespace gradsieve::detail
