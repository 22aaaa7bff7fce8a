// Every recipe of a menu that runs on a device, compiled: include it in one translation unit of a program.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <gradsieve/cuda.cuh>
#include <gradsieve/published.cuh>
#include <gradsieve/run_time/any_codec.hpp>
#include <gradsieve/run_time/any_compressor.hpp>
#include <gradsieve/run_time/any_policies.hpp>
#include <gradsieve/run_time/any_policy.hpp>
#include <gradsieve/run_time/any_recipe.hpp>
#include <gradsieve/run_time/device_codec.cuh>
#include <gradsieve/run_time/device_exchange.cuh>
#include <gradsieve/run_time/step_of_recipe.hpp>
#include <gradsieve/two_level.cuh>

namespace gradsieve::inline GRADSIEVE_ABI {

/// @cond internal
namespace detail {

/// True if sums in this codec's format are formed on a device.
template <class Values>
struct sums_run_there : std::bool_constant<requires { sizeof(device_value_sum<Values>); }> {};

}  // namespace detail

/// Memory: that of the chosen sum. @pre its values are summed on a device, see detail::check_device()
template <class... Types>
class device_value_sum<any_summed_values<Types...>> {
 public:
  void reserve(cuda_workspace const& work, any_summed_values<Types...> const& how, std::uint64_t most, bool flagged,
               int world) {
    std::visit(
        [&]<class Values>(Values const& values) {
          if constexpr (detail::sums_run_there<Values>::value)
            chosen_.template emplace<device_value_sum<Values>>().reserve(work, values, most, flagged, world);
        },
        how.chosen);
  }

  template <class Comm>
  sum_traffic run(Comm const& comm, cuda_workspace const& work, cuda_kernels::entry_list const& own,
                  std::span<float> sums) const {
    return std::visit([&](auto const& it) { return it.run(comm, work, own, sums); }, chosen_);
  }

 private:
  template <class... Values>
  using one_of = std::variant<device_value_sum<Values>...>;
  detail::any_of<one_of, detail::those_of<detail::sums_run_there, type_list<Types...>>> chosen_;
};

template <class Indices, class Values, class Summed>
struct summed_values<any_codec<Indices, Values, Summed>> {
  using type = Summed;
  [[nodiscard]] static type of(any_codec<Indices, Values, Summed> const& how) { return how.values; }
};
/// @endcond

}  // namespace gradsieve

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// True if a selector's members run in kernels.
template <class Selector>
struct selects_there : std::bool_constant<selector<Selector, device::selector_view<float>>> {};

/// @throws invalid_argument naming a policy that does not run on a device
template <class Menu>
void check_device(any_recipe<Menu> const& recipe) {
  auto const require = [](bool runs, char const* name, char const* why) {
    if (!runs) recipe_text::refuse(std::string{name} + " does not run on a device" + why);
  };
  std::visit([&]<class S>(S const&) { require(selects_there<S>::value, S::name, ""); }, recipe.selector);
  bool sums = false;
  std::visit(
      [&]<class E>(E const&) {
        require(exchange_runs_there<E>::value, E::name, "");
        sums = E::traits.sums_values;
      },
      recipe.chosen_exchange());
  require(recipe.codec != codec_kind::binned, binned::name,
          ", where messages have a fixed size, so that it saves nothing: use coo, or packed with elias_fano, "
          "fixed_width or raw32");
  if (recipe.codec != codec_kind::packed) return;
  std::visit(
      [&]<class Indices, class Values>(Indices const&, Values const&) {
        require(indices_run_there<Indices>::value, Indices::name,
                ", where messages have a fixed size, so that codecs of variable length save nothing: use coo, or "
                "packed with elias_fano, fixed_width or raw32");
        require(values_run_there<Values>::value, Values::name, ": use other values");
        if (sums && !(std::is_same_v<Indices, raw32> && sums_run_there<Values>::value))
          recipe_text::refuse(std::string{"on a device index_union and leader send indices as u32 and values of 32 or "
                                          "16 bits: the codec is coo, or packed with raw32 and fp32, fp16 or bf16, not "
                                          "packed:"} +
                              Indices::name + "," + Values::name);
      },
      recipe.indices, recipe.values);
}

/// Chooses codecs, exchanges and partitioners of one kind within a step, which is compiled for each selector and
/// residual store up to three times: with partitioners that need norms, that rotate, and others.
template <class Menu>
class device_steps {
  using result = std::unique_ptr<any_step<device, typename Menu::formats>>;

 public:
  device_steps(device where, layout layers, any_recipe<Menu> const& from)
      : where_{where}, layers_{std::move(layers)}, from_{from} {}

  [[nodiscard]] result make() && {
    return std::visit(
        [&]<class P>(auto const& selector, auto const& residual, P const&) -> result {
          if constexpr (P::traits.needs_norms)
            return make_with(selector, residual, late{});
          else if constexpr (P::traits.rotates)
            return make_with(selector, residual, rotating{});
          else
            return make_with(selector, residual, early{});
        },
        from_.selector, from_.residual, from_.partitioner);
  }

 private:
  template <class P>
  struct is_late : std::bool_constant<P::traits.needs_norms> {};
  template <class P>
  struct is_rotating : std::bool_constant<!P::traits.needs_norms && P::traits.rotates> {};
  template <class P>
  struct is_early : std::bool_constant<!P::traits.needs_norms && !P::traits.rotates> {};
  using late = those_of<is_late, typename Menu::partitioners>;
  using rotating = those_of<is_rotating, typename Menu::partitioners>;
  using early = those_of<is_early, typename Menu::partitioners>;

  template <class Selector, class Residual, class... Partitioners>
  [[nodiscard]] result make_with(Selector const& selector, Residual const& residual, type_list<Partitioners...> list) {
    constexpr bool waits = (Partitioners::traits.needs_norms || ...);
    if constexpr (selects_there<Selector>::value && !(bin_selector<Selector> && waits) &&
                  offers_one<Menu, Selector, Residual>(decltype(list){}))
      return make_step_of<any_partitioner<Partitioners...>, any_of<any_exchange, typename Menu::exchanges>>(
          where_, std::move(layers_), from_, selector, residual, from_.coded());
    else
      throw invalid_argument("gradsieve: recipe: the menu does not offer this");  // check() has said so
  }

  device where_;
  layout layers_;
  any_recipe<Menu> const& from_;
};

template <class Menu>
std::unique_ptr<any_step<device, typename Menu::formats>> make_step(device where, layout layers,
                                                                    any_recipe<Menu> const& recipe,
                                                                    any_nodes<device> const* nodes) {
  check_device(recipe);
  if (nodes != nullptr) return std::make_unique<step_of_nodes<device, Menu>>(where, std::move(layers), recipe, *nodes);
  return device_steps<Menu>{where, std::move(layers), recipe}.make();
}

}  // namespace gradsieve::detail
