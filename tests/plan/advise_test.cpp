// When compression pays: the sums by hand, and what turns at the break-even points.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/plan.hpp>
#include <gradsieve/published.hpp>

#include "../../examples/advise/advise.hpp"
#include "../../examples/advise/exchange_choice.hpp"
#include "../../examples/simulate/json.hpp"

namespace gs = gradsieve;

namespace {

constexpr std::uint64_t n = 10'000'000;
gs::layout const flat = gs::layout::flat(n);
tools::local_cost const free_of_charge{0, 0, 0};

gs::network_link link_of(double gbit) { return {.alpha = 0, .beta = 8e-9 / gbit}; }

/// The share of bandwidths at which the best choice that is not dense pays: at both ends it takes what the fastest
/// dense one takes, and the verdict at this link is the interval's.
void check_ends(tools::advice const& it, std::vector<tools::exchange_choice> const& menu, int workers, double alpha) {
  std::vector<tools::exchange_choice> mine;
  for (auto const& each : menu)
    if (each.kind == tools::exchange_kind::dense) mine.push_back(each);
  mine.push_back(menu[it.best_sparse]);
  auto const at = [&](double bandwidth) {
    return tools::advise(flat, workers, {.alpha = alpha, .beta = 1 / bandwidth}, std::span{mine});
  };
  auto const pays = [&](double bandwidth) { return at(bandwidth).compress; };
  double const low = it.least_bandwidth, high = it.break_even_bandwidth;
  if (!gs::is_finite(low)) {
    CHECK(high == 0);
    for (double const bandwidth : {1e3, 1e6, 1e9, 1e12}) CHECK(!pays(bandwidth));
    return;
  }
  CHECK(low < high);
  for (double const end : {low, high}) {
    if (end == 0 || !gs::is_finite(end)) continue;
    auto const there = at(end);
    double best = there.choices[0].total();
    for (std::size_t i = 0; i + 1 < mine.size(); ++i) best = std::min(best, there.choices[i].total());
    CHECK(there.choices.back().total() == doctest::Approx(best).epsilon(1e-6));
  }
  if (low > 0) CHECK(!pays(low * 0.9));
  bool const ends = gs::is_finite(high);
  CHECK(pays(low > 0 ? (ends ? std::sqrt(low * high) : low * 1.01) : std::min(high * 0.5, 1.0)));
  CHECK(pays(ends ? high * 1.1 : std::max(low * 1e6, 1e15)) == !ends);
}

/// The files of the project.
std::string const project = GRADSIEVE_TEST_PROJECT;

double median(std::vector<double> values) { return gs::median(std::move(values)); }

}  // namespace

TEST_CASE("bytes on the link, by hand: 4 workers, 1 Gbit/s, no latency, nothing to compute") {
  auto const menu = tools::usual_choices(0.01, free_of_charge);
  auto const it = tools::advise(flat, 4, link_of(1), std::span{menu});
  REQUIRE(it.choices.size() == menu.size());
  double const byte = 8e-9;
  CHECK(it.choices[0].total() == doctest::Approx(1.5 * 4e7 * byte));  // a ring: 2 (P - 1) / P
  CHECK(it.choices[1].total() == doctest::Approx(1.5 * 2e7 * byte));
  CHECK(it.choices[2].total() == doctest::Approx(3 * 1e5 * 8 * byte));         // P - 1 messages
  CHECK(it.choices[4].total() == doctest::Approx((0.75 + 1.5) * 4e5 * byte));  // indices once, values in a ring
  CHECK(it.choices[2].speedup == doctest::Approx(6e7 / 2.4e6));
  CHECK(it.compress);
  CHECK(it.choices[it.best].choice.kind != tools::exchange_kind::dense);
}

TEST_CASE("what a transport costs besides, by hand") {
  std::vector<tools::exchange_choice> menu{{"dense", tools::exchange_kind::dense, 1, 4, free_of_charge},
                                        {"gather", tools::exchange_kind::gather, 0.01, 8, {1e-9, 0, 0}}};
  tools::transport_cost const transport{.wire = 1.5, .byte = 1e-9, .wait = 0.25, .slowdown = 3};
  auto const it = tools::advise(flat, 4, link_of(1), std::span{menu}, {.patterns = {}}, transport);
  CHECK(it.choices[0].total() == doctest::Approx(0.25 + 6e7 * (1.5 * 8e-9 + 2e-9)));
  CHECK(it.choices[1].exchange == doctest::Approx(0.25 + 2.4e6 * (1.5 * 8e-9 + 2e-9)));
  CHECK(it.choices[1].local == doctest::Approx(3 * 1e-2));
  menu[0].wire = 0.5;
  CHECK(tools::advise(flat, 4, link_of(1), std::span{menu}).choices[0].total() == doctest::Approx(6e7 * 0.5 * 8e-9));
  CHECK_THROWS_AS((void)tools::transport_cost::ethernet(0), gs::invalid_argument);
  CHECK(tools::transport_cost::ethernet(2).wait == 0);
  CHECK(tools::transport_cost::ethernet(8) == tools::transport_cost::ethernet(2));
  CHECK(tools::transport_cost::ethernet(0.5).slowdown == 4);
}

TEST_CASE("what passes through is all-reduced, and local work counts") {
  gs::layout const layers{{"weight", 900'000}, {"bias", 100'000}};
  tools::local_cost const local{1e-9, 2e-9, 3e-9};
  std::vector<tools::exchange_choice> const menu{{"dense", tools::exchange_kind::dense, 1, 4, free_of_charge},
                                              {"gather", tools::exchange_kind::gather, 0.1, 8, local}};
  auto const it = tools::advise(layers, 2, link_of(8), std::span{menu});
  CHECK(it.choices[1].exchange == doctest::Approx(1e-9 * (4e5 + 9e4 * 8)));
  CHECK(it.choices[1].local == doctest::Approx(1e-3 + 9e4 * 2e-9 + 2 * 9e4 * 3e-9));
}

TEST_CASE("at the break-even points the fastest dense and the best other choice take the same") {
  for (double const density : {0.0001, 0.001, 0.01})
    for (int const workers : {2, 8, 64})
      for (double const gbit : {0.1, 1.0, 10.0, 100.0}) {
        CAPTURE(density);
        CAPTURE(workers);
        CAPTURE(gbit);
        auto menu = tools::usual_choices(density);
        auto const it = tools::advise(flat, workers, link_of(gbit), std::span{menu});
        auto const sparse = menu[it.best_sparse];
        auto const best_dense = [](tools::advice const& of) {
          return std::min(of.choices[0].total(), of.choices[1].total());
        };
        CHECK(it.compress == (it.choices[it.best_sparse].total() < best_dense(it)));
        CHECK(it.compress == (density < it.break_even_density));
        if (it.break_even_density > 0 && it.break_even_density < 1) {
          std::vector<tools::exchange_choice> at{menu[0], menu[1], sparse};
          at[2].density = it.break_even_density;
          auto const there = tools::advise(flat, workers, link_of(gbit), std::span{at});
          CHECK(there.choices[2].total() == doctest::Approx(best_dense(there)).epsilon(1e-6));
        }
        check_ends(it, menu, workers, 0);
      }
}

TEST_CASE("sentences: compress on a slow link, do not on a fast one, nor alone") {
  auto const menu = tools::usual_choices(0.001);
  auto const slow = tools::advise(flat, 8, link_of(0.1), std::span{menu});
  CHECK(slow.sentence.starts_with("Compress: "));
  CHECK(slow.sentence.find(" pays on links below ") != std::string::npos);
  auto const fast = tools::advise(flat, 8, link_of(400), std::span{menu});
  CHECK(fast.sentence.starts_with("Do not compress: dense, "));
  auto const alone = tools::advise(flat, 1, link_of(1), std::span{menu});
  CHECK(!alone.compress);
  CHECK(alone.sentence.find(" pays on no link at this density") != std::string::npos);
}

TEST_CASE("an exchange with fewer startups and more bytes pays above a bandwidth, another between two") {
  // Dense: 6 ms of startups, 10 ms of computing, 60 MB. The other: 9 ms of startups, 96 MB.
  double const alpha = 1e-3;
  std::vector<tools::exchange_choice> menu{
      {"dense", tools::exchange_kind::dense, 1, 4, {1e-9, 0, 0}},
      {"scatter", tools::exchange_kind::reduce_scatter, 0.4, 32, free_of_charge},
  };
  auto const above = tools::advise(flat, 4, {.alpha = alpha, .beta = 8e-11}, std::span{menu});
  CHECK(above.compress);
  CHECK(above.least_bandwidth == doctest::Approx(36e6 / 7e-3));
  CHECK(!gs::is_finite(above.break_even_bandwidth));
  CHECK(above.sentence.find(" pays on links above ") != std::string::npos);
  check_ends(above, menu, 4, alpha);
  auto const below = tools::advise(flat, 4, {.alpha = alpha, .beta = 1e-6}, std::span{menu});
  CHECK(!below.compress);
  CHECK(below.least_bandwidth == above.least_bandwidth);
  CHECK(below.sentence.starts_with("Do not compress"));

  // Two dense choices: 46 ms and 60 MB, 6 ms and 105 MB.
  menu[0].local = {4e-9, 0, 0};
  menu.push_back({"dense, fast to compute", tools::exchange_kind::dense, 1, 7, free_of_charge});
  auto const between = tools::advise(flat, 4, {.alpha = alpha, .beta = 5e-10}, std::span{menu});
  CAPTURE(between.sentence);
  check_ends(between, menu, 4, alpha);
  CHECK(between.least_bandwidth == doctest::Approx(36e6 / 37e-3));
  CHECK(between.break_even_bandwidth == doctest::Approx(9e6 / 3e-3));
  CHECK(between.sentence.find(" pays on links between ") != std::string::npos);

  auto const never = tools::advise(flat, 1, link_of(1), std::span{menu});
  CHECK(!gs::is_finite(never.least_bandwidth));
  CHECK(never.break_even_bandwidth == 0);
}

TEST_CASE("both ends of the interval, for menus, links and numbers of workers at random") {
  std::uint64_t state = 1;
  auto const random = [&](double low, double high) {
    state = gs::mix(state);
    return low * std::pow(high / low, static_cast<double>(state >> 11) * 0x1p-53);
  };
  int both = 0, lower = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<tools::exchange_choice> menu;
    for (double const bytes : {4.0, 2.0})
      menu.push_back({"dense", tools::exchange_kind::dense, 1, bytes, {random(1e-12, 1e-8), 0, 0}});
    for (int i = 1; i < 6; ++i)
      menu.push_back({"s",
                      static_cast<tools::exchange_kind>(i),
                      random(1e-4, 1),
                      random(1, 16),
                      {random(1e-12, 1e-8), random(1e-10, 1e-8), random(1e-10, 1e-8)}});
    int const workers = static_cast<int>(random(1, 1000));
    double const alpha = random(1e-7, 1e-1);
    auto const it = tools::advise(flat, workers, {.alpha = alpha, .beta = 1 / random(1e4, 1e12)}, std::span{menu});
    CAPTURE(it.sentence);
    check_ends(it, menu, workers, alpha);
    both += it.least_bandwidth > 0 && gs::is_finite(it.least_bandwidth) && gs::is_finite(it.break_even_bandwidth);
    lower += it.least_bandwidth > 0 && gs::is_finite(it.least_bandwidth);
  }
  CHECK(lower > 0);
  MESSAGE(both << " intervals of two ends, " << lower << " with a lower one, of 2000");
}

TEST_CASE("elements of half precision, and models of more elements than a compressor holds") {
  std::istringstream half{"name,bytes,backward,forward,dtype\nfc.weight,2000,0.001,0.0005,3\nfc.bias,6,0.0001,0,3\n"};
  auto const size = tools::model_size::of(gs::read_csv(half), {.patterns = {"*bias*"}});
  CHECK(size == tools::model_size{1003, 3});
  gs::trace const norms{{"a.weight", 1ull << 35, 0, 0, 0}, {"0.1.weight", 280, 0, 0, 0}, {"0.1.bias", 280, 0, 0, 0}};
  CHECK(tools::model_size::of(norms) == tools::model_size{(1ull << 33) + 140, 140});
  CHECK(tools::model_size::of(norms, {.patterns = {"a.*"}, .up_to = 70}).selected() == 0);
  CHECK_THROWS_AS((void)tools::model_size::of(norms, {.patterns = {"b.*"}}), gs::invalid_argument);
  gs::trace const odd{{"odd", 6, 0, 0, 0}};
  CHECK_THROWS_WITH_AS((void)tools::model_size::of(odd),
                       "gradsieve: layer 'odd' has 6 bytes, no whole number of elements of 4 bytes: what is its "
                       "element_bytes?",
                       gs::invalid_argument);

  auto const menu = tools::usual_choices(0.001);
  auto const in_layout = tools::advise(flat, 8, link_of(1), std::span{menu});
  auto const by_size = tools::advise(tools::model_size{n, 0}, 8, link_of(1), std::span{menu});
  CHECK(in_layout.sentence == by_size.sentence);
  // 7,000 times the elements take 7,000 times as long, but for startups.
  auto const large = tools::advise(tools::model_size{7000 * n, 0}, 8, link_of(1), std::span{menu});
  for (std::size_t i = 0; i < menu.size(); ++i)
    CHECK(large.choices[i].total() == doctest::Approx(7000 * by_size.choices[i].total()));
  CHECK(large.sentence.ends_with("A compressor holds fewer than 2^32 elements: this model takes 17 or more."));
  CHECK(tools::model_size{1ull << 32, 0}.compressors() == 2);
  CHECK(tools::model_size{(1ull << 32) - 1, 0}.compressors() == 1);
  auto const mine = tools::choice_of(gs::recipe{.density = 0.01}, tools::model_size{7000 * n, 0});
  CHECK(mine.entry_bytes == doctest::Approx(8).epsilon(0.001));
  CHECK_THROWS_AS((void)tools::advise(tools::model_size{1ull << 53, 0}, 8, link_of(1), std::span{menu}),
                  gs::invalid_argument);
}

TEST_CASE("local costs come within 30 % of the steps in bench/results, in the median") {
  std::vector<double> errors;
  for (std::string const machine : {"epyc-2cores", "epyc-zen5-2cores", "xeon-2.8ghz-2cores"}) {
    std::ifstream file{project + "/bench/results/" + machine + "/bench.json"};
    REQUIRE(file);
    auto const all = simulation::json_reader::read(std::string{std::istreambuf_iterator<char>{file}, {}});
    for (auto const& row : all.find("benchmarks")->items)
      for (std::string const selector : {"radix", "laplacian"})
        for (auto const& [text, density] : {std::pair{"0.001", 0.001}, {"0.01", 0.01}, {"0.1", 0.1}}) {
          auto const name = "step/" + selector + "/n:33554432/density:" + text + "/law:laplace/dtype:fp32/threads:2/";
          if (!row.find("name")->text.starts_with(name)) continue;
          tools::model_size const size{1 << 25, 0};
          auto const menu = tools::usual_choices(density);
          auto const predicted = tools::advise(size, 1, {}, std::span{menu}).choices[2].local;
          double const unit = row.find("time_unit")->text == "ms" ? 1e-3 : 1e-9;
          errors.push_back(std::abs(predicted / (unit * row.find("real_time")->value) - 1));
        }
  }
  CHECK(errors.size() >= 18);
  MESSAGE("median error of local seconds: " << 100 * median(errors) << " % of " << errors.size() << " steps");
  CHECK(median(errors) < 0.3);
}

TEST_CASE("predicted speed-ups come within 30 % of those measured on links of limited rate, in the median") {
  // 2 million elements at 1 %, 4 ranks on 2 cores that also do the switch's work (bench/TRAINING.md).
  std::ifstream file{project + "/examples/figures/network.csv"};
  REQUIRE(file);
  std::map<std::pair<std::string, double>, std::vector<double>> measured;
  std::vector<std::string> row;
  std::size_t line = 1;
  gs::detail::read_csv_record(file, line, row);
  REQUIRE(row.at(4) == "measured_ms");
  while (gs::detail::read_csv_record(file, line, row)) {
    double gbit = 0, milliseconds = 0;
    REQUIRE(gs::detail::parse_number(row.at(2), gbit));
    REQUIRE(gs::detail::parse_number(row.at(4), milliseconds));
    measured[{row[0], gbit}].push_back(1e-3 * milliseconds);
  }
  auto const menu = tools::usual_choices(0.01);
  std::vector<double> of_best, of_median, of_run, seconds;
  for (double const gbit : {1.0, 0.5, 0.2, 0.1, 0.05}) {
    gs::network_link const link{.alpha = 30e-6, .beta = 8e-9 / gbit};
    auto const it =
        tools::advise(tools::model_size{2'000'000, 0}, 4, link, std::span{menu}, tools::transport_cost::ethernet(0.5, 1.5e-9));
    auto const dense = measured.at({menu[0].name, gbit});
    for (auto const& each : it.choices) {
      if (!measured.contains({each.choice.name, gbit})) continue;
      auto const runs = measured.at({each.choice.name, gbit});
      auto const least = [](auto const& of) { return *std::min_element(of.begin(), of.end()); };
      seconds.push_back(std::abs(each.total() / least(runs) - 1));
      if (each.choice.kind == tools::exchange_kind::dense) continue;
      for (std::size_t run = 0; run < runs.size(); ++run)
        of_run.push_back(std::abs(each.speedup / (dense.at(run) / runs[run]) - 1));
      of_best.push_back(std::abs(each.speedup / (least(dense) / least(runs)) - 1));
      of_median.push_back(std::abs(each.speedup / (median(dense) / median(runs)) - 1));
    }
  }
  CHECK(of_best.size() == 20);
  CHECK(of_run.size() == 140);
  MESSAGE("median error of seconds " << 100 * median(seconds) << " %, of speed-ups " << 100 * median(of_best)
                                     << " % of the best runs, " << 100 * median(of_median) << " % of the median runs, "
                                     << 100 * median(of_run) << " % of single runs");
  CHECK(median(seconds) < 0.3);
  CHECK(median(of_best) < 0.3);
  CHECK(median(of_median) < 0.3);
  CHECK(median(of_run) < 0.3);
}

TEST_CASE("a recipe: its exchange, density and codec") {
  gs::recipe const recipe{.density = 0.01, .codec = gs::packed{.indices = gs::elias_fano{}, .values = gs::fp16{}}};
  auto const it = tools::advise(flat, 4, link_of(1), recipe, free_of_charge);
  REQUIRE(it.choices.size() == 3);
  auto const& mine = it.choices[2].choice;
  CHECK(mine.kind == tools::exchange_kind::gather);
  CHECK(mine.entry_bytes == doctest::Approx(2 + 8.56 / 8).epsilon(0.01));
  auto const shared =
      tools::choice_of(gs::recipe{.density = 0.01, .selector = gs::random_k{}, .exchange = gs::shared_choice{}}, flat);
  CHECK(shared.kind == tools::exchange_kind::shared_choice);
  std::vector<tools::exchange_choice> const two{it.choices[0].choice, shared};
  CHECK(tools::advise(flat, 4, link_of(1), std::span{two}).choices[1].exchange == doctest::Approx(1.5 * 4e5 * 8e-9));
}

TEST_CASE("an exchange that sends every entry to its owner, by hand") {
  gs::recipe const recipe{.density = 0.01, .exchange = gs::reduce_scatter{}};
  auto const it = tools::advise(flat, 4, link_of(1), recipe, free_of_charge);
  CHECK(it.choices[2].exchange == doctest::Approx(0.75 * 1e5 * 8 * 8e-9).epsilon(0.001));  // headers count here
}

TEST_CASE("what cannot be compared is refused") {
  auto menu = tools::usual_choices(0.01);
  CHECK_THROWS_AS((void)tools::advise(flat, 0, link_of(1), std::span{menu}), gs::invalid_argument);
  CHECK_THROWS_AS((void)tools::advise(flat, 4, {.alpha = -1}, std::span{menu}), gs::invalid_argument);
  std::vector<tools::exchange_choice> const dense{menu[0]};
  CHECK_THROWS_WITH_AS((void)tools::advise(flat, 4, link_of(1), std::span{dense}),
                       "gradsieve: advise() compares: the menu needs a dense choice and one that is not",
                       gs::invalid_argument);
  menu[2].density = 2;
  CHECK_THROWS_AS((void)tools::advise(flat, 4, link_of(1), std::span{menu}), gs::invalid_argument);
}
