// A recipe of the library's policies, handed over to gradsieve::compiled.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

#include <gradsieve/core/density.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/passthrough_layers.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/space.hpp>
#include <gradsieve/run_time/any_policy.hpp>
#include <gradsieve/run_time/any_step.hpp>
#include <gradsieve/step/recipe.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

struct hierarchical;
struct laplacian;
struct trimmed;
struct threshold_search;
struct ldte;
struct sidco;
struct random_k;
struct fixed_threshold;
struct chunked;
struct adacomp;
struct layerwise;
struct deft;
struct cyclic;
struct micro;
struct none;
struct momentum_correction;
struct filtered;
struct automatic;
struct delta;
struct elias_fano;
struct bitmap;
struct fixed_width;
template <gradient_value Format>
struct half_values;
template <unsigned Bits>
struct block_scaled;
struct ternary;
struct sign;
struct qsgd;
struct index_union;
struct leader;
struct shared_choice;
struct reduce_scatter;
struct coded_all_reduce;
struct binned;
template <class Indices, class Values>
struct packed;

namespace detail {

/// The lists of full_menu. Only the library's unit, which compares both, has all these policies complete.
struct compiled_menu {
  using selectors = type_list<radix, hierarchical, laplacian, trimmed, threshold_search, ldte, sidco, random_k,
                              fixed_threshold, chunked, adacomp>;
  using partitioners = type_list<whole, layerwise, deft, cyclic, micro>;
  using residuals = type_list<error_feedback, none, momentum_correction, filtered>;
  using indices = type_list<automatic, raw32, delta, elias_fano, bitmap, fixed_width>;
  using values = type_list<fp32, half_values<float16>, half_values<bfloat16>, block_scaled<8>, block_scaled<4>,
                           block_scaled<2>, ternary, sign, qsgd>;
  using exchanges = type_list<gather, index_union, leader, shared_choice, reduce_scatter, coded_all_reduce>;
  using formats = type_list<float, float16, bfloat16>;
};

enum class policy_family { selector, partitioner, residual, indices, values, exchange };

/// Position of a type in a list. @pre it is there
template <class T, class... Types>
[[nodiscard]] constexpr std::size_t place_in(type_list<Types...>) {
  bool const same[] = {std::is_same_v<T, Types>...};
  std::size_t i = 0;
  while (!same[i]) ++i;
  return i;
}

/// A recipe as the library takes it.
class compiled_recipe {
 public:
  using step = any_step<host, compiled_menu::formats>;

  compiled_recipe();
  compiled_recipe(compiled_recipe const&) = delete;
  ~compiled_recipe();

  template <class Recipe>
  void set(Recipe const& from) {
    set_common(from.density, from.passthrough, from.on_non_finite);
    set_one<compiled_menu::selectors>(policy_family::selector, from.selector);
    set_one<compiled_menu::partitioners>(policy_family::partitioner, from.partitioner);
    set_one<compiled_menu::residuals>(policy_family::residual, from.residual);
    set_codec(from.codec);
    set_one<compiled_menu::exchanges>(policy_family::exchange, from.exchange);
  }

  /// @throws invalid_argument as any_compressor's constructor
  [[nodiscard]] std::unique_ptr<step> make_step(host where, layout layers) const;

 private:
  struct parts;

  void set_common(density_schedule const& density, passthrough_layers const& passthrough, non_finite on_non_finite);
  void set_policy(policy_family family, std::size_t place, void const* policy);
  void set_packed();
  void set_binned();

  template <class List, class Policy>
  void set_one(policy_family family, Policy const& policy) {
    static_assert(holds<Policy, List>,
                  "light.hpp is for recipes whose policies are all the library's and run on a host: for one of your "
                  "own include gradsieve/compressor.hpp instead, or gradsieve/gradsieve.hpp");
    if constexpr (holds<Policy, List>) set_policy(family, place_in<Policy>(List{}), &policy);
  }

  void set_codec(coo const&) {}
  void set_codec(binned const&) { set_binned(); }
  template <class Indices, class Values>
  void set_codec(packed<Indices, Values> const& codec) {
    set_packed();
    set_one<compiled_menu::indices>(policy_family::indices, codec.indices);
    set_one<compiled_menu::values>(policy_family::values, codec.values);
  }
  template <class Codec>
  void set_codec(Codec const& codec) {
    set_one<type_list<coo, binned>>(policy_family::indices, codec);  // refuses it
  }

  std::unique_ptr<parts> parts_;
};

}  // namespace detail
}  // namespace gradsieve
