// The selectors that others compare with: trimmed, threshold_search, ldte, sidco and fixed_threshold.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/published.hpp>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "data.hpp"
#include "sanitized.hpp"

namespace gs = gradsieve;

namespace {

template <class Selector>
data::chosen first_step(Selector const& selector, std::span<float const> values, std::uint64_t k, int threads = 3) {
  gs::recipe const recipe{.density = data::density_for(k, values.size()), .selector = selector};
  gs::compressor reducer{gs::host{threads}, gs::layout::flat(values.size()), recipe};
  auto const got = reducer.compress(values);
  return {{got.indices.begin(), got.indices.end()}, {got.values.begin(), got.values.end()}};
}

/// The largest entries, from `least` to `most` of them, or all that are not zero.
void check_count(std::span<float const> values, std::uint64_t least, std::uint64_t most, data::chosen const& got) {
  std::uint64_t const count = got.indices.size();
  REQUIRE(count >= std::min(least, data::count_nonzero(values)));
  REQUIRE(count <= most);
  REQUIRE(got == data::top_k(values, count));
}

/// Calls f(values, k) for every law, several sizes and budgets.
template <class F>
void for_each_case(F const& f) {
  for (std::uint64_t const n : sanitized ? std::vector{0u, 1u, 4097u} : std::vector{0u, 1u, 2u, 100u, 4097u, 70'001u})
    for (auto const law : data::all_laws) {
      auto const values = data::make(law, n, n + 1);
      auto const law_name = data::name(law);
      CAPTURE(law_name);
      CAPTURE(n);
      for (std::uint64_t const k : {std::uint64_t{0}, std::uint64_t{1}, n / 1000, n / 50, n / 3, n}) {
        if (k > n) continue;
        CAPTURE(k);
        f(std::span<float const>{values}, k);
      }
    }
}

}  // namespace

TEST_CASE("trimmed gives exactly the k largest on any data") {
  for_each_case([](std::span<float const> values, std::uint64_t k) {
    for (float const step : {0.2f, 0.01f, 1.0f}) {
      if (step < 0.1f && values.size() > 5000) continue;
      auto const got = first_step(gs::trimmed{.step = step}, values, k);
      REQUIRE(got == data::top_k(values, k));
    }
  });
}

TEST_CASE("threshold_search gives k to 2 k - 1 entries, the largest, on any data") {
  for_each_case([](std::span<float const> values, std::uint64_t k) {
    check_count(values, k, k == 0 ? 0 : 2 * k - 1, first_step(gs::threshold_search{}, values, k));
    check_count(values, k, k, first_step(gs::threshold_search{.tolerance = 1}, values, k));  // no probe
  });
}

TEST_CASE("ldte gives k to (1 + tolerance) k entries, the largest, on any data") {
  for_each_case([](std::span<float const> values, std::uint64_t k) {
    check_count(values, k, k + k / 4, first_step(gs::ldte{}, values, k));
    check_count(values, k, k, first_step(gs::ldte{.tolerance = 0}, values, k));
  });
}

TEST_CASE("sidco gives k to (1 + tolerance) k entries, the largest, on any data") {
  for_each_case([](std::span<float const> values, std::uint64_t k) {
    check_count(values, k, k + k / 4, first_step(gs::sidco{}, values, k));
    check_count(values, k, k, first_step(gs::sidco{.stages = 1, .tolerance = 0}, values, k));
    check_count(values, k, k + k / 4, first_step(gs::sidco{.stages = 16, .first = 1}, values, k));
  });
}

TEST_CASE("sidco names its fields and refuses what makes no sense") {
  auto const text = [](auto const& it) {
    std::ostringstream out;
    gs::print(out, it);
    return out.str();
  };
  CHECK(text(gs::sidco{}) == "sidco{stages 4, first 0.25, tolerance 0.25}");
  CHECK_NOTHROW(gs::check(gs::sidco{.stages = 16, .first = 1, .tolerance = 0}));
  CHECK_THROWS_AS(gs::check(gs::sidco{.stages = 0}), gs::invalid_argument);
  CHECK_THROWS_AS(gs::check(gs::sidco{.stages = 17}), gs::invalid_argument);
  CHECK_THROWS_AS(gs::check(gs::sidco{.first = 0}), gs::invalid_argument);
  CHECK_THROWS_AS(gs::check(gs::sidco{.tolerance = -0.1f}), gs::invalid_argument);
}

TEST_CASE("sums of whole numbers: magnitudes, for any number of threads") {
  for (auto const law : data::all_laws) {
    auto const law_name = data::name(law);
    CAPTURE(law_name);
    std::uint64_t const n = 50'000;
    auto values = data::make(law, n, 3);
    for (float& x : values)
      if (!std::isfinite(x)) x = 0;
    gs::key_type max_key = 0;
    double magnitudes = 0;
    for (float const x : values) {
      max_key = std::max(max_key, gs::magnitude_key(x));
      magnitudes += std::abs(static_cast<double>(x));
    }
    gs::magnitude_units const units{n, max_key};
    gs::whole_sums<1> first{};
    for (gs::host const where :
         {gs::host{1}, gs::host{2}, gs::host{5}, gs::host{1, gs::simd::avx2}, gs::host{1, gs::simd::portable}}) {
      gs::host_workspace work{where, n};
      work.plan(std::vector{gs::segment{0, n}}, {}, n);
      gs::accumulator_ref const acc{{values.data(), n}, 0, 0, 0, nullptr};
      auto const sums = work.add_up<1>(acc, [&](float x, gs::whole_sums<1>& to) {
        to[0] += units.magnitude(gs::magnitude_key(x));
      });
      if (first == gs::whole_sums<1>{}) first = sums;
      CHECK(sums == first);
      CHECK(static_cast<double>(sums[0]) * units.unit() == doctest::Approx(magnitudes).epsilon(1e-5));
    }
  }
}

TEST_CASE("fixed_threshold gives all entries that reach it, and the largest where there is no room for all") {
  for_each_case([](std::span<float const> values, std::uint64_t k) {
    for (float const magnitude : {1e-30f, 0.5f, 1.0f, 3.0f}) {
      CAPTURE(magnitude);
      std::uint64_t const reach = k == 0 ? 0 : static_cast<std::uint64_t>(std::ranges::count_if(values, [&](float x) {
        return std::isfinite(x) && std::abs(x) >= magnitude;
      }));
      auto const got = first_step(gs::fixed_threshold{.magnitude = magnitude}, values, k);
      REQUIRE(got == data::top_k(values, std::min(reach, k)));
      auto const wide = first_step(gs::fixed_threshold{.magnitude = magnitude, .most = 2.5f}, values, k);
      REQUIRE(wide == data::top_k(values, std::min(reach, std::min<std::uint64_t>(values.size(), k * 5 / 2))));
    }
  });
}

TEST_CASE("reports say what decided on the thresholds") {
  std::uint64_t const n = 60'000;
  std::uint64_t const steps = 40;
  auto const counted = [&](auto selector, auto partitioner, std::uint64_t layers) {
    gs::recipe const recipe{.density = 0.01, .selector = selector, .partitioner = partitioner};
    gs::compressor reducer{gs::host{2}, gs::layout{data::equal_layers(n, layers)}, recipe};
    gs::step_report all;
    for (std::uint64_t step = 0; step < steps; ++step) {
      auto const gradient = data::make(data::law::laplace, n, step);
      reducer.compress(std::span<float const>{gradient});
      CHECK(reducer.report().thresholds.all() == layers);
      all.add(reducer.report());
    }
    // What all give is in no band.
    std::vector<float> few(n);
    few[7] = 1;
    gs::compressor empty{gs::host{2}, gs::layout::flat(n), recipe};
    empty.compress(std::span<float const>{few});
    CHECK(empty.report().thresholds == gs::threshold_counts{});
    return all.thresholds;
  };
  using enum gs::threshold_origin;
  auto const by_ldte = counted(gs::ldte{}, gs::layerwise{}, 3);
  CHECK(by_ldte.of(remembered) == 0);
  CHECK(by_ldte.of(corrected) > 2 * by_ldte.of(estimated));  // error feedback leaves no Laplace law
  CHECK(by_ldte.probes > 2 * 3 * steps);
  auto const by_sidco = counted(gs::sidco{}, gs::whole{}, 1);
  CHECK(by_sidco.of(estimated) > steps * 9 / 10);
  CHECK(by_sidco.of(estimated) + by_sidco.of(corrected) == steps);
  auto const warm = counted(gs::laplacian{}, gs::whole{}, 1);
  CHECK(warm.of(estimated) <= 1);
  CHECK(warm.of(remembered) > 0);
  auto const cold = counted(gs::laplacian{.warm = false}, gs::whole{}, 1);
  CHECK(cold.of(remembered) == 0);
  CHECK(counted(gs::laplacian{.count = gs::count_mode::exact}, gs::whole{}, 1).of(corrected) >= steps - 1);

  gs::compressor plain{gs::host{2}, gs::layout::flat(n), gs::recipe{}};
  gs::compressor told{gs::host{2}, gs::layout::flat(n), gs::recipe{.selector = gs::sidco{}}};
  auto const gradient = data::make(data::law::laplace, n, 1);
  plain.compress(std::span<float const>{gradient});
  told.compress(std::span<float const>{gradient});
  auto const text = [](auto const& report) {
    std::ostringstream out;
    out << report;
    return out.str();
  };
  CHECK(text(plain.report()).find("thresholds") == std::string::npos);
  CHECK(text(told.report()).find(", thresholds estimated 1, remembered 0, corrected 0 (1 probes)") !=
        std::string::npos);
}

TEST_CASE("any number of threads and partitioner, step after step: the same entries, and nothing is lost") {
  std::uint64_t const n = 60'000;
  auto const check = [&](auto selector, auto partitioner) {
    gs::recipe const recipe{.density = 0.02, .selector = selector, .partitioner = partitioner};
    std::vector<gs::compressor<gs::host, std::remove_cv_t<decltype(recipe)>>> all;
    for (int const threads : {1, 2, 5})
      all.emplace_back(gs::host{threads}, gs::layout{data::equal_layers(n, 5)}, recipe);
    std::vector<double> came(n);
    std::vector<double> went(n);
    for (std::uint64_t step = 0; step < 6; ++step) {
      auto const gradient = data::make(data::law::laplace, n, step);
      for (std::size_t i = 0; i < n; ++i) came[i] += static_cast<double>(gradient[i]);
      std::vector<data::chosen> sent;
      for (auto& each : all) {
        auto const got = each.compress(std::span<float const>{gradient});
        sent.push_back({{got.indices.begin(), got.indices.end()}, {got.values.begin(), got.values.end()}});
      }
      CHECK(sent[0].indices.size() > 0);
      CHECK(sent[1] == sent[0]);
      CHECK(sent[2] == sent[0]);
      for (std::size_t i = 0; i < sent[0].indices.size(); ++i)
        went[sent[0].indices[i]] += static_cast<double>(sent[0].values[i]);
    }
    auto const left = all[0].residual();
    double worst = 0;
    for (std::size_t i = 0; i < n; ++i)
      worst = std::max(worst, std::abs(came[i] - went[i] - static_cast<double>(left[i])));
    CHECK(worst < 1e-5);
  };
  auto const first = data::make(data::law::laplace, n, 0);
  auto const largest = data::top_k(std::span<float const>{first}, n / 100).values;
  float const magnitude = std::abs(*std::ranges::min_element(largest, {}, [](float x) { return std::abs(x); }));
  auto const with = [&](auto partitioner) {
    check(gs::trimmed{}, partitioner);
    check(gs::threshold_search{}, partitioner);
    check(gs::ldte{}, partitioner);
    check(gs::sidco{}, partitioner);
    check(gs::sidco{.stages = 2}, partitioner);
    check(gs::fixed_threshold{.magnitude = magnitude}, partitioner);
  };
  with(gs::whole{});
  with(gs::deft{});
  with(gs::micro{});
}
