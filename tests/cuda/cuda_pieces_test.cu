// Gradients in several pieces of device memory: the bits of a gradient in one.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "gpu.cuh"

using namespace gpu;

namespace {

auto const layers = steps::mixed_layers();

/// A buffer for each layer, at an offset.
template <class T>
struct tensors {
  std::deque<array<T>> memory;
  std::vector<T*> pointers;
  std::vector<std::span<T>> spans;

  explicit tensors(gs::device where) {
    for (std::size_t i = 0; i < layers.count(); ++i) {
      spans.push_back(memory.emplace_back(where, layers[i].size, 1 + i % 3).span());
      pointers.push_back(spans.back().data());
    }
  }
  void put(std::vector<T> const& flat) {
    for (std::size_t i = 0; i < layers.count(); ++i) {
      auto const from = flat.begin() + static_cast<std::ptrdiff_t>(layers.offset(i));
      memory[i].put(std::vector<T>(from, from + static_cast<std::ptrdiff_t>(layers[i].size)));
    }
  }
  [[nodiscard]] std::vector<T> get() const {
    std::vector<T> flat;
    for (auto const& each : memory)
      for (T const& value : each.get()) flat.push_back(value);
    return flat;
  }
};

template <class T, class Recipe>
void same_in_pieces(Recipe const& recipe) {
  stream const own;
  gs::device const where{own};
  gs::compressor in_one{where, layers, recipe}, in_many{where, layers, recipe};
  array<T> const flat{where, layers.size()};
  tensors<T> parts{where};
  gs::pieces const by_pointer{parts.pointers}, by_span{parts.spans};
  for (std::uint64_t step = 0; step < 4; ++step) {
    auto const values = data::as<T>(steps::gradient(layers.size(), 0, step));
    flat.put(values);
    parts.put(values);
    in_one.exchange(gs::self{}, flat.span());
    auto const report = in_many.exchange(gs::self{}, step % 2 == 0 ? by_pointer : by_span);
    CHECK(report.get().selected > 0);
    CHECK(steps::same_bits(flat.get(), parts.get()));
  }
  CHECK(in_one.state() == in_many.state());
}

}  // namespace

TEST_CASE("the same bits in one piece and in several") {
  SUBCASE("float, whole") { same_in_pieces<float>(gs::recipe{.density = 0.03}); }
  SUBCASE("bfloat16, adacomp") {
    same_in_pieces<gs::bfloat16>(gs::recipe{.density = 0.5, .selector = gs::adacomp{}, .partitioner = gs::layerwise{}});
  }
}

TEST_CASE("a graph of a step in pieces; compress and an averager; pieces that do not fit") {
  stream const own;
  gs::device const where{own};
  gs::recipe const recipe{.density = 0.03};
  gs::compressor in_one{where, layers, recipe}, in_many{where, layers, recipe};
  array<float> const flat{where, layers.size()};
  tensors<float> parts{where};
  gs::pieces const list{parts.pointers};
  auto const values = steps::gradient(layers.size(), 0, 0);
  auto const both = [&](auto const& one, auto const& many) {
    flat.put(values);
    parts.put(values);
    one();
    many();
    where.synchronize();
    CHECK(steps::same_bits(flat.get(), parts.get()));
  };
  both([&] { in_one.exchange(gs::self{}, flat.span()); }, [&] { in_many.exchange(gs::self{}, list); });
  graph const step{own, [&] { in_many.exchange(gs::self{}, list); }};
  both([&] { in_one.exchange(gs::self{}, flat.span()); }, [&] { step.launch(); });

  parts.put(values);
  std::array<std::span<std::byte const>, 1> const messages{in_many.encode(in_many.compress(list))};
  gs::averager mean{where, layers, recipe};
  both([&] { mean.apply(messages, flat.span()); }, [&] { mean.apply(messages, list); });

  parts.pointers.pop_back();
  CHECK(steps::contains(steps::ending([&] { in_many.exchange(gs::self{}, gs::pieces{parts.pointers}); }),
                        "the gradient has 8 pieces given by pointers, the layout has 9 layers"));
}
