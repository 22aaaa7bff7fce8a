// An averager in device memory gives what the host's gives, and refuses what that refuses.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpu.cuh"

using namespace gpu;
using bytes = std::vector<std::byte>;

namespace {

gs::host const here{.threads = 1};

/// Messages of that many ranks, in the host's memory, with values times `scale`.
template <class Recipe>
std::vector<bytes> sent_by(int ranks, gs::layout const& layers, Recipe const& recipe, float scale = 1) {
  std::vector<bytes> all;
  for (int r = 0; r < ranks; ++r) {
    gs::compressor sender{here, layers, recipe};
    auto g = steps::gradient(layers.size(), r, 0);
    for (float& x : g) x *= scale;
    auto const message = sender.encode(sender.compress(g));
    all.emplace_back(message.begin(), message.end());
  }
  return all;
}

/// The same in device memory.
struct arrived {
  std::vector<array<std::byte>> memory;
  std::vector<std::span<std::byte const>> messages;

  arrived(gs::device const& where, std::vector<bytes> const& all) {
    for (auto const& each : all) memory.emplace_back(where, each);
    for (auto const& each : memory) messages.emplace_back(each.span());
  }
};

/// Averages in both spaces, in the format T; the same bits and the same numbers.
template <class T, class Recipe>
void same_average(gs::layout const& layers, Recipe const& recipe, std::vector<bytes> const& all) {
  stream const own;
  poisoned_memory memory;
  gs::device const where{own, &memory};
  gs::averager host{here, layers, recipe.codec, recipe.passthrough};
  gs::averager device{where, layers, recipe.codec, recipe.passthrough};
  for (std::size_t const count : {all.size(), std::size_t{0}, std::size_t{1}}) {
    CAPTURE(count);
    std::vector<bytes> const some(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
    std::vector<T> expected(layers.size(), gs::from_float_saturated<T>(7.0f));
    array<T> const update{where, expected};
    auto const of_host = host.apply(std::vector<std::span<std::byte const>>(some.begin(), some.end()), expected);
    auto const of_device = device.apply(arrived{where, some}.messages, update.span());
    CHECK(steps::same_bits(update.get(), expected));
    CHECK(of_device.entries == of_host.entries);
    CHECK(of_device.saturated == of_host.saturated);
  }
}

}  // namespace

TEST_CASE("small: the host's bits, in every format and with every kind of codec") {
  auto const layers = steps::mixed_layers();
  auto const check = [&](auto const& codec) {
    auto const recipe = gs::recipe{.density = 0.03, .codec = codec};
    auto const all = sent_by(3, layers, recipe);
    same_average<float>(layers, recipe, all);
    same_average<gs::float16>(layers, recipe, all);
    same_average<gs::bfloat16>(layers, recipe, all);
  };
  check(gs::coo{});
  check(gs::packed{.indices = gs::raw32{}});
  check(gs::packed{.indices = gs::fixed_width{}, .values = gs::fp16{}});
  check(gs::packed{.indices = gs::elias_fano{}, .values = gs::ternary{}});
  check(gs::packed{.indices = gs::raw32{}, .values = gs::bf16{}});
  check(gs::packed{.indices = gs::fixed_width{}, .values = gs::int4{}});
}

TEST_CASE("small: more messages than a block has threads, some with more entries in a cell than are read at once") {
  auto const layers = gs::layout::flat(9000);
  auto const recipe = gs::recipe{.density = 0.002};
  auto const sparse = sent_by(3, layers, recipe);
  auto const dense = sent_by(2, layers, gs::recipe{.density = 0.6}, 0.5f);
  std::vector<bytes> all;
  for (std::size_t i = 0; i < 300; ++i) all.push_back(i % 97 == 50 ? dense[i % 2] : sparse[i % 3]);
  same_average<float>(layers, recipe, all);
  same_average<gs::float16>(layers, recipe, all);
}

TEST_CASE("small: layers that pass through") {
  auto const layers = steps::mixed_layers();
  auto const check = [&](gs::passthrough_layers const& passes) {
    auto const recipe = gs::recipe{.density = 0.03, .passthrough = passes};
    same_average<float>(layers, recipe, sent_by(2, layers, recipe));
  };
  check({.patterns = {}});
  check({.patterns = {"*"}});
  check({.patterns = {"head", "conv.*"}, .up_to = 1});
}

TEST_CASE("small: sums that overflow, also of what passes through, and values that a format cannot hold") {
  auto const layers = gs::layout{{"w", 5000}, {"bias", 70}};
  auto const recipe = gs::recipe{.density = 0.02};
  auto const all = sent_by(1, layers, recipe, 1e37f);
  std::vector<bytes> const many(200, all[0]);
  same_average<float>(layers, recipe, many);
  same_average<gs::float16>(layers, recipe, many);
  stream const own;
  gs::device const where{own};
  gs::averager device{where, layers};
  array<float> const update{where, layers.size()};
  device.apply(arrived{where, many}.messages, update.span());
  auto const got = update.get();
  CHECK(std::ranges::all_of(got, [](float x) { return gs::is_finite(x); }));
  float most = 0;
  for (std::size_t i = 5000; i < 5070; ++i) most = std::max(most, gs::abs(got[i]));
  CHECK(most > 0);
  CHECK(most < 3e38f);  // the mean of what the messages hold, not the largest number
}

TEST_CASE("small: damage is refused before the gradient is written, and the next call works") {
  auto const layers = steps::mixed_layers();
  stream const own;
  poisoned_memory memory;
  gs::device const where{own, &memory};
  auto const check = [&](auto const& codec) {
    auto const all = sent_by(2, layers, gs::recipe{.density = 0.03, .codec = codec});
    gs::averager device{where, layers, codec};
    std::vector<float> const before(layers.size(), 5.0f);
    array<float> const update{where, before};
    auto const refused = [&](std::vector<bytes> const& bad) {
      auto const how = steps::ending([&] { device.apply(arrived{where, bad}.messages, update.span()); });
      CHECK(steps::contains(how, "corrupt_message: gradsieve: "));
      CHECK(steps::same_bits(update.get(), before));
    };
    for (auto const at : {std::size_t{3}, std::size_t{20}, std::size_t{40}, std::size_t{70}, all[1].size() - 1}) {
      CAPTURE(at);
      auto bad = all;
      bad[1][at] ^= std::byte{0x10};
      refused(bad);
      bad = all;
      bad[1].resize(at);
      refused(bad);
    }
    device.apply(arrived{where, all}.messages, update.span());
    CHECK(!steps::same_bits(update.get(), before));
  };
  check(gs::coo{});
  check(gs::packed{.indices = gs::fixed_width{}, .values = gs::fp16{}});
}

TEST_CASE("small: an averager that was moved from refuses; arguments; gradients in CUDA's own formats") {
  auto const layers = steps::mixed_layers();
  auto const codec = gs::packed{.indices = gs::fixed_width{}, .values = gs::ternary{}};  // reads the layout
  auto const all = sent_by(2, layers, gs::recipe{.density = 0.03, .codec = codec});
  stream const own;
  gs::device const where{own};
  gs::averager first{where, layers, codec};
  array<gs::float16> const expected{where, layers.size()};
  arrived const in{where, all};
  first.apply(in.messages, expected.span());
  gs::averager second = std::move(first);
  array<__half> const update{where, layers.size()};
  CHECK(steps::ending([&] { first.apply(in.messages, update.span()); }) ==
        "invalid_argument: gradsieve: this averager was moved from");
  second.apply(in.messages, update.span());
  auto const got = fetched(where, reinterpret_cast<gs::float16 const*>(update.span().data()), layers.size());
  CHECK(steps::same_bits(got, expected.get()));
  CHECK(second.layers() == layers);
  CHECK(second.codec() == codec);
  CHECK(steps::ending([&] { second.apply(in.messages, update.span().first(8)); }) ==
        "invalid_argument: gradsieve: gradient has 8 elements, the layout has " + std::to_string(layers.size()));
}

namespace {

/// Counts the bytes that are given out.
class counting_memory final : public std::pmr::memory_resource {
 public:
  std::uint64_t bytes = 0;

 private:
  void* do_allocate(std::size_t size, std::size_t alignment) override {
    bytes += size;
    return gs::cuda_memory_resource::instance()->allocate(size, alignment);
  }
  void do_deallocate(void* memory, std::size_t size, std::size_t alignment) override {
    gs::cuda_memory_resource::instance()->deallocate(memory, size, alignment);
  }
  [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
    return this == &other;
  }
};

}  // namespace

TEST_CASE("an averager of 2^22 elements needs device memory for directories and entries, not for elements") {
  constexpr std::uint64_t n = std::uint64_t{1} << 22;
  auto const layers = gs::layout::flat(n);
  counting_memory memory;
  gs::device const where{nullptr, &memory};
  gs::averager device{where, layers};
  CHECK(memory.bytes < 200'000);
  std::vector<gs::index_type> const indices{7, 4'000'000};
  std::vector<float> const values{1.0f, 2.0f};
  bytes message(gs::coo{}.max_bytes(n, 2, 0));
  static_cast<void>(gs::coo{}.encode({n, layers.hash(), 0, &layers}, {indices, values, {}}, message));
  gs::device const elsewhere{};
  arrived const in{elsewhere, {message, message}};
  array<float> const update{elsewhere, n};
  CHECK(device.apply(in.messages, update.span()).entries == 2);
  CHECK(memory.bytes < 300'000);
  CHECK(fetched(elsewhere, update.span().data() + 4'000'000, 1)[0] == 2.0f);
}

TEST_CASE("small: encode() takes what the last compress() returned, and nothing older") {
  auto const layers = steps::mixed_layers();
  auto const n = layers.size();
  stream const own;
  poisoned_memory memory;
  gs::device const where{own, &memory};
  gs::compressor compressor{where, layers, gs::recipe{.density = 0.05}};
  gs::compressor host{here, layers, gs::recipe{.density = 0.05}};
  array<float> const gradient{where, n};
  auto const step = [&](std::uint64_t s) {
    gradient.put(steps::gradient(n, 0, s));
    return compressor.compress(gradient.span());
  };
  auto const how = [&](gs::device_selection const& selection) {
    return steps::ending([&] { static_cast<void>(compressor.encode(selection)); });
  };
  std::string const none = "invalid_argument: gradsieve: encode() needs a compress() that succeeded as the last step";
  std::string const other =
      "invalid_argument: gradsieve: encode() was given a selection that the last compress() did not return";
  CHECK(how({}) == none);
  auto const first = step(0);
  CHECK(how(first) == "");
  CHECK(how({}) == other);
  auto const second = step(1);
  REQUIRE(second.indices == first.indices);
  CHECK(how(first) == other);
  auto changed = second;
  changed.passthrough = changed.passthrough.first(3);
  CHECK(how(changed) == other);
  changed = second;
  changed.count = nullptr;
  CHECK(how(changed) == other);

  SUBCASE("what only reads leaves it as it is") {
    host.compress(steps::gradient(n, 0, 0));
    auto const expected = host.encode(host.compress(steps::gradient(n, 0, 1)));
    static_cast<void>(compressor.residual_norm());
    static_cast<void>(compressor.state());
    compressor.rescale(0.5f);
    auto const message = compressor.encode(second);
    CHECK(steps::same_bits(std::span<std::byte const>{fetched(where, message.data(), expected.size())}, expected));
  }
  SUBCASE("after an exchange") {
    compressor.exchange(gs::self{}, gradient.span());
    CHECK(how(second) == none);
  }
  SUBCASE("after it was discarded") {
    compressor.discard_step();
    CHECK(how(second) == none);
  }
  SUBCASE("after a checkpoint, an absorbed one, a world made anew") {
    auto const state = compressor.state();
    compressor.restore(state);
    CHECK(how(second) == none);
    auto const third = step(2);
    CHECK(how(second) == other);
    compressor.absorb(state);
    CHECK(how(third) == none);
    auto const fourth = step(3);
    compressor.connect(gs::self{});
    CHECK(how(fourth) == none);
  }
}
