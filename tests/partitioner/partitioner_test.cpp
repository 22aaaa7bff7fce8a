// Partitioners: what they cut, how they share k out, who selects where.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <gradsieve/gradsieve.hpp>
#include <limits>
#include <new>
#include <numeric>
#include <vector>

#include "allocations.hpp"
#include "data.hpp"

namespace gs = gradsieve;

namespace lacking {  // what the concept turns away

struct no_assign {
  using default_exchange = gs::gather;
  static constexpr gs::partitioner_traits traits{};
  void split(std::span<gs::range const>, int, gs::segment_list&) const {}
  friend bool operator==(no_assign const&, no_assign const&) = default;
};
struct no_exchange {
  static constexpr gs::partitioner_traits traits{};
  void split(std::span<gs::range const>, int, gs::segment_list&) const {}
  void assign(std::span<gs::segment>, std::span<double const>, gs::step_budget, gs::partition_scratch&) const {}
  friend bool operator==(no_exchange const&, no_exchange const&) = default;
};

}  // namespace lacking

namespace {

double const not_a_number = std::numeric_limits<double>::quiet_NaN();
double const infinity = std::numeric_limits<double>::infinity();

std::vector<gs::range> back_to_back(std::vector<std::uint64_t> const& sizes) {
  std::vector<gs::range> layers;
  std::uint64_t at = 0;
  for (auto const size : sizes) {
    layers.push_back({at, size});
    at += size;
  }
  return layers;
}

template <class Partitioner>
gs::segment_list split(Partitioner const& chosen, std::vector<gs::range> const& layers, int world) {
  gs::segment_list list;
  chosen.split(layers, world, list);
  return list;
}

gs::partition_scratch scratch_for(std::size_t segments, int world) {
  return {std::vector<gs::index_type>(segments), std::vector<double>(segments),
          std::vector<std::pair<double, int>>(static_cast<std::size_t>(world))};
}

template <class Partitioner>
void assign(Partitioner const& chosen, gs::segment_list& list, std::vector<double> const& squared_norms,
            std::uint64_t k, int world, std::uint64_t step = 0) {
  std::uint64_t elements = 0;
  for (auto const& each : list) elements += each.size;
  auto scratch = scratch_for(list.size(), world);
  chosen.assign(list, squared_norms, {data::density_for(k, elements), elements, step, world}, scratch);
}

std::uint64_t sum_of_k(gs::segment_list const& list) {
  return std::accumulate(list.begin(), list.end(), std::uint64_t{0},
                         [](auto sum, auto const& each) { return sum + each.k; });
}

/// Whether the segments cover the layers, in order, each element once.
bool covers(gs::segment_list const& list, std::vector<gs::range> const& layers) {
  std::vector<gs::range> joined;
  for (auto const& each : list) {
    if (each.size == 0) return false;
    bool const start = std::any_of(layers.begin(), layers.end(),
                                   [&](auto const& layer) { return layer.offset == each.offset && layer.size > 0; });
    if (start)
      joined.push_back({each.offset, each.size});
    else if (joined.empty() || joined.back().offset + joined.back().size != each.offset)
      return false;
    else
      joined.back().size += each.size;
  }
  auto expected = layers;
  std::erase_if(expected, [](auto const& layer) { return layer.size == 0; });
  return joined == expected;
}

/// What deft promises of every decision.
void check_decision(gs::segment_list const& list, std::vector<double> const& squared_norms, std::uint64_t k,
                    int world) {
  std::uint64_t room = 0;
  std::uint64_t fragments = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (squared_norms[i] > 0) {
      room += list[i].size;
      ++fragments;
    }
  }
  REQUIRE(sum_of_k(list) == std::min(k, room));
  for (std::size_t i = 0; i < list.size(); ++i) {
    CAPTURE(i);
    REQUIRE(list[i].k <= list[i].size);
    if (!(squared_norms[i] > 0))
      REQUIRE(list[i].k == 0);
    else if (k >= fragments)
      REQUIRE(list[i].k >= 1);
    if (list[i].k == 0 || list[i].k == list[i].size)
      REQUIRE(list[i].owner == gs::segment::every_rank);
    else
      REQUIRE((list[i].owner >= 0 && list[i].owner < world));
  }
}

/// The rule of deft's shares, in the plainest way: k over parts by their norms, the largest first.
struct part {
  double norm = 0;
  std::uint64_t fragments = 0;  ///< of a norm above zero
  std::uint64_t elements = 0;   ///< of these
};

std::vector<std::uint64_t> shares(std::vector<part> const& parts, std::uint64_t k) {
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](auto a, auto b) { return parts[a].norm != parts[b].norm ? parts[a].norm > parts[b].norm : a < b; });
  double norms = 0;
  std::uint64_t fragments = 0;
  for (auto const& each : parts) norms += each.norm, fragments += each.fragments;
  std::vector<std::uint64_t> given(parts.size());
  for (auto const i : order) {
    auto const& each = parts[i];
    if (each.fragments == 0 || k == 0) continue;
    double const fraction = !(norms > 0) ? 0.0 : each.norm < norms ? each.norm / norms : 1.0;
    auto wanted = std::max(std::round(fraction * static_cast<double>(k)), 1.0);
    if (k >= fragments) {
      auto const others = static_cast<double>(fragments - each.fragments);
      wanted = std::clamp(wanted, static_cast<double>(each.fragments), static_cast<double>(k) - others);
    }
    given[i] =
        static_cast<std::uint64_t>(std::min({wanted, static_cast<double>(each.elements), static_cast<double>(k)}));
    k -= given[i];
    norms -= each.norm;
    fragments -= each.fragments;
  }
  for (auto const i : order) {
    auto const more = std::min(k, parts[i].elements - given[i]);
    given[i] += more;
    k -= more;
  }
  return given;
}

part part_of(gs::segment const& each, double squared_norm) {
  return squared_norm > 0 ? part{std::sqrt(squared_norm), 1, each.size} : part{};
}

/// What deft is to give each of these fragments.
std::vector<std::uint64_t> expected_shares(gs::segment_list const& list, std::vector<double> const& squared_norms,
                                           std::vector<gs::range> const& layers, gs::deft_sharing how,
                                           std::uint64_t k) {
  std::vector<part> fragments;
  for (std::size_t i = 0; i < list.size(); ++i) fragments.push_back(part_of(list[i], squared_norms[i]));
  if (how == gs::deft_sharing::by_fragment) return shares(fragments, k);
  std::vector<part> whole(layers.size());
  std::vector<std::vector<part>> inside(layers.size());
  for (std::size_t i = 0, at = 0; i < list.size(); ++i) {
    while (list[i].offset >= layers[at].offset + layers[at].size) ++at;
    inside[at].push_back(fragments[i]);
    if (squared_norms[i] > 0) whole[at].norm += squared_norms[i];
    whole[at].fragments += fragments[i].fragments;
    whole[at].elements += fragments[i].elements;
  }
  for (auto& each : whole) each.norm = std::sqrt(each.norm);
  auto const of_layers = shares(whole, k);
  std::vector<std::uint64_t> all;
  for (std::size_t at = 0; at < layers.size(); ++at)
    for (auto const one : shares(inside[at], of_layers[at])) all.push_back(one);
  return all;
}

std::array const both_sharings{gs::deft_sharing::by_layer, gs::deft_sharing::by_fragment};

/// Tensor sizes of a ResNet-18 with 1000 classes.
std::vector<std::uint64_t> resnet18() {
  std::vector<std::uint64_t> sizes{9408, 64, 64};
  std::uint64_t in = 64;
  for (std::uint64_t const out : {64u, 128u, 256u, 512u})
    for (int block = 0; block < 2; ++block) {
      sizes.insert(sizes.end(), {9 * in * out, out, out, 9 * out * out, out, out});
      if (in != out) sizes.insert(sizes.end(), {in * out, out, out});
      in = out;
    }
  sizes.insert(sizes.end(), {512'000, 1000});
  return sizes;
}

/// Squared norms as if layers had lognormal scales.
std::vector<double> layer_norms(gs::segment_list const& list, std::uint64_t seed) {
  data::generator random{seed};
  std::vector<double> norms;
  for (auto const& each : list) norms.push_back(static_cast<double>(each.size) * std::exp(random.gauss()));
  return norms;
}

/// Largest load of a rank over the mean load.
double imbalance(gs::segment_list const& list, gs::selection_cost const& cost, int world) {
  std::vector<double> loads(static_cast<std::size_t>(world));
  for (auto const& each : list)
    if (each.owner != gs::segment::every_rank) loads[static_cast<std::size_t>(each.owner)] += cost(each.size, each.k);
  return *std::max_element(loads.begin(), loads.end()) * world / std::accumulate(loads.begin(), loads.end(), 0.0);
}

static_assert(gs::partitioner<gs::whole> && gs::partitioner<gs::layerwise> && gs::partitioner<gs::deft> &&
              gs::partitioner<gs::cyclic>);
static_assert(!gs::partitioner<lacking::no_assign> && !gs::partitioner<lacking::no_exchange> && !gs::partitioner<int>);
static_assert(gs::deft::traits.disjoint && gs::deft::traits.needs_norms && !gs::whole::traits.disjoint);
static_assert(gs::cyclic::traits.disjoint && gs::cyclic::traits.rotates && !gs::cyclic::traits.needs_norms &&
              std::same_as<gs::cyclic::default_exchange, gs::leader>);

}  // namespace

// ---- whole and layerwise ---------------------------------------------------------------------------------

TEST_CASE("whole: one segment from the first layer to the last") {
  CHECK(split(gs::whole{}, {}, 4).empty());
  std::vector<gs::range> const layers{{5, 10}, {20, 30}};  // 5 elements between them pass through
  auto list = split(gs::whole{}, layers, 4);
  CHECK(list == gs::segment_list{{5, 45}});
  auto scratch = scratch_for(1, 4);
  auto const k_at = [&](double density) {
    gs::whole{}.assign(list, {}, {density, 40, 0, 4}, scratch);
    CHECK(list[0].owner == gs::segment::every_rank);
    return list[0].k;
  };
  CHECK(k_at(0) == 0);
  CHECK(k_at(0.1) == 4);
  CHECK(k_at(0.11) == 5);
  CHECK(k_at(1) == 45);  // everything: the zeros between the layers do no harm
}

TEST_CASE("layerwise: a segment and a budget for each layer") {
  auto const layers = back_to_back({100, 1, 250, 3});
  auto list = split(gs::layerwise{}, layers, 4);
  CHECK(covers(list, layers));
  CHECK(list.size() == 4);
  auto scratch = scratch_for(4, 4);
  gs::layerwise{}.assign(list, {}, {0.01, 354, 0, 4}, scratch);
  CHECK(list == gs::segment_list{{0, 100, 1}, {100, 1, 1}, {101, 250, 3}, {351, 3, 1}});
  gs::layerwise{}.assign(list, {}, {0, 354, 0, 4}, scratch);
  CHECK(sum_of_k(list) == 0);
  gs::layerwise{}.assign(list, {}, {1, 354, 0, 4}, scratch);
  CHECK(sum_of_k(list) == 354);
}

// ---- cyclic ----------------------------------------------------------------------------------------------

TEST_CASE("cyclic: as whole, but one rank selects, and another one in each step") {
  CHECK(split(gs::cyclic{}, {}, 4).empty());
  std::vector<gs::range> const layers{{5, 10}, {20, 30}};
  auto list = split(gs::cyclic{}, layers, 4);
  CHECK(list == split(gs::whole{}, layers, 4));
  auto scratch = scratch_for(1, 4);
  auto const at = [&](double density, std::uint64_t step, int world) {
    gs::cyclic{}.assign(list, {}, {density, 40, step, world}, scratch);
    return std::pair{list[0].k, list[0].owner};
  };
  CHECK(at(0.1, 0, 4) == std::pair{gs::index_type{4}, 0});
  CHECK(at(0.1, 1, 4) == std::pair{gs::index_type{4}, 1});
  CHECK(at(0.1, 7, 4) == std::pair{gs::index_type{4}, 3});
  CHECK(at(0.1, 7, 3) == std::pair{gs::index_type{4}, 1});
  CHECK(at(0.1, 7, 1) == std::pair{gs::index_type{4}, 0});
  CHECK(at(0.1, ~std::uint64_t{0}, 64).second == 63);
  for (std::uint64_t step = 0; step < 9; ++step)  // what `rotates` says
    CHECK(at(0.1, step, 4).second == static_cast<int>((static_cast<std::uint64_t>(at(0.1, 0, 4).second) + step) % 4));
  CHECK(at(0, 2, 4).first == 0);
  CHECK(at(1, 2, 4).first == 45);  // everything, and then all ranks send it
}

// ---- micro -----------------------------------------------------------------------------------------------

TEST_CASE("micro: equal parts across layers, k shared out alike, rank (part + step) % world selects") {
  CHECK(split(gs::micro{}, {}, 4).empty());
  CHECK(split(gs::micro{}, {{3, 0}}, 4).empty());
  std::vector<gs::range> const layers{{5, 10}, {15, 0}, {20, 30}, {60, 1}};  // between them layers that pass through
  auto list = split(gs::micro{}, layers, 4);                                 // 10, 10, 10 and 11 of 41
  REQUIRE(list.size() == 4);
  CHECK(list[0] == gs::segment{.offset = 5, .size = 10});
  CHECK(list[1] == gs::segment{.offset = 20, .size = 10});
  CHECK(list[2] == gs::segment{.offset = 30, .size = 10});
  CHECK(list[3] == gs::segment{.offset = 40, .size = 21});
  auto scratch = scratch_for(4, 4);
  auto const ks = [&](double density) {
    gs::micro{}.assign(list, {}, {density, 41, 0, 4}, scratch);
    return std::vector{list[0].k, list[1].k, list[2].k, list[3].k};
  };
  CHECK(ks(0) == std::vector<gs::index_type>{0, 0, 0, 0});
  CHECK(ks(0.02) == std::vector<gs::index_type>{1, 1, 1, 1});  // one at least
  CHECK(ks(0.2) == std::vector<gs::index_type>{2, 2, 2, 3});   // 9
  CHECK(ks(1) == std::vector<gs::index_type>{10, 10, 10, 21});
  for (std::uint64_t step = 0; step < 9; ++step) {
    gs::micro{}.assign(list, {}, {0.2, 41, step, 4}, scratch);
    for (std::uint64_t p = 0; p < 4; ++p) CHECK(list[p].owner == static_cast<int>((p + step) % 4));
  }
  auto const alone = split(gs::micro{}, layers, 1);
  REQUIRE(alone.size() == 1);
  CHECK(alone == split(gs::whole{}, layers, 1));
  auto few = split(gs::micro{}, layers, 100);  // more ranks than elements
  REQUIRE(few.size() == 100);
  std::uint64_t ones = 0;
  for (auto const& each : few) {
    CHECK(each.size <= 1);
    ones += each.size;
  }
  CHECK(ones == 41);
  auto wide = scratch_for(100, 100);
  gs::micro{}.assign(few, {}, {0.1, 41, 3, 100}, wide);
  for (auto const& each : few) CHECK(each.k == each.size);
}

TEST_CASE("micro: a part that is sent in full across a layer that passes through") {
  std::vector<gs::range> const ranges{{0, 6}, {1006, 15}};  // of 6, 1000 (a bias) and 15 elements
  gs::detail::segmentation<gs::micro> parts;
  for (int world = 1; world <= 16; ++world) {
    parts.plan(gs::micro{}, ranges, 21, 0.571, world);
    for (std::uint64_t step = 0; step < 8; ++step) {
      parts.assign(gs::micro{}, 0.571, step, world);
      CHECK(parts.budget() >= gs::budget_of(0.571, 21));
      CHECK(parts.budget() <= parts.most());
    }
  }
}

TEST_CASE("micro's parts hold every element of the layers once, in equal numbers") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<gs::range> layers;
    std::uint64_t at = seed % 3;
    for (std::uint64_t l = 0; l < 1 + seed % 9; ++l) {
      std::uint64_t const size = gs::mix(seed ^ gs::mix(l)) % 50;
      layers.push_back({at, size});
      at += size + gs::mix(l ^ seed) % 2 * 7;
    }
    std::vector<int> part(at + 1, -1);
    std::uint64_t total = 0;
    for (auto const& each : layers) total += each.size;
    for (int const world : {1, 2, 3, 7, 64}) {
      auto list = split(gs::micro{}, layers, world);
      std::uint64_t end = 0;
      std::uint64_t covered = 0;
      for (auto const& each : list) {
        CHECK(each.offset >= end);
        end = each.offset + each.size;
        std::uint64_t here = 0;
        for (auto const& layer : layers) {
          auto const first = std::max(layer.offset, each.offset);
          auto const last = std::min(layer.offset + layer.size, end);
          here += last > first ? last - first : 0;
        }
        CHECK(here >= total / list.size());
        CHECK(here <= total / list.size() + 1);
        covered += here;
      }
      CHECK(covered == total);
      if (list.empty()) continue;
      for (double const density : {0.0, 0.1, 0.7, 0.99, 1.0}) {
        auto scratch = scratch_for(list.size(), world);
        gs::micro{}.assign(list, {}, {density, total, seed, world}, scratch);
        for (auto const& each : list) CHECK(each.k <= each.size);
        auto const k = gs::budget_of(density, total);
        CHECK(sum_of_k(list) >= k);
        if (layers.size() == 1) CHECK(sum_of_k(list) <= k + list.size());
      }
    }
  }
}

// ---- deft: fragments -------------------------------------------------------------------------------------

TEST_CASE("deft cuts layers larger than n / world into world fragments") {
  std::vector<gs::range> const layers{{0, 800}, {800, 100}, {1000, 60}, {1060, 40}};
  auto const list = split(gs::deft{}, layers, 4);
  CHECK(covers(list, layers));
  CHECK(list.size() == 4 + 3);
  for (std::size_t i = 0; i < 4; ++i) CHECK(list[i].size == 200);
  CHECK(split(gs::deft{}, back_to_back({250, 250, 250, 250}), 4).size() == 4);  // just n / world: whole
  CHECK(split(gs::deft{}, back_to_back({251, 250, 250, 249}), 4).size() == 7);
  CHECK(split(gs::deft{}, layers, 1).size() == 4);
  CHECK(split(gs::deft{}, {}, 8).empty());
}

TEST_CASE("deft cuts no empty fragments, and covers every layer") {
  data::generator random{4};
  for (int round = 0; round < 500; ++round) {
    std::vector<std::uint64_t> sizes(1 + random.below(12));
    for (auto& size : sizes) size = random.below(2) == 0 ? random.below(6) : random.below(3000);
    auto const layers = back_to_back(sizes);
    for (int const world : {1, 2, 3, 7, 16, 64, 1000}) {
      CAPTURE(round);
      CAPTURE(world);
      auto const list = split(gs::deft{}, layers, world);
      REQUIRE(covers(list, layers));
      auto const n = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
      for (auto const& each : list) REQUIRE(each.size <= n / static_cast<std::uint64_t>(world) + 1);
    }
  }
}

TEST_CASE("deft: layers smaller than the world, and larger than n / world") {
  auto const list = split(gs::deft{}, back_to_back({3, 2}), 8);  // 5 / 8 < 3 < 8
  CHECK(list.size() == 5);
  for (auto const& each : list) CHECK(each.size == 1);
}

// ---- deft: k ---------------------------------------------------------------------------------------------

TEST_CASE("deft shares k out by norms") {
  auto list = split(gs::deft{}, back_to_back({10'000, 10'000, 10'000, 10'000}), 1);
  assign(gs::deft{}, list, {1, 4, 9, 16}, 1000, 1);
  CHECK(list[0].k == 100);
  CHECK(list[1].k == 200);
  CHECK(list[2].k == 300);
  CHECK(list[3].k == 400);
}

TEST_CASE("deft: what a small fragment cannot hold goes to the others") {
  auto list = split(gs::deft{}, back_to_back({10, 1000, 1000}), 1);
  assign(gs::deft{}, list, {1e12, 1, 1}, 110, 1);
  CHECK(list[0].k == 10);
  CHECK(list[1].k + list[2].k == 100);
  CHECK(std::abs(static_cast<int>(list[1].k) - static_cast<int>(list[2].k)) <= 1);
  assign(gs::deft{}, list, {1, 1e-12, 1e12}, 1500,
         1);  // the largest cannot hold it, and the last are asked again
  CHECK(list[2].k == 1000);
  CHECK(sum_of_k(list) == 1500);
}

TEST_CASE("deft: fewer entries than fragments go to the largest norms") {
  auto list = split(gs::deft{}, back_to_back(std::vector<std::uint64_t>(100, 50)), 4);
  std::vector<double> norms(100);
  for (std::size_t i = 0; i < 100; ++i) norms[i] = 1.0 + static_cast<double>(i) / 1e6;
  assign(gs::deft{}, list, norms, 7, 4);
  check_decision(list, norms, 7, 4);
  for (std::size_t i = 0; i < 93; ++i) CHECK(list[i].k == 0);
  for (std::size_t i = 93; i < 100; ++i) CHECK(list[i].k == 1);
}

TEST_CASE("deft: zero norms, norms that are not numbers, and nothing at all") {
  auto list = split(gs::deft{}, back_to_back({50, 50, 50, 50}), 4);
  for (std::vector<double> const& norms : {std::vector<double>{0, 0, 0, 0},
                                           {not_a_number, not_a_number, not_a_number, not_a_number},
                                           {not_a_number, 1, 0, 2},
                                           {0, 0, 1e-300, 0},
                                           {-1, 1, 1, 1},
                                           {5e-324, 1e300, 1, 0}})
    for (std::uint64_t const k : {0u, 1u, 3u, 100u, 200u}) {
      CAPTURE(k);
      assign(gs::deft{}, list, norms, k, 4);
      check_decision(list, norms, k, 4);
    }
  std::vector<double> const infinite{infinity, 1, infinity, 2};
  assign(gs::deft{}, list, infinite, 100, 4);
  CHECK(sum_of_k(list) == 100);

  gs::segment_list none;
  assign(gs::deft{}, none, {}, 0, 4);
  CHECK(none.empty());
}

TEST_CASE("deft: k in all, for random layers, norms and worlds") {
  data::generator random{11};
  for (int round = 0; round < 3000; ++round) {
    CAPTURE(round);
    gs::deft const chosen{.sharing = both_sharings[random.below(2)], .rotate_every = 1 + random.below(200)};
    std::vector<std::uint64_t> sizes(1 + random.below(30));
    for (auto& size : sizes) size = random.below(3) == 0 ? random.below(4) : 1 + random.below(5000);
    sizes[0] = std::max<std::uint64_t>(sizes[0], 1);
    int const world = static_cast<int>(1 + random.below(random.below(2) == 0 ? 4 : 70));
    auto const layers = back_to_back(sizes);
    auto list = split(chosen, layers, world);
    std::vector<double> norms(list.size());
    for (auto& norm : norms) {
      auto const kind = random.below(8);
      norm = kind == 0 ? 0 : kind == 1 ? std::exp(200 * random.gauss()) : kind == 2 ? not_a_number : random.uniform();
    }
    std::uint64_t const n = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
    for (auto const k : {random.below(n + 1), random.below(list.size() + 2), n}) {
      if (k > n) continue;
      CAPTURE(k);
      assign(chosen, list, norms, k, world, random.below(100));
      check_decision(list, norms, k, world);
      auto const expected = expected_shares(list, norms, layers, chosen.sharing, k);
      for (std::size_t i = 0; i < list.size(); ++i) REQUIRE(list[i].k == expected[i]);
    }
  }
}

TEST_CASE("deft: a layer's share does not depend on how many ranks it is cut for") {
  std::vector<std::uint64_t> const sizes{100'000, 8'000, 640, 128, 64, 10};
  std::vector<double> const layer_squares{400, 160, 36, 4, 1, 0.25};
  auto const layers = back_to_back(sizes);
  auto const of_layers = [&](gs::deft_sharing how, int world) {
    auto list = split(gs::deft{}, layers, world);
    std::vector<double> squares;
    for (auto const& each : list)
      squares.push_back(layer_squares[each.layer] * static_cast<double>(each.size) /
                        static_cast<double>(sizes[each.layer]));
    assign(gs::deft{.sharing = how}, list, squares, 1000, world);
    std::vector<std::uint64_t> sums(sizes.size());
    for (auto const& each : list) sums[each.layer] += each.k;
    return sums;
  };
  auto const alone = of_layers(gs::deft_sharing::by_layer, 1);
  CHECK(alone == std::vector<std::uint64_t>{477, 300, 142, 47, 24, 10});  // the last cannot hold its 12
  CHECK(of_layers(gs::deft_sharing::by_fragment, 1) == alone);
  for (int const world : {2, 4, 8, 16, 32}) {
    CAPTURE(world);
    CHECK(of_layers(gs::deft_sharing::by_layer, world) == alone);
  }
  // As published, what is not cut gets less and less: the norms of a threshold layer's fragments add up to more.
  CHECK(of_layers(gs::deft_sharing::by_fragment, 8)[2] < 80);
  CHECK(of_layers(gs::deft_sharing::by_fragment, 16)[2] < 60);
}

TEST_CASE("deft tells layers from one another, also empty ones and those that do not touch") {
  std::vector<gs::range> const layers{{0, 100}, {100, 0}, {100, 20}, {200, 300}};
  std::vector<std::uint32_t> found;
  for (auto const& each : split(gs::deft{}, layers, 2)) found.push_back(each.layer);
  CHECK(found == std::vector<std::uint32_t>{0, 2, 3, 3});
}

TEST_CASE("deft refuses what it cannot do") {
  CHECK_NOTHROW(gs::check(gs::deft{}));
  CHECK_NOTHROW(gs::check(gs::deft{.cost = {1, 2, 3}, .sharing = gs::deft_sharing::by_fragment, .rotate_every = 1}));
  CHECK_NOTHROW(gs::check(gs::deft{.rotate_every = ~std::uint64_t{0}}));
  CHECK_THROWS_WITH_AS(gs::check(gs::deft{.rotate_every = 0}),
                       "gradsieve: deft's rotate_every is 0, expected at least 1", gs::invalid_argument);
  CHECK_THROWS_WITH_AS(gs::check(gs::deft{.sharing = static_cast<gs::deft_sharing>(7)}),
                       "gradsieve: deft's sharing is 7, expected 0 to 1", gs::invalid_argument);
  for (gs::selection_cost const bad : {gs::selection_cost{.fixed = not_a_number}, gs::selection_cost{.per_element = -1},
                                       gs::selection_cost{.per_selected = infinity}})
    CHECK_THROWS_WITH_AS(gs::check(gs::deft{.cost = bad}), doctest::Contains("selection_cost's "),
                         gs::invalid_argument);
}

TEST_CASE("deft: one rank selects everywhere") {
  auto list = split(gs::deft{}, back_to_back({500, 20, 1}), 1);
  assign(gs::deft{}, list, {1, 1, 1}, 30, 1, 12345);
  check_decision(list, {1, 1, 1}, 30, 1);
  CHECK(list[0].owner == 0);
  CHECK(list[1].owner == 0);
  CHECK(list[2].owner == gs::segment::every_rank);  // sent in full
}

// ---- deft: owners ----------------------------------------------------------------------------------------

TEST_CASE("deft: fewer fragments than ranks leaves ranks idle") {
  auto list = split(gs::deft{}, back_to_back({40, 40}), 1);
  assign(gs::deft{}, list, {1, 1}, 8, 16);
  check_decision(list, {1, 1}, 8, 16);
  CHECK(list[0].owner != list[1].owner);
}

TEST_CASE("deft balances the ranks' work") {
  for (int const world : {2, 4, 8, 16})
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      auto list = split(gs::deft{}, back_to_back(resnet18()), world);
      auto const norms = layer_norms(list, seed);
      for (std::uint64_t const k : {11'000u, 110'000u}) {
        CAPTURE(world);
        CAPTURE(seed);
        CAPTURE(k);
        assign(gs::deft{}, list, norms, k, world);
        CHECK(imbalance(list, {}, world) <= 1.3);
      }
    }
}

TEST_CASE("deft balances the cost that was measured") {
  int const world = 8;
  auto list = split(gs::deft{}, back_to_back(resnet18()), world);
  auto const norms = layer_norms(list, 3);
  gs::selection_cost const by_size{.per_element = 0.5};
  assign(gs::deft{by_size}, list, norms, 11'000, world);
  CHECK(imbalance(list, by_size, world) <= 1.3);

  gs::selection_cost const by_count{.fixed = 100};  // every fragment costs the same: equal numbers of them
  assign(gs::deft{by_count}, list, norms, 11'000, world);
  std::vector<int> fragments(world);
  for (auto const& each : list)
    if (each.owner != gs::segment::every_rank) ++fragments[static_cast<std::size_t>(each.owner)];
  auto const [fewest, most] = std::minmax_element(fragments.begin(), fragments.end());
  CHECK(*most - *fewest <= 1);

  CHECK(gs::selection_cost{}(1024, 8) == 3 * 1024);  // n log2 k
  CHECK(gs::selection_cost{}(1024, 1) == 1024);
  CHECK(gs::selection_cost{1, 2, 3}(10, 5) == 36);
}

TEST_CASE("deft's bins rotate: in `world` turns every rank works on every fragment") {
  int const world = 5;
  for (std::uint64_t const every : {1u, 3u}) {
    gs::deft const chosen{.rotate_every = every};
    auto list = split(chosen, back_to_back(resnet18()), world);
    auto const norms = layer_norms(list, 1);
    std::vector<std::vector<bool>> seen(list.size(), std::vector<bool>(world));
    std::vector<int> before(list.size(), -1);
    for (std::uint64_t turn = 7; turn < 7 + world; ++turn) {
      assign(chosen, list, norms, 11'000, world, turn * every);
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i].owner == gs::segment::every_rank) continue;
        if (turn > 7) CHECK(list[i].owner == (before[i] + world - 1) % world);
        before[i] = list[i].owner;
        seen[i][static_cast<std::size_t>(list[i].owner)] = true;
      }
    }
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].owner != gs::segment::every_rank) CHECK(std::count(seen[i].begin(), seen[i].end(), true) == world);
    assign(chosen, list, norms, 11'000, world, ~std::uint64_t{0});
    check_decision(list, norms, 11'000, world);
  }
}

TEST_CASE("deft: a rank keeps its fragments for rotate_every steps, whatever the norms") {
  int const world = 6;
  for (std::uint64_t const every : {1u, 7u, 100u}) {
    CAPTURE(every);
    gs::deft const chosen{.rotate_every = every};
    CHECK((every == 100) == (chosen == gs::deft{}));
    auto list = split(chosen, back_to_back(resnet18()), world);
    std::vector<int> bin(list.size(), gs::segment::every_rank);
    for (std::uint64_t step = 0; step < 3 * every; ++step) {
      assign(chosen, list, layer_norms(list, step), 11'000, world, step);
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i].owner == gs::segment::every_rank) continue;
        int const found = (list[i].owner + static_cast<int>(step / every)) % world;
        if (bin[i] == gs::segment::every_rank) bin[i] = found;
        REQUIRE(bin[i] == found);
      }
    }
  }
}

TEST_CASE("deft decides alike from alike inputs, whatever was there before") {
  int const world = 6;
  auto first = split(gs::deft{}, back_to_back(resnet18()), world);
  auto second = first;
  auto const norms = layer_norms(first, 2);
  auto scratch = scratch_for(first.size(), world);
  double const density = 0.002;
  gs::step_budget const budget{density, 11'000'000, 4, world};
  gs::deft{}.assign(first, norms, budget, scratch);
  for (auto& each : second) {
    each.k = 99;
    each.owner = 1;
  }
  for (auto& each : scratch.weight) each = not_a_number;
  for (auto& each : scratch.loads) each = {1e9, 77};
  for (auto& each : scratch.order) each = 0;
  gs::deft{}.assign(second, norms, budget, scratch);
  CHECK(first == second);

  std::vector<double> const equal(first.size(), 1.0);  // ties everywhere
  gs::deft{}.assign(first, equal, budget, scratch);
  gs::deft{}.assign(second, equal, budget, scratch);
  CHECK(first == second);
}

TEST_CASE("assign allocates nothing") {
  int const world = 16;
  auto const sizes = resnet18();
  auto const layers = back_to_back(sizes);
  auto const check = [&](auto const& chosen) {
    auto list = split(chosen, layers, world);
    auto const norms = layer_norms(list, 2);
    auto scratch = scratch_for(list.size(), world);
    auto const before = allocations.load();
    for (std::uint64_t step = 0; step < 20; ++step)
      chosen.assign(list, norms, {0.001, 11'000'000, step, world}, scratch);
    auto const after = allocations.load();
    CHECK(after == before);
  };
  CHECK(allocations_are_counted());
  check(gs::whole{});
  check(gs::layerwise{});
  check(gs::deft{});
  check(gs::cyclic{});
  check(gs::micro{});
}
