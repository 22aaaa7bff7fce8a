// The light door: for every policy of the full menu the same as any_compressor with the same recipe as text, which
// any_compressor_test compares with compressor.hpp.
#include <doctest/doctest.h>

#include <gradsieve/light.hpp>

#include <gradsieve/codec/binned.hpp>
#include <gradsieve/codec/index/fixed_width.hpp>
#include <gradsieve/codec/packed.hpp>
#include <gradsieve/codec/value/block_scaled.hpp>
#include <gradsieve/codec/value/half.hpp>
#include <gradsieve/codec/value/sign.hpp>
#include <gradsieve/codec/value/ternary.hpp>
#include <gradsieve/comm/self.hpp>
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/exchange/reduce_scatter.hpp>
#include <gradsieve/parameters.hpp>
#include <gradsieve/partitioner/cyclic.hpp>
#include <gradsieve/partitioner/deft.hpp>
#include <gradsieve/partitioner/layerwise.hpp>
#include <gradsieve/partitioner/micro.hpp>
#include <gradsieve/published.hpp>
#include <gradsieve/residual/filtered.hpp>
#include <gradsieve/residual/momentum_correction.hpp>
#include <gradsieve/residual/none.hpp>
#include <gradsieve/selector/adacomp.hpp>
#include <gradsieve/selector/chunked.hpp>
#include <gradsieve/selector/fixed_threshold.hpp>
#include <gradsieve/selector/hierarchical.hpp>
#include <gradsieve/selector/laplacian.hpp>

#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "light_test.hpp"

namespace {

namespace gs = gradsieve;
using menu = gs::detail::compiled_menu;

gs::layout layers() { return gs::layout{{"a.weight", 1000}, {"a.bias", 10}, {"b.weight", 1990}}; }

template <class Recipe>
void check(std::string const& text, Recipe const& recipe) {
  CAPTURE(text);
  gs::threads::run(2, [&](gs::threads::communicator_ref comm) {
    gs::compressor reducer{gs::host{}, layers(), recipe};
    auto const print = [](auto const& it) {
      std::ostringstream out;
      out << it;
      return out.str();
    };
    auto const light = outcome_of(reducer, comm, comm.rank(), print);
    auto const text_too = by_text(text, &comm, comm.rank());
    CHECK(light.update == text_too.update);
    CHECK(light.message == text_too.message);
    CHECK(light.state == text_too.state);
    CHECK(light.report == text_too.report);
    CHECK(light.describe == text_too.describe);
    CHECK(light.recipe == text_too.recipe);
    CHECK(light.hash == text_too.hash);
    CHECK(light.residual_norm == text_too.residual_norm);
  });
}

/// body(policy) for each of a list.
template <class... Policies, class Body>
void for_each(gs::type_list<Policies...>, Body const& body) {
  (body(Policies{}), ...);
}

}  // namespace

TEST_CASE("light: each selector, with the partitioner that it needs") {
  for_each(menu::selectors{}, []<class S>(S const& selector) {
    if constexpr (std::is_same_v<S, gs::adacomp>)
      check("adacomp+layerwise@0.5", gs::recipe{.density = 0.5, .selector = selector, .partitioner = gs::layerwise{}});
    else
      check(std::string{S::name} + "@0.05", gs::recipe{.density = 0.05, .selector = selector});
  });
}

TEST_CASE("light: each partitioner and each residual store") {
  for_each(menu::partitioners{}, []<class P>(P const& partitioner) {
    check(std::string{"laplacian+"} + P::name + "@0.05",
          gs::recipe{.density = 0.05, .selector = gs::laplacian{}, .partitioner = partitioner});
  });
  for_each(menu::residuals{}, []<class R>(R const& residual) {
    check(std::string{R::name} + "@0.05", gs::recipe{.density = 0.05, .residual = residual});
  });
}

TEST_CASE("light: each codec") {
  for_each(menu::indices{}, []<class I>(I const& indices) {
    check(std::string{"packed:"} + I::name + ",fp32@0.05",
          gs::recipe{.density = 0.05, .codec = gs::packed<I, gs::fp32>{.indices = indices}});
  });
  for_each(menu::values{}, []<class V>(V const& values) {
    check(std::string{"packed:delta,"} + V::name + "@0.05",
          gs::recipe{.density = 0.05, .codec = gs::packed<gs::delta, V>{.values = values}});
  });
  check("chunked+binned@0.05",
        gs::recipe{.density = 0.05, .selector = gs::chunked{}, .codec = gs::binned{}});
}

TEST_CASE("light: each exchange") {
  check("gather+deft@0.05", gs::recipe{.density = 0.05, .partitioner = gs::deft{}, .exchange = gs::gather{}});
  check("index_union@0.05", gs::recipe{.density = 0.05, .exchange = gs::index_union{}});
  check("leader+cyclic@0.05", gs::recipe{.density = 0.05, .partitioner = gs::cyclic{}, .exchange = gs::leader{}});
  check("random_k+shared_choice@0.05",
        gs::recipe{.density = 0.05, .selector = gs::random_k{}, .exchange = gs::shared_choice{}});
  check("reduce_scatter@0.05", gs::recipe{.density = 0.05, .exchange = gs::reduce_scatter{}});
}

TEST_CASE("light: values of fields, of the density, of passthrough layers, and what NaN does") {
  check("laplacian(tolerance=0.5,count=exact,warm=false)+deft(sharing=by_fragment,rotate_every=1)+"
        "momentum_correction(momentum=0.5)+packed:delta,fp16+passthrough(up_to=1000):+on_non_finite:fail"
        "@warm_up(initial=0.25,final=0.01,steps=3)",
        gs::recipe{.density = gs::warm_up{.initial = 0.25, .final = 0.01, .steps = 3},
                   .selector = gs::laplacian{.tolerance = 0.5f, .count = gs::count_mode::exact, .warm = false},
                   .partitioner = gs::deft{.sharing = gs::deft_sharing::by_fragment, .rotate_every = 1},
                   .residual = gs::momentum_correction{.momentum = 0.5f},
                   .codec = gs::packed<gs::delta, gs::fp16>{},
                   .passthrough = {.patterns = {}, .up_to = 1000},
                   .on_non_finite = gs::non_finite::fail});
}

TEST_CASE("light: formats, pieces, states, averages and failures") {
  gs::compressor first{gs::host{}, layers(), gs::recipe{.density = 0.05}};
  gs::compressor second{gs::host{}, layers(), gs::recipe{.density = 0.05}};
  std::vector<gs::float16> whole;
  for (float const x : light_gradient(0)) whole.push_back(gs::from_float<gs::float16>(x / 256));
  auto parts = whole;
  std::vector<gs::float16*> const pointers{parts.data(), parts.data() + 1000, parts.data() + 1010};
  CHECK(first.exchange(gs::self{}, whole).selected > 0);
  second.exchange(gs::self{}, gs::pieces{pointers});
  CHECK(whole == parts);
  CHECK(first.state() == second.state());
  first.exchange(gs::self{}, whole);
  second.restore(first.state());
  CHECK(second.step() == 2);
  CHECK(second.passing().size() == 1);

  auto const bytes = first.encode(first.compress(light_gradient(1)));
  std::span<std::byte const> const messages[] = {bytes};
  std::vector<float> mean(3000);
  CHECK(first.apply(messages, mean).entries > 0);

  std::vector<float> short_one(7);
  CHECK_THROWS_AS(first.exchange(gs::self{}, short_one), gs::invalid_argument);
  auto const unfit = gs::recipe{.selector = gs::chunked{}, .partitioner = gs::deft{}};
  CHECK_THROWS_WITH_AS((gs::compressor{gs::host{}, layers(), unfit}), doctest::Contains("a partitioner without norms"),
                       gs::invalid_argument);
  auto const moved = std::move(first);
  CHECK_THROWS_WITH_AS(static_cast<void>(first.recipe()), "gradsieve: this compressor was moved from",  // NOLINT
                       gs::invalid_argument);
  gs::threads::run(2, [](gs::threads::communicator_ref comm) {
    gs::compressor reducer{gs::host{}, layers(), gs::recipe{.density = 0.05}};
    auto gradient = light_gradient(comm.rank());
    if (comm.rank() == 0)
      reducer.fail(comm, gradient);
    else
      CHECK_THROWS_AS(reducer.exchange(comm, gradient), gs::communication_error);
  });
}

TEST_CASE("light: parameters that ranks step for themselves come together") {
  gs::threads::run(2, [](gs::threads::communicator_ref comm) {
    std::vector<float> own(3000, 1.0f);
    gs::parameter_exchange all{
        gs::compressor{gs::host{}, layers(), gs::recipe{.density = 1.0, .passthrough = {.patterns = {}}}},
        std::span{own}};
    for (float& each : own) each += static_cast<float>(1 + comm.rank());
    all.exchange_parameters(comm, own);
    CHECK(std::vector<float>(all.common().begin(), all.common().end()) == std::vector<float>(3000, 2.5f));
  });
}
