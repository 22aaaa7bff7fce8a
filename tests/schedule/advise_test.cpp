// When compression pays: the sums by hand, and what turns at the break-even points.
#include <doctest/doctest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/schedule.hpp>

namespace gs = gradsieve;

namespace {

constexpr std::uint64_t n = 10'000'000;
gs::layout const flat = gs::layout::flat(n);
gs::local_cost const free_of_charge{0, 0, 0};

gs::network_link link_of(double gbit) { return {.alpha = 0, .beta = 8e-9 / gbit}; }

}  // namespace

TEST_CASE("bytes on the link, by hand: 4 workers, 1 Gbit/s, no latency, nothing to compute") {
  auto const menu = gs::usual_choices(0.01, free_of_charge);
  auto const it = gs::advise(flat, 4, link_of(1), std::span{menu});
  REQUIRE(it.choices.size() == menu.size());
  double const byte = 8e-9;
  CHECK(it.choices[0].total() == doctest::Approx(1.5 * 4e7 * byte));  // a ring: 2 (P - 1) / P
  CHECK(it.choices[1].total() == doctest::Approx(1.5 * 2e7 * byte));
  CHECK(it.choices[2].total() == doctest::Approx(3 * 1e5 * 8 * byte));         // P - 1 messages
  CHECK(it.choices[4].total() == doctest::Approx((0.75 + 1.5) * 4e5 * byte));  // indices once, values in a ring
  CHECK(it.choices[2].speedup == doctest::Approx(6e7 / 2.4e6));
  CHECK(it.compress);
  CHECK(it.choices[it.best].choice.kind != gs::exchange_kind::dense);
}

TEST_CASE("what passes through is all-reduced, and local work counts") {
  gs::layout const layers{{"weight", 900'000}, {"bias", 100'000}};
  gs::local_cost const local{1e-9, 2e-9, 3e-9};
  std::vector<gs::exchange_choice> const menu{{"dense", gs::exchange_kind::dense, 1, 4, free_of_charge},
                                              {"gather", gs::exchange_kind::gather, 0.1, 8, local}};
  auto const it = gs::advise(layers, 2, link_of(8), std::span{menu});
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
        auto menu = gs::usual_choices(density);
        auto const it = gs::advise(flat, workers, link_of(gbit), std::span{menu});
        auto const sparse = menu[it.best_sparse];
        auto const best_dense = [](gs::advice const& of) {
          return std::min(of.choices[0].total(), of.choices[1].total());
        };
        CHECK(it.compress == (it.choices[it.best_sparse].total() < best_dense(it)));
        CHECK(it.compress == (density < it.break_even_density));
        if (it.break_even_density > 0 && it.break_even_density < 1) {
          std::vector<gs::exchange_choice> at{menu[0], menu[1], sparse};
          at[2].density = it.break_even_density;
          auto const there = gs::advise(flat, workers, link_of(gbit), std::span{at});
          CHECK(there.choices[2].total() == doctest::Approx(best_dense(there)).epsilon(1e-6));
        }
        // Of the same two choices: which dense one is fastest may change with the link.
        std::size_t const dense = it.choices[0].total() < it.choices[1].total() ? 0 : 1;
        std::vector<gs::exchange_choice> const two{menu[dense], sparse};
        if (it.break_even_bandwidth > 0 && it.break_even_bandwidth < 1e15) {
          auto const there =
              gs::advise(flat, workers, {.alpha = 0, .beta = 1 / it.break_even_bandwidth}, std::span{two});
          CHECK(there.choices[0].total() == doctest::Approx(there.choices[1].total()).epsilon(1e-6));
        }
      }
}

TEST_CASE("sentences: compress on a slow link, do not on a fast one, nor alone") {
  auto const menu = gs::usual_choices(0.001);
  auto const slow = gs::advise(flat, 8, link_of(0.1), std::span{menu});
  CHECK(slow.sentence.starts_with("Compress: "));
  CHECK(slow.sentence.find(" pays on links below ") != std::string::npos);
  auto const fast = gs::advise(flat, 8, link_of(400), std::span{menu});
  CHECK(fast.sentence.starts_with("Do not compress: dense, "));
  auto const alone = gs::advise(flat, 1, link_of(1), std::span{menu});
  CHECK(!alone.compress);
  CHECK(alone.sentence.find(" pays on no link at this density") != std::string::npos);
}

TEST_CASE("a recipe: its exchange, density and codec") {
  gs::recipe const recipe{.density = 0.01, .codec = gs::packed{.indices = gs::elias_fano{}, .values = gs::fp16{}}};
  auto const it = gs::advise(flat, 4, link_of(1), recipe, free_of_charge);
  REQUIRE(it.choices.size() == 3);
  auto const& mine = it.choices[2].choice;
  CHECK(mine.kind == gs::exchange_kind::gather);
  CHECK(mine.entry_bytes == doctest::Approx(2 + 8.56 / 8).epsilon(0.01));
  auto const shared =
      gs::choice_of(gs::recipe{.density = 0.01, .selector = gs::random_k{}, .exchange = gs::shared_choice{}}, flat);
  CHECK(shared.kind == gs::exchange_kind::shared_choice);
  std::vector<gs::exchange_choice> const two{it.choices[0].choice, shared};
  CHECK(gs::advise(flat, 4, link_of(1), std::span{two}).choices[1].exchange == doctest::Approx(1.5 * 4e5 * 8e-9));
}

TEST_CASE("exchanges that send every entry to its owner, and trees, by hand") {
  auto const seconds_of = [](auto const& exchange) {
    auto const it = gs::advise(flat, 4, link_of(1), gs::recipe{.density = 0.01, .exchange = exchange}, free_of_charge);
    return it.choices[2].exchange;
  };
  auto const entries = 1e5 * 8 * 8e-9;
  CHECK(seconds_of(gs::reduce_scatter{}) == doctest::Approx(0.75 * entries).epsilon(0.001));  // headers count here
  CHECK(seconds_of(gs::ok_topk{}) == doctest::Approx(1.5 * entries).epsilon(0.001));
  CHECK(seconds_of(gs::gtopk{}) == doctest::Approx((3 + 2 / 64.0) * entries).epsilon(0.001));  // and a bit an entry
}

TEST_CASE("what cannot be compared is refused") {
  auto menu = gs::usual_choices(0.01);
  CHECK_THROWS_AS((void)gs::advise(flat, 0, link_of(1), std::span{menu}), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::advise(flat, 4, {.alpha = -1}, std::span{menu}), gs::invalid_argument);
  std::vector<gs::exchange_choice> const dense{menu[0]};
  CHECK_THROWS_WITH_AS((void)gs::advise(flat, 4, link_of(1), std::span{dense}),
                       "gradsieve: advise() compares: the menu needs a dense choice and one that is not",
                       gs::invalid_argument);
  menu[2].density = 2;
  CHECK_THROWS_AS((void)gs::advise(flat, 4, link_of(1), std::span{menu}), gs::invalid_argument);
}
