// Gradients in several pieces: the same bits as in one, for every part of the library that takes a gradient.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/overlap.hpp>
#include <gradsieve/plan.hpp>
#include <gradsieve/two_level.hpp>

#include "allocations.hpp"
#include "groups.hpp"
#include "steps.hpp"

using namespace steps;

namespace {

gs::host const here{.threads = 2};

/// A copy of a gradient in pieces of these sizes, each in memory of its own, at an offset of a few elements.
template <class T>
struct scattered {
  std::deque<std::vector<T>> memory;
  std::vector<std::span<T>> spans;

  scattered(std::vector<T> const& flat, std::vector<std::size_t> const& sizes) {
    std::size_t at = 0;
    for (auto const size : sizes) {
      auto const before = 1 + at % 5;
      memory.emplace_back(before + size);
      std::copy_n(flat.begin() + static_cast<std::ptrdiff_t>(at), size,
                  memory.back().begin() + static_cast<std::ptrdiff_t>(before));
      spans.push_back(std::span{memory.back()}.subspan(before));
      at += size;
    }
  }
  [[nodiscard]] std::vector<T*> pointers() const {
    std::vector<T*> all;
    for (auto const& each : spans) all.push_back(each.data());
    return all;
  }
  [[nodiscard]] std::vector<T> flat() const {
    std::vector<T> all;
    for (auto const& each : spans) all.insert(all.end(), each.begin(), each.end());
    return all;
  }
};

std::vector<std::size_t> sizes_of(gs::layout const& layers) {
  std::vector<std::size_t> sizes;
  for (auto const& each : layers) sizes.push_back(each.size);
  return sizes;
}

/// Pieces of random sizes that sum to n, some of them empty.
std::vector<std::size_t> cut(std::size_t n, std::uint64_t seed) {
  data::generator random{seed};
  std::vector<std::size_t> sizes;
  while (n > 0) {
    std::size_t const size = random.below(4) == 0 ? random.below(3) : random.below(n) + 1;
    sizes.push_back(std::min(size, n));
    n -= sizes.back();
  }
  return sizes;
}

template <class T>
std::vector<T> converted(std::vector<float> const& from) {
  std::vector<T> to;
  for (float const x : from) to.push_back(gs::from_float<T>(x));
  return to;
}

/// Steps on two ranks with a flat gradient, pieces by layer and pieces of other sizes: what differs.
template <class T = float, class Recipe>
std::string difference(Recipe const& recipe) {
  gs::layout const layers = mixed_layers();
  return joined(on_ranks(2, [&](communicator comm) {
    findings found;
    gs::compressor in_one{here, layers, recipe}, by_layer{here, layers, recipe}, other{here, layers, recipe};
    for (std::uint64_t s = 0; s < 4; ++s) {
      auto flat = converted<T>(gradient(layers.size(), comm.rank(), s));
      if (s == 1) flat[700] = gs::from_float<T>(std::numeric_limits<float>::infinity());
      scattered a{flat, sizes_of(layers)}, b{flat, cut(layers.size(), s)};
      std::vector<unsigned char> const skipped(layers.count(), s == 2 ? 1 : 0);
      in_one.exchange(comm, flat, skipped);
      by_layer.exchange(comm, gs::pieces{a.pointers()}, skipped);
      other.exchange(comm, gs::pieces{b.spans}, skipped);
      found.expect(same_bits(flat, a.flat()), "by layer, step " + std::to_string(s));
      found.expect(same_bits(flat, b.flat()), "other pieces, step " + std::to_string(s));
    }
    found.expect(in_one.state() == by_layer.state() && in_one.state() == other.state(), "states");
    return found.text();
  }));
}

}  // namespace

TEST_CASE("the same bits in one piece and in several") {
  CHECK(difference(gs::recipe{.density = 0.05}) == "");
  CHECK(difference(gs::recipe{.density = 0.05,
                              .selector = gs::laplacian{},
                              .partitioner = gs::deft{},
                              .residual = gs::momentum_correction{.clip = 1.0f}}) == "");
  CHECK(difference<gs::float16>(gs::recipe{.density = 0.05, .on_non_finite = gs::non_finite::skip}) == "");
  CHECK(difference<gs::bfloat16>(gs::recipe{.density = 0.05, .exchange = gs::reduce_scatter{}}) == "");
}

TEST_CASE("the same bits with bins, which are longer than a tile") {
  CHECK(difference(gs::recipe{
            .density = 0.5, .selector = gs::adacomp{}, .partitioner = gs::layerwise{}, .codec = gs::binned{}}) == "");
  CHECK(difference(gs::recipe{.density = 0.001, .selector = gs::chunked{}}) == "");
}

TEST_CASE("large gradients, which go past the caches, and a non-finite element that fails the step") {
  std::uint64_t const n = 5'000'000;
  gs::recipe const recipe{.density = 0.001, .on_non_finite = gs::non_finite::fail};
  gs::compressor in_one{here, gs::layout::flat(n), recipe}, in_many{here, gs::layout::flat(n), recipe};
  auto flat = gradient(n, 0, 0);
  scattered parts{flat, cut(n, 7)};
  in_one.exchange(gs::self{}, flat);
  in_many.exchange(gs::self{}, gs::pieces{parts.spans});
  CHECK(same_bits(flat, parts.flat()));
  parts.spans.back().back() = std::numeric_limits<float>::quiet_NaN();
  CHECK(contains(ending([&] { in_many.exchange(gs::self{}, gs::pieces{parts.spans}); }), "1 gradient elements"));
}

TEST_CASE("compress, averager, dense_mean and a compressor for nodes") {
  gs::layout const layers = mixed_layers();
  auto const flat = gradient(layers.size(), 0, 0);
  gs::recipe const recipe{.density = 0.05};
  gs::compressor in_one{here, layers, recipe}, in_many{here, layers, recipe};
  scattered<float> const parts{flat, cut(layers.size(), 3)};
  std::vector<float const*> read_only;
  scattered<float> const by_layer{flat, sizes_of(layers)};
  for (auto const& each : by_layer.spans) read_only.push_back(each.data());
  auto const a = in_one.encode(in_one.compress(flat));
  std::span const b = in_many.encode(in_many.compress(gs::pieces{read_only}));
  CHECK(std::ranges::equal(a, b));

  gs::averager mean{here, layers, recipe};
  std::vector<float> update(layers.size());
  std::array const messages{a};
  mean.apply(messages, update);
  auto const applied = mean.apply(messages, gs::pieces{parts.spans});
  CHECK(applied.entries > 0);
  CHECK(same_bits(update, parts.flat()));

  auto whole = flat;
  scattered<float> dense{flat, cut(layers.size(), 5)};
  CHECK(gs::dense_mean{}.exchange(gs::self{}, whole).world == 1);
  gs::dense_mean{}.exchange(gs::self{}, gs::pieces{dense.spans});
  CHECK(same_bits(whole, dense.flat()));
  CHECK(contains(ending([&] { gs::dense_mean{}.exchange(gs::self{}, gs::pieces{dense.pointers()}); }), "not pointers"));

  for (int const inside : {1, 3}) {
    CAPTURE(inside);
    CHECK(joined(on_ranks(inside, [&](communicator comm) {
            gs::two_level const ranks{comm, gs::self{}};
            gs::two_level_compressor one{here, layers, recipe, ranks}, many{here, layers, recipe, ranks};
            auto mine = gradient(layers.size(), comm.rank(), 1);
            scattered<float> pieces{mine, sizes_of(layers)};
            one.exchange(ranks, mine);
            many.exchange(ranks, gs::pieces{pieces.pointers()});
            return std::string{same_bits(mine, pieces.flat()) ? "" : "differs"};
          })) == "");
  }
}

TEST_CASE("overlap") {
  gs::layout const layers = mixed_layers();
  std::vector<std::size_t> const scrambled{8, 2, 4, 0, 6, 7, 5, 3, 1};
  gs::recipe const recipe{.density = 0.05};
  auto const steps = [&](communicator comm, auto const& make, std::vector<std::size_t> const& order) {
    findings found;
    auto const plan = groups::plan_of(layers, order.empty() ? groups::backwards(layers.count()) : order, {4, 9});
    gs::overlap one{comm, layers, plan, make, order}, many{comm, layers, plan, make, order};
    for (std::uint64_t s = 0; s < 3; ++s) {
      auto mine = gradient(layers.size(), comm.rank(), s);
      scattered<float> parts{mine, s == 1 ? cut(layers.size(), s) : sizes_of(layers)};
      auto const backward = [&](auto const& ready) {
        for (std::size_t i = layers.count(); i > 1; --i) ready(i - 1);  // layer 0 never is: zero, in both
      };
      found.expect(one.run(mine, backward).not_ready == 1, "layer 0 is not ready");
      if (s == 1)
        many.run(gs::pieces{parts.spans}, backward);
      else
        many.run(gs::pieces{parts.pointers()}, backward);
      found.expect(same_bits(mine, parts.flat()), "step " + std::to_string(s));
    }
    return found.text();
  };
  auto const compressors = [&](gs::layout const& part) { return gs::compressor{here, part, recipe}; };
  auto const means = [](gs::layout const&) { return gs::dense_mean{}; };
  CHECK(joined(on_ranks(2, [&](communicator comm) { return steps(comm, compressors, {}); })) == "");
  CHECK(joined(on_ranks(2, [&](communicator comm) { return steps(comm, compressors, scrambled); })) == "");
  CHECK(joined(on_ranks(2, [&](communicator comm) { return steps(comm, means, {}); })) == "");
}

TEST_CASE("what pieces are made of") {
  std::list<std::vector<float>> vectors{{1, 2}, {}, {3}};
  CHECK(gs::pieces{vectors}.starts()[3] == 3);
  std::array<std::array<float, 2>, 3> arrays{};
  CHECK(gs::pieces{arrays}.starts()[2] == 4);
  std::vector<float> const fixed(3);
  CHECK(gs::pieces{std::vector{std::span{fixed}}}.data()[0] == fixed.data());
  float a = 0, b = 0;
  CHECK(gs::pieces{std::array{&a, &b}}.starts().empty());
  float rows[2][3] = {};  // each converts to a pointer, too
  CHECK(gs::pieces{rows}.starts()[2] == 6);
}

TEST_CASE("pieces that do not fit the layout: refused before anything changes, on all ranks") {
  gs::layout const layers{{"w", 6}, {"v", 4}};
  gs::recipe const recipe{.density = 0.5};
  std::vector<float> memory(20, 1.0f);
  auto const with = [&](auto const& pieces) {
    return on_ranks(2, [&](communicator comm) {
      gs::compressor reducer{here, layers, recipe};
      std::vector<float> good(10, 1.0f);
      auto const said = ending([&] {
        if (comm.rank() == 0)
          reducer.exchange(comm, pieces);
        else
          reducer.exchange(comm, good);
      });
      return said.empty() || reducer.residual_norm() == 0 || comm.rank() != 0 ? said : "changed";
    });
  };
  std::vector<float*> const one{memory.data()}, null{memory.data(), nullptr}, good{memory.data(), memory.data() + 6};
  CHECK(with(gs::pieces{one})[0] ==
        "invalid_argument: gradsieve: the gradient has 1 pieces given by pointers, the layout has 2 layers");
  CHECK(contains(with(gs::pieces{one})[1], "communication_error"));
  CHECK(with(gs::pieces{null})[0] == "invalid_argument: gradsieve: piece 1 of the gradient is null, it has 4 elements");
  CHECK(with(gs::pieces{std::vector{std::span{memory}}})[0] ==
        "invalid_argument: gradsieve: gradient has 20 elements, the layout has 10");
  CHECK(joined(with(gs::pieces{good})) == "");

  std::string const shared = "invalid_argument: gradsieve: pieces 0 and 1 of the gradient share memory";
  std::vector<float*> const tied{memory.data() + 3, memory.data()};
  std::vector<std::span<float>> const overlapping{std::span{memory}.first(6), std::span{memory}.subspan(5, 4)};
  std::vector<std::span<float>> const apart{std::span{memory}.subspan(4, 6), std::span{memory}.subspan(4, 0),
                                            std::span{memory}.first(4)};
  CHECK(contains(with(gs::pieces{tied})[0], shared));
  CHECK(contains(with(gs::pieces{tied})[1], "communication_error"));
  CHECK(joined(with(gs::pieces{apart})) == "");
  auto const means = on_ranks(2, [&](communicator comm) {
    std::vector<float> other(10);
    return ending([&] {
      if (comm.rank() == 0)
        gs::dense_mean{}.exchange(comm, gs::pieces{overlapping});
      else
        gs::dense_mean{}.exchange(comm, other);
    });
  });
  CHECK(contains(means[0], shared));
  CHECK(contains(means[1], "another rank failed"));
  CHECK(contains(ending([&] { gs::averager{here, layers, recipe}.apply({}, gs::pieces{tied}); }), shared));
  gs::compressor reducer{here, layers, recipe};
  CHECK(ending([&] { reducer.compress(gs::pieces{tied}); }) == "");  // it only reads them
}

TEST_CASE("steps in pieces allocate nothing") {
  gs::layout const layers = mixed_layers();
  gs::compressor reducer{here, layers, gs::recipe{.density = 0.05}};
  scattered<float> parts{gradient(layers.size(), 0, 0), sizes_of(layers)};
  gs::pieces const list{parts.pointers()};
  for (int s = 0; s < 2; ++s) reducer.exchange(gs::self{}, list);
  auto const before = allocations.load();
  for (int s = 0; s < 5; ++s) reducer.exchange(gs::self{}, list);
  CHECK(allocations.load() == before);
}
