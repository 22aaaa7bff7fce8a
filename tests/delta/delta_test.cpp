// Weight deltas: what comes back has the bits of the new version, and what is not the next message changes nothing.
// GRADSIEVE_DELTA_MUTATIONS=1000000 tries more damaged messages.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/delta.hpp>

#include "delta_weights.hpp"

// ThreadSanitizer has operators new of its own.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GRADSIEVE_TEST_NO_ALLOCATIONS
#endif
#endif
#if !defined(GRADSIEVE_TEST_NO_ALLOCATIONS)
#include "failing_allocations.hpp"
#endif

namespace gs = gradsieve;
using namespace delta_weights;

namespace {

constexpr std::size_t header_bytes = 64;

gs::layout example_layers() {
  return gs::layout{{"embedding", 70'000}, {"none", 0}, {"bias", 1},   {"norm", 63},
                    {"linear", 65'536},    {"b", 64},   {"head", 300}, {"empty", 0}};
}

bool says(std::string const& text, char const* part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE_TEMPLATE("the new version's bits come back", T, float, gs::float16, gs::bfloat16, std::uint8_t, std::int8_t,
                   std::byte) {
  std::vector<gs::layout> const layouts{example_layers(),       gs::layout{},
                                        gs::layout::flat(0),    gs::layout::flat(1),
                                        gs::layout::flat(1000), gs::layout{{"a", 0}, {"b", 65'537}}};
  std::uint64_t seed = 1;
  for (auto const& layers : layouts)
    for (double const part : {0.0, 0.0003, 0.01, 0.08, 0.4, 0.92, 1.0}) {
      CAPTURE(layers.size());
      CAPTURE(part);
      auto const before = random_weights<T>(layers.size(), ++seed);
      auto const after = changed(before, part, ++seed);
      bytes first;
      for (auto const& where : {gs::host{1}, gs::host{2, gs::simd::avx2}, gs::host{3, gs::simd::portable}}) {
        gs::delta_encoder encoder{where, layers};
        auto const message = bytes_of(encoder.encode(before, after));
        if (first.empty()) first = message;
        CHECK(message == first);
        gs::delta_decoder decoder{where, layers};
        auto weights = before;
        decoder.apply(message, weights);
        CHECK(same_bits(weights, after));
        CHECK(decoder.version() == 1);
        CHECK(decoder.complete());

        gs::delta_encoder own{where, layers};
        own.keep(before);
        CHECK(bytes_of(own.encode(after)) == message);
        CHECK(own.encode(after).size() <= header_bytes + 1);  // the copy is up to date
        CHECK(gs::weights_fingerprint(where, layers, weights) == gs::weights_fingerprint(gs::host{1}, layers, after));
      }
      auto const one_more = layers.size() / 65'536 + layers.count() + 1;
      CHECK(first.size() <= header_bytes + layers.size() * sizeof(T) + 3 * one_more);
      if (part == 0.0) CHECK(first.size() <= header_bytes + (one_more + 7) / 8);
    }
}

TEST_CASE("two versions that are given drop the encoder's copy, which would be of an older one") {
  gs::layout const layers{{{"a", 4}}};
  std::vector<float> const first{1, 2, 3, 4}, second{5, 2, 3, 4}, third{5, 6, 3, 4};
  gs::delta_encoder encoder{gs::host{.threads = 1}, layers};
  CHECK(encoder.chunks().empty());
  encoder.keep(first);
  static_cast<void>(encoder.encode(first, second));
  CHECK_THROWS_AS(static_cast<void>(encoder.encode(third)), gs::invalid_argument);
  encoder.keep(second, encoder.version());
  auto weights = second;
  gs::delta_decoder{gs::host{.threads = 1}, layers, 1}.apply(encoder.encode(third), weights);
  CHECK(weights == third);
}

TEST_CASE("a message in the memory of the weights is refused, and no weight changes") {
  gs::layout const layers{{{"a", 3000}}};
  std::vector<std::byte> before(3000), after(3000);
  for (std::size_t i = 0; i < after.size(); i += 20) after[i] = std::byte{7};
  gs::delta_encoder encoder{gs::host{.threads = 1}, layers};
  auto const message = encoder.encode(before, after);
  auto weights = before;
  std::ranges::copy(message, weights.begin() + 9);
  auto const held = weights;
  gs::delta_decoder decoder{gs::host{.threads = 1}, layers};
  CHECK_THROWS_AS(decoder.apply(std::span<std::byte const>{weights}.subspan(9, message.size()), weights),
                  gs::invalid_argument);
  CHECK(weights == held);
}

TEST_CASE("a message of a temporary encoder is its own") {
  gs::layout const layers{{{"a", 1000}}};
  std::vector<float> const before(1000, 1.0f);
  auto after = before;
  after[7] = 2.0f;
  auto const message = gs::delta_encoder{gs::host{.threads = 1}, layers}.encode(before, after);
  gs::delta_encoder encoder{gs::host{.threads = 1}, layers};
  encoder.reserve(10'000);
  CHECK(encoder.message().empty());
  auto const other = encoder.encode(before, after);
  CHECK(std::ranges::equal(other, message));
  CHECK(encoder.message().data() == other.data());
  auto weights = before;
  gs::delta_decoder{gs::host{.threads = 1}, layers}.apply(message, weights);
  CHECK(weights == after);
}

TEST_CASE("NaN payloads and the signs of zeros are bits as others") {
  std::vector<float> before{0.0f, of_bits<float>(0x7FC0'0001), of_bits<float>(0x7F80'0001), 1.0f};
  std::vector<float> after{-0.0f, of_bits<float>(0x7FC0'0002), of_bits<float>(0xFF80'0001), 1.0f};
  before.resize(100, 1.0f);  // whole blocks, and a rest
  after.resize(100, 1.0f);
  after[70] = -1.0f;
  std::rotate(before.begin(), before.begin() + 1, before.begin() + 65);
  std::rotate(after.begin(), after.begin() + 1, after.begin() + 65);
  auto const layers = gs::layout::flat(100);
  for (auto const level : {gs::simd::portable, gs::simd::avx2, gs::simd::avx512}) {
    auto weights = before;
    gs::delta_encoder encoder{gs::host{1, level}, layers};
    gs::delta_decoder{gs::host{1}, layers}.apply(encoder.encode(before, after), weights);
    CHECK(same_bits(weights, after));
    CHECK(encoder.encode(before, after).size() == header_bytes + 1 + 2 + gs::elias_fano{}.max_bytes(100, 4) + 16);
  }
}

TEST_CASE("messages are close to the entropy") {
  auto const layers = gs::layout{{"a", 1'000'000}, {"b", 1'000'000}};
  auto const before = random_weights<gs::bfloat16>(layers.size(), 5);
  auto const bits = [&](double part) {
    auto const after = changed(before, part, 6);
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < after.size(); ++i) count += before[i] != after[i] ? 1 : 0;
    gs::delta_encoder encoder{gs::host{}, layers};
    return 8.0 * static_cast<double>(encoder.encode(before, after).size()) / static_cast<double>(count);
  };
  CHECK(bits(0.001) < 1.1 * (11.41 + 16));
  CHECK(bits(0.01) < 26);
  CHECK(bits(0.08) < 1.1 * (5.03 + 16));
  CHECK(bits(0.5) < 1.1 * (2 + 16));
}

TEST_CASE("a layer that changed wholly has no indices, and one that did not takes a bit") {
  auto const layers = gs::layout{{"frozen", 1'000'000}, {"all", 5'000}, {"rest", 1'000'000}};
  auto const before = random_weights<gs::bfloat16>(layers.size(), 7);
  auto after = before;
  for (std::uint64_t i = 1'000'000; i < 1'005'000; ++i) after[i].bits ^= 1;
  gs::delta_encoder encoder{gs::host{}, layers};
  CHECK(encoder.encode(before, after).size() == header_bytes + 5 + 2 + 10'000);
}

TEST_CASE("weights in pieces") {
  auto const layers = example_layers();
  auto const before = random_weights<gs::bfloat16>(layers.size(), 8);
  auto const after = changed(before, 0.05, 9);
  auto const whole = [&] {
    gs::delta_encoder encoder{gs::host{2}, layers};
    return bytes_of(encoder.encode(before, after));
  }();
  auto const cut = [&](std::vector<gs::bfloat16> const& weights, std::vector<std::size_t> const& sizes) {
    std::vector<std::vector<gs::bfloat16>> parts;
    std::size_t at = 0;
    for (auto const size : sizes) {
      parts.emplace_back(weights.begin() + static_cast<std::ptrdiff_t>(at),
                         weights.begin() + static_cast<std::ptrdiff_t>(at + size));
      at += size;
    }
    return parts;
  };
  std::size_t const n = before.size();
  for (auto const& sizes : std::vector<std::vector<std::size_t>>{
           {n}, {1, 0, 64'000, n - 64'001}, {65'536, 10, 0, n - 65'546}, {30'000, 30'000, 30'000, n - 90'000}}) {
    auto old_parts = cut(before, sizes);
    auto const new_parts = cut(after, {n / 2, n - n / 2});
    gs::delta_encoder encoder{gs::host{2}, layers};
    CHECK(bytes_of(encoder.encode(gs::pieces{old_parts}, gs::pieces{new_parts})) == whole);
    gs::delta_encoder own{gs::host{1}, layers};
    own.keep(gs::pieces{old_parts});
    CHECK(bytes_of(own.encode(gs::pieces{new_parts})) == whole);
    gs::delta_decoder decoder{gs::host{2}, layers};
    decoder.apply(whole, gs::pieces{old_parts});
    CHECK(old_parts == cut(after, sizes));
    CHECK(gs::weights_fingerprint(gs::host{1}, layers, gs::pieces{old_parts}) ==
          gs::weights_fingerprint(gs::host{2}, layers, after));
    // wholly changed sections, and a pointer for each layer
    auto const all = changed(after, 1.0, 10);
    decoder.apply(encoder.encode(gs::pieces{old_parts}, all), gs::pieces{old_parts});
    CHECK(old_parts == cut(all, sizes));
  }
  std::vector<gs::bfloat16 const*> begins;
  for (std::size_t l = 0; l < layers.count(); ++l) begins.push_back(after.data() + layers.offset(l));
  gs::delta_encoder encoder{gs::host{1}, layers};
  CHECK(bytes_of(encoder.encode(before, gs::pieces{begins})) == whole);
}

TEST_CASE("chunks of any size, at once and one by one") {
  auto const layers = example_layers();
  auto const before = random_weights<float>(layers.size(), 11);
  auto after = changed(before, 0.03, 12);
  dice roll{13};
  change(after, 1.0, roll, 70'000, 70'064);
  for (std::uint64_t const most : {65'536u * 4 + 67, 65'536u * 4 + 68, 300'000u, 4'000'000u}) {
    gs::delta_encoder encoder{gs::host{2}, layers, {.chunk_bytes = most}};
    auto const full = changed(before, 1.0, 14);
    for (auto const& target : {after, full}) {
      auto const message = bytes_of(encoder.encode(before, target, {7, 9}));
      std::vector<bytes> parts;
      for (auto const chunk : encoder.chunks()) {
        CHECK(chunk.size() <= most);
        parts.push_back(bytes_of(chunk));
      }
      CHECK(std::ranges::equal(bytes{message}, [&] {
        bytes joined;
        for (auto const& each : parts) joined.insert(joined.end(), each.begin(), each.end());
        return joined;
      }()));
      auto weights = before;
      gs::delta_decoder at_once{gs::host{2}, layers, 7};
      at_once.apply(message, weights);
      CHECK(same_bits(weights, target));
      CHECK(at_once.version() == 9);

      weights = before;
      std::vector<std::span<std::byte const>> const list(parts.begin(), parts.end());
      gs::delta_decoder collected{gs::host{1}, layers, 7};
      collected.apply(std::span{list}, weights);
      CHECK(same_bits(weights, target));

      weights = before;
      gs::delta_decoder one_by_one{gs::host{1}, layers, 7};
      for (std::size_t c = 0; c < parts.size(); ++c) {
        CHECK(one_by_one.version() == 7);
        one_by_one.apply(parts[c], weights);
        CHECK(one_by_one.complete() == (c + 1 == parts.size()));
      }
      CHECK(one_by_one.version() == 9);
      CHECK(same_bits(weights, target));
    }
  }
  CHECK_THROWS_WITH_AS((gs::delta_encoder{gs::host{1}, layers, {.chunk_bytes = 1000}}.encode(before, after)),
                       "gradsieve: delta_options::chunk_bytes is 1000, these layers need at least 262211",
                       gs::invalid_argument);
}

TEST_CASE("chunks that are missing, came twice, or are of another delta") {
  auto const layers = gs::layout::flat(300'000);
  auto const before = random_weights<std::uint8_t>(layers.size(), 15);
  auto const after = changed(before, 0.9, 16);
  auto const other = changed(before, 0.9, 17);
  gs::delta_options const options{.chunk_bytes = 70'000};
  gs::delta_encoder encoder{gs::host{1}, layers, options};
  auto const message = bytes_of(encoder.encode(before, after, {3, 4}));
  std::vector<bytes> chunks;
  for (auto const each : encoder.chunks()) chunks.push_back(bytes_of(each));
  static_cast<void>(encoder.encode(before, other, {3, 5}));
  auto const foreign = bytes_of(encoder.chunks()[1]);
  REQUIRE(chunks.size() == 5);

  auto weights = before;
  gs::delta_decoder decoder{gs::host{1}, layers, 3};
  auto const joined = [&](std::initializer_list<std::size_t> which) {
    bytes all;
    for (auto const c : which) all.insert(all.end(), chunks[c].begin(), chunks[c].end());
    return all;
  };
  CHECK(says(verdict_of(decoder, chunks[1], weights), "missing or came twice"));
  CHECK(says(verdict_of(decoder, joined({0, 2}), weights), "missing or came twice"));
  CHECK(says(verdict_of(decoder, joined({0, 0}), weights), "missing or came twice"));
  CHECK(says(verdict_of(decoder, joined({0, 1, 2, 3, 4, 0}), weights), "behind its last one"));
  auto bad = message;
  bad.insert(bad.begin() + static_cast<std::ptrdiff_t>(chunks[0].size()), foreign.begin(), foreign.end());
  CHECK(says(verdict_of(decoder, bad, weights), "leads to version 5"));
  CHECK(same_bits(weights, before));
  decoder.apply(joined({0, 1}), weights);
  auto const half = weights;
  CHECK(says(verdict_of(decoder, chunks[1], weights), "missing or came twice"));
  CHECK(says(verdict_of(decoder, chunks[3], weights), "missing or came twice"));
  CHECK(says(verdict_of(decoder, message, weights), "missing or came twice"));
  CHECK(says(verdict_of(decoder, foreign, weights), "leads to version 5"));
  CHECK(same_bits(weights, half));
  decoder.restart();
  CHECK(says(verdict_of(decoder, foreign, weights), "leads to version 5"));
  decoder.apply(message, weights);
  CHECK(same_bits(weights, after));
  CHECK(says(verdict_of(decoder, message, weights), "starts from version 3, the weights have version 4"));
  weights = before;
  decoder.reset(3);
  decoder.apply(message, weights);
  CHECK(same_bits(weights, after));
}

TEST_CASE("messages for other weights change nothing") {
  auto const layers = gs::layout{{"a", 100}, {"b", 200}};
  auto const before = random_weights<gs::bfloat16>(300, 18);
  gs::delta_encoder encoder{gs::host{1}, layers};
  auto const message = bytes_of(encoder.encode(before, changed(before, 0.1, 19), {1, 2}));
  auto weights = before;
  gs::delta_decoder decoder{gs::host{1}, layers, 1};
  gs::delta_decoder named{gs::host{1}, gs::layout{{"a", 100}, {"c", 200}}, 1};
  gs::delta_decoder shorter{gs::host{1}, gs::layout::flat(299), 1};
  gs::delta_decoder later{gs::host{1}, layers, 2};
  std::vector<gs::float16> halves(300);
  std::vector<gs::bfloat16> few(299);
  CHECK(says(verdict_of(named, message, weights), "300 weights in other layers than the 300 here"));
  CHECK(says(verdict_of(shorter, message, few), "300 weights in other layers than the 299 here"));
  CHECK(says(verdict_of(later, message, weights), "starts from version 1, the weights have version 2"));
  CHECK(says(verdict_of(decoder, message, halves), "is of bfloat16 weights, these are float16"));
  CHECK_THROWS_WITH_AS(decoder.apply(message, few), "gradsieve: 299 weights, the layout has 300 elements",
                       gs::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(encoder.encode(before, few)), gs::invalid_argument);
  std::vector<std::span<gs::bfloat16>> const shared{std::span{weights}.first(200), std::span{weights}.first(100)};
  CHECK_THROWS_AS(decoder.apply(message, gs::pieces{shared}), gs::invalid_argument);
  CHECK_THROWS_WITH_AS(static_cast<void>(encoder.encode(before)),
                       "gradsieve: this delta_encoder has no copy of bfloat16 weights: call keep() before",
                       gs::invalid_argument);
  encoder.keep(before);
  CHECK_THROWS_AS(static_cast<void>(encoder.encode(halves)), gs::invalid_argument);
  CHECK(same_bits(weights, before));
  CHECK(decoder.version() == 1);
  decoder.apply(message, weights);

  gs::delta_versions const numbers{7, 9};
  static_cast<void>(encoder.encode(before, numbers));
  CHECK(encoder.version() == 9);
  static_cast<void>(encoder.encode(before));
  CHECK(encoder.version() == 10);
  static_cast<void>(encoder.encode(before, {3, 4}));
  CHECK(encoder.version() == 4);

  auto moved = std::move(decoder);
  CHECK(moved.version() == 2);
  CHECK_THROWS_AS(decoder.apply(message, std::span<float>{}), gs::invalid_argument);
}

TEST_CASE("a chain of 1,000 deltas ends with the last version") {
  auto const layers = gs::layout{{"a", 3'000}, {"b", 0}, {"c", 100}};
  auto trained = random_weights<gs::bfloat16>(layers.size(), 20);
  auto weights = trained;
  gs::delta_encoder encoder{gs::host{2}, layers};
  gs::delta_decoder decoder{gs::host{1}, layers, 41};
  encoder.keep(trained, 41);
  dice roll{21};
  bytes log;
  auto const start = weights;
  for (int step = 0; step < 1'000; ++step) {
    change(trained, 0.02, roll, 0, trained.size());
    auto const message = encoder.encode(trained);
    log.insert(log.end(), message.begin(), message.end());
    decoder.apply(message, weights);
    if (step % 100 == 0) CHECK(same_bits(weights, trained));
  }
  CHECK(same_bits(weights, trained));
  CHECK(decoder.version() == 1'041);
  CHECK(encoder.version() == 1'041);

  weights = start;  // from what a file of all messages would hold
  decoder.reset(41);
  for (std::span<std::byte const> left = log; !left.empty();) {
    auto const size = gs::wire::load_one<std::uint64_t>(left.subspan(8));
    decoder.apply(left.first(size), weights);
    left = left.subspan(size);
  }
  CHECK(same_bits(weights, trained));
}

TEST_CASE("damaged and spliced messages change nothing") {
  char const* const asked = std::getenv("GRADSIEVE_DELTA_MUTATIONS");
  std::uint64_t const count = asked == nullptr ? 20'000 : std::strtoull(asked, nullptr, 10);
  auto const layers = gs::layout{{"a", 200}, {"none", 0}, {"b", 40}, {"c", 70}, {"d", 20}, {"e", 9}};
  gs::delta_options const options{.chunk_bytes = 600};
  auto const before = random_weights<gs::bfloat16>(layers.size(), 22);
  std::vector<bytes> messages;
  std::vector<std::vector<std::size_t>> borders;
  std::vector<std::vector<gs::bfloat16>> results;
  for (double const part : {0.02, 0.1, 0.6, 0.97}) {
    auto after = changed(before, part, 23 + messages.size());
    for (int i = 0; i < 70; ++i) after[240 + static_cast<std::size_t>(i)].bits ^= part == 0.1 ? 1 : 0;  // wholly
    gs::delta_encoder encoder{gs::host{1}, layers, options};
    messages.push_back(bytes_of(encoder.encode(before, after, {0, 1 + messages.size()})));
    results.push_back(after);
    auto& cuts = borders.emplace_back();
    for (auto const chunk : encoder.chunks()) cuts.push_back(chunk.size());
  }
  dice roll{99};
  gs::delta_decoder decoder{gs::host{1}, layers};
  auto weights = before;
  std::uint64_t refused = 0;
  for (std::uint64_t m = 0; m < count; ++m) {
    auto const [bad, which, forged] = mutated(messages, borders, roll);
    if (bad == messages[which] || std::ranges::find(messages, bad) != messages.end()) continue;
    if (auto const text = verdict_of(decoder, bad, weights); !text.empty()) {
      ++refused;
      if (!same_bits(weights, before) || !decoder.complete() || decoder.version() != 0) {
        FAIL("a refused message has changed something: " << text << " (mutation " << m << ")");
      }
    } else {  // whole chunks from the begin of a message, or a forged checksum and what is well-formed
      bool begin = false;
      for (auto const& each : messages)
        begin = begin || (bad.size() < each.size() && std::equal(bad.begin(), bad.end(), each.begin()));
      if (!forged && !begin) FAIL("a damaged message was applied (mutation " << m << ")");
      weights = before;
      decoder.reset(0);
    }
  }
  CHECK(refused > count / 2);
  for (std::size_t i = 0; i < messages.size(); ++i) {  // it still works
    weights = before;
    decoder.reset(0);
    decoder.apply(messages[i], weights);
    CHECK(same_bits(weights, results[i]));
  }
}

#if !defined(GRADSIEVE_TEST_NO_ALLOCATIONS)
TEST_CASE("where memory runs out nothing is written") {
  auto const layers = gs::layout{{"a", 3'000}, {"b", 70'000}};
  auto const before = random_weights<float>(layers.size(), 50);
  auto const after = changed(before, 0.1, 51);
  gs::delta_encoder encoder{gs::host{1}, layers, {.chunk_bytes = 300'000}};
  auto const message = bytes_of(encoder.encode(before, after));
  auto weights = before;
  auto const failed = failing_allocations::at_every_allocation(
      [&] {
        weights = before;
        return gs::delta_decoder{gs::host{1}, layers};
      },
      [&](gs::delta_decoder<>& decoder) { decoder.apply(message, weights); },
      [&](gs::delta_decoder<>& decoder, bool out_of_memory) {
        CHECK(same_bits(weights, out_of_memory ? before : after));
        if (out_of_memory) decoder.apply(message, weights);
        CHECK(same_bits(weights, after));
      });
  CHECK(failed > 2);
  failing_allocations::at_every_allocation(
      [&] {
        gs::delta_encoder own{gs::host{1}, layers};
        own.keep(before);
        return own;
      },
      [&](gs::delta_encoder<>& own) { static_cast<void>(own.encode(after)); },
      [&](gs::delta_encoder<>& own, bool out_of_memory) {
        if (out_of_memory) CHECK_THROWS_AS(static_cast<void>(own.encode(after)), gs::invalid_argument);
        own.keep(before);
        CHECK(own.encode(after).size() == message.size());
      });
}

TEST_CASE("a message allocates nothing once its kind was seen") {
  auto const layers = gs::layout::flat(100'000);
  auto const before = random_weights<gs::bfloat16>(layers.size(), 52);
  auto const after = changed(before, 0.02, 53);
  auto weights = before;
  gs::delta_encoder encoder{gs::host{1}, layers};
  gs::delta_decoder decoder{gs::host{1}, layers};
  decoder.apply(encoder.encode(before, after), weights);
  failing_allocations::left = 0;
  for (int i = 0; i < 150; ++i) {  // 1.5 MB of messages
    decoder.apply(encoder.encode(after, before), weights);
    decoder.apply(encoder.encode(before, after), weights);
  }
  failing_allocations::left = -1;
  CHECK(same_bits(weights, after));
}
#endif

TEST_CASE("what a correct checksum hides is found") {
  auto const layers = gs::layout::flat(100);
  std::vector<std::uint8_t> const before(100);
  auto after = before;
  for (std::size_t const i : {3u, 50u, 98u}) after[i] = 1;
  gs::delta_encoder encoder{gs::host{1}, layers};
  auto const message = bytes_of(encoder.encode(before, after));
  // 64: the bit of the section; 65: entries - 1; 67: indices, of l low bits each and a row; the last 3: values
  auto weights = before;
  gs::delta_decoder decoder{gs::host{1}, layers};
  auto const altered = [&](std::size_t at, unsigned value) {
    auto bad = message;
    bad[at] = static_cast<std::byte>(value);
    reseal(bad);
    auto const text = verdict_of(decoder, bad, weights);
    CHECK(same_bits(weights, before));
    return text;
  };
  CHECK(says(altered(64, 3), "padding of sections"));
  CHECK(says(altered(64, 0), "message size is"));
  CHECK(says(altered(65, 3), "message size is"));
  CHECK(says(altered(65, 98), "entry count is 99, expected fewer than or all of 100"));
  CHECK(says(altered(66, 1), "entry count is 259"));
  CHECK(says(altered(4, 2), "version is 2, expected 1"));
  CHECK(says(altered(52, 2), "number of sections is 2, expected from 1 to 1"));
  CHECK(says(altered(52, 0), "number of sections is 0, expected from 1 to 1"));
  CHECK(says(altered(0, 0), "magic number"));
  // equal and falling low bits below one high part; an index beyond the last element
  auto const bits = gs::elias_fano{}.max_bytes(100, 3);
  REQUIRE(message.size() == 67 + bits + 3);
  std::array<gs::index_type, 3> entries{50, 50, 98};
  auto const forged = [&] {
    auto bad = message;
    static_cast<void>(gs::elias_fano{}.encode({100, 0}, entries, std::span{bad}.subspan(67, bits)));
    reseal(bad);
    auto const text = verdict_of(decoder, bad, weights);
    CHECK(same_bits(weights, before));
    return text;
  };
  CHECK(says(forged(), "message indices do not rise strictly: 50 stands before 50"));
  entries = {3, 51, 50};
  CHECK(says(forged(), "do not rise strictly: 51 stands before 50"));
  entries = {3, 50, 100};
  CHECK(says(forged(), "message index 100 is not below 100"));
  decoder.apply(message, weights);
  CHECK(same_bits(weights, after));
}

TEST_CASE("fingerprints differ where weights, layers or formats do") {
  auto const layers = gs::layout{{"a", 100'000}, {"b", 100'000}};
  auto weights = random_weights<std::uint8_t>(200'000, 31);
  std::copy_n(weights.begin(), 100'000, weights.begin() + 100'000);
  auto const first = gs::weights_fingerprint(gs::host{1}, layers, weights);
  CHECK(first == gs::weights_fingerprint(gs::host{2}, layers, weights));
  CHECK(first != gs::weights_fingerprint(gs::host{1}, gs::layout::flat(200'000), weights));
  CHECK(first != gs::weights_fingerprint(gs::host{1}, layers, random_weights<gs::float16>(200'000, 31)));
  weights[5] ^= 1;
  auto const second = gs::weights_fingerprint(gs::host{1}, layers, weights);
  weights[5] ^= 1;
  weights[100'005] ^= 1;
  CHECK(first != second);
  CHECK(second != gs::weights_fingerprint(gs::host{1}, layers, weights));
}

TEST_CASE("the bytes of a message") {
  auto const layers = gs::layout{{"a", 70'000}, {"b", 10}, {"c", 100}, {"none", 0}};
  auto const before = random_weights<gs::bfloat16>(layers.size(), 40);
  auto after = before;
  dice roll{41};
  change(after, 0.01, roll, 0, 65'536);
  change(after, 1.0, roll, 70'000, 70'010);
  change(after, 0.5, roll, 70'010, 70'110);
  gs::delta_encoder encoder{gs::host{}, layers};
  auto const message = bytes_of(encoder.encode(before, after, {5, 6}));
  std::string const path = GRADSIEVE_GOLDEN_DIR "/weight_delta.bin";
  if (std::getenv("GRADSIEVE_WRITE_GOLDEN") != nullptr)
    std::ofstream{path, std::ios::binary}.write(reinterpret_cast<char const*>(message.data()),
                                                static_cast<std::streamsize>(message.size()));
  std::ifstream file{path, std::ios::binary};
  std::string const held{std::istreambuf_iterator<char>{file}, {}};
  auto const kept = std::as_bytes(std::span{held});
  REQUIRE(!kept.empty());
  CHECK(std::ranges::equal(kept, message));
  auto weights = before;
  gs::delta_decoder{gs::host{}, layers, 5}.apply(kept, weights);
  CHECK(same_bits(weights, after));
}
