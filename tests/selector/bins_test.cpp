// Selectors that choose in bins, against their papers' rules written out element by element.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/comm/self.hpp>

#include "steps.hpp"

namespace gs = gradsieve;

namespace {

gs::layout const layers{
    {"conv1.weight", 1203}, {"conv1.bias", 16}, {"fc.weight", 40'030}, {"head", 7}, {"conv2", 5000}};

struct entry {
  std::uint64_t index;
  float value;
  friend bool operator==(entry const&, entry const&) = default;
};

std::vector<entry> listed(gs::selection_view from) {
  std::vector<entry> all;
  for (std::size_t i = 0; i < from.indices.size(); ++i) all.push_back({from.indices[i], from.values[i]});
  return all;
}

bool passes(gs::layer const& each) { return steps::contains(each.name, "bias"); }

/// AdaComp as its paper has it, of one rank, in the library's arithmetic.
class naive_adacomp {
 public:
  explicit naive_adacomp(gs::adacomp policy) : policy_{policy}, residual_(layers.size()) {}

  template <class T>
  std::vector<entry> step(std::vector<T> const& gradient) {
    std::vector<entry> sent;
    for (std::size_t l = 0; l < layers.count(); ++l) {
      auto const begin = layers.offset(l);
      auto const end = begin + layers[l].size;
      for (auto i = begin; i < end; ++i) residual_[i] += finite(gradient[i]);  // G
      if (passes(layers[l])) {
        std::fill(residual_.begin() + static_cast<std::ptrdiff_t>(begin),
                  residual_.begin() + static_cast<std::ptrdiff_t>(end), 0.0f);
        continue;
      }
      auto const length = policy_.bins(layers[l]);
      double maxima = 0;
      std::uint64_t bins = 0;
      std::vector<std::uint64_t> chosen;
      for (auto first = begin; first < end; first += length) {
        auto const last = std::min<std::uint64_t>(first + length, end);
        float largest = 0;
        for (auto i = first; i < last; ++i) largest = std::max(largest, std::fabs(residual_[i]));
        maxima += static_cast<double>(largest);
        ++bins;
        for (auto i = first; i < last && largest > 0; ++i) {
          float const ahead = residual_[i] + (policy_.factor - 1) * finite(gradient[i]);
          if (std::fabs(ahead) >= largest && residual_[i] != 0) chosen.push_back(i);
        }
      }
      auto const scale = static_cast<float>(maxima / static_cast<double>(bins));
      for (auto const i : chosen) {
        sent.push_back({i, std::copysign(scale, residual_[i])});
        residual_[i] -= sent.back().value;
      }
    }
    return sent;
  }
  [[nodiscard]] std::vector<float> const& residual() const { return residual_; }

 private:
  template <class T>
  static float finite(T x) {
    return gs::is_finite(gs::to_float(x)) ? gs::to_float(x) : 0.0f;
  }

  gs::adacomp policy_;
  std::vector<float> residual_;
};

/// Scales differ by stretches, some bins hold zeros, one holds a single value.
std::vector<float> gradient_of(std::uint64_t step, int rank = 0) {
  auto values = steps::gradient(layers.size(), rank, step);
  std::fill(values.begin() + 2000, values.begin() + 4000, 0.0f);
  std::fill(values.begin() + 5000, values.begin() + 5600, 0.5f);
  return values;
}

auto const plain = gs::recipe{.density = 0.6, .selector = gs::adacomp{}, .partitioner = gs::layerwise{}};
auto const own_rules = gs::recipe{
    .density = 0.6,
    .selector = gs::adacomp{.bins = {.rules = {{{"fc*", 9000}, {"*2", 64}}}, .otherwise = 20}, .factor = 2.5f},
    .partitioner = gs::layerwise{}};

template <class T, class Recipe>
void follows_the_paper(Recipe const& recipe, int threads) {
  gs::compressor reducer{gs::host{threads}, layers, recipe};
  naive_adacomp paper{recipe.selector};
  for (std::uint64_t s = 0; s < 6; ++s) {
    auto values = gradient_of(s);
    if (s == 3) values[100] = std::numeric_limits<float>::infinity();
    auto const gradient = data::as<T>(values);
    auto const expected = paper.step(gradient);
    CHECK(listed(reducer.compress(gradient)) == expected);
    CHECK(!expected.empty());
    if (s == 4) CHECK(steps::same_bits(steps::residual_of(reducer), paper.residual()));
  }
  CHECK(steps::same_bits(steps::residual_of(reducer), paper.residual()));
}

/// Cuts nothing off the end.
struct with_an_empty_segment : gs::whole {
  void split(std::span<gs::range const> ranges, int world, gs::segment_list& list) const {
    gs::whole::split(ranges, world, list);
    list.push_back({list.back().offset + list.back().size, 0});
  }
  void assign(std::span<gs::segment> segments, std::span<double const> norms, gs::step_budget const budget,
              gs::partition_scratch& scratch) const {
    gs::whole::assign(segments.first(1), norms, budget, scratch);
  }
};

struct no_length : gs::chunked {
  [[nodiscard]] std::uint32_t bin_length(gs::layer const&) const noexcept { return 0; }
};

/// The k largest of every chunk, ties to the smaller index.
std::vector<entry> naive_chunks(std::vector<float> const& values, std::uint64_t first, std::uint64_t size,
                                std::uint64_t chunk, std::uint64_t k, std::uint64_t step = 0) {
  auto const phase = gs::mix(step) % size;
  std::vector<entry> sent;
  for (std::uint64_t at = 0; at < size; at += chunk) {
    auto const end = std::min(at + chunk, size);
    auto const due = (end * k + phase) / size - (at * k + phase) / size;
    std::vector<std::uint64_t> order(end - at);
    std::iota(order.begin(), order.end(), first + at);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) {
      auto const of_a = gs::magnitude_key(values[a]);
      auto const of_b = gs::magnitude_key(values[b]);
      return of_a != of_b ? of_a > of_b : a < b;
    });
    order.resize(due);
    std::sort(order.begin(), order.end());
    for (auto const i : order)
      if (values[i] != 0) sent.push_back({i, values[i]});
  }
  return sent;
}

}  // namespace

TEST_CASE_TEMPLATE("adacomp sends what its paper says, and keeps the rest", T, float, gs::float16, gs::bfloat16) {
  for (int const threads : {1, 3}) {
    follows_the_paper<T>(plain, threads);
    follows_the_paper<T>(own_rules, threads);
  }
}

TEST_CASE("adacomp: bins of zeros send nothing, equal ones everything") {
  gs::compressor reducer{gs::host{}, gs::layout{{"fc", 1500}}, plain};
  std::vector<float> values(1500);
  CHECK(reducer.compress(values).indices.empty());
  std::fill(values.begin() + 500, values.begin() + 1000, -2.0f);
  values[1200] = 1;
  auto const sent = listed(reducer.compress(values));
  REQUIRE(sent.size() == 501);
  for (auto const& each : sent) CHECK(each.value == (each.index == 1200 ? 1.0f : -1.0f));  // (0 + 2 + 1) / 3
  CHECK(reducer.residual()[700] == -1.0f);
}

TEST_CASE("adacomp: a gradient that brings an accumulator to zero is not sent, however large") {
  gs::compressor reducer{gs::host{}, gs::layout{{"fc", 1500}}, plain};
  std::vector<float> values(1500);
  values[500] = -1;
  values[1490] = -1;
  for (std::size_t const i : {501u, 1491u}) values[i] = 4;
  REQUIRE(reducer.compress(values).indices.size() == 2);
  for (std::size_t const i : {500u, 1490u}) values[i] = 1;   // their residual is -1
  for (std::size_t const i : {501u, 1491u}) values[i] = -1;  // theirs is 4 / 3: a third is left, the bin's maximum
  auto const sent = listed(reducer.compress(values));
  REQUIRE(sent.size() == 2);
  CHECK(sent[0].index == 501);
  CHECK(sent[1].index == 1491);
}

TEST_CASE("adacomp: a bin of subnormal values sends nothing, however few the others") {
  gs::compressor reducer{gs::host{}, gs::layout{{"fc", 5000}}, plain};
  std::vector<float> values(5000);
  values[700] = std::numeric_limits<float>::denorm_min();
  values[701] = std::nextafter(std::numeric_limits<float>::min(), 0.0f);
  CHECK(reducer.compress(values).indices.empty());
  CHECK(reducer.residual()[700] == values[700]);
  values[701] = std::numeric_limits<float>::min();
  CHECK(reducer.compress(values).indices.size() == 1);
}

TEST_CASE("adacomp: the density is the upper limit, and the largest go first") {
  auto tight = plain;
  tight.density = 0.01;
  gs::compressor reducer{gs::host{}, gs::layout{{"fc", 5000}}, tight};
  auto const values = steps::gradient(5000, 0, 1);
  auto const sent = listed(reducer.compress(values));
  CHECK(sent.size() == 50);
  std::vector<float> order(values);
  std::sort(order.begin(), order.end(), [](float a, float b) { return std::fabs(a) > std::fabs(b); });
  for (auto const& each : sent) CHECK(std::fabs(values[each.index]) >= std::fabs(order[49]));
}

TEST_CASE("adacomp: a list that is full still gives the largest of the layer") {
  std::uint64_t const n = 1'000'000;
  auto narrow = plain;
  narrow.density = 0.0001;
  std::vector<float> values(n, 1.0f);  // all of it is kept by the bins, far more than there is room for
  values[777'777] = 3;
  for (std::uint32_t const length : {500u, gs::bin_lengths::longest})
    for (int const threads : {1, 4}) {
      narrow.selector.bins.otherwise = length;
      gs::compressor reducer{gs::host{threads}, gs::layout{{"fc", n}}, narrow};
      auto const sent = listed(reducer.compress(values));
      CHECK(sent.size() == 100);
      CHECK(std::find_if(sent.begin(), sent.end(), [](entry const& e) { return e.index == 777'777; }) != sent.end());
      CHECK(sent.front().index == 0);
    }
}

TEST_CASE("adacomp needs bins that fit its layers") {
  auto const across = gs::recipe{.density = 0.5, .selector = gs::adacomp{}, .partitioner = steps::unsaid<gs::whole>{}};
  CHECK(
      steps::contains(steps::ending([&] { gs::compressor{gs::host{}, layers, across}; }), "bins do not cross layers"));
  auto bad = plain;
  bad.selector.bins.otherwise = 0;
  CHECK(steps::contains(steps::ending([&] { gs::compressor{gs::host{}, layers, bad}; }),
                        "a bin's length is 0, expected 1 to 16383"));
  bad.selector.bins = {.rules = {{{"x", 16384}}}};
  CHECK(steps::contains(steps::ending([&] { bad.check(); }), "a bin's length is 16384"));
  bad = plain;
  bad.selector.factor = 0.5f;
  CHECK(steps::contains(steps::ending([&] { bad.check(); }), "adacomp's factor is 0.5, expected 1 to 16"));
}

TEST_CASE("chunked gives the largest of every chunk, and k together") {
  auto const whole = gs::recipe{.density = 0.02, .selector = gs::chunked{}, .passthrough = {.patterns = {}}};
  auto const n = layers.size();
  for (int const threads : {1, 3}) {
    gs::compressor reducer{gs::host{threads}, layers, whole};
    std::vector<float> accumulated(n);
    for (std::uint64_t s = 0; s < 4; ++s) {
      auto const values = gradient_of(s);
      for (std::uint64_t i = 0; i < n; ++i) accumulated[i] += values[i];
      auto const k = gs::budget_of(0.02, n);
      auto const expected = naive_chunks(accumulated, 0, n, 4096, k, s);
      CHECK(listed(reducer.compress(values)) == expected);
      for (auto const& each : expected) accumulated[each.index] = 0;
    }
  }
}

TEST_CASE("chunked in layers, of any size, with ties") {
  for (std::uint32_t const size : {1u, 7u, 64u, 1000u, 4096u, 20'000u, 65'536u}) {
    INFO("size " << size);
    gs::recipe<gs::chunked, gs::layerwise> recipe{};
    recipe.density = 0.05;
    recipe.selector.size = size;
    gs::compressor reducer{gs::host{2}, layers, recipe};
    auto values = gradient_of(1);
    for (auto& each : values) each = std::round(each * 4) / 4;  // few different ones
    std::vector<entry> expected;
    for (std::size_t l = 0; l < layers.count(); ++l) {
      if (passes(layers[l])) continue;
      auto const of_layer =
          naive_chunks(values, layers.offset(l), layers[l].size, size, gs::budget_of(0.05, layers[l].size));
      expected.insert(expected.end(), of_layer.begin(), of_layer.end());
    }
    CHECK(listed(reducer.compress(values)) == expected);
  }
  gs::recipe<gs::chunked> bad{};
  bad.selector.size = 65'537;
  CHECK(steps::contains(steps::ending([&] { bad.check(); }), "chunked's size is 65537"));
}

TEST_CASE("what a layer in the middle cuts off is a chunk's end, and costs no entry") {
  gs::layout const mixed{{"a", 3000}, {"a.bias", 60'000}, {"b", 3000}};
  auto const n = mixed.size();
  for (double const density : {0.01, 0.1, 0.5}) {
    gs::recipe<gs::chunked> recipe{};
    recipe.density = density;
    gs::compressor reducer{gs::host{}, mixed, recipe};
    auto const sent = listed(reducer.compress(steps::gradient(n, 0, 3)));
    auto const k = gs::budget_of(density, 6000);
    CHECK(sent.size() <= k);
    CHECK(sent.size() + k / 20 + 2 >= k);  // but for zeros
    for (auto const& each : sent) CHECK((each.index < 3000 || each.index >= 63'000));
  }
}

TEST_CASE("with fewer entries than chunks every chunk has its turn") {
  std::uint64_t const n = 40'960;
  gs::recipe<gs::chunked> recipe{};
  recipe.density = 4.0 / n;
  recipe.selector.size = 1024;
  gs::compressor reducer{gs::host{}, gs::layout::flat(n), recipe};
  std::vector<int> turns(40);
  for (std::uint64_t s = 0; s < 120; ++s) {
    auto const sent = listed(reducer.compress(steps::gradient(n, 0, s)));
    CHECK(sent.size() == 4);
    for (auto const& each : sent) ++turns[each.index / 1024];
  }
  CHECK(*std::min_element(turns.begin(), turns.end()) > 0);
}

TEST_CASE("adacomp at density 1 has no limit, and its bins choose all the same") {
  auto open = plain;
  open.density = 1;
  gs::compressor reducer{gs::host{}, layers, open};
  naive_adacomp paper{open.selector};
  for (std::uint64_t s = 0; s < 3; ++s) {
    auto update = gradient_of(s);
    auto const expected = paper.step(update);
    auto const report = reducer.exchange(gs::self{}, update);
    CHECK(report.selected == expected.size());
    CHECK(report.passthrough_elements == 16);  // of the bias
    for (auto const& each : expected) CHECK(update[each.index] == each.value);
  }
}

TEST_CASE("bins of segments that a partitioner leaves empty, and bins of no length") {
  gs::recipe<gs::chunked, with_an_empty_segment> recipe{};
  gs::compressor reducer{gs::host{}, gs::layout::flat(100), recipe};
  CHECK(reducer.compress(std::vector<float>(100, 1.0f)).indices.size() == 1);
  gs::recipe<no_length> bad{};
  CHECK(steps::contains(steps::ending([&] { gs::compressor{gs::host{}, gs::layout{{"w", 10}}, bad}; }),
                        "a bin of layer 'w' has no elements"));
}

TEST_CASE("balance: what all ranks put in was applied or is still there, on bit-identical ranks") {
  gs::layout const few{{"conv", 700}, {"conv.bias", 8}, {"fc", 2300}};
  auto const balanced = [&](auto const& recipe, int world) {
    auto const n = few.size();
    auto const said = steps::on_ranks(world, [&](steps::communicator comm) {
      steps::findings found;
      gs::host const where{1};
      gs::compressor reducer{where, few, recipe};
      std::vector<double> income(n), applied(n);
      std::uint64_t selected = 0;
      for (std::uint64_t s = 0; s < (sanitized ? 4 : 50); ++s) {
        auto update = steps::gradient(n, comm.rank(), s);
        for (std::uint64_t i = 0; i < n; ++i) income[i] += static_cast<double>(update[i]);
        selected += reducer.exchange(comm, update).selected;
        for (std::uint64_t i = 0; i < n; ++i) applied[i] += static_cast<double>(update[i]);
        auto const mine = steps::hash(update);
        std::vector<std::uint64_t> all(static_cast<std::size_t>(world));
        comm.all_gather(where, std::as_bytes(std::span{&mine, 1}), std::as_writable_bytes(std::span{all}));
        found.expect(std::count(all.begin(), all.end(), mine) == world, "ranks differ, step " + std::to_string(s));
      }
      std::vector<double> held;
      for (float const each : reducer.residual()) held.push_back(static_cast<double>(each));
      comm.all_reduce(where, std::span{income}, gs::reduction::sum);
      comm.all_reduce(where, std::span{held}, gs::reduction::sum);
      double worst = 0;
      for (std::uint64_t i = 0; i < n; ++i)
        worst = std::max(worst, std::fabs(income[i] - applied[i] * world - held[i]));
      found.expect(worst < 1e-3, "lost " + std::to_string(worst));
      found.expect(selected > 0, "nothing was sent");
      return found.text();
    });
    for (auto const& each : said) CHECK(each == "");
  };
  auto const chunks = gs::recipe{.density = 0.02, .selector = gs::chunked{.size = 512}};
  auto const coded = [](auto codec) {
    return gs::recipe{
        .density = 0.5, .selector = gs::adacomp{}, .partitioner = gs::layerwise{}, .codec = std::move(codec)};
  };
  for (int const world : {1, 2, 3, 4, 8}) {
    balanced(plain, world);
    balanced(chunks, world);
    balanced(coded(gs::binned{}), world);
    balanced(coded(gs::packed{.values = gs::ternary{}}), world);
  }
}
