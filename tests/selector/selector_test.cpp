// Selectors on the host, through compressors and directly, against the oracle.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <gradsieve/gradsieve.hpp>
#include <limits>
#include <utility>
#include <vector>

#include "data.hpp"
#include "sanitized.hpp"

namespace gs = gradsieve;

namespace {

data::chosen owned(gs::selection_view view) {
  return {{view.indices.begin(), view.indices.end()}, {view.values.begin(), view.values.end()}};
}

/// What a gradient makes of a residual, written out once more: error feedback without decay.
template <class T>
std::vector<float> entered(std::span<float const> residual, std::span<T const> gradient) {
  std::vector<float> sum(residual.begin(), residual.end());
  for (std::size_t i = 0; i < sum.size(); ++i) {
    float const g = gs::to_float(gradient[i]);
    sum[i] += std::isfinite(g) ? g : 0.0f;
  }
  return sum;
}

/// One step of a fresh compressor, the gradient as one segment.
template <class Selector>
data::chosen first_step(Selector const& selector, std::span<float const> values, std::uint64_t k, int threads = 3) {
  auto const recipe = gs::recipe{.density = data::density_for(k, values.size()), .selector = selector};
  gs::compressor reducer{gs::host{threads}, gs::layout::flat(values.size()), recipe};
  return owned(reducer.compress(values));
}

constexpr gs::laplacian exact_cold{.count = gs::count_mode::exact, .warm = false};
constexpr gs::laplacian exact_warm{.count = gs::count_mode::exact};
constexpr gs::laplacian band_cold{.warm = false};
constexpr gs::laplacian band_warm{};

/// What a selector promises of a choice among `values`. All of them keep what is largest, ties to the smaller
/// index; they differ in how many.
void check_choice(gs::radix, std::span<float const> values, std::uint64_t k, data::chosen const& got) {
  REQUIRE(got == data::top_k(values, k));
}

void check_choice(gs::laplacian selector, std::span<float const> values, std::uint64_t k, data::chosen const& got) {
  if (selector.count == gs::count_mode::exact) {
    REQUIRE(got == data::top_k(values, k));
    return;
  }
  std::uint64_t const count = got.indices.size();
  auto const nonzero = data::count_nonzero(values);
  REQUIRE(count >= std::min(k, nonzero));
  REQUIRE(count <= k + static_cast<std::uint64_t>(static_cast<double>(selector.tolerance) * static_cast<double>(k)));
  REQUIRE(got == data::top_k(values, count));
}

void check_choice(gs::hierarchical selector, std::span<float const> values, std::uint64_t k, data::chosen const& got) {
  std::uint64_t const count = got.indices.size();
  auto const enough =
      k == 0 ? 0 : std::max<std::uint64_t>(1, static_cast<std::uint64_t>(selector.least * static_cast<float>(k)));
  REQUIRE(count >= std::min(enough, data::count_nonzero(values)));
  REQUIRE(count <= k);
  REQUIRE(got == data::top_k(values, count));
}

std::vector<std::uint64_t> budgets(std::uint64_t n) {
  std::vector<std::uint64_t> all{
      0, 1, 2, n / 1000, n / 100, n / 100 + 1, n / 10, n / 2, n - std::min<std::uint64_t>(n, 1), n};
  std::erase_if(all, [&](std::uint64_t k) { return k > n; });
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

// ---- One step --------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE_DEFINE("any law, any size, any k", Case, one_step) {
  auto const sizes =
      sanitized ? std::vector{0u, 1u, 3u, 4097u} : std::vector{0u, 1u, 2u, 3u, 100u, 4095u, 4096u, 4097u, 20'011u};
  for (std::uint64_t const n : sizes)
    for (auto const law : data::all_laws) {
      auto const values = data::make(law, n, n + 1);
      auto const law_name = data::name(law);
      CAPTURE(law_name);
      CAPTURE(n);
      for (auto const k : budgets(n)) {
        CAPTURE(k);
        check_choice(Case::selector, values, k, first_step(Case::selector, values, k));
      }
    }
}

TEST_CASE_TEMPLATE_DEFINE("laws on many elements", Case, large_step) {
  std::uint64_t const n = (1 << (sanitized ? 18 : 20)) + 3;
  for (auto const law : data::all_laws) {
    auto const values = data::make(law, n, 9);
    auto const law_name = data::name(law);
    CAPTURE(law_name);
    for (std::uint64_t const k : sanitized ? std::vector{n / 1000} : std::vector{std::uint64_t{1}, n / 1000, n / 3}) {
      CAPTURE(k);
      check_choice(Case::selector, values, k, first_step(Case::selector, values, k, 2));
    }
  }
}

namespace {

struct radix_case {
  static constexpr gs::radix selector{};
};
struct exact_cold_case {
  static constexpr gs::laplacian selector = exact_cold;
};
struct exact_warm_case {
  static constexpr gs::laplacian selector = exact_warm;
};
struct band_cold_case {
  static constexpr gs::laplacian selector = band_cold;
};
struct band_warm_case {
  static constexpr gs::laplacian selector = band_warm;
};
struct narrow_band_case {
  static constexpr gs::laplacian selector{.tolerance = 0.01f};
};
struct wide_band_case {  // a band at small k too
  static constexpr gs::laplacian selector{.tolerance = 4};
};
struct hierarchical_case {
  static constexpr gs::hierarchical selector{};
};
struct coarse_case {
  static constexpr gs::hierarchical selector{.sample_ratio = 1e-4f, .least = 0.95f, .most = 1.0f, .seed = 3};
};

}  // namespace

TEST_CASE_TEMPLATE_INVOKE(one_step, radix_case, exact_cold_case, exact_warm_case, band_cold_case, narrow_band_case,
                          wide_band_case, hierarchical_case, coarse_case);
TEST_CASE_TEMPLATE_INVOKE(large_step, radix_case, exact_cold_case, band_cold_case, hierarchical_case);

TEST_CASE("a segment that is sent in full") {
  std::uint64_t const n = 100'003;
  for (auto const law :
       {data::law::laplace, data::law::mostly_zeros, data::law::all_equal, data::law::zeros_and_smallest}) {
    auto const values = data::make(law, n);
    auto const all = data::top_k(values, n);
    CHECK(first_step(gs::radix{}, values, n) == all);
    CHECK(first_step(exact_cold, values, n) == all);
    CHECK(first_step(band_warm, values, n) == all);
    CHECK(first_step(gs::hierarchical{.least = 1}, values, n) == all);
  }
}

TEST_CASE_TEMPLATE("magnitudes over the whole range of floats", Case, radix_case, exact_cold_case, exact_warm_case,
                   band_cold_case, hierarchical_case) {
  std::uint64_t const n = 30'001;
  data::generator random{2};
  std::vector<float> values(n);
  for (float& x : values) do
      x = std::bit_cast<float>(static_cast<std::uint32_t>(random.bits()));
    while (!std::isfinite(x));
  for (auto const k : budgets(n)) {
    CAPTURE(k);
    check_choice(Case::selector, values, k, first_step(Case::selector, values, k));
  }
}

/// What hierarchical asks of a workspace.
struct sample_asked {
  std::uint64_t wanted = 0;
  std::uint64_t rank = 0;

  struct keys {
    sample_asked* of;
    [[nodiscard]] std::uint64_t size() const { return of->wanted; }
    [[nodiscard]] gs::key_type kth_largest(std::uint64_t k) const {
      of->rank = k;
      return 7;
    }
  };
  [[nodiscard]] keys sample(gs::accumulator_ref, std::uint64_t elements, std::uint64_t) {
    wanted = elements;
    return {this};
  }
};

TEST_CASE("hierarchical draws a share of n, or what holds 100 of the k entries and aims at a tenth more") {
  std::vector<float> const values(1 << 20);
  gs::accumulator_ref const acc{values, 0, 0, 0, nullptr};
  for (auto const& [k, wanted, rank] : {std::array{1048u, 10486u, 11u}, std::array{10000u, 10486u, 100u},
                                        std::array{52429u, 2000u, 110u}, std::array{524288u, 200u, 110u}}) {
    CAPTURE(k);
    sample_asked asked;
    CHECK(gs::hierarchical{}.predict(asked, acc, k) == 7);
    CHECK(std::abs(static_cast<double>(asked.wanted) - wanted) <= 1);
    CHECK(std::abs(static_cast<double>(asked.rank) - rank) <= 1);
  }
}

TEST_CASE("a mixture that has just k elements above a gap") {
  std::uint64_t const n = 50'000;
  for (std::uint64_t const above : {99u, 100u, 101u}) {
    auto values = data::make(data::law::denormals, n);
    for (std::uint64_t i = 0; i < above; ++i) values[i * 499] = 1e30f + static_cast<float>(i) * 1e25f;
    CAPTURE(above);
    check_choice(gs::radix{}, values, 100, first_step(gs::radix{}, values, 100));
    check_choice(exact_cold, values, 100, first_step(exact_cold, values, 100));
    check_choice(band_cold, values, 100, first_step(band_cold, values, 100));
    check_choice(gs::hierarchical{}, values, 100, first_step(gs::hierarchical{}, values, 100));
  }
}

// ---- Many steps ------------------------------------------------------------------------------------------

namespace {

/// Runs gradients through one compressor and checks each step's choice on the accumulator.
template <class Recipe>
void check_steps(Recipe const& recipe, std::vector<std::vector<float>> const& gradients, int threads) {
  std::uint64_t const n = gradients.front().size();
  gs::compressor reducer{gs::host{threads}, gs::layout::flat(n), recipe};
  for (std::size_t step = 0; step < gradients.size(); ++step) {
    CAPTURE(step);
    std::span<float const> const gradient = gradients[step];
    auto const values = std::is_same_v<decltype(Recipe::residual), gs::none>
                            ? std::vector<float>(gradient.begin(), gradient.end())
                            : entered(reducer.residual(), gradient);
    auto const k = gs::budget_of(recipe.density(step), n);
    check_choice(recipe.selector, values, k, owned(reducer.compress(gradient)));
  }
}

/// Steps that agree with the one before, and steps that have nothing to do with it.
std::vector<std::vector<float>> jumping(std::uint64_t n) {
  std::vector<std::vector<float>> gradients;
  for (double const scale : {1.0, 1.0, 1.0, 1000.0, 1.0, 1.0, 1e-3, 1e-3, 0.0, 1e-3, 1e6, 1.0, 1e-30}) {
    gradients.push_back(data::drifting(n, gradients.size(), 4));
    for (float& x : gradients.back()) x = static_cast<float>(x * scale);
  }
  gradients.push_back(data::make(data::law::all_equal, n));
  gradients.push_back(data::make(data::law::one_spike, n));
  gradients.push_back(data::make(data::law::laplace, n));
  gradients.push_back(data::make(data::law::two_values, n));
  return gradients;
}

}  // namespace

TEST_CASE_TEMPLATE("steps after steps: error feedback, jumps of scale, a falling density", Case, radix_case,
                   exact_cold_case, exact_warm_case, band_cold_case, band_warm_case, narrow_band_case, wide_band_case,
                   hierarchical_case) {
  auto const gradients = jumping(150'000);  // more than one worker's list of candidates holds
  gs::density_schedule const falling = gs::warm_up{.initial = 0.25, .final = 0.001, .steps = 10, .stages = 4};
  for (auto const& density : {gs::density_schedule{0.01}, falling}) {
    check_steps(gs::recipe{.density = density, .selector = Case::selector}, gradients, 1);
    check_steps(gs::recipe{.density = density, .selector = Case::selector, .residual = gs::none{}}, gradients, 2);
  }
}

TEST_CASE("a prediction from the step before spares the second pass") {
  std::uint64_t const n = 400'000;
  gs::index_type const k = 2000;
  gs::host_workspace work{gs::host{2}, n};
  gs::segment const all{0, n};
  work.plan(std::span{&all, 1}, {}, k);
  std::vector<float> state(n);
  std::array<float*, 1> const states{state.data()};
  gs::error_feedback const residual;
  std::vector<gs::index_type> indices(k);
  std::vector<float> values(k);
  gs::warm_threshold remembered;
  int missed = 0;
  for (std::uint64_t step = 0; step < 8; ++step) {
    auto const gradient = data::drifting(n, step, 6);
    gs::gradient_ref<float const> const incoming{gradient};
    gs::accumulator_ref const acc{state, 0, 0, step, &remembered};
    auto preview = work.preview(gs::host_kernels::incoming{states, incoming, 1.0f, residual}, [] {});
    gs::key_type const candidate_threshold = gs::predict_candidate_threshold(gs::radix{}, preview, acc, k);
    work.accumulate(residual, states, incoming, 1.0f, false, std::span{&candidate_threshold, 1});
    auto const found = work.collected(acc);
    missed += found.complete && found.count >= k ? 0 : 1;
    CHECK(found.count < 6 * k);
    CHECK(gs::select(gs::radix{}, work, acc, k, {indices, values, {}}) == k);
    CHECK(data::chosen{indices, values} == data::top_k(state, k));
    for (auto const i : indices) state[i] = 0;
    CHECK(remembered.k == k);
    CHECK(remembered.key > 0);
  }
  CHECK(missed <= 1);
}

TEST_CASE("with norms too: the accumulate pass finds the candidates by the last step's budgets") {
  std::uint64_t const n = 200'000;
  std::array<gs::range, 3> const layers{{{0, 60'000}, {60'000, 40'000}, {100'000, n - 100'000}}};
  gs::recipe const recipe{.density = 0.01, .partitioner = gs::deft{}};
  gs::host_workspace work{gs::host{2}, n};
  gs::detail::residual_memory<gs::host_workspace, gs::error_feedback> memory{work, recipe.residual, n};
  gs::step_report report;
  gs::detail::host_selection_stage stage{recipe, work, memory, report};
  stage.segments().plan(recipe.partitioner, layers, n, 0.01, 1);
  auto const room = stage.segments().most();
  work.plan(stage.segments().all(), {}, room);
  stage.reserve(room);
  memory.reserve(room);
  int missed = 0;
  for (std::uint64_t step = 0; step < 8; ++step) {
    auto const gradient = data::drifting(n, step, 6);
    stage.accumulate(stage.prepare(gs::gradient_ref<float const>{gradient}, 1), {});
    std::vector<std::uint64_t> found;
    for (std::size_t s = 0; s < layers.size(); ++s)
      found.push_back(work.collected(stage.segments().view(memory.state(0), s, step)).count);
    gs::detail::held_failure none;
    stage.decide_by_norms(gs::detail::no_ranks{}, {}, none);
    for (std::size_t s = 0; s < layers.size(); ++s) missed += found[s] >= stage.segments()[s].k ? 0 : 1;
    auto const own = stage.select({});
    CHECK(own.indices.size() == 2000);
    memory.remove_sent(own);
    stage.end_step();
  }
  CHECK(missed <= 4);  // three in the first step
}

TEST_CASE("candidates from two passes are those that one finds, also where the first one finds too many") {
  std::uint64_t const n = 200'000;
  std::array<gs::segment, 5> const segments{
      {{0, 30'000}, {30'000, 64}, {30'064, 100'000}, {140'000, 1}, {150'000, n - 150'000}}};
  gs::key_type const few = gs::magnitude_key(0.03f);
  gs::key_type const more = gs::magnitude_key(0.02f);
  using thresholds = std::array<gs::key_type, segments.size()>;
  thresholds const wanted{few, more, few, 1, 0};
  auto const gradient = data::make(data::law::laplace, n);
  for (int const threads : {1, 3})
    for (thresholds const& first :
         {thresholds{}, wanted, thresholds{few, few, 0, 0, few}, thresholds{more, more, few, 1, 0},
          thresholds{few, more, 1, 1, 1}, thresholds{1, 1, 1, 1, 1}}) {
      std::vector<float> state(n);
      gs::host_workspace once{gs::host{threads}, n};
      gs::host_workspace twice{gs::host{threads}, n};
      once.plan(segments, {}, 100);
      twice.plan(segments, {}, 100);
      twice.accumulate(gs::error_feedback{}, std::array{state.data()}, gs::gradient_ref<float const>{gradient}, 1.0f,
                       false, first);
      twice.collect_others(state, wanted);
      once.collect(state, wanted);
      for (std::size_t s = 0; s < segments.size(); ++s) {
        CAPTURE(s);
        gs::accumulator_ref const acc{std::span{state}.subspan(segments[s].offset, segments[s].size),
                                      segments[s].offset, s};
        auto const found = twice.collected(acc);
        auto const expected = once.collected(acc);
        CHECK(found.count == expected.count);
        CHECK(found.threshold == wanted[s]);
        CHECK(found.complete == (wanted[s] != 0));
        CHECK((found.count > 0) == found.complete);
        auto const entries = [&](gs::host_workspace& work) {
          data::chosen all{std::vector<gs::index_type>(found.count), std::vector<float>(found.count)};
          work.take_candidates(acc, {all.indices, all.values, {}}, [](float value) { return value; });
          return all;
        };
        if (found.complete) CHECK(entries(twice) == entries(once));
        twice.collect_again(acc, more);
        CHECK(twice.collected(acc).count == once.count_at_least(acc, more));
      }
    }
}

TEST_CASE("a band that chance leaves in every other step: exactly k, and hardly a second pass") {
  for (auto const& [n, density] : {std::pair{4096u, 0.001}, std::pair{30'000u, 0.01}, std::pair{100'000u, 0.01}}) {
    CAPTURE(n);
    gs::recipe<gs::laplacian> recipe{};
    recipe.density = density;
    gs::compressor banded{gs::host{1}, gs::layout::flat(n), recipe};
    gs::compressor exact{gs::host{1}, gs::layout::flat(n), gs::recipe{.density = density}};
    auto const k = gs::budget_of(density, n);
    std::uint64_t more = 0;
    std::uint64_t probes = 0;
    for (std::uint64_t step = 0; step < 60; ++step) {
      auto const gradient = data::make(data::law::laplace, n, step);
      auto const sent = owned(banded.compress(gradient));
      if (k < 576) REQUIRE(sent == owned(exact.compress(gradient)));
      more += sent.indices.size() > k ? 1 : 0;
      if (step >= 10) probes += banded.report().thresholds.probes;
    }
    CHECK((more > 0) == (k >= 576));
    CHECK(probes <= 2);
  }
}

TEST_CASE_TEMPLATE("any number of threads gives the same entries", Case, radix_case, exact_cold_case, exact_warm_case,
                   band_cold_case, band_warm_case, hierarchical_case) {
  auto const gradients = jumping(60'000);
  auto const layers = data::equal_layers(60'000, 5);
  auto const run = [&](int threads) {
    gs::compressor reducer{gs::host{threads}, gs::layout{layers},
                           gs::recipe{.density = 0.02, .selector = Case::selector, .partitioner = gs::layerwise{}}};
    std::vector<data::chosen> steps;
    for (auto const& gradient : gradients) steps.push_back(owned(reducer.compress(std::span<float const>{gradient})));
    return steps;
  };
  auto const alone = run(1);
  for (int const threads : {2, 3, 7}) {
    CAPTURE(threads);
    CHECK(run(threads) == alone);
  }
}

TEST_CASE_TEMPLATE("so does a jump that fills the candidate lists", Case, radix_case, exact_cold_case, exact_warm_case,
                   band_cold_case, band_warm_case, hierarchical_case) {
  std::uint64_t const n = std::uint64_t{1} << 20;
  auto const run = [&](int threads, std::size_t layers) {
    gs::compressor reducer{gs::host{threads}, gs::layout{data::equal_layers(n, layers)},
                           gs::recipe{.density = 0.1, .selector = Case::selector, .partitioner = gs::layerwise{}}};
    std::vector<data::chosen> steps;
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto gradient = data::make(data::law::laplace, n, step);
      if (step == 1)
        for (auto& each : gradient) each *= 8;
      steps.push_back(owned(reducer.compress(std::span<float const>{gradient})));
    }
    return steps;
  };
  for (std::size_t const layers : {1u, 3u}) {
    CAPTURE(layers);
    auto const alone = run(1, layers);
    for (int const threads : {2, 5}) {
      CAPTURE(threads);
      CHECK(run(threads, layers) == alone);
    }
  }
}

TEST_CASE_TEMPLATE("a layer whose ties fill the lists does not disturb the next one", Case, radix_case, exact_cold_case,
                   exact_warm_case, band_cold_case, band_warm_case) {
  std::uint64_t const n = std::uint64_t{1} << 19;
  std::vector<float> gradient(n, 1.0f);
  auto const second = data::make(data::law::gauss, n);
  gradient.insert(gradient.end(), second.begin(), second.end());
  gs::compressor reducer{gs::host{2}, gs::layout{{"equal", n}, {"gauss", n}},
                         gs::recipe{.density = 0.001, .selector = Case::selector, .partitioner = gs::layerwise{}}};
  auto got = owned(reducer.compress(std::span<float const>{gradient}));
  auto const k = gs::budget_of(0.001, n);
  auto const border = std::lower_bound(got.indices.begin(), got.indices.end(), n) - got.indices.begin();
  got.indices.erase(got.indices.begin(), got.indices.begin() + border);
  got.values.erase(got.values.begin(), got.values.begin() + border);
  for (auto& i : got.indices) i -= static_cast<gs::index_type>(n);
  check_choice(Case::selector, second, k, got);
}

TEST_CASE_TEMPLATE("gradients of two bytes are accumulated in float", T, gs::float16, gs::bfloat16) {
  std::uint64_t const n = 40'000;
  auto const run = [&](auto const& selector) {
    auto const recipe = gs::recipe{.density = 0.01, .selector = selector};
    gs::compressor reducer{gs::host{3}, gs::layout::flat(n), recipe};
    for (std::uint64_t step = 0; step < 5; ++step) {
      auto gradient = data::as<T>(data::drifting(n, step, 8));
      gradient[17] = gs::from_float<T>(std::numeric_limits<float>::infinity());
      gradient[n - 1] = gs::from_float<T>(std::numeric_limits<float>::quiet_NaN());
      auto const values = entered(reducer.residual(), std::span<T const>{gradient});
      check_choice(selector, values, 400, owned(reducer.compress(std::span<T const>{gradient})));
      CHECK(reducer.report().non_finite == 2);
    }
  };
  run(gs::radix{});
  run(exact_cold);
  run(exact_warm);
  run(band_warm);
  run(gs::hierarchical{});
}

TEST_CASE("what is not finite counts as zero, whatever was there before") {
  std::uint64_t const n = 5000;
  gs::compressor reducer{gs::host{2}, gs::layout::flat(n), gs::recipe{.residual = gs::none{}}};
  auto gradient = data::make(data::law::laplace, n);
  auto large = gradient;
  std::fill_n(large.begin(), 60, 10.0f);  // 50 of them are sent
  CHECK(owned(reducer.compress(std::span<float const>{large})) == data::top_k(large, 50));
  gradient[55] = std::numeric_limits<float>::quiet_NaN();
  gradient[56] = -std::numeric_limits<float>::infinity();
  auto finite = gradient;
  finite[55] = finite[56] = 0;
  CHECK(owned(reducer.compress(std::span<float const>{gradient})) == data::top_k(finite, 50));
  CHECK(reducer.report().non_finite == 2);
}

// ---- More than one segment -------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("layer by layer, each choice is the layer's own", Case, radix_case, exact_cold_case, exact_warm_case,
                   band_warm_case, hierarchical_case) {
  std::uint64_t const n = 200'001;
  auto layers = data::equal_layers(n - 3, 64);
  layers.insert(layers.begin() + 10, {"one", 1});
  layers.insert(layers.begin() + 20, {"none", 0});
  layers.push_back({"last", 2});
  gs::layout const all{layers};
  for (auto const law : {data::law::layers, data::law::dense_end, data::law::mostly_zeros, data::law::two_values,
                         data::law::one_spike}) {
    auto const law_name = data::name(law);
    CAPTURE(law_name);
    gs::compressor reducer{gs::host{2}, all,
                           gs::recipe{.density = 0.01, .selector = Case::selector, .partitioner = gs::layerwise{}}};
    for (std::uint64_t step = 0; step < 3; ++step) {
      auto const gradient = data::make(law, n, step);
      auto const values = entered(reducer.residual(), std::span<float const>{gradient});
      auto const got = owned(reducer.compress(std::span<float const>{gradient}));
      std::size_t at = 0;
      for (std::size_t layer = 0; layer < all.count(); ++layer) {
        data::chosen part;
        for (; at < got.indices.size() && got.indices[at] < all.offset(layer) + all[layer].size; ++at) {
          part.indices.push_back(static_cast<gs::index_type>(got.indices[at] - all.offset(layer)));
          part.values.push_back(got.values[at]);
        }
        CAPTURE(layer);
        check_choice(Case::selector, std::span{values}.subspan(all.offset(layer), all[layer].size),
                     gs::budget_of(0.01, all[layer].size), part);
      }
      CHECK(at == got.indices.size());
    }
  }
}

TEST_CASE("layers that pass through are never selected from") {
  std::uint64_t const n = 90'000;
  std::vector<gs::layer> const layers{
      {"a.weight", 30'000}, {"a.bias", 7000}, {"b.weight", 20'000}, {"b.norm", 3000}, {"c", 30'000}};
  auto const check = [&](auto const& selector, data::law law) {
    gs::compressor reducer{gs::host{3}, gs::layout{layers}, gs::recipe{.density = 0.01, .selector = selector}};
    for (std::uint64_t step = 0; step < 3; ++step) {
      auto const gradient = data::make(law, n, step);
      auto values = entered(reducer.residual(), std::span<float const>{gradient});
      for (auto const passthrough : {gs::range{30'000, 7000}, gs::range{57'000, 3000}})
        std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(passthrough.offset), passthrough.size, 0.0f);
      check_choice(selector, values, 800, owned(reducer.compress(std::span<float const>{gradient})));
    }
  };
  for (auto const law : {data::law::laplace, data::law::all_equal, data::law::mostly_zeros, data::law::layers}) {
    auto const law_name = data::name(law);
    CAPTURE(law_name);
    check(gs::radix{}, law);
    check(exact_cold, law);
    check(exact_warm, law);
    check(band_warm, law);
    check(gs::hierarchical{}, law);
  }
}

TEST_CASE("deft's fragments, each with its own k") {
  std::uint64_t const n = 120'000;
  auto const layers = data::equal_layers(n, 30);
  for (auto const law :
       {data::law::layers, data::law::dense_end, data::law::mostly_zeros, data::law::one_spike, data::law::all_zero}) {
    gs::compressor reducer{gs::host{3}, gs::layout{layers}, gs::recipe{.density = 0.01, .partitioner = gs::deft{}}};
    for (std::uint64_t step = 0; step < 3; ++step) {
      auto const gradient = data::make(law, n, step);
      auto const values = entered(reducer.residual(), std::span<float const>{gradient});
      auto const got = owned(reducer.compress(std::span<float const>{gradient}));
      CHECK(got.indices.size() == std::min<std::uint64_t>(1200, data::count_nonzero(values)));
      data::chosen expected;
      for (std::uint64_t first = 0; first < n; first += n / 30) {
        auto const from = std::lower_bound(got.indices.begin(), got.indices.end(), first);
        auto const to = std::lower_bound(from, got.indices.end(), first + n / 30);
        auto const part = data::top_k(std::span{values}.subspan(first, n / 30), static_cast<std::uint64_t>(to - from));
        for (auto const i : part.indices) expected.indices.push_back(static_cast<gs::index_type>(first + i));
        expected.values.insert(expected.values.end(), part.values.begin(), part.values.end());
      }
      CHECK(got == expected);
    }
  }
}

// ---- hierarchical ----------------------------------------------------------------------------------------

TEST_CASE("hierarchical depends on its seed and step, and on nothing else") {
  std::uint64_t const n = 500'000;
  auto const values = data::make(data::law::laplace, n);
  std::vector<std::size_t> counts;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    auto const got = first_step(gs::hierarchical{.seed = seed}, values, 500);
    CHECK(got == first_step(gs::hierarchical{.seed = seed}, values, 500));
    counts.push_back(got.indices.size());
  }
  CHECK(*std::min_element(counts.begin(), counts.end()) != *std::max_element(counts.begin(), counts.end()));
}

TEST_CASE("hierarchical does not prefer the beginning") {
  std::uint64_t const n = 1'000'000;
  auto const got = first_step(gs::hierarchical{}, data::make(data::law::laplace, n), 10'000);
  auto const in_first_half = std::lower_bound(got.indices.begin(), got.indices.end(), n / 2) - got.indices.begin();
  auto const share = static_cast<double>(in_first_half) / static_cast<double>(got.indices.size());
  CHECK(share == doctest::Approx(0.5).epsilon(0.05));
}

// ---- Selectors of one's own ------------------------------------------------------------------------------

namespace own {

/// Keeps what exceeds c times the mean magnitude.
struct mean_multiple {
  float c = 3;
  template <class Workspace>
  [[nodiscard]] float fit(Workspace& work, gs::accumulator_ref acc, gs::index_type) const {
    return work.mean_abs(acc);
  }
  [[nodiscard]] constexpr bool keep(float value, float mean) const noexcept { return gs::abs(value) > c * mean; }
  friend bool operator==(mean_multiple const&, mean_multiple const&) = default;
};

/// Keeps by sign: a threshold that no threshold on magnitudes describes.
struct positive {
  [[nodiscard]] float fit(gs::host_workspace&, gs::accumulator_ref, gs::index_type) const { return 0; }
  [[nodiscard]] bool keep(float value, float limit) const noexcept { return value > limit; }
  friend bool operator==(positive const&, positive const&) = default;
};

struct everything {
  [[nodiscard]] float fit(gs::host_workspace&, gs::accumulator_ref, gs::index_type) const { return 0; }
  [[nodiscard]] bool keep(float, float) const noexcept { return true; }
  friend bool operator==(everything const&, everything const&) = default;
};

/// Writes the first k elements that are not zero.
struct first_ones {
  [[nodiscard]] gs::index_type select(gs::host_workspace&, gs::accumulator_ref acc, gs::index_type k,
                                      gs::selection_span out) const {
    gs::index_type count = 0;
    for (std::size_t i = 0; i < acc.values.size() && count < k; ++i)
      if (acc.values[i] != 0) {
        out.indices[count] = static_cast<gs::index_type>(acc.first + i);
        out.values[count++] = acc.values[i];
      }
    return count;
  }
  friend bool operator==(first_ones const&, first_ones const&) = default;
};

}  // namespace own

namespace lacking {  // what the concept turns away

struct no_keep {
  [[nodiscard]] float fit(gs::host_workspace&, gs::accumulator_ref, gs::index_type) const { return 0; }
  friend bool operator==(no_keep const&, no_keep const&) = default;
};
struct no_fit {
  [[nodiscard]] bool keep(float, float) const noexcept { return true; }
  friend bool operator==(no_fit const&, no_fit const&) = default;
};
struct throwing_keep : no_keep {
  [[nodiscard]] bool keep(float, float) const { return true; }
  friend bool operator==(throwing_keep const&, throwing_keep const&) = default;
};
struct integer_keep : no_keep {
  [[nodiscard]] int keep(float, float) const noexcept { return 1; }
  friend bool operator==(integer_keep const&, integer_keep const&) = default;
};
struct select_of_nothing {
  void select(gs::host_workspace&, gs::accumulator_ref, gs::index_type, gs::selection_span) const {}
  friend bool operator==(select_of_nothing const&, select_of_nothing const&) = default;
};
struct not_comparable : no_keep {
  [[nodiscard]] bool keep(float, float) const noexcept { return true; }
  friend bool operator==(not_comparable const&, not_comparable const&) = delete;
};
struct owns_memory : own::positive {
  std::vector<float> thresholds;
  friend bool operator==(owns_memory const&, owns_memory const&) = default;
};

}  // namespace lacking

namespace {

template <class T>
constexpr bool selects = gs::selector<T, gs::host_workspace>;

static_assert(selects<gs::radix> && selects<gs::laplacian> && selects<gs::hierarchical>);
static_assert(gs::direct_selector<gs::radix, gs::host_workspace> &&
              !gs::threshold_selector<gs::radix, gs::host_workspace>);
static_assert(selects<own::mean_multiple> && selects<own::positive> && selects<own::everything> &&
              selects<own::first_ones>);
static_assert(!selects<lacking::no_keep> && !selects<lacking::no_fit> && !selects<lacking::throwing_keep> &&
              !selects<lacking::integer_keep>);
static_assert(!selects<lacking::select_of_nothing> && !selects<lacking::not_comparable> &&
              !selects<lacking::owns_memory>);
static_assert(!selects<int> && !selects<gs::coo>);

/// The k largest of what a threshold keeps.
template <class Keep>
data::chosen largest_kept(std::vector<float> values, std::uint64_t k, Keep const& keep) {
  for (float& x : values)
    if (!keep(x)) x = 0;
  return data::top_k(values, k);
}

}  // namespace

TEST_CASE("a threshold of one's own: what it keeps, and of more than k the k largest") {
  std::uint64_t const n = 70'001;
  for (auto const law : data::all_laws) {
    auto const values = data::make(law, n);
    auto const law_name = data::name(law);
    CAPTURE(law_name);
    double sum = 0;
    for (float const x : values) sum += static_cast<double>(std::fabs(x));
    auto const mean = static_cast<float>(sum / static_cast<double>(n));
    for (float const c : {0.0f, 0.5f, 3.0f, 1e9f})
      for (std::uint64_t const k : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{700}, n}) {
        CAPTURE(c);
        CAPTURE(k);
        CHECK(first_step(own::mean_multiple{c}, values, k) ==
              largest_kept(values, k, [&](float x) { return std::fabs(x) > c * mean; }));
      }
    CHECK(first_step(own::positive{}, values, 700) == largest_kept(values, 700, [](float x) { return x > 0; }));
    CHECK(first_step(own::everything{}, values, 700) == data::top_k(values, 700));
    CHECK(first_step(own::everything{}, values, n) == data::top_k(values, n));
  }
}

TEST_CASE("a threshold of one's own over several steps and layers") {
  std::uint64_t const n = 30'000;
  gs::compressor reducer{gs::host{2}, gs::layout{data::equal_layers(n, 3)},
                         gs::recipe{.density = 0.01, .selector = own::mean_multiple{}, .partitioner = gs::layerwise{}}};
  for (std::uint64_t step = 0; step < 4; ++step) {
    auto const gradient = data::drifting(n, step, 1);
    auto const values = entered(reducer.residual(), std::span<float const>{gradient});
    auto const got = owned(reducer.compress(std::span<float const>{gradient}));
    data::chosen expected;
    for (std::uint64_t first = 0; first < n; first += n / 3) {
      std::vector<float> const layer(values.begin() + static_cast<std::ptrdiff_t>(first),
                                     values.begin() + static_cast<std::ptrdiff_t>(first + n / 3));
      double sum = 0;
      for (float const x : layer) sum += static_cast<double>(std::fabs(x));
      auto const limit = 3 * static_cast<float>(sum / static_cast<double>(layer.size()));
      auto const part = largest_kept(layer, 100, [&](float x) { return std::fabs(x) > limit; });
      for (auto const i : part.indices) expected.indices.push_back(static_cast<gs::index_type>(first + i));
      expected.values.insert(expected.values.end(), part.values.begin(), part.values.end());
    }
    CHECK(got == expected);
  }
}

TEST_CASE("a selector of one's own that writes its entries itself") {
  auto const values = data::make(data::law::mostly_zeros, 5000);
  auto const got = first_step(own::first_ones{}, values, 20);
  REQUIRE(got.indices.size() == 20);
  CHECK(data::count_nonzero(std::span{values}.first(got.indices.back() + 1)) == 20);
}

// ---- The passes, directly --------------------------------------------------------------------------------

TEST_CASE("a preview samples what the accumulate pass will write, and settles once, for a sample only") {
  std::uint64_t const n = 100'000;
  std::array<gs::segment, 2> const segments{gs::segment{0, 60'000}, gs::segment{60'000, 40'000}};
  gs::range const passthrough{20'000, 30'000};
  auto gradient = data::as<gs::bfloat16>(data::make(data::law::laplace, n, 1));
  gradient[70'000] = gs::from_float<gs::bfloat16>(std::numeric_limits<float>::infinity());
  gs::gradient_ref<gs::bfloat16 const> const incoming{gradient};
  gs::momentum_correction const residual{.momentum = 0.5f};
  for (int const threads : {1, 3}) {
    gs::host_workspace before{gs::host{threads}, n};
    before.plan(segments, std::span{&passthrough, 1}, 100);
    auto work = std::move(before);  // nothing in it points into it
    auto accumulator = data::make(data::law::gauss, n, 2);
    auto velocity = data::make(data::law::laplace, n, 3);
    std::array<float*, 2> const states{accumulator.data(), velocity.data()};
    auto const view = [&](std::size_t s, gs::warm_threshold* warm) {
      auto const& [first, size, k, owner, layer] = segments[s];
      return gs::accumulator_ref{std::span{accumulator}.subspan(first, size), first, s, 7, warm};
    };
    int flush = 0;
    auto preview = work.preview(gs::host_kernels::incoming{states, incoming, 0.7f, residual}, [&] {
      ++flush;
      for (auto& x : velocity) x *= 2;  // what a step does here is seen by the sample
    });
    gs::warm_threshold warm{17, 100};
    CHECK(gs::predict_candidate_threshold(gs::radix{}, preview, view(0, &warm), 100) == 17);
    CHECK(flush == 0);
    std::vector<gs::key_type> expected;
    for (std::size_t s = 0; s < 2; ++s)
      for (std::uint64_t const count : {1u, 1000u, 200'000u}) {
        auto const keys = preview.sample(view(s, nullptr), count, 5).keys();
        expected.insert(expected.end(), keys.begin(), keys.end());
      }
    CHECK(flush == 1);
    std::array<gs::key_type, 2> const candidate_threshold{};
    work.accumulate(residual, states, incoming, 0.7f, false, candidate_threshold);
    std::fill_n(accumulator.begin() + 20'000, 30'000, 0.0f);
    std::vector<gs::key_type> written;
    for (std::size_t s = 0; s < 2; ++s)
      for (std::uint64_t const count : {1u, 1000u, 200'000u}) {
        auto const keys = work.sample(view(s, nullptr), count, 5).keys();
        written.insert(written.end(), keys.begin(), keys.end());
      }
    CHECK(written.size() == 102'002);
    CHECK(expected == written);
  }
}

TEST_CASE("elements that reach a key are counted") {
  std::uint64_t const n = 50'000;
  auto const values = data::make(data::law::two_values, n);
  gs::host_workspace work{gs::host{2}, n};
  gs::segment const all{0, n};
  work.plan(std::span{&all, 1}, {}, n);
  gs::accumulator_ref const acc{values, 0, 0, 0, nullptr};
  auto const some = gs::magnitude_key(values[0]);
  for (gs::key_type const key : {gs::key_type{0}, gs::key_type{1}, some - 1, some, some + 1, gs::infinite_key}) {
    auto const reached = std::ranges::count_if(values, [&](float x) { return gs::magnitude_key(x) >= key; });
    CHECK(work.count_at_least(acc, key) == static_cast<std::uint64_t>(reached));
  }
}

TEST_CASE("a threshold of zeros keeps what is not zero, and nothing of excluded ranges") {
  std::uint64_t const n = 40'000;
  gs::host_workspace work{gs::host{2}, n};
  gs::segment const all{0, n};
  gs::range const excluded{0, 4};
  work.plan(std::span{&all, 1}, std::span{&excluded, 1}, n);
  std::vector<float> state(n);
  for (std::size_t const i : {5u, 20'000u, 39'999u}) state[i] = 1.0f;
  gs::key_type const least = 1;
  work.collect(state, std::span{&least, 1});
  std::vector<gs::index_type> indices(10);
  std::vector<float> kept(10);
  gs::accumulator_ref const acc{state, 0, 0, 0, nullptr};
  CHECK(work.compact(acc, gs::threshold{0, 5}, {indices, kept, {}}) == 3);
  indices.resize(3);
  CHECK(indices == std::vector<gs::index_type>{5, 20'000, 39'999});
}

TEST_CASE("select writes nothing outside of its room") {
  std::uint64_t const n = 10'000;
  auto const values = data::make(data::law::two_values, n);
  gs::host_workspace work{gs::host{3}, n};
  gs::segment const all{0, n};
  work.plan(std::span{&all, 1}, {}, n);
  std::vector<float> state(n);
  std::array<float*, 1> const states{state.data()};
  gs::accumulator_ref const acc{state, 0, 0, 0, nullptr};  // no warm threshold: nothing is remembered
  auto const check = [&](auto const& selector) {
    for (gs::index_type const room : {0u, 1u, 99u, 100u}) {
      std::vector<gs::index_type> indices(room + 4, 77);
      std::vector<float> kept(room + 4, -7.0f);
      gs::select(selector, work, acc, 100, {std::span{indices}.first(room), std::span{kept}.first(room), {}});
      CHECK(std::all_of(indices.end() - 4, indices.end(), [](auto i) { return i == 77; }));
      CHECK(std::all_of(kept.end() - 4, kept.end(), [](float x) { return x == -7.0f; }));
    }
  };
  for (gs::key_type const candidate_threshold : {gs::key_type{0}, gs::key_type{1}}) {  // by passes, and from candidates
    std::fill(state.begin(), state.end(), 0.0f);
    work.accumulate(gs::error_feedback{}, states, gs::gradient_ref<float const>{values}, 1.0f, true,
                    std::span{&candidate_threshold, 1});
    check(gs::radix{});
    check(exact_cold);
    check(band_warm);
    check(gs::hierarchical{});
    check(own::everything{});
  }
}

TEST_CASE("nothing to choose") {
  gs::host_workspace work{gs::host{2}, 0};
  gs::segment const none{};
  work.plan(std::span{&none, 1}, {}, 0);
  CHECK(gs::select(gs::radix{}, work, {}, 5, {}) == 0);
  CHECK(gs::select(own::mean_multiple{}, work, {}, 5, {}) == 0);
  CHECK(work.mean_abs({}) == 0);
}

TEST_CASE("a budget of none") {
  std::uint64_t const n = 1000;
  auto const values = data::make(data::law::laplace, n);
  gs::host_workspace work{gs::host{2}, n};
  gs::segment const all{0, n};
  work.plan(std::span{&all, 1}, {}, n);
  gs::accumulator_ref const acc{values, 0, 0, 0, nullptr};
  CHECK(gs::select(gs::radix{}, work, acc, 0, {}) == 0);
  CHECK(gs::select(exact_cold, work, acc, 0, {}) == 0);
  CHECK(gs::select(band_warm, work, acc, 0, {}) == 0);
  CHECK(gs::select(gs::hierarchical{}, work, acc, 0, {}) == 0);
  CHECK(gs::select(own::mean_multiple{}, work, acc, 0, {}) == 0);
}
