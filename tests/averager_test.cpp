// A transport of one's own: encode() of a selection on one side, an averager on the other.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/averager.hpp>
#include <gradsieve/comm/self.hpp>

#include "allocations.hpp"
#include "golden.hpp"
#include "messages.hpp"
#include "steps.hpp"

using namespace steps;
using messages::content;

namespace {

gs::host const here{.threads = 1};
constexpr float largest = gs::largest_value<float>;
constexpr float not_a_number = std::bit_cast<float>(0x7FC0'0000u);

using bytes = std::vector<std::byte>;

bytes copy_of(std::span<std::byte const> message) { return {message.begin(), message.end()}; }

std::vector<std::span<std::byte const>> spans_of(std::vector<bytes> const& all) { return {all.begin(), all.end()}; }

content copy_of(gs::selection_view const& from) {
  return {{from.indices.begin(), from.indices.end()},
          {from.values.begin(), from.values.end()},
          {from.passthrough.begin(), from.passthrough.end()}};
}

/// Calls check(codec) for each codec, golden's and one more.
template <class Check>
void for_each_codec(Check const& check) {
  golden::for_each_codec([&](std::string const& name, auto const& codec) {
    CAPTURE(name);
    check(codec);
  });
  check(gs::packed{.indices = gs::delta{}, .values = gs::bf16{}});
}

/// A recipe whose default is changed by its codec, and by a selector with bins where the codec needs one.
template <class Codec>
auto with(Codec const& codec, double density = 0.02) {
  if constexpr (gs::bin_codec<Codec>)
    return gs::recipe{.density = density, .selector = gs::adacomp{}, .partitioner = gs::layerwise{}, .codec = codec};
  else
    return gs::recipe{.density = density, .codec = codec};
}

/// Messages of that many ranks.
template <class Recipe>
std::vector<bytes> sent_by(int ranks, gs::layout const& layers, Recipe const& recipe, float scale = 1) {
  std::vector<bytes> all;
  for (int r = 0; r < ranks; ++r) {
    gs::compressor sender{here, layers, recipe};
    auto g = gradient(layers.size(), r, 0);
    for (float& x : g) x *= scale;
    all.push_back(copy_of(sender.encode(sender.compress(g))));
  }
  return all;
}

/// The mean as the documentation says it: sums in the order of messages, one division.
template <class Codec>
std::vector<float> documented_mean(std::vector<bytes> const& all, gs::layout const& layers,
                                   gs::passthrough_layers const& passes, Codec const& codec) {
  gs::detail::layer_split const split{layers, passes};
  auto const bins = gs::detail::layer_bins_of(gs::adacomp{}, codec, layers);
  gs::message_info const info{layers.size(), layers.hash(), split.passthrough_elements, &layers, bins};
  std::vector<float> sum(layers.size());
  std::vector<bool> has(layers.size());
  auto const add = [&](std::uint64_t i, float value) {
    sum[i] = has[i] ? sum[i] + value : value;
    has[i] = true;
  };
  for (auto const& each : all) {
    auto const got = messages::decoded(codec, info, each, layers.size());
    for (std::size_t e = 0; e < got.indices.size(); ++e) add(got.indices[e], got.values[e]);
    std::size_t at = 0;
    for (auto const& whole : split.passthrough)
      for (auto i = whole.offset; i < whole.offset + whole.size; ++i) add(i, got.passthrough[at++]);
  }
  for (float& x : sum) x /= static_cast<float>(std::max<std::size_t>(all.size(), 1));
  return sum;
}

/// Averages of no message and of some, in the format T.
template <class T, class Server, class Codec>
void check_means(Server& server, Codec const& codec) {
  auto const& layers = server.layers();
  auto const all = sent_by(3, layers, with(codec));
  for (std::size_t const count : {1u, 3u, 0u, 2u}) {
    CAPTURE(count);
    std::vector<bytes> const some(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
    std::vector<T> update(layers.size(), gs::from_float_saturated<T>(7.0f));
    auto const applied = server.apply(spans_of(some), update);
    auto const expected = documented_mean(some, layers, {}, codec);
    CHECK(same_bits(update, data::as<T>(expected)));
    CHECK(applied.saturated == 0);
    CHECK((applied.entries > 0) == (count > 0));
  }
}

static_assert(std::is_same_v<decltype(gs::averager{here, gs::layout{}}), gs::averager<gs::host, gs::coo>>);
static_assert(
    std::is_same_v<decltype(gs::averager{here, gs::layout{}, gs::packed{}}), gs::averager<gs::host, gs::packed<>>>);
static_assert(!std::is_copy_constructible_v<gs::averager<gs::host>>);
static_assert(std::is_nothrow_move_constructible_v<gs::averager<gs::host>> ==
              std::is_nothrow_move_constructible_v<gs::compressor<gs::host, gs::recipe<>>>);

}  // namespace

// ---- Averages ----------------------------------------------------------------------------------------------

TEST_CASE("the mean of messages of every codec, in every format of the gradient") {
  auto const layers = mixed_layers();
  for_each_codec([&](auto const& codec) {
    gs::averager server{here, layers, with(codec)};
    check_means<float>(server, codec);
    check_means<gs::float16>(server, codec);
    check_means<gs::bfloat16>(server, codec);
  });
}

TEST_CASE("the same bits on any number of threads, and from any span of the gradient") {
  auto const layers = gs::layout{{"w", 100'000}, {"bias", 100}};
  auto const all = sent_by(4, layers, gs::recipe{.density = 0.3});
  gs::averager server{here, layers};
  std::vector<float> update(layers.size());
  auto const applied = server.apply(spans_of(all), update);
  for (int const threads : {0, 2, 7}) {
    gs::averager other{gs::host{.threads = threads}, layers};
    std::vector<float> again(layers.size() + 1, 5.0f);
    CHECK(other.apply(spans_of(all), std::span{again}.subspan(1)).entries == applied.entries);
    CHECK(same_bits(std::span<float const>{again}.subspan(1), std::span<float const>{update}));
  }
}

TEST_CASE("messages may lie in the gradient that their mean overwrites") {
  auto const layers = gs::layout{{"w", 10'000}};
  auto const all = sent_by(3, layers, gs::recipe{.density = 0.1});
  gs::averager server{here, layers};
  std::vector<float> update(layers.size());
  server.apply(spans_of(all), update);
  std::vector<float> shared(layers.size());
  auto const memory = std::as_writable_bytes(std::span{shared});
  std::vector<std::span<std::byte const>> moved;
  for (std::size_t at = 0; auto const& each : all) {
    std::ranges::copy(each, memory.begin() + static_cast<std::ptrdiff_t>(at));
    moved.emplace_back(memory.subspan(at, each.size()));
    at += each.size();
  }
  server.apply(std::span{std::as_const(moved)}, shared);
  CHECK(same_bits(std::span<float const>{shared}, std::span<float const>{update}));
}

TEST_CASE("of several damaged messages the first one is named, whichever thread reads it") {
  auto const layers = gs::layout{{"w", 100'000}};
  auto const all = sent_by(4, layers, gs::recipe{.density = 0.3});
  auto bad = all;
  bad[1].pop_back();
  bad[2][0] ^= std::byte{1};
  bad[3][100] ^= std::byte{1};
  for (int const threads : {1, 2, 4}) {
    CAPTURE(threads);
    gs::averager server{gs::host{.threads = threads}, layers};
    std::vector<float> update(layers.size(), 5.0f);
    CHECK(contains(ending([&] { server.apply(spans_of(bad), update); }), "message size"));
    CHECK(update == std::vector<float>(layers.size(), 5.0f));
    server.apply(spans_of(all), update);
    CHECK(same_bits(update, documented_mean(all, layers, {}, gs::coo{})));
  }
}

TEST_CASE("layers that pass through are the averager's fourth argument, as in the sender's recipe") {
  auto const layers = mixed_layers();
  auto const check = [&](gs::passthrough_layers const& passes) {
    auto const recipe = gs::recipe{.density = 0.02, .passthrough = passes};
    auto const all = sent_by(2, layers, recipe);
    gs::averager server{here, layers, recipe.codec, recipe.passthrough};
    std::vector<float> update(layers.size(), not_a_number);
    server.apply(spans_of(all), update);
    CHECK(same_bits(update, documented_mean(all, layers, passes, recipe.codec)));
    gs::averager other{here, layers, recipe.codec, {.patterns = {"conv.weight"}}};
    CHECK(contains(ending([&] { other.apply(spans_of(all), update); }), "corrupt_message: gradsieve: message "));
  };
  check({});
  check({.patterns = {}});
  check({.patterns = {"*"}});
  check({.patterns = {"head", "conv.*"}, .up_to = 1});
}

TEST_CASE("any number of messages, in any order of sizes, of any density") {
  auto const layers = mixed_layers();
  auto all = sent_by(3, layers, gs::recipe{.density = 0.02});
  auto const passthrough = sent_by(1, layers, gs::recipe{.density = 1.0});
  all.push_back(passthrough[0]);
  for (auto const& order : {std::vector<std::size_t>{0, 1, 4}, {4, 1, 0, 2}, {1, 0}}) {
    gs::averager server{here, layers};
    for (auto const count : order) {
      CAPTURE(count);
      std::vector<bytes> const some(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
      std::vector<float> update(layers.size(), not_a_number);
      server.apply(spans_of(some), update);
      CHECK(same_bits(update, documented_mean(some, layers, gs::passthrough_layers{}, gs::coo{})));
    }
  }
}

TEST_CASE("nothing to average: no messages, messages without entries, no elements, no layers") {
  for_each_codec([&](auto const& codec) {
    auto const check = [&](gs::layout const& layers) {
      gs::averager server{here, layers, with(codec)};
      std::vector<float> update(layers.size(), 3.0f);
      CHECK(server.apply({}, update).entries == 0);
      CHECK(update == std::vector<float>(layers.size()));
      gs::compressor idle{here, layers, with(codec)};
      auto const nothing = copy_of(idle.encode(idle.compress(std::vector<float>(layers.size()))));
      std::fill(update.begin(), update.end(), 3.0f);
      CHECK(server.apply(spans_of({nothing, nothing}), update).entries == 0);
      CHECK(update == std::vector<float>(layers.size()));
    };
    check(mixed_layers());
    check(gs::layout::flat(0));
    check(gs::layout{});
    check(gs::layout{{"bias", 3}});
  });
}

TEST_CASE("the mean of messages is finite, whatever they hold") {
  gs::layout const layers{{"w", 50}, {"bias", 2}};
  gs::compressor sender{here, layers, gs::recipe{.density = 0.02}};
  std::vector<float> g(52);
  g[7] = g[50] = 0.9f * largest;
  auto const message = copy_of(sender.encode(sender.compress(g)));
  std::vector<std::span<std::byte const>> const five(5, message);
  gs::averager server{here, layers};
  SUBCASE("in binary32 it is what each of them holds") {
    std::vector<float> update(52);
    auto const applied = server.apply(five, update);
    CHECK(update[7] == 0.9f * largest);
    CHECK(update[50] == 0.9f * largest);
    CHECK(applied.saturated == 0);
    CHECK(applied.entries == 1);
  }
  SUBCASE("in float16 it is the largest number, and that is counted") {
    std::vector<gs::float16> update(52);
    auto const applied = server.apply(five, update);
    CHECK(gs::to_float(update[7]) == 65504.0f);
    CHECK(gs::to_float(update[50]) == 65504.0f);
    CHECK(applied.saturated == 2);
  }
  SUBCASE("in bfloat16 as well") {
    g[7] = g[50] = largest;
    auto const more = copy_of(sender.encode(sender.compress(g)));
    std::vector<gs::bfloat16> update(52);
    auto const applied = server.apply(spans_of({more, more}), update);
    CHECK(gs::to_float(update[50]) == gs::largest_value<gs::bfloat16>);
    CHECK(applied.saturated >= 1);
  }
}

TEST_CASE("damage of any byte, of every codec: refused before the gradient is written, and the next call works") {
  auto const layers = mixed_layers();
  for_each_codec([&](auto const& codec) {
    auto const all = sent_by(2, layers, with(codec));
    gs::averager server{here, layers, with(codec)};
    std::vector<float> expected(layers.size());
    server.apply(spans_of(all), expected);
    std::vector<float> const before(layers.size(), 5.0f);
    for (std::size_t at = 0; at < all[1].size(); at += 1 + at / 16) {
      CAPTURE(at);
      auto bad = all;
      bad[1][at] ^= std::byte{0x10};
      auto update = before;
      CHECK(contains(ending([&] { server.apply(spans_of(bad), update); }), "corrupt_message: gradsieve: message "));
      bad = all;
      bad[1].resize(at);
      CHECK(contains(ending([&] { server.apply(spans_of(bad), update); }), "corrupt_message: gradsieve: message "));
      CHECK(update == before);
      server.apply(spans_of(all), update);
      CHECK(same_bits(update, expected));
    }
  });
}

// ---- What an averager owns ---------------------------------------------------------------------------------

TEST_CASE("a server that averages messages needs memory for their entries, not for n") {
  constexpr std::uint64_t n = 1'000'000;
  constexpr std::size_t senders = 64;
  gs::compressor sender{here, gs::layout::flat(n), gs::recipe{.density = 0.001}};
  auto const message = sender.encode(sender.compress(gradient(n, 0, 0)));
  std::vector<std::span<std::byte const>> const all(senders, message);
  std::vector<float> update(n);
  auto const entries = 1000 * senders;
  SUBCASE("with coo") {
    gs::averager server{here, gs::layout::flat(n)};
    auto const before = allocated_bytes.load();
    server.apply(all, update);
    if (!sanitized) CHECK(allocated_bytes.load() - before < 2 * 8 * entries + 100 * senders);
  }
  SUBCASE("also where a header lies") {
    gs::averager server{here, gs::layout::flat(n)};
    auto liar = copy_of(message);
    gs::wire::store_one(std::span{liar}.subspan(24), std::uint64_t{n});
    std::vector<std::span<std::byte const>> const lies(senders, liar);
    auto const before = allocated_bytes.load();
    CHECK(contains(ending([&] { server.apply(lies, update); }), "corrupt_message: gradsieve: message size is "));
    if (!sanitized) CHECK(allocated_bytes.load() - before < 2 * 8 * entries + 100 * senders + 1000);
  }
  SUBCASE("with packed") {
    auto const check = [&](auto const& codec) {
      gs::compressor packing{here, gs::layout::flat(n), with(codec, 0.001)};
      gs::averager server{here, gs::layout::flat(n), codec};
      std::vector<std::span<std::byte const>> const packed(senders,
                                                           packing.encode(packing.compress(gradient(n, 0, 0))));
      auto const before = allocated_bytes.load();
      server.apply(packed, update);
      if (!sanitized) CHECK(allocated_bytes.load() - before < 2 * 8 * entries + 100 * senders);
    };
    check(gs::packed{.indices = gs::delta{}, .values = gs::ternary{}});
    check(gs::packed{.indices = gs::fixed_width{}, .values = gs::fp16{}});
    check(gs::packed<>{});
  }
}

TEST_CASE("2^24 elements: constructor and first average need a few kilobytes; the next one allocates nothing") {
  constexpr std::uint64_t n = std::uint64_t{1} << 24;
  auto const layers = gs::layout{{"w", n - 64}, {"bias", 64}};
  content entries{{1, 70'000, 16'000'000}, {1.0f, -2.0f, 3.0f}, std::vector<float>(64, 0.5f)};
  auto const message = messages::encoded(gs::coo{}, {n, layers.hash(), 64, &layers}, entries);
  std::vector<std::span<std::byte const>> const all(2, message);
  std::vector<float> update(n);
  auto const before = allocated_bytes.load();
  gs::averager server{here, layers};
  CHECK(server.apply(all, update).entries == 3);
  if (!sanitized) CHECK(allocated_bytes.load() - before < 32'000);
  auto const calls = allocations.load();
  server.apply(all, update);
  CHECK(allocations.load() == calls);
  CHECK(update[70'000] == -2.0f);
  CHECK(update[n - 1] == 0.5f);
}

TEST_CASE("an averager that was moved from refuses, and can be given another") {
  auto const layers = mixed_layers();
  auto const codec = gs::packed{.values = gs::ternary{}};  // reads the layout
  auto const all = sent_by(2, layers, with(codec));
  gs::averager first{here, layers, codec};
  std::vector<float> expected(layers.size());
  first.apply(spans_of(all), expected);
  gs::averager second = std::move(first);
  std::vector<float> update(layers.size());
  std::string const sentence = "invalid_argument: gradsieve: this averager was moved from";
  CHECK(ending([&] { first.apply(spans_of(all), update); }) == sentence);
  CHECK(ending([&] { (void)first.layers(); }) == sentence);
  CHECK(ending([&] { (void)first.codec(); }) == sentence);
  CHECK(update == std::vector<float>(layers.size()));
  second.apply(spans_of(all), update);
  CHECK(same_bits(update, expected));
  first = std::move(second);
  CHECK(ending([&] { second.apply({}, update); }) == sentence);
  std::fill(update.begin(), update.end(), 9.0f);
  first.apply(spans_of(all), update);
  CHECK(same_bits(update, expected));
  CHECK(first.layers() == layers);
  CHECK(first.codec() == codec);
}

TEST_CASE("an averager's arguments") {
  CHECK(contains(
      ending([] { gs::averager{here, gs::layout::flat(9), gs::packed{.indices = gs::fixed_width{.chunk = 3}}}; }),
      "invalid_argument: gradsieve: fixed_width's chunk"));
  gs::averager server{here, gs::layout::flat(9)};
  std::vector<float> wrong(8, 1.0f);
  CHECK(ending([&] { server.apply({}, wrong); }) ==
        "invalid_argument: gradsieve: gradient has 8 elements, the layout has 9");
  CHECK(wrong == std::vector<float>(8, 1.0f));
}

// ---- Selections --------------------------------------------------------------------------------------------

TEST_CASE("encode() takes what the last compress() returned, and nothing older") {
  auto const layers = mixed_layers();
  auto const n = layers.size();
  gs::compressor compressor{here, layers, gs::recipe{.density = 0.05}};
  auto const step = [&](std::uint64_t s) { return compressor.compress(gradient(n, 0, s)); };
  auto const how = [&](auto const& selection) { return ending([&] { (void)compressor.encode(selection); }); };
  std::string const none = "invalid_argument: gradsieve: encode() needs a compress() that succeeded as the last step";
  std::string const other =
      "invalid_argument: gradsieve: encode() was given a selection that the last compress() did not return";
  CHECK(how(gs::host_selection{}) == none);

  auto const first = step(0);
  auto const message = copy_of(compressor.encode(first));
  CHECK(compressor.report().bytes_sent == message.size());
  CHECK(same_bits(compressor.encode(first), std::span<std::byte const>{message}));
  gs::selection_view const sliced = first;
  CHECK(same_bits(compressor.encode(sliced), std::span<std::byte const>{message}));
  CHECK(how(gs::host_selection{}) == other);
  CHECK(how(gs::selection_view{first.indices.first(3), first.values.first(3), first.passthrough}) == other);

  auto const second = step(1);  // as many entries in the same memory
  REQUIRE(second.indices.data() == first.indices.data());
  REQUIRE(second.indices.size() == first.indices.size());
  CHECK(how(first) == other);
  CHECK(compressor.report().bytes_sent == 0);
  CHECK(how(second) == "");

  SUBCASE("after an exchange") {
    auto update = gradient(n, 0, 2);
    compressor.exchange(gs::self{}, update);
    CHECK(how(second) == none);
    CHECK(how(gs::selection_view{second}) == other);
  }
  SUBCASE("after a compress() that was refused") {
    CHECK(contains(ending([&] { compressor.compress(std::vector<float>(3)); }), "gradient has 3 elements"));
    CHECK(how(second) == none);
  }
  SUBCASE("after it was discarded") {
    compressor.discard_step();
    CHECK(how(second) == none);
    CHECK(how(gs::selection_view{second}) == other);
  }
  SUBCASE("after a checkpoint of the same step") {
    gs::compressor earlier{here, layers, gs::recipe{.density = 0.05}};
    earlier.compress(gradient(n, 0, 0));
    compressor.restore(earlier.state());
    CHECK(how(second) == none);
    auto const again = step(1);
    CHECK(compressor.step() == 2);
    CHECK(how(second) == other);
    CHECK(how(again) == "");
  }
  SUBCASE("of another compressor") {
    gs::compressor twin{here, layers, gs::recipe{.density = 0.05}};
    twin.compress(gradient(n, 0, 0));
    CHECK(how(twin.compress(gradient(n, 0, 1))) == other);
  }
  SUBCASE("what only reads leaves it as it is") {
    auto const expected = copy_of(compressor.encode(second));
    (void)compressor.residual_norm();
    (void)compressor.state();
    compressor.rescale(0.5f);
    CHECK(same_bits(compressor.encode(second), std::span<std::byte const>{expected}));
    auto moved = std::move(compressor);
    CHECK(same_bits(moved.encode(second), std::span<std::byte const>{expected}));
  }
}

TEST_CASE("encode() takes a copy of an earlier selection, of every codec, for the same bytes") {
  auto const layers = mixed_layers();
  for_each_codec([&](auto const& codec) {
    gs::compressor compressor{here, layers, with(codec)};
    auto const selection = compressor.compress(gradient(layers.size(), 0, 0));
    auto const kept = copy_of(selection);
    auto const message = copy_of(compressor.encode(selection));
    auto const next = compressor.compress(gradient(layers.size(), 0, 1));
    auto const expected = copy_of(compressor.encode(next));
    auto const sent = compressor.report().bytes_sent;
    CHECK(same_bits(compressor.encode(kept.view()), std::span<std::byte const>{message}));
    CHECK(compressor.report().bytes_sent == sent);
    CHECK(same_bits(compressor.encode(next), std::span<std::byte const>{expected}));
  });
}

TEST_CASE("encode() refuses a selection that no message can hold") {
  auto const layers = gs::layout{{"a", 50}, {"bias", 3}, {"b", 47}, {"norm", 2}};
  auto const n = layers.size();
  content const good{{3, 7, 53, 99}, {1.0f, -2.0f, 0.0f, 1e-40f}, {1, 2, 3, 4, 5}};
  gs::compressor compressor{here, layers, gs::recipe{.density = 0.1}};
  auto const how = [&](content const& from) { return ending([&] { (void)compressor.encode(from.view()); }); };
  auto const changed = [&](auto const& change) {
    auto from = good;
    change(from);
    return how(from);
  };
  std::string const refused = "invalid_argument: gradsieve: selection ";
  CHECK(how(good) == "");
  CHECK(compressor.report().bytes_sent == 0);
  gs::averager server{here, layers};
  std::vector<float> update(n);
  auto const message = compressor.encode(good.view());
  server.apply(std::array{message}, update);
  CHECK(update[7] == -2.0f);
  CHECK(update[101] == 5.0f);

  CHECK(changed([](auto& s) { s.values.pop_back(); }) == refused + "has 4 indices and 3 values");
  CHECK(changed([](auto& s) { s.passthrough.pop_back(); }) ==
        refused + "has 4 elements that pass through, the layout has 5");
  CHECK(contains(changed([](auto& s) {
                   for (s.indices.clear(); s.indices.size() < 20;)
                     s.indices.push_back(static_cast<gs::index_type>(s.indices.size()));
                   s.values.resize(20);
                 }),
                 refused + "has 20 entries, the recipe sends at most 1"));
  CHECK(changed([](auto& s) { s.indices[1] = 3; }) == refused + "has indices that do not rise strictly");
  CHECK(changed([](auto& s) { s.indices[2] = 6; }) == refused + "has indices that do not rise strictly");
  CHECK(changed([](auto& s) { s.indices[3] = 102; }) == refused + "has index 102, which is not below 102");
  CHECK(changed([](auto& s) { s.indices[3] = ~0u; }) == refused + "has index 4294967295, which is not below 102");
  CHECK(changed([](auto& s) { s.indices[2] = 50; }) == refused + "has index 50 of a layer that passes through");
  CHECK(changed([](auto& s) { s.indices[2] = 52; }) == refused + "has index 52 of a layer that passes through");
  CHECK(changed([](auto& s) { s.indices[3] = 100; }) == refused + "has index 100 of a layer that passes through");
  CHECK(changed([](auto& s) { s.values[0] = not_a_number; }) == refused + "has a value that is not finite");
  CHECK(changed([](auto& s) { s.passthrough[4] = -1 / 0.0f; }) == refused + "has a value that is not finite");

  gs::compressor rounding{here, layers, with(gs::packed{.values = gs::fp16{}}, 0.1)};
  CHECK(contains(ending([&] { (void)rounding.encode(good.view()); }), "has a value that the codec would round"));
  gs::compressor signs{here, layers, with(gs::packed{.values = gs::ternary{}}, 0.1)};
  CHECK(contains(ending([&] { (void)signs.encode(good.view()); }), "has a value that the codec would round"));
}
