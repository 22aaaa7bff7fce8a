// The contract, held against the library's own policies and against some of a user's, and what a recipe makes of it.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/plan.hpp>

#include "messages.hpp"
#include "steps.hpp"

namespace gs = gradsieve;
using namespace steps;

namespace library {

using work = gs::host_workspace;
static_assert(gs::space<gs::host> && !gs::space<int> && gs::selector_workspace<work>);
static_assert(gs::key_sampling<gs::detail::key_sample> && !gs::selector_workspace<gs::host>);

static_assert(gs::direct_selector<gs::radix, work> && gs::predicting_selector<gs::radix, work>);
static_assert(gs::warm_selector<gs::radix> && !gs::warm_selector<gs::hierarchical>);
struct own_select : gs::radix {};  // what it inherits may not stand for a select() of its own
static_assert(gs::candidate_selector<gs::radix> && gs::candidate_selector<gs::laplacian> &&
              gs::candidate_selector<gs::hierarchical> && !gs::candidate_selector<gs::chunked>);
static_assert(!gs::candidate_selector<own_select> && gs::detail::choose_fits<own_select> &&
              gs::detail::choose_fits<gs::chunked>);
static_assert(gs::searching_selector<gs::hierarchical, work> && !gs::searching_selector<gs::radix, work>);
static_assert(gs::capacity_selector<gs::laplacian> && !gs::capacity_selector<gs::radix>);
static_assert(gs::scoring_selector<gs::adacomp> && gs::quantising_selector<gs::adacomp> &&
              gs::layer_bin_selector<gs::adacomp>);
static_assert(gs::bin_selector<gs::chunked> && !gs::scoring_selector<gs::chunked> &&
              !gs::quantising_selector<gs::chunked> && !gs::layer_bin_selector<gs::chunked>);
static_assert(gs::gives_full_segments<gs::radix> && !gs::gives_full_segments<gs::adacomp>);

static_assert(gs::micro::traits.rotates && gs::micro::traits.single_owner == false);
static_assert(gs::cyclic::traits.rotates && !gs::deft::traits.rotates);
static_assert(gs::layerwise::traits.within_layers == true && gs::deft::traits.within_layers == true);
static_assert(gs::whole::traits.within_layers == false);
static_assert(gs::cyclic::traits.single_owner == true && gs::deft::traits.single_owner == false);
static_assert(!unsaid<gs::whole>::traits.within_layers && !unsaid<gs::whole>::traits.single_owner);

static_assert(gs::scaling_residual_store<gs::momentum_correction> && !gs::scaling_residual_store<gs::error_feedback>);
static_assert(gs::wrapping_residual_store<gs::in_bfloat16<>> && !gs::formatted_residual_store<gs::error_feedback>);
static_assert(gs::scaling_residual_store<gs::in_bfloat16<gs::momentum_correction>> &&
              !gs::scaling_residual_store<gs::in_bfloat16<>> && gs::detail::factor_fits<gs::in_bfloat16<>>);
static_assert(std::same_as<gs::stored_t<gs::in_bfloat16<>>, gs::bfloat16> &&
              std::same_as<gs::stored_t<gs::filtered>, float>);

using half = gs::packed<gs::automatic, gs::fp16>;
using third = gs::packed<gs::delta, gs::ternary>;
static_assert(gs::separable_codec<gs::coo> && gs::separable_codec<half> && !gs::separable_codec<third>);
static_assert(gs::rounding_separable_codec<half> && !gs::rounding_separable_codec<gs::coo>);
static_assert(gs::quantises<third> && gs::limited_codec<half> && gs::bounded_codec<half>);
static_assert(gs::accounting_codec<half> && !gs::accounting_codec<third> && gs::detail::account_fits<third>);
static_assert(!gs::quantises<gs::packed<>> && gs::detail::quantise_fits<gs::packed<>>);
static_assert(gs::bin_codec<gs::binned> && gs::accounting_codec<gs::binned> && !gs::bin_codec<half>);
static_assert(gs::choosing_index_codec<gs::automatic> && !gs::choosing_index_codec<gs::delta>);
static_assert(gs::counting_value_codec<gs::fp16> && gs::elementwise_values<gs::bf16>);

static_assert(gs::host_exchange<gs::gather, work, gs::coo> && gs::host_exchange<gs::leader, work, half>);
static_assert(gs::runs_with<gs::gather, work, third, gs::self> && gs::runs_with<gs::index_union, work, half, gs::self>);
static_assert(gs::leader::traits.sums_values && gs::index_union::traits.sums_values && gs::gather::traits.encodes);
static_assert(gs::leader::traits.single_owner && !gs::index_union::traits.single_owner);
static_assert(gs::runs_with<gs::reduce_scatter, work, third, gs::self> && gs::reduce_scatter::traits.all_to_all);
static_assert(gs::leader::traits.broadcast && !gs::gather::traits.broadcast);

static_assert(!gs::thread_checking_communicator<gs::self> && !gs::staging_communicator<gs::self>);
static_assert(gs::self_checking<gs::fixed_width> && gs::fingerprinted<gs::bin_lengths>);

using layers_in_bins = gs::recipe<gs::adacomp, gs::layerwise, gs::error_feedback, gs::binned>;
static_assert(gs::compatible<gs::recipe<>, gs::host> && gs::compatible<layers_in_bins, gs::host>);
static_assert(gs::exchangeable<layers_in_bins, gs::host, gs::self>);
static_assert(gs::exchangeable<gs::recipe<gs::radix, gs::cyclic, gs::none, half>, gs::host, gs::self>);

}  // namespace library

namespace mine {  // optional members, as one would write them

/// Members that are fields of traits, or were before there were traits: none is ignored.
struct stray_field : gs::gather {
  static constexpr bool broadcast = true;
};
struct stray_old : gs::gather {
  static constexpr bool needs_broadcast = true;
};
struct stray_member : gs::gather {
  bool encodes = true;
};
struct stray_promise : gs::layerwise {
  bool rotates() const { return true; }
};
static_assert(gs::detail::has_stray_trait<stray_field> && gs::detail::has_stray_trait<stray_old> &&
              gs::detail::has_stray_trait<stray_member>);
static_assert(gs::detail::has_stray_promise<stray_promise> && !gs::detail::has_stray_trait<gs::leader> &&
              !gs::detail::has_stray_promise<gs::deft>);

/// Layers in turn: rank `step` % world selects, from every layer.
struct turns {
  using default_exchange = gs::leader;
  static constexpr gs::partitioner_traits traits{
      .disjoint = true, .rotates = true, .within_layers = true, .single_owner = true};

  void split(std::span<gs::range const> layers, int world, gs::segment_list& list) const {
    gs::layerwise{}.split(layers, world, list);
  }
  void assign(std::span<gs::segment> segments, std::span<double const> norms, gs::step_budget const budget,
              gs::partition_scratch& scratch) const {
    gs::layerwise{}.assign(segments, norms, budget, scratch);
    for (auto& each : segments) each.owner = static_cast<int>(budget.step % at(budget.world));
  }
  friend bool operator==(turns const&, turns const&) = default;
};
static_assert(gs::partitioner<turns>);

/// Bins of a hundredth of a layer; of each the largest element.
struct hundredths {
  static constexpr bool bins_within_layers = true;
  [[nodiscard]] std::uint32_t bin_length(gs::layer const& each) const {
    return static_cast<std::uint32_t>(each.size / 100 + 1);
  }
  template <class Bin>
  [[nodiscard]] gs::threshold threshold_of(Bin const& bin) const noexcept {
    return bin.kth_largest(1);
  }
  friend bool operator==(hundredths const&, hundredths const&) = default;
};
static_assert(gs::layer_bin_selector<hundredths> && !gs::quantising_selector<hundredths>);

/// A store with a text that says what its states mean, and a factor.
struct halved : gs::error_feedback {
  static constexpr std::string_view meaning = "halved";
  [[nodiscard]] float factor(double, int) const noexcept { return 0.5f; }
  [[nodiscard]] bool needs_norm() const noexcept { return true; }
};
static_assert(gs::versioned_residual_store<halved> && gs::scaling_residual_store<halved>);

}  // namespace mine

TEST_CASE("a user's optional members are called") {
  auto const layers = mixed_layers();
  gs::compressor plain{gs::host{.threads = 1}, layers, gs::recipe{.density = 0.01}};
  gs::compressor half{gs::host{.threads = 1}, layers, gs::recipe{.density = 0.01, .residual = mine::halved{}}};
  auto const g = gradient(layers.size(), 0, 0);
  plain.compress(g);
  half.compress(g);
  CHECK(half.residual_norm() == doctest::Approx(plain.residual_norm() / 2));
  CHECK(ending([&] { half.restore(plain.state()); }).starts_with("mismatch: gradsieve: checkpoint is of another"));

  auto const said = on_ranks(2, [&](communicator comm) {
    findings found;
    gs::compressor reducer{gs::host{.threads = 1}, layers, gs::recipe{.density = 0.01, .partitioner = mine::turns{}}};
    for (std::uint64_t step = 0; step < 3; ++step) {
      auto update = gradient(layers.size(), comm.rank(), step);
      auto const report = reducer.exchange(comm, std::span{update});
      found.expect((report.selected > 0) == (static_cast<int>(step % 2) == comm.rank()), "another rank selected");
    }
    return found.text();
  });
  CHECK(said == std::vector<std::string>(2));
}

TEST_CASE("binned has the bins of the recipe's selector") {
  auto const layers = mixed_layers();
  auto const check = [&](auto const& chosen, std::vector<std::uint32_t> const& lengths) {
    auto const recipe =
        gs::recipe{.density = 0.5, .selector = chosen, .partitioner = gs::layerwise{}, .codec = gs::binned{}};
    gs::compressor made{gs::host{.threads = 1}, layers, recipe};
    gs::compressor sender = std::move(made);
    auto const entries = sender.compress(gradient(layers.size(), 0, 0));
    messages::content const sent{{entries.indices.begin(), entries.indices.end()},
                                 {entries.values.begin(), entries.values.end()},
                                 {entries.passthrough.begin(), entries.passthrough.end()}};
    auto const message = sender.encode(entries);
    gs::message_info const info{layers.size(), layers.hash(), sent.passthrough.size(), &layers, lengths};
    CHECK(messages::encoded(gs::binned{}, info, sent) == messages::bytes(message.begin(), message.end()));
    std::vector<float> mean(layers.size());
    gs::averager server{gs::host{.threads = 1}, layers, recipe};
    CHECK(server.apply(std::span{&message, 1}, mean).entries == sent.indices.size());
  };
  gs::bin_lengths const bins{.rules = {{{"*conv*", 64}}}, .otherwise = 20};
  check(gs::adacomp{.bins = bins}, bins.of(layers));
  check(gs::chunked{.size = 300}, std::vector<std::uint32_t>(layers.count(), 300));
  std::vector<std::uint32_t> own;
  for (auto const& each : layers) own.push_back(mine::hundredths{}.bin_length(each));
  check(mine::hundredths{}, own);
}
