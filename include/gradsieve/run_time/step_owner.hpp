// A compressor whose policies the type does not name.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/report.hpp>
#include <gradsieve/core/skipped_layers.hpp>
#include <gradsieve/run_time/any_communicator.hpp>
#include <gradsieve/run_time/any_step.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

/// The report of an any_compressor's step on a device, as device_report. Reading it waits.
template <class Step>
class any_report {
 public:
  explicit any_report(Step const& of) noexcept : of_{&of} {}
  [[nodiscard]] step_report get() const { return of_->read_report(); }
  operator step_report() const { return get(); }                         // NOLINT: it is one
  operator typename Step::report_type() const { return of_->around().report(); }  // NOLINT: of this rank's part
  [[nodiscard]] std::uint64_t const* fault() const { return of_->around().report().fault(); }

 private:
  Step const* of_;
};

}  // namespace detail

/// The members of compressors whose policies this unit does not compile: any_compressor, and compressor of light.hpp.
/// See compressor for what each call does and throws.
template <class Space, class Formats>
class step_owner {
  using base = detail::any_step<Space, Formats>;
  static constexpr bool on_host = std::same_as<Space, host>;

 public:
  using space_type = Space;                         ///< where it works
  using selection_type = typename base::selection;  ///< as compressor's
  using report_type = std::conditional_t<on_host, step_report, detail::any_report<base>>;  ///< as compressor's

  /// As compressor::exchange(), of a gradient in a format of the menu. `ranks`: an any_communicator_of<Space>, or the
  /// nodes if it was made with nodes. @throws also invalid_argument for ranks of the other kind
  template <class Ranks, class Gradient>
  report_type exchange(Ranks const& ranks, Gradient&& gradient, skipped_layers const skipped = {}) {
    require_ranks<Ranks>();
    alive().exchange(ranks, detail::writable<Gradient>(gradient_of(gradient)), skipped);
    return report();
  }
  /// As compressor::fail(). An overlap cancels a step by it.
  template <class Ranks, class Gradient>
  void fail(Ranks const& ranks, Gradient&& gradient) {
    require_ranks<Ranks>();
    alive().fail(ranks, gradient_of(gradient));
  }
  /// As compressor::connect(). @throws also invalid_argument if it was made with nodes
  void connect(any_communicator_of<Space> const& ranks) { alive().connect(ranks); }
  /// As compressor::compress().
  template <class Gradient>
  selection_type compress(Gradient const& gradient, int rank = 0) {
    return alive().compress(gradient_of(gradient), rank);
  }
  /// As compressor::encode().
  [[nodiscard]] std::span<std::byte const> encode(selection_type const& chosen) { return alive().encode(chosen); }
  /// Overwrites the gradient with the mean of messages of such compressors; see averager::apply(). Allocates in the
  /// first call.
  template <class Gradient>
  applied_update apply(std::span<std::span<std::byte const> const> messages, Gradient&& gradient) {
    return alive().apply(messages, detail::writable<Gradient>(gradient_of(gradient)));
  }
  /// As compressor::report(). On a device it refers to this compressor, and reading it waits.
  [[nodiscard]] report_type report() const {
    if constexpr (on_host)
      return alive().read_report();
    else
      return report_type{alive()};
  }
  [[nodiscard]] std::span<float const> residual() { return around().residual(); }  ///< as compressor::residual()
  [[nodiscard]] std::uint64_t step() const { return around().step(); }  ///< as compressor::step()
  [[nodiscard]] std::uint64_t accumulated() const { return around().accumulated(); }  ///< as compressor::accumulated()
  [[nodiscard]] Space where() const { return around().where(); }  ///< as at construction
  void discard_step() { around().discard_step(); }  ///< as compressor::discard_step()
  void rescale(float factor) { around().rescale(factor); }  ///< as compressor::rescale()
  [[nodiscard]] double residual_norm() { return around().residual_norm(); }  ///< as compressor::residual_norm()
  [[nodiscard]] std::vector<std::byte> state() { return around().state(); }  ///< as compressor::state()
  void restore(std::span<std::byte const> bytes) { around().restore(bytes); }  ///< as compressor::restore()
  void absorb(std::span<std::byte const> bytes) { around().absorb(bytes); }  ///< as compressor::absorb()
  [[nodiscard]] layout const& layers() const { return alive().layers(); }  ///< as compressor::layers()

  /// @cond internal
  [[nodiscard]] detail::around_steps<Space>& around() const { return alive().around(); }
  /// @endcond

 protected:
  step_owner() = default;  ///< of no step yet
  /// The step. @throws invalid_argument if this was moved from
  base& alive() const {
    if (!at_) throw invalid_argument("gradsieve: this compressor was moved from");
    return *at_;
  }

  std::unique_ptr<base> at_;  ///< null if this was moved from

 private:
  template <class Ranks>
  static void require_ranks() {
    static_assert(std::convertible_to<Ranks const&, any_communicator_of<Space> const&> ||
                      std::convertible_to<Ranks const&, any_nodes<Space> const&>,
                  "an any_compressor's ranks are an any_communicator of its space, as any_communicator{comm}, or the "
                  "any_nodes that it was made with");
  }

  template <class Gradient>
  [[nodiscard]] auto gradient_of(Gradient& gradient) const {
    auto const check = [&] {
      if constexpr (on_host)
        return detail::checked_gradient(gradient, layers());
      else
        return detail::checked_device_gradient(gradient, layers());
    };
    using value = typename decltype(check())::value_type;
    static_assert(detail::holds<value, Formats>,
                  "this menu's compressors do not take gradients of this format: name it in the menu's formats");
    return check();
  }
};

}  // namespace gradsieve
