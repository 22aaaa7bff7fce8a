// Plans as values: what they accept, their hashes and bytes.
#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "schedules.hpp"

namespace gs = gradsieve;
using namespace schedules;

namespace {

gs::plan some_plan(data::generator& random) {
  auto const of = random_trace(random, 20, false);
  return gs::make_plan(of, gs::affine{random.uniform(), random.uniform() / 500});
}

}  // namespace

TEST_CASE("a plan says where every gradient lies") {
  gs::plan const made{{4, 0, 8, 2}, {{0, 3, 12, 1, 2}, {3, 4, 2, 2, 3}}, 0.5};
  CHECK(made.count() == 4);
  CHECK(made.group_of(1) == 0);
  CHECK(made.slot(2) == gs::plan_slot{0, 4});
  CHECK(made.slot(3) == gs::plan_slot{1, 0});
  CHECK(made.finish() == 3);
  CHECK(made.certificate() == 0.5);
  auto const refused = [](std::vector<gs::plan_group> groups) {
    CHECK_THROWS_AS((gs::plan{{4, 0, 8, 2}, std::move(groups)}), gs::invalid_argument);
  };
  refused({});
  refused({{0, 3, 12, 1, 2}});
  refused({{1, 4, 10, 1, 2}});
  refused({{0, 0, 0, 1, 2}, {0, 4, 14, 1, 2}});
  refused({{0, 5, 14, 1, 2}});
  refused({{0, 4, 13, 1, 2}});
  refused({{0, 4, 14, 2, 1}});
  refused({{0, 4, 14, -1, 1}});
  refused({{0, 4, 14, 1, not_a_number}});
  CHECK_THROWS_AS((gs::plan{{}, {}, -1.0}), gs::invalid_argument);
  CHECK_NOTHROW(gs::plan{{}, {}});
}

TEST_CASE("a plan's hash is about borders and bytes") {
  gs::plan const made{{4, 8}, {{0, 1, 4, 1, 2}, {1, 2, 8, 2, 3}}};
  CHECK(made.hash() == gs::plan{{4, 8}, {{0, 1, 4, 1, 3}, {1, 2, 8, 3, 4}}, 1.0}.hash());
  CHECK(made.hash() != gs::plan{{4, 8}, {{0, 2, 12, 1, 2}}}.hash());
  CHECK(made.hash() != gs::plan{{8, 4}, {{0, 1, 8, 1, 2}, {1, 2, 4, 2, 3}}}.hash());
}

TEST_CASE("a plan comes back from its bytes, and damage is found") {
  data::generator random{1};
  int damaged = 0;
  for (int n = 0; n < 300; ++n) {
    auto const made = some_plan(random);
    auto const bytes = made.to_bytes();
    auto const again = gs::plan::from_bytes(bytes);
    CHECK(again == made);
    CHECK(again.hash() == made.hash());
    CHECK(again.to_bytes() == bytes);

    for (std::size_t size = 0; size < bytes.size(); size += 1 + size / 8)
      CHECK_THROWS_AS((void)gs::plan::from_bytes(std::span{bytes}.first(size)), gs::corrupt_message);
    auto longer = bytes;
    longer.push_back(std::byte{0});
    CHECK_THROWS_AS((void)gs::plan::from_bytes(longer), gs::corrupt_message);
    for (int hit = 0; hit < 50; ++hit) {
      auto broken = bytes;
      auto const at = random.below(broken.size());
      broken[at] ^= static_cast<std::byte>(1 + random.below(255));
      CHECK_THROWS_AS((void)gs::plan::from_bytes(broken), gs::corrupt_message);
      ++damaged;
    }
  }
  CHECK(damaged == 15'000);
}

TEST_CASE("bytes that lie with a good checksum are no plan either") {
  data::generator random{2};
  gs::plan const made{{4, 8, 2}, {{0, 1, 4, 1, 2}, {1, 3, 10, 2, 3}}, 1.0};
  int accepted = 0;
  for (int n = 0; n < 20'000; ++n) {
    auto bytes = made.to_bytes();
    for (std::uint64_t hits = 1 + random.below(3); hits-- > 0;) {
      std::vector<std::uint64_t> const values{0, 1, 2, 3, ~std::uint64_t{0}, random.bits(), std::uint64_t{1} << 62};
      std::size_t const word = random.below(bytes.size() / 8);
      if (word == 4) continue;  // the checksum
      gs::wire::store_one(std::span{bytes}.subspan(8 * word), values[random.below(values.size())]);
    }
    auto const whole = std::span<std::byte const>{bytes};
    gs::wire::store_one(std::span{bytes}.subspan(32),
                        gs::wire::checksum(whole.subspan(40), gs::wire::checksum(whole.first(32))));
    try {
      auto const again = gs::plan::from_bytes(bytes);
      CHECK(again.to_bytes() == bytes);
      ++accepted;
    } catch (gs::corrupt_message const&) {
    }
  }
  CHECK(accepted > 0);
  CHECK(accepted < 10'000);
}
