// Checks whether policies chosen at run time fit together: recipe_rules, as exceptions with the same sentences.
#pragma once

#include <string>
#include <variant>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/run_time/any_codec.hpp>
#include <gradsieve/run_time/recipe_text.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// What the rules ask of each policy, taken from the chosen one.
class fitting {
 public:
  template <class Selector>
  fitting& of_selector(Selector const& of) {
    std::visit(
        [&]<class S>(S const&) {
          selector_ = S::name;
          has_bins_ = bin_selector<S>;
          bins_in_layers_ = layer_bin_selector<S>;
          chooses_alike_ = shared_selector<S>;
        },
        of);
    return *this;
  }
  template <class Partitioner>
  fitting& of_partitioner(Partitioner const& of) {
    std::visit(
        [&]<class P>(P const&) {
          partitioner_ = P::name;
          needs_norms_ = P::traits.needs_norms;
          disjoint_ = P::traits.disjoint;
          in_layers_ = P::traits.within_layers.value_or(true);
          one_owner_ = P::traits.single_owner.value_or(true);
        },
        of);
    return *this;
  }
  template <class Exchange>
  fitting& of_exchange(Exchange const& of) {
    std::visit(
        [&]<class E>(E const&) {
          exchange_ = E::name;
          sums_ = E::traits.sums_values;
          needs_one_owner_ = E::traits.single_owner;
          needs_alike_ = E::traits.shared_choice;
        },
        of);
    return *this;
  }
  /// `plain`: the codec has no values of its own.
  template <class Values>
  fitting& of_codec(bool is_binned, bool plain, Values const& of) {
    binned_ = is_binned;
    codec_ = is_binned ? binned::name : coo::name;
    if (!plain)
      std::visit(
          [&]<class V>(V const&) {
            codec_ = V::name;
            summed_ = is_summed<V>::value;
          },
          of);
    return *this;
  }

  /// @throws invalid_argument for the first rule that is broken
  void check() const {
    auto const require = [](bool holds, std::string const& why) {
      if (!holds) recipe_text::refuse(why);
    };
    require(!has_bins_ || !needs_norms_, selector_ +
                                             " has bins and chooses in the accumulate pass: it needs a "
                                             "partitioner without norms, not " +
                                             partitioner_);
    require(!bins_in_layers_ || in_layers_, selector_ +
                                                "'s bins do not cross layers: it needs a partitioner whose "
                                                "segments lie within layers, such as layerwise, not " +
                                                partitioner_);
    require(!binned_ || has_bins_,
            "binned writes places in the selector's bins: it needs a selector that has bins, "
            "such as adacomp, not " +
                selector_);
    require(!needs_one_owner_ || one_owner_, exchange_ +
                                                 " is for one rank's choice: it needs a partitioner by which "
                                                 "one rank selects in a step, such as cyclic, not " +
                                                 partitioner_);
    require(!needs_alike_ || (chooses_alike_ && !disjoint_),
            exchange_ +
                " sums what all ranks have chosen alike: it needs a selector that chooses by a seed, such as "
                "random_k, and a partitioner by which all ranks select from all segments, such as whole; not " +
                selector_ + " and " + partitioner_);
    require(!sums_ || (summed_ && !binned_), exchange_ +
                                                 " sums values one by one: the codec is coo with it, or packed with "
                                                 "values fp32, fp16, bf16, not " +
                                                 codec_);
  }

 private:
  std::string selector_, partitioner_, exchange_, codec_;
  bool has_bins_ = false, bins_in_layers_ = false, chooses_alike_ = false;
  bool needs_norms_ = false, disjoint_ = false, in_layers_ = false, one_owner_ = false;
  bool sums_ = false, needs_one_owner_ = false, needs_alike_ = false;
  bool binned_ = false, summed_ = true;
};

}  // namespace gradsieve::detail
