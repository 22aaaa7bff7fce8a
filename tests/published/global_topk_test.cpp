// The largest sums for all ranks: ok_topk and gtopk against their definitions in plain code, step by step.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/published.hpp>

#include "steps.hpp"

using namespace steps;

namespace {

constexpr gs::host here{.threads = 1};

// ---- The definitions ---------------------------------------------------------------------------------------

/// A value, and the ranks that have a part in it.
struct sum {
  float value = 0;
  std::set<std::size_t> ranks;
};
using sums = std::map<std::size_t, sum>;

/// The k largest, of equal ones the lower indices.
sums largest(sums const& all, std::size_t k) {
  std::vector<std::size_t> order;
  for (auto const& [index, it] : all) order.push_back(index);
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    float const x = std::fabs(all.at(a).value);
    float const y = std::fabs(all.at(b).value);
    return x != y ? x > y : a < b;
  });
  sums kept;
  for (std::size_t i = 0; i < std::min(k, order.size()); ++i) kept[order[i]] = all.at(order[i]);
  return kept;
}

sums added(sums to, sums const& from) {
  for (auto const& [index, it] : from) {
    auto const [place, is_new] = to.try_emplace(index, it);
    if (is_new) continue;
    place->second.value += it.value;
    place->second.ranks.insert(it.ranks.begin(), it.ranks.end());
  }
  return to;
}

sums defined(gs::ok_topk, std::vector<sums> const& selected, std::size_t k) {
  sums all;
  for (auto const& each : selected) all = added(std::move(all), each);
  return largest(all, k);
}

sums defined(gs::gtopk, std::vector<sums> selected, std::size_t k) {
  for (auto& each : selected) each = largest(each, k);
  for (std::size_t far = 1; far < selected.size(); far *= 2)
    for (std::size_t r = 0; r + far < selected.size(); r += 2 * far)
      selected[r] = largest(added(selected[r], selected[r + far]), k);
  return selected[0];
}

/// All ranks at once.
template <class Exchange>
struct model {
  std::vector<std::vector<float>> residual;
  std::vector<float> update;

  void step(std::vector<std::vector<float>> const& gradients, std::size_t k) {
    auto const n = gradients[0].size();
    std::vector<sums> selected(gradients.size());
    for (std::size_t r = 0; r < gradients.size(); ++r) {
      sums all;
      for (std::size_t i = 0; i < n; ++i) {
        residual[r][i] += gradients[r][i];
        if (residual[r][i] != 0) all[i] = {residual[r][i], {r}};
      }
      selected[r] = largest(all, k);
    }
    update.assign(n, 0);
    for (auto const& [index, it] : defined(Exchange{}, selected, k)) {
      update[index] = it.value / static_cast<float>(gradients.size());
      for (auto const r : it.ranks) residual[r][index] = 0;
    }
  }
};

using maker = std::function<std::vector<float>(int rank, std::uint64_t step)>;

/// Steps of the exchange and of its definition: the same bits, also where a rank is restored between two of them.
template <class Exchange, class Codec = gs::coo>
std::string against_definition(int world, std::uint64_t n, double density, maker const& make, Codec codec = {}) {
  constexpr std::uint64_t count = 7;
  std::vector<model<Exchange>> after(count);
  model<Exchange> now{std::vector<std::vector<float>>(at(world), std::vector<float>(n)), {}};
  for (std::uint64_t step = 0; step < count; ++step) {
    std::vector<std::vector<float>> gradients;
    for (int r = 0; r < world; ++r) gradients.push_back(make(r, step));
    now.step(gradients, gs::budget_of(density, n));
    after[step] = now;
  }
  return joined(on_ranks(world, [&](communicator comm) {
    findings found;
    gs::recipe<gs::radix, gs::whole, gs::error_feedback, Codec, Exchange> recipe{.density = density};
    recipe.codec = codec;
    gs::compressor compressor{here, gs::layout::flat(n), recipe};
    for (std::uint64_t step = 0; step < count; ++step) {
      if (step == 4 && comm.rank() == world - 1) {
        auto const state = compressor.state();
        compressor = gs::compressor{here, gs::layout::flat(n), recipe};
        compressor.restore(state);
      }
      auto update = make(comm.rank(), step);
      traffic moved{};
      auto const report = compressor.exchange(counting{{comm}, &moved}, std::span{update});
      auto const text = "step " + std::to_string(step);
      bool same = true;
      for (std::size_t i = 0; i < n; ++i) same = same && update[i] == after[step].update[i];
      found.expect(same, "the update, " + text);
      auto const held = residual_of(compressor);
      same = true;
      for (std::size_t i = 0; i < n; ++i) same = same && held[i] == after[step].residual[at(comm.rank())][i];
      found.expect(same, "the residual, " + text);
      found.expect(report.bytes_sent == moved.sent && report.bytes_received == moved.received,
                   "bytes, " + text + ": " + std::to_string(report.bytes_sent) + ", " + std::to_string(moved.sent) +
                       "; " + std::to_string(report.bytes_received) + ", " + std::to_string(moved.received));
    }
    return found.text();
  }));
}

template <class Exchange>
void check_definition() {
  auto const noise = [](std::uint64_t n) {
    return maker{[n](int rank, std::uint64_t step) { return gradient(n, rank, step); }};
  };
  for (int const world : sanitized ? std::vector{1, 2, 3, 5} : std::vector{1, 2, 3, 4, 5, 7, 8, 13}) {
    CAPTURE(world);
    for (double const density : {0.0, 0.002, 0.05, 0.4})
      CHECK(against_definition<Exchange>(world, 700, density, noise(700)) == "");
    CHECK(against_definition<Exchange>(world, 6000, 0.03, noise(6000), gs::packed{}) == "");
    for (std::uint64_t const n : {0u, 1u, 2u, 3u}) {
      if (n != 1)  // one of one is sent in full: all-reduced
        CHECK(against_definition<Exchange>(world, n, 0.3, noise(n)) == "");
      CHECK(against_definition<Exchange>(world, n, 0.0, noise(n)) == "");
    }
    auto const same = [](int, std::uint64_t) { return std::vector<float>(500, 0.5f); };
    auto const zero = [](int, std::uint64_t) { return std::vector<float>(500); };
    auto const cancels = [](int rank, std::uint64_t step) {  // sums of zero, and values that one rank alone has
      auto values = gradient(500, rank / 2, step);
      if (rank % 2 == 1)
        for (float& x : values) x = -x;
      values[at(rank)] += 3;
      return values;
    };
    auto const outlier = [](int rank, std::uint64_t) {
      std::vector<float> values(500, 1e-3f);
      values[at(7 * rank)] = 1e30f;
      return values;
    };
    for (auto const& each : {maker{same}, maker{zero}, maker{cancels}, maker{outlier}})
      CHECK(against_definition<Exchange>(world, 500, 0.02, each) == "");
  }
}

/// Every rank's keys, and which of them are kept, in one sorted list.
std::string check_threshold(std::vector<std::vector<gs::key_type>> keys, std::uint64_t k, std::uint64_t& rounds) {
  std::vector<std::pair<gs::key_type, std::size_t>> all;
  for (std::size_t r = 0; r < keys.size(); ++r) {
    std::ranges::sort(keys[r], std::greater{});
    for (auto const key : keys[r]) all.emplace_back(key, r);
  }
  std::ranges::sort(
      all, [](auto const& a, auto const& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  std::vector<std::uint64_t> kept(keys.size());
  for (std::size_t i = 0; i < std::min<std::size_t>(k, all.size()); ++i) ++kept[all[i].second];
  std::vector<std::uint64_t> took(keys.size());
  auto const said = on_ranks(static_cast<int>(keys.size()), [&](communicator comm) {
    findings found;
    gs::detail::global_threshold threshold;
    threshold.reserve(comm.size());
    auto const& mine = keys[at(comm.rank())];
    for (int again = 0; again < 2; ++again) {
      threshold.find(comm, here, mine, k);
      std::uint64_t above = 0;
      for (auto const key : mine) above += key > threshold.key() ? 1u : 0u;
      for (std::size_t r = 0; r < keys.size(); ++r) found.expect(threshold.kept(r) == kept[r], "how many are kept");
      found.expect(above + threshold.ties(at(comm.rank())) == kept[at(comm.rank())], "which are kept");
    }
    took[at(comm.rank())] = threshold.bytes_sent() / 128;
    return found.text();
  });
  rounds = std::ranges::max(took);
  return joined(said);
}

/// Makes so many calls, and no more.
struct impatient : forwarding {
  int* calls_left;
  void all_gather(gs::host const& where, std::span<std::byte const> mine, std::span<std::byte> all) const {
    if ((*calls_left)-- == 0) throw std::runtime_error("a search without end");
    real.all_gather(where, mine, all);
  }
};

struct fails_to_encode : gs::coo {
  static constexpr char const* name = "fails_to_encode";
  static inline thread_local int fails_at = -1;  // the call of this number
  [[nodiscard]] std::uint64_t encode(gs::message_info const info, gs::selection_view const in,
                                     std::span<std::byte> to) const {
    if (fails_at-- == 0) throw std::runtime_error("this codec fails");
    return gs::coo::encode(info, in, to);
  }
};

/// One bit of what this rank receives, in its call of this number, is another.
struct damaging : forwarding {
  int which;
  std::size_t byte;
  int* calls;

  void spoil(std::span<std::byte> in) const {
    if ((*calls)++ == which && !in.empty()) in[byte % in.size()] ^= std::byte{0x40};
  }
  template <class... Sizes>
  void all_gather(gs::host const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  Sizes const&... sizes) const {
    real.all_gather(where, mine, all, sizes...);
    spoil(all);
  }
  void broadcast(gs::host const& where, std::span<std::byte> in_out, int root) const {
    real.broadcast(where, in_out, root);
    spoil(in_out);
  }
  void send_receive(gs::host const& where, std::span<std::byte const> out, int to, std::span<std::byte> in,
                    int from) const {
    real.send_receive(where, out, to, in, from);
    spoil(in);
  }
  void all_to_all(gs::host const& where, std::span<std::byte const> out, std::span<std::size_t const> out_sizes,
                  std::span<std::byte> in, std::span<std::size_t const> in_sizes) const {
    real.all_to_all(where, out, out_sizes, in, in_sizes);
    spoil(in);
  }
};

}  // namespace

TEST_CASE("ok_topk is the k largest sums, to the bit") { check_definition<gs::ok_topk>(); }

TEST_CASE("gtopk is the tree, to the bit") { check_definition<gs::gtopk>(); }

TEST_CASE("where the sums are no more than k both are gather, to the bit") {
  auto const check = [&]<class Exchange>(Exchange, int world) {
    return joined(on_ranks(world, [&](communicator comm) {
      findings found;
      using gs::coo, gs::deft, gs::error_feedback, gs::gather, gs::radix;
      gs::recipe<radix, deft, error_feedback, coo, gather> const gathers{.density = 0.04};
      gs::recipe<radix, deft, error_feedback, coo, Exchange> const recipe{.density = 0.04};
      gs::compressor plain{here, mixed_layers(), gathers};
      gs::compressor other{here, mixed_layers(), recipe};
      for (std::uint64_t step = 0; step < 5; ++step) {
        auto a = gradient(mixed_layers().size(), comm.rank(), step);
        auto b = a;
        plain.exchange(comm, std::span{a});
        other.exchange(comm, std::span{b});
        found.expect(same_bits(a, b) && same_bits(residual_of(plain), residual_of(other)), "not as gather");
      }
      return found.text();
    }));
  };
  for (int const world : {1, 2, 3, 5}) {
    CHECK(check(gs::ok_topk{}, world) == "");
    CHECK(check(gs::gtopk{}, world) == "");
  }
}

TEST_CASE("the threshold of all ranks is exact, in few rounds") {
  data::generator random{5};
  auto const below = [&](std::uint32_t limit) { return static_cast<gs::key_type>(random.below(limit)); };
  std::uint64_t rounds = 0;
  for (int const world : {1, 2, 3, 7})
    for (std::uint32_t const limit : {1u, 2u, 50u, 100'000u, 0x7F80'0000u})
      for (std::size_t const size : {0u, 1u, 28u, 29u, 30u, 1000u}) {
        std::vector<std::vector<gs::key_type>> keys(at(world));
        for (std::size_t r = 0; r < keys.size(); ++r) {
          keys[r].resize(r % 2 == 0 ? size : size / 3);
          for (auto& key : keys[r]) key = below(limit);
        }
        for (std::uint64_t const k : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{size / 2}, std::uint64_t{size},
                                      std::uint64_t{size + size / 4}, std::uint64_t{10'000}}) {
          CHECK(check_threshold(keys, k, rounds) == "");
          CHECK(rounds <= 8);
        }
      }
  std::vector<std::vector<gs::key_type>> many(8, std::vector<gs::key_type>(20'000));
  for (auto& each : many)
    for (auto& key : each) key = gs::magnitude_key(static_cast<float>(random.laplace()));
  CHECK(check_threshold(many, 20'000, rounds) == "");
  MESSAGE("8 ranks with 20000 keys each: " << rounds << " rounds");
  CHECK(rounds <= 6);
}

TEST_CASE("words that no search gives end it: on any data") {
  auto const said = on_ranks(3, [&](communicator comm) {
    std::vector<gs::key_type> const keys{gs::infinite_key, gs::infinite_key, 7};  // sums of what was damaged or forged
    gs::detail::global_threshold threshold;
    threshold.reserve(comm.size());
    int calls = 100;
    auto const how = ending([&] { threshold.find(impatient{{comm}, &calls}, here, keys, 5); });
    return contains(how, "corrupt_message: gradsieve: the ranks' keys belong to different searches") ? "" : how;
  });
  CHECK(joined(said) == "");
}

TEST_CASE("a rank whose codec fails, wherever, makes all throw, and nothing is given up") {
  auto const n = mixed_layers().size();
  auto const check = [&]<class Exchange>(Exchange, int which) {
    gs::recipe<gs::radix, gs::whole, gs::error_feedback, fails_to_encode, Exchange> const recipe{.density = 0.05};
    int failures = 0;
    auto const said = on_ranks(5, [&](communicator comm) {
      findings found;
      gs::compressor reducer{here, mixed_layers(), recipe};
      for (std::uint64_t step = 0; step < 3; ++step) {
        auto update = gradient(n, comm.rank(), step);
        auto const given = update;
        auto const before = residual_of(reducer);
        bool const mine = step == 1 && comm.rank() == 2;
        fails_to_encode::fails_at = mine ? which : -1;
        auto const how = ending([&] { reducer.exchange(comm, std::span{update}); });
        if (how.empty()) continue;  // there was no such call
        found.expect(step == 1, how);
        if (mine) ++failures;
        found.expect(contains(how, mine ? "this codec fails" : "failed in this step; nothing was sent"), how);
        found.expect(same_bits(update, given), "the gradient changed");
        auto const after = residual_of(reducer);
        bool kept = true;
        for (std::size_t i = 0; i < n; ++i) kept = kept && after[i] == before[i] + given[i];
        found.expect(kept, "something was given up");
      }
      return found.text();
    });
    CHECK(joined(said) == "");
    return failures;
  };
  for (int which = 0; which < 6; ++which) CHECK(check(gs::ok_topk{}, which) == 1);  // five pieces, and the sums
  CHECK(check(gs::ok_topk{}, 6) == 0);
  CHECK(check(gs::gtopk{}, 0) == 1);
  CHECK(check(gs::gtopk{}, 1) == 0);
}

TEST_CASE("damage is found or harmless, and never read out of bounds; no rank waits for ever") {
  gs::layout const layers{{"a", 300}, {"b", 333}};
  auto const check = [&]<class Exchange>(Exchange) {
    gs::recipe<gs::radix, gs::whole, gs::error_feedback, gs::coo, Exchange> const recipe{.density = 0.1};
    int found = 0;
    for (int which = 2; which < 24; ++which)
      for (std::size_t byte : {0u, 3u, 7u, 20u, 50u, 77u, 126u, 1000u}) {
        auto const said = on_ranks(5, [&](communicator comm) {
          int calls = comm.rank() == 0 || comm.rank() == 2 ? 0 : 1'000'000;
          gs::compressor reducer{here, layers, recipe};
          auto update = gradient(layers.size(), comm.rank(), 0);
          return ending([&] { reducer.exchange(damaging{{comm}, which, byte, &calls}, std::span{update}); });
        });
        for (auto const& each : said)
          if (!each.empty()) {
            ++found;
            CHECK_MESSAGE((contains(each, "corrupt_message: gradsieve: ") || contains(each, "mismatch: gradsieve: ") ||
                           contains(each, "communication_error: gradsieve: ")),
                          each);
          }
      }
    return found;
  };
  CHECK(check(gs::ok_topk{}) > 40);
  CHECK(check(gs::gtopk{}) > 40);
}
