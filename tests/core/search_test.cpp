// The two searches for a threshold, driven by hand against sorted keys.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <gradsieve/core/search.hpp>
#include <vector>

#include "data.hpp"

namespace gs = gradsieve;

namespace {

/// Keys in falling order, zeros left out.
struct sorted_keys {
  std::vector<gs::key_type> keys;

  explicit sorted_keys(std::vector<gs::key_type> all) : keys{std::move(all)} {
    std::erase(keys, 0u);
    std::sort(keys.begin(), keys.end(), std::greater<>{});
  }
  [[nodiscard]] std::uint64_t at_least(gs::key_type key) const {
    return static_cast<std::uint64_t>(std::upper_bound(keys.begin(), keys.end(), key, std::greater<>{}) - keys.begin());
  }
  /// What a threshold keeps.
  [[nodiscard]] std::uint64_t kept(gs::threshold at) const {
    auto const above = at_least(at.key + 1);
    return above + std::min<std::uint64_t>(at.ties, at_least(at.key) - above);
  }
  [[nodiscard]] gs::key_type largest() const { return keys.empty() ? 0 : keys.front(); }
};

/// Keys to search: laws, the whole range of keys, many ties, few values, extremes.
std::vector<std::pair<std::string, sorted_keys>> all_keys(std::uint64_t n) {
  std::vector<std::pair<std::string, sorted_keys>> cases;
  auto const add = [&](std::string name, std::vector<gs::key_type> keys) {
    cases.emplace_back(std::move(name), sorted_keys{std::move(keys)});
  };
  for (auto const law : data::all_laws) {
    std::vector<gs::key_type> keys;
    for (float const x : data::make(law, n, 5)) keys.push_back(gs::magnitude_key(x));
    add(data::name(law), std::move(keys));
  }
  data::generator random{n};
  auto const drawn = [&](auto const& one) {
    std::vector<gs::key_type> keys(n);
    for (auto& key : keys) key = static_cast<gs::key_type>(one());
    return keys;
  };
  add("whole range", drawn([&] { return random.below(gs::infinite_key); }));
  add("smallest and largest", drawn([&] { return random.below(2) == 0 ? 1 : gs::infinite_key - 1; }));
  add("largest only", drawn([&] { return gs::infinite_key - 1; }));
  add("three neighbours", drawn([&] { return 0x3F80'0000u + random.below(3); }));
  add("twenty values", drawn([&] { return 0x1000'0000u * (1 + random.below(7)) + random.below(3); }));
  add("powers of two", drawn([&] { return 1u << random.below(31); }));
  return cases;
}

std::vector<gs::index_type> budgets(std::uint64_t n) {
  std::vector<gs::index_type> some;
  auto const size = static_cast<gs::index_type>(n);
  if (n <= 64)
    for (gs::index_type k = 1; k <= size; ++k) some.push_back(k);
  else
    some = {1, 2, 3, size / 100, size / 10, size / 3, size / 2, size - size / 10, size - 1, size};
  return some;
}

gs::threshold run(gs::detail::digit_search search, sorted_keys const& data, int& rounds) {
  for (rounds = 0; !search.done() && rounds < 10; ++rounds) {
    std::vector<std::uint32_t> histogram(gs::detail::digit_search::bins, 0);
    for (auto const key : data.keys)
      if (auto const bin = search.bin(key); bin < histogram.size()) ++histogram[bin];
    search.next(histogram);
  }
  return search.result();
}

}  // namespace

TEST_CASE("digit_search keeps exactly k, or all that are not zero, in three rounds at most") {
  for (std::uint64_t const n : {0u, 1u, 2u, 40u, 3000u})
    for (auto const& [name, data] : all_keys(n)) {
      CAPTURE(name);
      CAPTURE(n);
      for (auto const k : budgets(n)) {
        CAPTURE(k);
        auto const expected = std::min<std::uint64_t>(k, data.keys.size());
        auto const kth = data.keys.empty() ? 1 : data.keys[expected - 1];
        for (auto const low : {gs::key_type{1}, kth, kth / 2 + 1})  // all that is wanted reaches `low`
          for (auto const high : {gs::infinite_key - 1, std::max(data.largest(), low)}) {
            if (data.keys.size() < k && low > 1) continue;
            CAPTURE(low);
            int rounds = 0;
            auto const at = run({low, high, k}, data, rounds);
            REQUIRE(data.kept(at) == expected);
            REQUIRE(rounds <= 3);
          }
      }
    }
}

TEST_CASE("digit_search takes a bin that somebody else has found") {
  gs::key_type const low = 100;
  gs::detail::digit_search search{low, low + 4 * gs::detail::digit_search::bins - 1, 10};  // four keys a bin
  CHECK(search.wanted() == 10);
  search.narrow(3, 4, 7);  // 4 above, 7 in [low + 12, low + 15]
  CHECK(!search.done());
  CHECK(search.wanted() == 6);
  CHECK(search.inside(low + 12));
  CHECK(search.inside(low + 15));
  CHECK(!search.inside(low + 11));
  CHECK(!search.inside(low + 16));
  auto whole_bin = search;
  whole_bin.narrow(2, 3, 3);
  CHECK(whole_bin.done());
  CHECK(whole_bin.result() == gs::threshold{low + 13, 0});
  auto tie = search;
  tie.narrow(2, 3, 4);
  CHECK(tie.done());
  CHECK(tie.result() == gs::threshold{low + 14, 3});
  search.keep_everything();
  CHECK(search.done());
  CHECK(search.result() == gs::threshold{low + 11, 0});
}

TEST_CASE("digit_search looks at nothing above its range") {
  sorted_keys const far{{1'900'000'000, 1'900'000'001, 1'900'000'002, 1'900'000'900, 1'900'000'901, 5, 6}};
  for (gs::index_type k = 1; k <= 3; ++k) {  // the two largest lie above the range, in its last bin
    int rounds = 0;
    CHECK(far.kept(run({1, 1'900'000'500, k}, far, rounds)) == 2 + k);
  }
}

TEST_CASE("digit_search with nothing to find") {
  int rounds = 0;
  sorted_keys const some{{5, 6, 7}};
  CHECK(some.kept(run({1, gs::infinite_key - 1, 0}, some, rounds)) == 0);  // k = 0
  CHECK(rounds == 0);
  CHECK(some.kept(run({8, 7, 2}, some, rounds)) == 0);  // an empty range
  CHECK(rounds == 0);
  CHECK(some.kept(run({6, 7, 3}, some, rounds)) == 2);  // fewer than k in the range: all of it
}

TEST_CASE("bracket_search keeps from k to most, or exactly k, from any guess") {
  int worst = 0;
  data::generator random{1};
  for (std::uint64_t const n : {1u, 2u, 40u, 3000u})
    for (auto const& [name, data] : all_keys(n)) {
      CAPTURE(name);
      CAPTURE(n);
      for (auto const k : budgets(n))
        for (auto const most : {k, k + k / 4, 2 * k}) {
          auto const anywhere = static_cast<gs::key_type>(random.below(gs::infinite_key));
          auto const near = data.keys.empty() ? 7 : data.keys[std::min<std::size_t>(k, data.keys.size()) - 1];
          for (auto const guess :
               {gs::key_type{0}, gs::key_type{1}, anywhere, near - near / 1000, gs::infinite_key - 1, ~gs::key_type{0}})
            for (auto const high : {gs::infinite_key, data.largest() + 1}) {
              CAPTURE(k);
              CAPTURE(most);
              CAPTURE(guess);
              gs::detail::bracket_search search{guess, high, k, most};
              while (!search.done()) {
                REQUIRE(search.probe() >= 1);
                REQUIRE(search.probe() < high);
                REQUIRE(search.probes() < 200);
                search.next(data.at_least(search.probe()));
              }
              auto const kept = data.kept(search.result());
              if (data.keys.size() < k)
                REQUIRE(kept == data.keys.size());
              else if (search.result().ties > 0)
                REQUIRE(kept == k);
              else
                REQUIRE((kept >= k && kept <= most));
              worst = std::max(worst, search.probes());
            }
        }
    }
  CHECK(worst <= 45);
  MESSAGE("most probes of any search: ", worst);
}

TEST_CASE("bracket_search takes a good guess at once") {
  sorted_keys const data{[] {
    std::vector<gs::key_type> keys(1000);
    for (gs::key_type i = 0; i < 1000; ++i) keys[i] = 1000 + i;
    return keys;
  }()};
  gs::detail::bracket_search search{data.keys[109], gs::infinite_key, 100, 125};
  search.next(data.at_least(search.probe()));
  CHECK(search.done());
  CHECK(search.probes() == 1);
  CHECK(data.kept(search.result()) == 110);
}

TEST_CASE("bracket_search ends at ties, and without any key") {
  sorted_keys const equal{std::vector<gs::key_type>(50, 77)};
  gs::detail::bracket_search ties{~0u, 78, 20, 25};  // one counting pass shows that all are equal
  ties.next(equal.at_least(ties.probe()));
  CHECK(ties.done());
  CHECK(ties.result() == gs::threshold{77, 20});

  gs::detail::bracket_search const none{5, 1, 20, 25};  // the largest key is 0
  CHECK(none.done());
  CHECK(none.result() == gs::threshold{0, 0});
}
