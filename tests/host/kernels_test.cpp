// Every instruction set that this processor has gives the same bits as the portable code.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include <gradsieve/compressor.hpp>
#include <gradsieve/host/passes/bins.hpp>
#include <gradsieve/host/passes/kernels.hpp>
#include <gradsieve/host/passes/ranking.hpp>
#include <gradsieve/host/passes/updates.hpp>
#include <gradsieve/host/simd/append.hpp>
#include <gradsieve/host/simd/half.hpp>
#include <gradsieve/host/simd/kth.hpp>
#include <gradsieve/host/team.hpp>
#include <gradsieve/residual/error_feedback.hpp>
#include <gradsieve/residual/filtered.hpp>
#include <gradsieve/residual/momentum_correction.hpp>
#include <gradsieve/residual/none.hpp>
#include <gradsieve/selector/adacomp.hpp>
#include <gradsieve/selector/chunked.hpp>

#include "data.hpp"
#include "float_mode.hpp"
#include "sanitized.hpp"

namespace {

using namespace gradsieve;
using namespace gradsieve::detail;
using namespace gradsieve::host_kernels;

std::vector<simd> levels() {
  std::vector<simd> all{simd::portable};
  if (best_simd() == simd::avx512) all.push_back(simd::avx2);
  if (best_simd() != simd::portable) all.push_back(best_simd());
  return all;
}

struct outcome {
  std::vector<float> states;
  std::vector<index_type> indices;
  std::vector<float> values;
  std::uint64_t bad = 0;
  statistics sums;

  friend bool operator==(outcome const& a, outcome const& b) {
    auto const bits = [](std::vector<float> const& x, std::vector<float> const& y) {
      return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
    };
    return bits(a.states, b.states) && a.indices == b.indices && bits(a.values, b.values) && a.bad == b.bad &&
           std::memcmp(&a.sums.sum_abs, &b.sums.sum_abs, sizeof(double)) == 0 &&
           std::memcmp(&a.sums.sum_squares, &b.sums.sum_squares, sizeof(double)) == 0 &&
           a.sums.max_key == b.sums.max_key && a.sums.nonzero == b.sums.nonzero;
  }
};

template <class Residual, class T>
outcome accumulate(simd level, Residual policy, std::vector<T> const& gradient, float factor,
                   key_type candidate_threshold, std::size_t room, std::size_t strip, bool flushed_before = false) {
  std::size_t const n = gradient.size();
  outcome result;
  result.states.resize(n * Residual::states);
  data::generator random{7};
  for (auto& x : result.states) x = static_cast<float>(random.laplace());
  std::array<float*, Residual::states> states{};
  for (std::size_t s = 0; s < states.size(); ++s) states[s] = result.states.data() + s * n;
  constexpr std::uint64_t first = 1'000;
  std::vector<index_type> sent_indices;  // what a step before this one has sent
  std::vector<float> sent;
  for (std::size_t i = random.below(20); i < n; i += 1 + random.below(20)) {
    sent_indices.push_back(static_cast<index_type>(first + i));
    sent.push_back(result.states[i]);
    if (flushed_before) remove_sent_element(policy, states, i, sent.back());
  }
  pending_list pending{sent_indices.data(), sent.data(), flushed_before ? 0 : sent.size()};
  result.indices.resize(room + group);
  result.values.resize(room + group);
  candidate_list list{result.indices.data(), result.values.data(), 0, room};
  result.bad = run<accumulate_tile>(level, policy, states, gradient.data(), factor, n, first, strip,
                                    candidate_threshold, &list, &pending, &result.sums);
  CHECK(pending.count == 0);
  result.indices.resize(list.count);
  result.values.resize(list.count);
  return result;
}

template <class T>
std::vector<T> hostile_gradient(std::size_t n) {
  data::generator random{n};
  std::vector<T> gradient(n);
  for (auto& g : gradient) {
    auto const kind = random.below(200);
    float const x = kind == 0   ? std::numeric_limits<float>::infinity()
                    : kind == 1 ? std::numeric_limits<float>::quiet_NaN()
                    : kind == 2 ? 3e38f
                    : kind < 9  ? 0.0f
                                : static_cast<float>(random.student3());
    g = from_float<T>(x);
  }
  return gradient;
}

template <class Residual, class T>
void same_at_all_levels(Residual policy, std::size_t n, float factor, key_type candidate_threshold, std::size_t room) {
  auto const gradient = hostile_gradient<T>(n);
  auto const expected = accumulate(simd::portable, policy, gradient, factor, candidate_threshold, room, 4096);
  REQUIRE(accumulate(simd::portable, policy, gradient, factor, candidate_threshold, room, 256, true) == expected);
  for (auto const level : levels())
    for (std::size_t const strip : {64u, 1024u, 4096u})
      REQUIRE(accumulate(level, policy, gradient, factor, candidate_threshold, room, strip) == expected);
}

/// Two tiles' worth of what bins keep; `sums` has the maxima and how many they are. Elements that reach `likely` are
/// set aside in the first tile.
template <class Chosen, class T>
outcome accumulate_in_bins(simd level, Chosen chosen, std::vector<T> const& gradient, std::uint32_t length,
                           key_type likely) {
  std::size_t const n = gradient.size();
  outcome result;
  result.states.resize(n);
  data::generator random{8};
  for (auto& x : result.states)  // few different ones: ties
    x = static_cast<float>(static_cast<int>(random.below(7)) - 3) * 0.25f;
  result.indices.resize(2 * n + group);
  result.values.resize(2 * n + group);
  candidate_list list{result.indices.data(), result.values.data(), 0, 2 * n};
  std::vector<float> scores(n + group);
  std::vector<key_type> keys(n + group);
  std::vector<mark_word> marks(mark_words(n));
  std::vector<index_type> set_aside(n + group);
  std::vector<float> set_aside_values(n + group);
  bin_scratch scratch{scores.data(), keys.data(), marks.data(), {set_aside.data(), set_aside_values.data(), 0, n}};
  scratch.likely = likely;
  for (int again = 0; again < 2; ++again) {
    pending_list pending;
    binned_tile const tile{length, length / 3u, 0, n, static_cast<index_type>(n / 3), 1, again == 0 ? 512u : 4096u};
    constexpr std::uint64_t first = 1000;
    auto const enter_elements = [&](entering const& what) {
      auto const at = what.first - first;
      return enter(level, chosen, error_feedback{}, std::array<float*, 1>{result.states.data() + at},
                   gradient.data() + at, 0.5f, what);
    };
    auto const sums = run<keep_in_bins>(level, chosen, entry{enter_elements}, 0, std::as_const(result.states).data(), n,
                                        first, tile, &scratch, &list, &pending);
    result.bad += sums.bad;
    result.sums.sum_abs += sums.sum_of_maxima;
    result.sums.nonzero += sums.bins;
    CHECK(std::all_of(marks.begin(), marks.end(), [](mark_word each) { return each == 0; }));
  }
  result.indices.resize(list.count);
  result.values.resize(list.count);
  for (float const each : result.values) CHECK(each != 0.0f);
  return result;
}

template <class T, class Chosen>
void same_bins_at_all_levels(Chosen const& chosen, std::size_t n, std::uint32_t length) {
  auto const gradient = hostile_gradient<T>(n);
  auto const expected = accumulate_in_bins(simd::portable, chosen, gradient, length, 0);
  if (n > 60) CHECK(!expected.indices.empty());
  for (auto const level : levels())
    for (float const likely : {0.0f, 1e-9f, 0.25f, 0.7f, 3.0f, 1e30f})
      REQUIRE(accumulate_in_bins(level, chosen, gradient, length, magnitude_key(likely)) == expected);
}

}  // namespace

namespace {

struct own_store : gradsieve::error_feedback {};  // may have an accumulate_element of its own
static_assert(gradsieve::host_kernels::spreads_non_finite<gradsieve::error_feedback> &&
              gradsieve::host_kernels::spreads_non_finite<gradsieve::momentum_correction> &&
              gradsieve::host_kernels::spreads_non_finite<gradsieve::none> &&
              !gradsieve::host_kernels::spreads_non_finite<own_store> &&
              !gradsieve::host_kernels::spreads_non_finite<gradsieve::filtered>);

}  // namespace

TEST_CASE("bins keep the same with every instruction set, whatever was set aside") {
  for (std::size_t const n : {1u, 15u, 63u, 64u, 65u, 200u, 500u, 4000u, 4096u})
    for (std::uint32_t const length : {1u, 7u, 50u, 64u, 100u, 500u, 4096u}) {
      CAPTURE(n);
      CAPTURE(length);
      same_bins_at_all_levels<float>(adacomp{}, n, length);
      same_bins_at_all_levels<bfloat16>(adacomp{.bins = {}, .factor = 1.5f}, n, length);
      same_bins_at_all_levels<float>(chunked{}, n, length);
      same_bins_at_all_levels<float16>(chunked{}, n, length);
    }
}

TEST_CASE("accumulate, measure and append give the same bits with every instruction set") {
  MESSAGE("instruction sets compared: " << levels().size());
  for (std::size_t const n : {0u, 1u, 7u, 63u, 64u, 65u, 255u, 256u, 257u, 512u, 1000u, 4096u})
    for (float const threshold : {0.0f, 0.5f, 3.0f, 1e30f}) {
      key_type const candidate_threshold = magnitude_key(threshold);
      CAPTURE(n);
      CAPTURE(threshold);
      same_at_all_levels<error_feedback, float>({.decay = 1.0f}, n, 1.0f, candidate_threshold, n);
      same_at_all_levels<error_feedback, float>({.decay = 0.9f}, n, 0.37f, candidate_threshold, n);
      same_at_all_levels<error_feedback, float>({.decay = 0.9f}, n, 0.37f, candidate_threshold, n / 4);
      same_at_all_levels<error_feedback, float16>({.decay = 0.7f}, n, 1.0f, candidate_threshold, n);
      same_at_all_levels<error_feedback, bfloat16>({}, n, 1.0f, candidate_threshold, n);
      same_at_all_levels<momentum_correction, float>({.momentum = 0.9f}, n, 0.5f, candidate_threshold, n);
      same_at_all_levels<filtered, float>({.beta = 0.5f}, n, 0.5f, candidate_threshold, n);
    }
}

namespace {

/// Takes no more than 1 of a gradient, so that its states stay finite whatever comes.
struct bounded {
  static constexpr std::size_t states = 1;
  void accumulate_element(float gradient, element_state<1>& state) const noexcept {
    state[0] = add(state[0], gradient < 1.0f ? gradient : 1.0f);
  }
  void remove_sent(float sent, element_state<1>& state, bool) const noexcept { state[0] = subtract(state[0], sent); }
};

/// What a tile's pass does to the states is what it does to them one by one.
template <class Residual>
void same_one_by_one(Residual policy) {
  std::size_t const n = 5000;
  auto const gradient = hostile_gradient<float>(n);
  auto const start = data::make(data::law::laplace, n * Residual::states, 9);
  for (auto const level : levels()) {
    auto whole = start;
    auto single = start;
    std::array<float*, Residual::states> all{};
    for (std::size_t s = 0; s < all.size(); ++s) all[s] = whole.data() + s * n;
    candidate_list list;
    pending_list none_sent;
    auto const bad =
        run<accumulate_tile>(level, policy, all, gradient.data(), 1.0f, n, std::uint64_t{0}, std::size_t{4096},
                             key_type{0}, &list, &none_sent, static_cast<statistics*>(nullptr));
    std::uint64_t expected = 0;
    for (std::size_t i = 0; i < n; ++i) {
      element_state<Residual::states> now{};
      for (std::size_t s = 0; s < now.size(); ++s) now[s] = single[s * n + i];
      expected += gradsieve::accumulate_element(policy, gradient[i], now) ? 0 : 1;
      for (std::size_t s = 0; s < now.size(); ++s) single[s * n + i] = now[s];
    }
    REQUIRE(expected > 0);
    CHECK(bad == expected);
    CHECK(std::memcmp(whole.data(), single.data(), whole.size() * sizeof(float)) == 0);
  }
}

}  // namespace

TEST_CASE("elements that are not finite count as zero with every store, in blocks as one by one") {
  same_one_by_one(error_feedback{});
  same_one_by_one(momentum_correction{});
  same_one_by_one(filtered{.beta = 0.5f});
  same_one_by_one(bounded{});
}

TEST_CASE("keys are split at a range alike, and none beyond the room") {
  for (auto const which : {data::law::laplace, data::law::all_equal, data::law::two_values})
    for (std::size_t const n : {1u, 63u, 64u, 200u, 5000u}) {
      auto const values = data::make(which, n, 5);
      for (auto const& [low, high] : {std::pair{0.1f, 0.5f}, std::pair{0.0f, 9.0f}, std::pair{values[0], values[0]}})
        for (std::size_t const room : {std::size_t{64}, n + 64}) {
          auto const least = magnitude_key(low);
          auto const most = magnitude_key(high);
          std::vector<key_type> expected;
          std::uint64_t above = 0;
          for (float const x : values) {
            if (magnitude_key(x) >= least && magnitude_key(x) <= most) expected.push_back(magnitude_key(x));
            above += magnitude_key(x) > most ? 1 : 0;
          }
          for (auto const level : levels()) {
            std::vector<key_type> out(room + 1, 77u);
            auto const found = run<split_keys>(level, values.data(), n, least, most, out.data(), std::uint64_t{room});
            REQUIRE(out[room] == 77u);
            REQUIRE(found.inside <= room);
            REQUIRE(std::equal(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(found.inside), expected.begin()));
            if (room > n) REQUIRE(found.complete);
            if (found.complete) REQUIRE(found.inside == expected.size());
            if (found.complete) REQUIRE(found.above == above);
          }
        }
    }
}

TEST_CASE("candidates are counted, written and gathered alike, and only where they may be") {
  for (auto const which : {data::law::laplace, data::law::all_equal, data::law::two_values})
    for (std::size_t const n : {1u, 63u, 64u, 200u, 5000u}) {
      auto values = data::make(which, n, 3);
      values.resize(n + block, 9.0f);  // what lies behind may be read, and is not written
      std::vector<index_type> names(n + block);
      for (std::size_t i = 0; i < n; ++i) names[i] = static_cast<index_type>(3 * i);
      key_type least = infinite_key;  // with two values: many ties, and larger elements behind them
      for (std::size_t i = 0; i < n; ++i) least = std::min(least, magnitude_key(values[i]));
      for (key_type const key : {magnitude_key(0.1f), magnitude_key(values[0]), least, magnitude_key(2.0f)})
        for (std::uint64_t const ties : {0u, 1u, 5u}) {
          auto const counted = run<count_candidates>(simd::portable, values.data(), n, key);
          std::uint64_t const end = counted.above + std::min(counted.equal, ties);
          std::vector<index_type> expected;
          for (std::size_t i = 0, left = ties; i < n; ++i) {
            bool const tie = magnitude_key(values[i]) == key && left > 0;
            if (tie || magnitude_key(values[i]) > key) expected.push_back(names[i]);
            left -= tie ? 1u : 0u;
          }
          expected.push_back(12'345u);  // the place behind the end belongs to another worker
          for (auto const level : levels()) {
            auto const again = run<count_candidates>(level, values.data(), n, key);
            REQUIRE(again.above == counted.above);
            REQUIRE(again.equal == counted.equal);
            std::vector<index_type> out(end + 1, 12'345u);
            std::vector<float> held(end + 1, -7.0f);
            run<write_candidates>(level, values.data(), static_cast<index_type const*>(names.data()), n, key,
                                  host_kernels::kept{0, std::min(counted.equal, ties)}, end, out.data(), held.data());
            REQUIRE(out == expected);
            REQUIRE(held[end] == -7.0f);
            for (std::uint64_t i = 0; i < end; ++i) REQUIRE(held[i] == values[out[i] / 3]);
          }
        }
    }
}

TEST_CASE_TEMPLATE(
    "updates are added up alike below and above the size that goes past the caches, wherever the memory begins", T,
    float, float16, bfloat16) {
  for (std::size_t const n : {std::size_t{9000}, streamed_bytes / sizeof(T) + 4099}) {
    // Every 1000th element; a run that fills a tile; two updates that share every 2000th, the last element among them.
    std::vector<index_type> a, b;
    for (std::size_t i = n - 1; i < n; i -= 1000) a.insert(a.begin(), static_cast<index_type>(i));
    for (index_type i = 4096; i < 8192; ++i)
      if (std::ranges::find(a, i) == a.end()) a.push_back(i);
    std::ranges::sort(a);
    for (std::size_t i = n - 1; i < n; i -= 2000) b.insert(b.begin(), static_cast<index_type>(i));
    std::vector<float> const of_a(a.size(), 1.0f);
    std::vector<float> const of_b(b.size(), 0.5f);
    std::array<selection_view, 2> const both{{{a, of_a, {}}, {b, of_b, {}}}};

    host_team const team{2};
    host_updates sums;
    sums.reserve(team, 2);
    std::vector<T> memory(n + 1, from_float<T>(7.0f));
    auto const out = std::span{memory}.subspan(1);  // not where vectors begin
    for (auto const level : levels()) {
      CHECK(sums.apply(team, level, std::span{both}, 3.0f, gradient_ref<T>{out}).entries == a.size());
      CHECK(memory[0] == from_float<T>(7.0f));
      for (std::size_t i = 0; i < a.size(); ++i) {
        bool const shared = std::ranges::binary_search(b, a[i]);
        if (out[a[i]] != from_float<T>((shared ? 1.5f : 1.0f) / 3.0f)) FAIL("element " << a[i] << " is wrong");
        out[a[i]] = T{};
      }
      CHECK(std::ranges::count(out, T{}) == static_cast<std::ptrdiff_t>(n));
    }
  }
}

namespace {

/// The mean as apply() promises it, element by element.
template <class T>
applied_update simple_mean(std::span<selection_view const> updates, float divisor, std::span<T> out) {
  applied_update done;
  for (std::size_t i = 0; i < out.size(); ++i) {
    bool has = false;
    float sum = 0;
    double wide = 0;
    for (auto const& each : updates)
      if (auto const at = std::ranges::lower_bound(each.indices, i); at != each.indices.end() && *at == i) {
        float const value = each.values[static_cast<std::size_t>(at - each.indices.begin())];
        float const volatile rounded = has ? sum + value : value;  // NOLINT: one rounding a sum
        sum = rounded;
        wide += static_cast<double>(value);
        has = true;
      }
    float mean = has ? sum / divisor : 0.0f;
    if (!is_finite(mean)) mean = static_cast<float>(wide / static_cast<double>(divisor));
    done.entries += has ? 1u : 0u;
    if constexpr (std::is_same_v<T, float>) {
      out[i] = mean;
    } else {
      done.saturated += exceeds<T>(mean) ? 1u : 0u;
      out[i] = from_float_saturated<T>(mean);
    }
  }
  return done;
}

template <class T>
void check_means(std::span<selection_view const> updates, std::size_t n) {
  host_team const team{1};
  host_updates sums;
  sums.reserve(team, updates.size());
  for (float const divisor : {1.0f, 2.0f, 8.0f, 3.0f, 0.75f, 7.0f}) {
    CAPTURE(divisor);
    std::vector<T> expected(n);
    auto const counts = simple_mean(updates, divisor, std::span{expected});
    for (auto const level : levels()) {
      CAPTURE(static_cast<int>(level));
      std::vector<T> out(n, T{});
      auto const got = sums.apply(team, level, updates, divisor, gradient_ref{std::span{out}});
      CHECK(got.entries == counts.entries);
      CHECK(got.saturated == counts.saturated);
      CHECK(std::memcmp(out.data(), expected.data(), n * sizeof(T)) == 0);
    }
  }
}

}  // namespace

TEST_CASE("means of any finite values: signs of zero, subnormals, sums that cancel and that overflow") {
  data::generator random{5};
  constexpr std::size_t n = 3 * tile_size + 77;
  float const largest = std::numeric_limits<float>::max();
  float const smallest = std::numeric_limits<float>::denorm_min();
  std::vector<float> const odd{0.0f, -0.0f, 1.0f, -1.0f, largest, -largest, smallest, -smallest, 70000.0f, -70000.0f};
  std::vector<float> const large{1.0f, largest, largest, -largest};
  // Tiles where no value needs care, where many do, and where sums overflow and nothing else is unusual.
  for (std::span<float const> const care : {std::span<float const>{}, std::span{odd}, std::span{large}}) {
    for (double const density : {0.003, 0.2, 0.9}) {
      CAPTURE(density);
      std::array<std::vector<index_type>, 5> indices;
      std::array<std::vector<float>, 5> values;
      std::vector<selection_view> updates;
      for (std::size_t u = 0; u < 5; ++u) {
        for (index_type i = 0; i < n; ++i)
          if (random.uniform() < density) {
            indices[u].push_back(i);
            auto const any = static_cast<float>(random.laplace());
            values[u].push_back(care.empty() || i > 2 * tile_size ? any : care[random.bits() % care.size()]);
          }
        updates.push_back({indices[u], values[u], {}});
      }
      check_means<float>(updates, n);
      check_means<float16>(updates, n);
      check_means<bfloat16>(updates, n);
    }
  }
}

TEST_CASE("any key at all: every instruction set keeps the same elements") {
  data::generator random{11};
  std::vector<float> values(9000);  // a tile of a long bin is as long
  for (auto& x : values) x = static_cast<float>(random.laplace());
  values[3] = 0;
  values[77] = std::numeric_limits<float>::max();
  std::vector<key_type> keys{0,           1,           infinite_key - 1, infinite_key, infinite_key + 1,
                             0x7FFF'FFFF, 0x8000'0000, 0x8000'0001,      0xFFFF'FFFE,  0xFFFF'FFFF};
  for (int i = 0; i < 50; ++i) keys.push_back(static_cast<key_type>(random.bits()));
  for (auto const key : keys) {
    CAPTURE(key);
    std::size_t const reached =
        static_cast<std::size_t>(std::ranges::count_if(values, [&](float x) { return magnitude_key(x) >= key; }));
    for (auto const level : levels()) {
      CAPTURE(static_cast<int>(level));
      std::vector<index_type> indices(values.size() + 2 * group);
      std::vector<float> held(indices.size());
      candidate_list list{indices.data(), held.data(), 0, values.size()};
      run<append_tile>(level, static_cast<float const*>(values.data()), values.size(), std::uint64_t{0}, key, &list);
      CHECK(list.count == reached);

      auto const counted = run<count_candidates>(level, static_cast<float const*>(values.data()), values.size(), key);
      CHECK(counted.above + counted.equal == reached);
      auto candidates = values;
      candidates.resize(values.size() + block, 9.0f);
      std::vector<index_type> from(candidates.size());
      std::iota(from.begin(), from.end(), index_type{0});
      run<write_candidates>(level, static_cast<float const*>(candidates.data()),
                            static_cast<index_type const*>(from.data()), values.size(), key, kept{0, 0}, counted.above,
                            indices.data(), held.data());
      CHECK(std::ranges::all_of(std::span{held}.first(counted.above), [&](float x) { return magnitude_key(x) > key; }));
    }
  }
}

TEST_CASE("keys are ranked alike, and as a sort ranks them") {
  data::generator random{12};
  for (std::size_t const n : {1u, 2u, 15u, 64u, 100u, 5000u})
    for (int const kinds : {1, 3, 1'000'000'000}) {
      std::vector<key_type> keys(n);
      for (auto& key : keys) key = static_cast<key_type>(random.below(static_cast<std::uint64_t>(kinds)));
      keys[0] = infinite_key - 1;
      auto sorted = keys;
      std::ranges::sort(sorted, std::greater{});
      for (std::size_t rank = 1; rank <= n; rank += 1 + rank / 7)
        for (auto const level : levels()) {
          CAPTURE(rank);
          REQUIRE(run<kth_key>(level, static_cast<key_type const*>(keys.data()), n, std::uint64_t{rank}) ==
                  sorted[rank - 1]);
        }
    }
}

TEST_CASE("a step gives the same entries whatever the limit on the instruction set") {
  std::vector<float> g(5000);
  data::generator random{3};
  for (auto& x : g) x = static_cast<float>(random.laplace());
  recipe const all{.density = 0.01};
  std::vector<std::vector<index_type>> found;
  for (auto const limit : {simd::portable, simd::avx2, simd::avx512}) {
    compressor one{host{.threads = 1, .simd_limit = limit}, layout::flat(g.size()), all};
    one.compress(g);
    auto const sent = one.compress(g);
    found.emplace_back(sent.indices.begin(), sent.indices.end());
  }
  CHECK(found[0].size() == 50);
  CHECK(found[1] == found[0]);
  CHECK(found[2] == found[0]);
}

namespace {

/// Whole blocks of gradients as a step reads them.
struct read_blocks {
  template <simd Level, class T>
  GRADSIEVE_INLINE static void run(T const* from, std::size_t count, std::uint32_t* to) noexcept {
    float room[block];
    for (std::size_t at = 0; at < count; at += block) {
      auto const values = readable<Level>(from + at, room);
      for (std::size_t i = 0; i < block; ++i) to[at + i] = gradsieve::bit_cast<std::uint32_t>(to_float(values[i]));
    }
  }
};

/// Updates as a step writes them.
struct write_blocks {
  template <simd Level, class T>
  GRADSIEVE_INLINE static std::uint64_t run(float const* from, std::size_t count, T* to) noexcept {
    std::uint64_t saturated = 0;
    for (std::size_t at = 0; at < count; at += block)
      saturated += narrow<Level>(from + at, to + at, smaller(block, count - at));
    return saturated;
  }
};

/// Calls body(level) for every instruction set under every mode that must not matter to it.
template <class Body>
void in_all_modes(Body const& body) {
  for (auto const level : levels()) {
    if (level == simd::portable) continue;  // the reference: to_float() and from_float_saturated(), which have tests
#if defined(__x86_64__) || defined(__aarch64__)
    for (auto const each : float_mode::all_modes) {
      CAPTURE(each);
      CAPTURE(static_cast<int>(level));
      body(level, each);
    }
#else
    body(level, 0);
#endif
  }
}

/// Writing these floats: the bits of from_float_saturated().
template <class T>
void check_narrowed(std::vector<float> const& values) {
  std::vector<T> expected(values.size());
  std::uint64_t saturated = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    expected[i] = from_float_saturated<T>(values[i]);
    saturated += exceeds<T>(values[i]) ? 1 : 0;
  }
  std::vector<T> out(values.size());
  in_all_modes([&](simd level, auto as) {
    std::uint64_t found = 0;
    {
      float_mode::mode const set{as};
      found = run<write_blocks>(level, values.data(), values.size(), out.data());
    }
    REQUIRE(found == saturated);
    REQUIRE(std::memcmp(out.data(), expected.data(), out.size() * sizeof(T)) == 0);
  });
}

}  // namespace

TEST_CASE_TEMPLATE("every 16-bit gradient is read alike, whatever the thread's mode", T, float16, bfloat16) {
  std::vector<T> all(1u << 16);
  std::vector<std::uint32_t> expected(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = T{static_cast<std::uint16_t>(i)};
    expected[i] = gradsieve::bit_cast<std::uint32_t>(to_float(all[i]));
  }
  std::vector<std::uint32_t> out(all.size());
  in_all_modes([&](simd level, auto as) {
    {
      float_mode::mode const set{as};
      run<read_blocks>(level, static_cast<T const*>(all.data()), all.size(), out.data());
    }
    REQUIRE(out == expected);
  });
}

// GRADSIEVE_EVERY_FLOAT=1 has all of them checked, in some minutes.
TEST_CASE_TEMPLATE("floats are written in 16 bits alike, whatever the thread's mode", T, float16, bfloat16) {
  std::uint64_t const stride = std::getenv("GRADSIEVE_EVERY_FLOAT") != nullptr ? 1 : sanitized ? 16'384 : 1024;
  constexpr std::size_t chunk = std::size_t{1} << 16;
  std::vector<float> values(chunk);
  for (std::uint64_t first = 0; first >> 32 == 0; first += chunk * stride) {
    for (std::size_t i = 0; i < chunk;
         ++i)  // in order, so that few blocks have both what the instructions take and not
      values[i] = gradsieve::bit_cast<float>(static_cast<std::uint32_t>(first + i * stride + mix(first + i) % stride));
    check_narrowed<T>(values);
  }
  values.clear();
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {  // halfway between neighbours, and next to it
    auto const middle = gradsieve::bit_cast<std::uint32_t>(to_float(T{static_cast<std::uint16_t>(bits)})) +
                        (std::is_same_v<T, float16> ? 0x1000u : 0x8000u);
    for (std::uint32_t const around : {middle - 1, middle, middle + 1})
      values.push_back(gradsieve::bit_cast<float>(around));
  }
  check_narrowed<T>(values);
  for (std::size_t place = 0; place < block; ++place) {  // the least that overflows, alone in a block
    values.assign(block, 1.0f);
    values[place] = gradsieve::bit_cast<float>(overflow_key<T>);
    check_narrowed<T>(values);
  }
}
