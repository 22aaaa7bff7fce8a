// Weight deltas on a device: the bytes and the weights of a host, and what is wrong changes nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/delta.cuh>

#include "delta_weights.hpp"
#include "gpu.cuh"

using namespace gpu;
using namespace delta_weights;

namespace {

/// What both spaces do with a message; "" if they take it.
template <class T>
struct receivers {
  gs::device where;
  gs::delta_decoder<gs::host> on_host;
  gs::delta_decoder<gs::device> on_device;
  std::vector<T> there;
  array<T> here;

  receivers(gs::device space, gs::layout const& layers, std::vector<T> const& weights, std::uint64_t version,
            std::uint64_t offset = 0)
      : where{space},
        on_host{gs::host{1}, layers, version},
        on_device{space, layers, version},
        there{weights},
        here{space, weights, offset} {}

  /// Applies a message that stands `offset` bytes into its memory.
  std::string apply(std::span<std::byte const> message, std::uint64_t offset = 0) {
    auto const was = on_device.version();
    auto const held = here.get();
    auto const verdict = verdict_of(on_host, message, there);
    array<std::byte> const copy{where, bytes(message.begin(), message.end()), offset};
    std::span<std::byte const> const received = copy.span();
    auto const found = verdict_of(on_device, received, here.span());
    CHECK(found == verdict);
    auto const now = here.get();
    CHECK(same_bits(now, there));
    if (!verdict.empty()) {
      CHECK(same_bits(now, held));
      CHECK(on_device.version() == was);
    }
    CHECK(on_device.version() == on_host.version());
    CHECK(on_device.complete() == on_host.complete());
    return verdict;
  }
};

gs::layout small_layers() {
  return gs::layout{{"a", 3'000}, {"none", 0}, {"bias", 1}, {"norm", 63}, {"linear", 65'536}, {"b", 64}, {"head", 300}};
}

}  // namespace

TEST_CASE_TEMPLATE("a device has the host's bytes and bits", T, float, gs::bfloat16, std::uint8_t) {
  stream const own;
  gs::device const where{own};
  std::uint64_t seed = 1;
  for (auto const& layers : {small_layers(), gs::layout{}, gs::layout::flat(1), gs::layout{{"a", 9}, {"b", 65'537}}})
    for (double const part : {0.0, 0.004, 0.08, 0.4, 0.92, 1.0})
      for (std::uint64_t const chunk : {std::uint64_t{1} << 22, 65'536 * sizeof(T) + 67}) {
        CAPTURE(layers.size());
        CAPTURE(part);
        auto const before = random_weights<T>(layers.size(), ++seed);
        auto const after = changed(before, part, ++seed);
        gs::delta_options const options{.chunk_bytes = chunk};
        gs::delta_encoder on_host{gs::host{1}, layers, options};
        auto const expected = on_host.encode(before, after, {7, 9});
        gs::delta_encoder on_device{where, layers, options};
        std::uint64_t const offset = seed % 3;  // other alignments
        array<T> const old{where, before, offset}, now{where, after, seed % 5};
        auto const message = on_device.encode(old.span(), now.span(), {7, 9});
        auto const made = fetched(where, message.data(), message.size());
        CHECK(std::ranges::equal(made, expected));
        REQUIRE(on_device.chunks().size() == on_host.chunks().size());
        for (std::size_t c = 0; c < on_host.chunks().size(); ++c)
          CHECK(on_device.chunks()[c].size() == on_host.chunks()[c].size());
        CHECK(on_device.version() == 9);

        on_device.keep(old.span(), 7);
        CHECK(std::ranges::equal(gs::detail::downloaded(where, on_device.encode(now.span(), {7, 9})), expected));
        CHECK(on_device.encode(now.span()).size() <= 64 + layers.count());  // the copy is up to date
        CHECK(on_device.version() == 10);

        receivers<T> all{where, layers, before, 7, offset};
        CHECK(all.apply(expected, seed % 9).empty());
        CHECK(same_bits(all.there, after));
        CHECK(gs::weights_fingerprint(where, layers, now.span()) ==
              gs::weights_fingerprint(gs::host{1}, layers, after));
      }
}

TEST_CASE("weights in pieces of device memory") {
  auto const layers = small_layers();
  stream const own;
  gs::device const where{own};
  auto const before = random_weights<gs::bfloat16>(layers.size(), 8);
  auto const after = changed(before, 0.05, 9);
  gs::delta_encoder on_host{gs::host{1}, layers};
  auto const expected = bytes_of(on_host.encode(before, after));
  array<gs::bfloat16> const old{where, before}, now{where, after};
  array<std::byte> const message{where, expected};
  std::vector<std::uint64_t> const at_layers(layers.offsets().begin(), layers.offsets().end());
  for (auto const& cuts : {at_layers, std::vector<std::uint64_t>{0, 5'000, 5'000, layers.size()}}) {
    std::vector<array<gs::bfloat16>> parts;
    std::vector<std::span<gs::bfloat16>> spans;
    for (std::size_t p = 0; p + 1 < cuts.size(); ++p) {
      parts.emplace_back(where, cuts[p + 1] - cuts[p]);
      where.copy(std::as_bytes(old.span().subspan(cuts[p], cuts[p + 1] - cuts[p])),
                 std::as_writable_bytes(parts.back().span()));
      spans.push_back(parts.back().span());
    }
    gs::delta_encoder encoder{where, layers};
    CHECK(gs::detail::downloaded(where, encoder.encode(gs::pieces{spans}, now.span())) == expected);
    encoder.keep(gs::pieces{spans});
    CHECK(gs::detail::downloaded(where, encoder.encode(now.span())) == expected);
    gs::delta_decoder decoder{where, layers};
    decoder.apply(std::span<std::byte const>{message.span()}, gs::pieces{spans});
    for (std::size_t p = 0; p + 1 < cuts.size(); ++p)
      CHECK(same_bits(parts[p].get(), {after.begin() + static_cast<std::ptrdiff_t>(cuts[p]),
                                       after.begin() + static_cast<std::ptrdiff_t>(cuts[p + 1])}));
    CHECK(gs::weights_fingerprint(where, layers, gs::pieces{spans}) ==
          gs::weights_fingerprint(gs::host{1}, layers, after));
  }
}

TEST_CASE("chunks one by one, again after a restart, and in a list") {
  auto const layers = gs::layout{{"a", 40'000}, {"b", 65'536}, {"c", 50'000}, {"d", 1}};
  stream const own;
  gs::device const where{own};
  auto const before = random_weights<gs::float16>(layers.size(), 15);
  auto const after = changed(before, 0.9, 16);
  gs::delta_encoder encoder{gs::host{1}, layers, {.chunk_bytes = 65'536 * 2 + 67}};
  static_cast<void>(encoder.encode(before, after, {3, 4}));
  std::vector<bytes> chunks;
  for (auto const each : encoder.chunks()) chunks.push_back(bytes_of(each));
  REQUIRE(chunks.size() >= 3);
  receivers<gs::float16> all{where, layers, before, 3};
  CHECK(all.apply(chunks[1]).find("missing or came twice") != std::string::npos);
  CHECK(all.apply(chunks[0]).empty());
  CHECK(all.apply(chunks[0]).find("missing or came twice") != std::string::npos);
  all.on_host.restart();
  all.on_device.restart();
  for (auto const& each : chunks) CHECK(all.apply(each).empty());
  CHECK(same_bits(all.there, after));
  CHECK(all.apply(chunks[0]).find("starts from version 3, the weights have version 4") != std::string::npos);
  all.on_host.reset(3);
  all.on_device.reset(3);
  std::vector<array<std::byte>> copies;
  std::vector<std::span<std::byte const>> list;
  for (auto const& each : chunks) copies.emplace_back(where, each);
  for (auto const& each : copies) list.push_back(each.span());
  all.on_device.apply(std::span<std::span<std::byte const> const>{list}, all.here.span());
  CHECK(all.on_device.version() == 4);
  CHECK(same_bits(all.here.get(), after));
  all.here.put(before);
  all.on_device.apply(std::span<std::span<std::byte const> const>{}, all.here.span());  // not the last ones again
  CHECK(all.on_device.version() == 4);
  CHECK(same_bits(all.here.get(), before));
}

TEST_CASE("damaged messages change nothing, and are refused as on a host") {
  auto const layers = gs::layout{{"a", 200}, {"none", 0}, {"b", 40}, {"c", 70}, {"d", 20}, {"e", 9}};
  stream const own;
  gs::device const where{own};
  auto const before = random_weights<gs::bfloat16>(layers.size(), 22);
  std::vector<bytes> messages;
  std::vector<std::vector<std::size_t>> borders;
  for (double const part : {0.02, 0.1, 0.6, 0.97}) {
    gs::delta_encoder encoder{gs::host{1}, layers, {.chunk_bytes = 600}};
    messages.push_back(bytes_of(encoder.encode(before, changed(before, part, 23 + messages.size()), {0, 1})));
    auto& cuts = borders.emplace_back();
    for (auto const chunk : encoder.chunks()) cuts.push_back(chunk.size());
  }
  dice roll{99};
  receivers<gs::bfloat16> all{where, layers, before, 0};
  int refused = 0;
  for (int m = 0; m < 400; ++m) {
    auto const bad = mutated(messages, borders, roll).bad;
    if (!all.apply(bad, roll.below(8)).empty()) {
      ++refused;
      continue;
    }
    all.there = before;
    all.here.put(before);
    all.on_host.reset(0);
    all.on_device.reset(0);
  }
  CHECK(refused > 200);
}

TEST_CASE("what a correct checksum hides is found") {
  auto const layers = gs::layout::flat(100);
  gs::device const where{};
  std::vector<std::uint8_t> const before(100);
  auto after = before;
  for (std::size_t const i : {3u, 50u, 98u}) after[i] = 1;
  gs::delta_encoder encoder{gs::host{1}, layers};
  auto const message = bytes_of(encoder.encode(before, after));
  receivers<std::uint8_t> all{where, layers, before, 0};
  // 64: the bit of the section; 65: entries - 1; 67: indices; the last 3: values
  for (auto const& [at, value] : std::vector<std::pair<std::size_t, unsigned>>{
           {64, 3}, {64, 0}, {65, 3}, {65, 98}, {66, 1}, {4, 2}, {52, 2}, {52, 0}, {48, 1}, {0, 0}, {8, 63}}) {
    CAPTURE(at);
    auto bad = message;
    bad[at] = static_cast<std::byte>(value);
    reseal(bad);
    CHECK_FALSE(all.apply(bad).empty());
  }
  auto const parts = gs::elias_fano::split(100, 3);
  for (auto const& entries : std::vector<std::array<gs::index_type, 3>>{{50, 50, 98}, {3, 51, 50}, {3, 50, 100}}) {
    auto bad = message;
    static_cast<void>(gs::elias_fano{}.encode({100, 0}, entries, std::span{bad}.subspan(67, parts.bytes())));
    reseal(bad);
    CHECK_FALSE(all.apply(bad).empty());
  }
  auto padded = message;
  REQUIRE(3 * parts.width % 8 != 0);
  padded[67 + parts.low - 1] |= std::byte{0x80};
  reseal(padded);
  CHECK_FALSE(all.apply(padded).empty());
  CHECK(all.apply(message).empty());
}

TEST_CASE("a graph encodes and applies, step after step") {
  auto const layers = small_layers();
  stream const own;
  poisoned_memory memory;
  gs::device const where{own, &memory};
  auto weights = random_weights<gs::bfloat16>(layers.size(), 30);
  array<gs::bfloat16> const trained{where, weights}, received{where, weights};
  gs::delta_encoder encoder{where, layers};
  gs::delta_decoder decoder{where, layers, 5};
  gs::delta_encoder on_host{gs::host{1}, layers};
  encoder.keep(trained.span(), 5);
  on_host.keep(weights, 5);
  encoder.reserve(20'000);
  graph const step{own, [&] { decoder.apply(encoder.encode(trained.span()), received.span()); }};
  auto const allocations = memory.allocations;
  for (int s = 0; s < 4; ++s) {
    weights = changed(weights, 0.02, 31 + static_cast<std::uint64_t>(s));
    trained.put(weights);
    step.launch();
    auto const message = encoder.message();
    CHECK(std::ranges::equal(gs::detail::downloaded(where, message), on_host.encode(weights)));
    decoder.check();
    CHECK(decoder.version() == 6u + static_cast<unsigned>(s));
    CHECK(encoder.version() == decoder.version());
    CHECK(same_bits(received.get(), weights));
  }
  // what has no room waits for the next message
  auto const held = weights;
  weights = changed(weights, 0.9, 40);
  trained.put(weights);
  step.launch();
  CHECK_THROWS_AS(static_cast<void>(encoder.message()), gs::invalid_argument);
  CHECK_THROWS_AS(decoder.check(), gs::corrupt_message);  // the room still has the message before
  CHECK(same_bits(received.get(), held));
  CHECK_THROWS_AS(static_cast<void>(encoder.encode(trained.span())), gs::invalid_argument);
  CHECK_THROWS_AS(encoder.reserve(200'000), gs::invalid_argument);
  weights = changed(held, 0.03, 41);
  trained.put(weights);
  step.launch();
  CHECK(encoder.message().size() > 64);
  CHECK(encoder.version() == 10);
  // messages of a graph and others, in turn; what is wrong with one is said once, of the weights as they are
  auto const bad = fetched(where, encoder.message().data(), encoder.message().size());
  array<std::byte> const copy{gs::device{own}, bad};
  CHECK_THROWS_WITH_AS(decoder.apply(std::span<std::byte const>{copy.span()}, received.span()),
                       "gradsieve: this delta starts from version 9, the weights have version 10", gs::mismatch);
  std::span<std::byte const> const again = copy.span();
  CHECK_THROWS_AS(static_cast<void>(decoder.verify<gs::bfloat16>(again)), gs::mismatch);
  decoder.check();
  CHECK(same_bits(received.get(), weights));
  weights = changed(weights, 0.01, 42);
  trained.put(weights);
  decoder.apply(encoder.encode(trained.span()), received.span());
  CHECK(same_bits(received.get(), weights));
  CHECK(decoder.version() == 11);
  CHECK(memory.allocations == allocations);
  gs::delta_versions const numbers{1, 2};
  cudaStreamBeginCapture(own, cudaStreamCaptureModeGlobal);
  CHECK_THROWS_AS(static_cast<void>(encoder.encode(trained.span(), numbers)), gs::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(decoder.verify<gs::bfloat16>(again)), gs::invalid_argument);
  cudaGraph_t captured = nullptr;
  cudaStreamEndCapture(own, &captured);
  cudaGraphDestroy(captured);
}

TEST_CASE("device memory of CUDA's types, and a message that allocates nothing once its kind was seen") {
  auto const layers = small_layers();
  stream const own;
  poisoned_memory memory;
  gs::device const where{own, &memory};
  auto const before = random_weights<gs::float16>(layers.size(), 52);
  auto const after = changed(before, 0.02, 53);
  array<gs::float16> const old{where, before}, now{where, after}, weights{where, before};
  auto const as_half = [](array<gs::float16> const& of) {
    return std::span<__half>{reinterpret_cast<__half*>(of.span().data()), of.span().size()};
  };
  gs::delta_encoder encoder{where, layers};
  gs::delta_decoder decoder{where, layers};
  decoder.apply(encoder.encode(as_half(old), as_half(now)), as_half(weights));
  auto const allocations = memory.allocations;
  for (int i = 0; i < 3; ++i) {
    decoder.apply(encoder.encode(now.span(), old.span()), weights.span());
    decoder.apply(encoder.encode(old.span(), now.span()), weights.span());
  }
  CHECK(memory.allocations == allocations);
  CHECK(same_bits(weights.get(), after));
}
