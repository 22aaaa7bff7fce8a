// A compressor whose recipe is chosen at run time, without what is compiled for it: that is in host_steps.hpp.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/host/openmp.hpp>
#include <gradsieve/run_time/any_communicator.hpp>
#include <gradsieve/run_time/any_recipe.hpp>
#include <gradsieve/run_time/any_step.hpp>
#include <gradsieve/run_time/make_step.hpp>
#include <gradsieve/run_time/menu.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

/// The report of an any_compressor's step on a device, as device_report. Reading it waits.
template <class Step>
class any_report {
 public:
  explicit any_report(Step const& of) noexcept : of_{&of} {}
  [[nodiscard]] step_report get() const { return of_->read_report(); }
  operator step_report() const { return get(); }                         // NOLINT: it is one
  operator typename Step::report_type() const { return of_->report(); }  // NOLINT: with nodes, of this rank's part
  [[nodiscard]] std::uint64_t const* fault() const { return of_->report().fault(); }

 private:
  Step const* of_;
};

}  // namespace detail

/// A compressor whose recipe is chosen at run time; see compressor for what each call does and throws. It has the same
/// results, bit for bit, as the recipe written in C++. Gradients are of a format of the menu, in one piece or in
/// `pieces`. Made with nodes it is a two_level_compressor: it exchanges with these, and its residual is that of this
/// rank's part; it makes no messages. Not for concurrent use. Cost: the recipe's, a virtual call per step, and a branch
/// per segment and message.
/// run_time.hpp, or run_time.cuh for a device, has what is compiled for all recipes of the menu, which takes minutes:
/// include it in one translation unit, which instantiates detail::make_step, and this header in others. In a program
/// that links gradsieve::compiled it costs nothing for full_menu, nor for menus of some of its policies in its formats.
template <class Menu = full_menu, class Space = host>
class any_compressor {
  using base = detail::any_step<Space, typename Menu::formats>;
  static constexpr bool on_host = std::same_as<Space, host>;

 public:
  using space_type = Space;                         ///< where it works
  using selection_type = typename base::selection;  ///< as compressor's
  using report_type = std::conditional_t<on_host, step_report, detail::any_report<base>>;  ///< as compressor's

  /// As compressor's constructor. @throws invalid_argument; also where the recipe's policies do not fit together, and
  /// on a device for a policy that does not run there, which it names.
  any_compressor(Space where, layout layers, any_recipe<Menu> recipe) : recipe_{std::move(recipe)} {
    recipe_.check();
    detail::lend_openmp();
    at_ = detail::make_step(where, std::move(layers), recipe_, static_cast<any_nodes<Space> const*>(nullptr));
  }
  /// As two_level_compressor's constructor.
  any_compressor(Space where, layout layers, any_recipe<Menu> recipe, any_nodes<Space> const& nodes)
      : recipe_{std::move(recipe)} {
    recipe_.check();
    detail::lend_openmp();
    at_ = detail::make_step(where, std::move(layers), recipe_, &nodes);
  }

  /// As compressor::exchange(), of a gradient in a format of the menu. `ranks`: an any_communicator_of<Space>, or where
  /// it was made with nodes, these. @throws also invalid_argument for ranks of the other kind
  template <class Ranks, class Gradient>
  report_type exchange(Ranks const& ranks, Gradient&& gradient, skipped_layers const skipped = {}) {
    require_ranks<Ranks>();
    here().exchange(ranks, detail::writable<Gradient>(gradient_of(gradient)), skipped);
    return report();
  }
  /// As compressor::fail(): so an overlap can cancel a step.
  template <class Ranks, class Gradient>
  void fail(Ranks const& ranks, Gradient&& gradient) {
    require_ranks<Ranks>();
    here().fail(ranks, gradient_of(gradient));
  }
  /// As compressor::connect(). @throws also invalid_argument where it was made with nodes
  void connect(any_communicator_of<Space> const& ranks) { here().connect(ranks); }
  /// As compressor::compress().
  template <class Gradient>
  selection_type compress(Gradient const& gradient, int rank = 0) {
    return here().compress(gradient_of(gradient), rank);
  }
  /// As compressor::encode().
  [[nodiscard]] std::span<std::byte const> encode(selection_type const& chosen) { return here().encode(chosen); }
  /// Overwrites the gradient with the mean of messages of such compressors; see averager::apply(). Allocates in the
  /// first call. On the host.
  template <class Gradient>
    requires std::same_as<Space, host>
  applied_update apply(std::span<std::span<std::byte const> const> messages, Gradient&& gradient) {
    return here().apply(messages, detail::writable<Gradient>(gradient_of(gradient)));
  }
  /// As compressor::report(). On a device it refers to this compressor, and reading it waits.
  [[nodiscard]] report_type report() const {
    if constexpr (on_host)
      return here().read_report();
    else
      return report_type{here()};
  }
  [[nodiscard]] std::span<float const> residual() { return here().residual(); }      ///< as compressor::residual()
  [[nodiscard]] std::uint64_t step() const { return here().step(); }                 ///< as compressor::step()
  [[nodiscard]] std::uint64_t accumulated() const { return here().accumulated(); }   ///< as compressor::accumulated()
  [[nodiscard]] Space where() const { return here().where(); }                       ///< as at construction
  void discard_step() { here().discard_step(); }                                     ///< as compressor::discard_step()
  void rescale(float factor) { here().rescale(factor); }                             ///< as compressor::rescale()
  [[nodiscard]] double residual_norm() { return here().residual_norm(); }            ///< as compressor::residual_norm()
  [[nodiscard]] std::vector<std::byte> state() { return here().state(); }            ///< as compressor::state()
  void restore(std::span<std::byte const> bytes) { here().restore(bytes); }          ///< as compressor::restore()
  void absorb(std::span<std::byte const> bytes) { here().absorb(bytes); }            ///< as compressor::absorb()
  [[nodiscard]] layout const& layers() const { return here().layers(); }             ///< as compressor::layers()
  [[nodiscard]] any_recipe<Menu> const& recipe() const { return here(), recipe_; }   ///< the recipe
  /// The same number as recipe::hash() of the recipe written in C++.
  [[nodiscard]] std::uint64_t hash() const { return recipe().hash(); }
  /// As compressor::passing().
  [[nodiscard]] std::vector<layer> passing() const { return gradsieve::passing(layers(), recipe().passthrough); }
  /// As compressor::describe().
  [[nodiscard]] std::string describe() const { return detail::describe_recipe(recipe(), layers()); }

 private:
  base& here() const {
    if (!at_) throw invalid_argument("gradsieve: this compressor was moved from");
    return *at_;
  }

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
    static_assert(detail::holds<value, typename Menu::formats>,
                  "this menu's compressors do not take gradients of this format: name it in the menu's formats");
    return check();
  }

  any_recipe<Menu> recipe_;
  std::unique_ptr<base> at_;
};
/// Deduces menu and space.
template <class Space, class Menu>
any_compressor(Space, layout, any_recipe<Menu>) -> any_compressor<Menu, Space>;
/// Deduces menu and space.
template <class Space, class Menu>
any_compressor(Space, layout, any_recipe<Menu>, any_nodes<Space>) -> any_compressor<Menu, Space>;

namespace detail {

/// The part of a node's rank is an any_compressor's too.
template <class Space, class Menu>
struct compressor_of<Space, any_recipe<Menu>> {
  using type = any_compressor<Menu, Space>;
};

}  // namespace detail
}  // namespace gradsieve
