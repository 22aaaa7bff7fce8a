// Codecs on a device write the host's bytes, read them, and refuse what the host refuses.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/published.cuh>

#include "golden.hpp"
#include "gpu.cuh"
#include "messages.hpp"

using namespace gpu;
using messages::content;

/// An index codec of a user's own: the bytes of raw32, and a name for the report.
struct labelled : gs::raw32 {
  static constexpr std::uint16_t id = 40'000;
  [[nodiscard]] char const* name_of(std::span<std::byte const>) const noexcept { return "labelled"; }
};
template <>
class gradsieve::device_indices<labelled> : public gradsieve::device_indices<gs::raw32> {};

namespace {

/// A codec on a device, for messages about golden::layers.
template <class Codec>
class subject {
 public:
  subject(Codec const& codec, std::uint64_t most, std::uint32_t senders)
      : codec_{codec}, work_{where_, golden::info.n}, most_{most} {
    work_.plan({}, {}, 0);
    own_codec_.reserve_writing(work_, codec, golden::layers, most);
    decoded_.reserve(work_, codec, golden::layers, most, senders);
    error_ = work_.template zeroed<std::uint64_t>(1);
  }

  /// The message, and by the way what the values became.
  messages::bytes encode(content& from) {
    auto list = work_.make_list(most_);
    array<gs::index_type> const indices{where_, from.indices};
    array<float> const values{where_, from.values};
    array<float> const passthrough{where_, from.passthrough};
    auto const count = static_cast<std::uint32_t>(from.indices.size());
    where_.copy(std::as_bytes(indices.span()), std::as_writable_bytes(list.indices.first(count)));
    where_.copy(std::as_bytes(values.span()), std::as_writable_bytes(list.values.first(count)));
    work_.upload(std::span{&count, 1}, list.count.span());
    if constexpr (gs::quantises<Codec>)
      own_codec_.quantise(work_, golden::info, list.list(), std::numeric_limits<float>::max(), error_.data());
    auto const room = (codec_.max_bytes(golden::info.n, most_, from.passthrough.size()) + 7) / 8 * 8;
    auto const to = work_.template zeroed<std::byte>(room);
    auto const state = work_.template zeroed<gs::cuda_kernels::message_state>(1);
    own_codec_.send(work_, golden::info, list.list(), passthrough.span().data(), {to.data(), room, state.data()}, {});
    from.values = fetched(where_, list.values.data(), count);
    auto const size = fetched(where_, state.data(), 1)[0].bytes;
    REQUIRE(size <= room);
    return fetched(where_, to.data(), size);
  }

  /// What the messages say, each in a slot of `slot` bytes, or nothing if the device finds anything wrong.
  std::vector<content> decode(std::vector<messages::bytes> const& all, std::uint64_t slot) {
    messages::bytes together(slot * all.size());
    for (std::size_t m = 0; m < all.size(); ++m)
      std::copy_n(all[m].begin(), std::min<std::size_t>(all[m].size(), slot),
                  together.begin() + static_cast<std::ptrdiff_t>(slot * m));
    array<std::byte> const memory{where_, together};
    decoded_.read(work_, golden::info, memory.span().data(), slot, 0, nullptr, error_.data());
    auto const updates = fetched(where_, decoded_.updates(), all.size());
    bool const wrong = fetched(where_, error_.data(), 1)[0] != 0;
    work_.zero(error_);
    std::vector<content> got;
    for (auto const& each : updates) {
      if (wrong) CHECK(each.count == 0);
      if (!wrong)
        got.push_back({fetched(where_, each.indices, each.count), fetched(where_, each.values, each.count), {}});
    }
    if (wrong) return got;
    auto const means = work_.template zeroed<float>(golden::info.passthrough);
    decoded_.mean_of_passthrough(work_, golden::info.passthrough, 1.0f, means.data());
    got[0].passthrough = fetched(where_, means.data(), golden::info.passthrough);
    return got;
  }

 private:
  Codec codec_;
  stream own_;
  poisoned_memory memory_;
  gs::device where_{own_, &memory_};
  gs::cuda_workspace work_;
  std::uint64_t most_;
  gs::device_codec<Codec> own_codec_;
  gs::device_decoded_messages<Codec> decoded_;
  gs::cuda_buffer<std::uint64_t> error_;
};

bool same(content const& a, content const& b) { return a.indices == b.indices && steps::same_bits(a.values, b.values); }

template <class Codec>
content by_host(Codec const& codec, messages::bytes const& message) {
  return messages::decoded(codec, golden::info, message, 3000);
}

}  // namespace

TEST_CASE("small: the host's bytes, there and back") {
  golden::for_each_device_codec([](std::string const& name, auto const& codec) {
    INFO(name);
    subject device{codec, 3000, 3};
    messages::bytes written;
    std::vector<messages::bytes> all;
    std::uint64_t longest = 0;
    for (auto each : golden::contents()) {
      auto expected = each.values;
      if constexpr (requires { codec.quantise(golden::info, each.indices, std::span{expected}); })
        codec.quantise(golden::info, each.indices, std::span{expected});
      auto const message = device.encode(each);
      CHECK(steps::same_bits(each.values, expected));
      written.insert(written.end(), message.begin(), message.end());
      all.push_back(message);
      longest = std::max<std::uint64_t>(longest, message.size());
    }
    CHECK(written == golden::read(name));
    auto const got = device.decode(all, (longest + 7) / 8 * 8);
    REQUIRE(got.size() == 3);
    for (std::size_t m = 0; m < 3; ++m) CHECK(same(got[m], by_host(codec, all[m])));
    std::vector<float> passthrough(golden::info.passthrough);
    for (auto const& each : all) {
      auto const mine = by_host(codec, each).passthrough;
      for (std::size_t i = 0; i < passthrough.size(); ++i)
        passthrough[i] = &each == &all[0] ? mine[i] : passthrough[i] + mine[i];
    }
    CHECK(steps::same_bits(got[0].passthrough, passthrough));
  });
}

TEST_CASE("damaged messages: refused where the host refuses them, and nothing is read outside") {
  golden::for_each_device_codec([](std::string const& name, auto const& codec) {
    INFO(name);
    subject device{codec, 3000, 1};
    auto const good = messages::encoded(codec, golden::info, golden::contents()[1]);
    auto const slot = (good.size() + 7) / 8 * 8;
    REQUIRE(device.decode({good}, slot).size() == 1);
    CHECK(device.decode({good}, slot - 8).empty());  // its end is missing
    std::mt19937 random{17};
    auto const below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
    unsigned refused = 0;
    for (int trial = 0; trial < 40; ++trial) {
      auto damaged = good;
      auto const place = trial % 8 == 0 ? below(good.size()) : 48 + below(good.size() - 48);
      if (place == 68 && name.starts_with("fixed_width")) continue;  // a device takes its own chunk only
      damaged[place] ^= static_cast<std::byte>(1u << below(8));
      if (trial % 4 != 1) messages::reseal(damaged);
      bool const wrong = !messages::verdict(codec, golden::info, damaged, 3000).empty();
      auto const got = device.decode({damaged}, slot);
      CAPTURE(place);
      CHECK(got.empty() == wrong);
      refused += wrong ? 1 : 0;
      if (!wrong && !got.empty()) CHECK(same(got[0], by_host(codec, damaged)));
    }
    CHECK(refused >= 10);
    auto damaged = good;
    damaged.back() ^= std::byte{1};
    subject several{codec, 3000, 3};
    CHECK(several.decode({good, damaged, good}, slot).empty());
    CHECK(several.decode({good, good, good}, slot).size() == 3);
  });
}

TEST_CASE("small: what no part of a message has is refused, as by the host") {
  auto const check = [](auto const& codec, std::initializer_list<std::pair<std::size_t, unsigned>> changes) {
    content some{{0, 3, 6}, {2, 0.5f, -1}, std::vector<float>(golden::info.passthrough)};
    auto const good = messages::encoded(codec, golden::info, some);
    auto const slot = (good.size() + 7) / 8 * 8;
    subject device{codec, 3000, 1};
    CHECK(device.encode(some) == good);
    REQUIRE(device.decode({good}, slot).size() == 1);
    for (auto const& [from_end, byte] : changes) {
      auto damaged = good;
      damaged[good.size() - from_end] = static_cast<std::byte>(byte);
      messages::reseal(damaged);
      CAPTURE(from_end);
      CAPTURE(byte);
      CHECK(!messages::verdict(codec, golden::info, damaged, 3000).empty());
      CHECK(device.decode({damaged}, slot).empty());
    }
  };
  using gs::packed, gs::raw32, gs::fixed_width;
  // A code beyond the last; none that fills the block; a bit behind the last code; of signs also a negative scale.
  check(packed{.indices = raw32{}, .values = gs::int4{}}, {{2, 0xFE}, {2, 0x88}, {1, 0x12}});
  check(packed{.indices = fixed_width{}, .values = gs::int2{}}, {{1, 0x03}, {1, 0x15}, {1, 0x46}});
  check(packed{.indices = raw32{}, .values = gs::int8{}}, {{3, 0xFF}, {3, 0x80}});
  check(packed{.indices = raw32{}, .values = gs::qsgd{.levels = 4}}, {{2, 0x59}, {2, 0x57}, {1, 0x12}});
  check(packed{.indices = raw32{}, .values = gs::sign{}}, {{2, 0xFF}, {1, 0x0C}});
  // Behind the low bits, 30 in 4 bytes; of the row's bits one too many or too few.
  check(packed{.indices = gs::elias_fano{}}, {{15, 0x80}, {14, 0x0F}, {14, 0x03}, {13, 0x80}});
}

TEST_CASE("compressors on ranks, with codecs that lose bits") {
  auto const layers = steps::mixed_layers();
  auto const check = [&](auto const& codec, int ranks) {
    gpu::same_on_ranks(gs::recipe{.density = 0.03, .partitioner = gs::layerwise{}, .codec = codec}, layers, ranks, 3,
                       [&](int rank, std::uint64_t step) { return steps::gradient(layers.size(), rank, step); });
  };
  check(gs::packed{.indices = gs::fixed_width{}, .values = gs::fp16{}}, 2);
  check(gs::packed{.indices = gs::raw32{}, .values = gs::ternary{}}, 3);
  check(gs::packed{.indices = gs::elias_fano{}, .values = gs::int4{}}, 3);
  check(gs::packed{.indices = gs::raw32{}, .values = gs::sign{.block = 40}}, 2);
  check(gs::packed{.indices = gs::raw32{}, .values = gs::qsgd{}}, 2);
}

namespace {

/// `longer`: than the host's message, by as many bytes at most.
void there_and_back(gs::layout const& layers, auto const& recipe, std::string const& name, std::size_t longer) {
  stream const own;
  gs::device const where{own};
  gs::compressor host{gs::host{}, layers, recipe};
  gs::compressor device{where, layers, recipe};
  gs::averager on_host{gs::host{}, layers, recipe.codec};
  gs::averager on_device{where, layers, recipe.codec};
  array<float> const gradient{where, layers.size()};
  for (std::uint64_t step = 0; step < 2; ++step) {
    auto values = steps::gradient(layers.size(), 0, step);
    gradient.put(values);
    auto const expected = host.encode(host.compress(values));
    auto const written = device.encode(device.compress(gradient.span()));
    REQUIRE(written.size() >= expected.size());
    CHECK(written.size() <= expected.size() + longer);
    auto const fetched_bytes = fetched(where, written.data(), expected.size());
    CHECK(std::ranges::equal(fetched_bytes, expected));
    CHECK(std::string{device.report().get().message.index_codec} == name);
    array<std::byte> const arrived{where, {expected.begin(), expected.end()}};
    std::vector<std::span<std::byte const>> const both{arrived.span(), written};
    std::vector<std::span<std::byte const>> const of_host{expected, expected};
    auto const applied = on_device.apply(both, gradient.span());
    CHECK(applied.entries == on_host.apply(of_host, values).entries);
    CHECK(steps::same_bits(gradient.get(), values));
  }
  CHECK(steps::same_bits(steps::states_of(device), steps::states_of(host)));
}

}  // namespace

TEST_CASE("small: messages go from host to device and back, with an index codec of one's own") {
  auto const codec = gs::packed{.indices = labelled{}, .values = gs::ternary{}};
  there_and_back(steps::mixed_layers(), gs::recipe{.density = 0.03, .codec = codec}, "labelled", 4 * 135 + 7);
}

TEST_CASE("rows of bits that several blocks read") {
  auto const codec = gs::packed{.indices = gs::elias_fano{}, .values = gs::int4{}};
  for (double const density : {0.0001, 0.01, 0.3, 0.9})  // up to 6 blocks
    there_and_back(gs::layout::flat(400'000), gs::recipe{.density = density, .codec = codec}, "", 15);
}

namespace {

/// AdaComp with this codec: the byte breakdowns of a host and of a device.
template <class Codec>
void same_breakdowns(Codec const& codec) {
  auto const layers = gs::layout{{"conv1", 4000}, {"bias", 30}, {"fc", 6000}, {"conv2", 700}};
  auto const recipe = gs::recipe{.density = 0.5,
                                 .selector = gs::adacomp{},
                                 .partitioner = gs::layerwise{},
                                 .codec = codec,
                                 .passthrough = {.patterns = {"bias"}}};
  stream const own;
  gs::device const where{own};
  gs::compressor host{gs::host{}, layers, recipe};
  gs::compressor device{where, layers, recipe};
  array<float> const gradient{where, layers.size()};
  auto const same_breakdown = [](gs::byte_breakdown const& a, gs::byte_breakdown const& b) {
    REQUIRE(a.kind_count == 3);
    REQUIRE(b.kind_count == 3);
    CHECK(std::string{a.index_codec} == b.index_codec);
    for (std::size_t k = 0; k < 3; ++k) {
      CHECK(a.kinds[k].bin_length == b.kinds[k].bin_length);
      CHECK(a.kinds[k].elements == b.kinds[k].elements);
      CHECK(a.kinds[k].entries == b.kinds[k].entries);
      CHECK(a.kinds[k].bytes == doctest::Approx(b.kinds[k].bytes).epsilon(1e-12));
    }
  };
  for (std::uint64_t step = 0; step < 2; ++step) {
    auto values = steps::gradient(layers.size(), 0, step);
    gradient.put(values);
    auto expected = host.exchange(gs::self{}, values).message;
    expected.share_out((step == 0 ? -64.0 : -32.0) - 4.0);  // what the host's ranks tell each other besides
    same_breakdown(device.exchange(gs::self{}, gradient.span()).get().message, expected);
    CHECK(expected.kinds[0].rate() > 1);
  }
  auto const values = steps::gradient(layers.size(), 0, 2);
  gradient.put(values);
  static_cast<void>(host.encode(host.compress(values)));
  static_cast<void>(device.encode(device.compress(gradient.span())));
  same_breakdown(device.report().get().message, host.report().message);
}

}  // namespace

TEST_CASE("small: a report has what each kind of layer cost, as the host's") {
  same_breakdowns(gs::packed<gs::fixed_width, gs::ternary>{});
}

TEST_CASE("the same with a codec that tells its indices") { same_breakdowns(gs::packed<labelled, gs::ternary>{}); }

TEST_CASE("small: nothing to send, nobody who sends, and a message that is none") {
  stream const own;
  poisoned_memory memory;
  gs::device const where{own, &memory};
  auto const count_of = [&](std::span<std::byte const> message) {
    auto const word = fetched(where, message.data() + 24, 8);
    return gs::wire::load_one<std::uint64_t>(word);
  };
  auto const check = [&](gs::layout const& layers, auto const& codec) {
    gs::compressor device{where, layers, gs::recipe{.density = 0.5, .codec = codec}};
    array<float> const gradient{where, std::vector<float>(layers.size(), 1.0f)};
    std::vector<std::span<std::byte const>> const messages{device.encode(device.compress(gradient.span()))};
    CHECK(count_of(messages[0]) == (layers.size() + 1) / 2);
    gs::averager server{where, layers, codec};
    server.apply(messages, gradient.span());
    server.apply({}, gradient.span());
    CHECK(gradient.get() == std::vector<float>(layers.size()));
    bool const refused = steps::ending([&] {
                           std::vector<std::byte> const none(48, std::byte{0xFF});
                           array<std::byte> const there{where, none};
                           std::vector<std::span<std::byte const>> const hostile{there.span()};
                           server.apply(hostile, gradient.span());
                         }).starts_with("corrupt_message: ");
    CHECK(refused);
  };
  for (std::uint64_t const n : {0u, 9000u}) {
    check(gs::layout::flat(n), gs::packed{.indices = gs::raw32{}, .values = gs::ternary{}});
    check(gs::layout::flat(n), gs::packed{.indices = gs::fixed_width{}, .values = gs::fp16{}});
    check(gs::layout::flat(n), gs::packed{.indices = gs::elias_fano{}, .values = gs::int8{}});
  }
  check(gs::layout{}, gs::packed{.indices = gs::fixed_width{}, .values = gs::ternary{}});
}
