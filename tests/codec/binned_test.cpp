// AdaComp's format: bins of every length, runs of empty ones, the breakdown of its bytes, and all that is no message.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/codec/binned.hpp>

#include "messages.hpp"
#include "steps.hpp"

namespace gs = gradsieve;
using namespace messages;
using namespace steps;

namespace {

/// Bins of one length for all layers.
constexpr gs::bin_lengths bins_of(std::uint32_t length) { return {.rules = {}, .otherwise = length}; }

/// Signs by turns, magnitudes of any size.
content with_signs(std::vector<gs::index_type> indices, std::uint64_t passthrough = 0) {
  data::generator random{indices.size()};
  content made{std::move(indices), {}, std::vector<float>(passthrough, 0.5f)};
  for (std::size_t i = 0; i < made.indices.size(); ++i)
    made.values.push_back(static_cast<float>((random.bits() & 1) != 0 ? random.uniform() : -random.uniform()));
  return made;
}

std::vector<gs::index_type> every(std::uint64_t n, std::uint64_t step, std::uint64_t from = 0) {
  std::vector<gs::index_type> indices;
  for (std::uint64_t i = from; i < n; i += step) indices.push_back(static_cast<gs::index_type>(i));
  return indices;
}

std::vector<gs::index_type> random_places(std::uint64_t n, double density) {
  data::generator random{n};
  std::vector<gs::index_type> indices;
  for (std::uint64_t i = 0; i < n; ++i)
    if (random.uniform() < density) indices.push_back(static_cast<gs::index_type>(i));
  return indices;
}

bytes there_and_back(gs::bin_lengths const& bins, gs::layout const& layers, content const& from) {
  gs::binned const codec{};
  auto const lengths = bins.of(layers);
  gs::message_info const info{layers.size(), 9, from.passthrough.size(), &layers, lengths};
  auto const message = encoded(codec, info, from);
  auto expected = from;
  codec.quantise(info, expected.indices, expected.values);
  bool const same = decoded(codec, info, message, from.indices.size()) == expected;
  if (!same) FAIL_CHECK("another selection arrived");
  if (encoded(codec, info, expected) != message) FAIL_CHECK("quantised values make another message");
  return message;
}

gs::layout const small_layers{{"a.conv", 130}, {"none", 0}, {"bias", 3}, {"fc", 1200}, {"tail", 1}};
auto const small_bins = gs::bin_lengths{}.of(small_layers);

}  // namespace

TEST_CASE("the bytes of a binned message") {
  gs::message_info const info{1334, 0x1122'3344'5566'7788u, 1, &small_layers, small_bins};
  // bins of 50: 0 and 2 have entries; the bias passes through; bins of 500: the last alone has one
  content const from{{3, 49, 100, 1332}, {1.0f, -1.0f, 1.0f, -2.0f}, {0.5f}};
  auto const message = encoded(gs::binned{}, info, from);
  CHECK(hex(std::span{message}.first(40)) ==
        "47 52 53 56 02 00 03 00 36 05 00 00 00 00 00 00 88 77 66 55 44 33 22 11 04 00 00 00 00 00 00 00 "
        "01 00 00 00 00 00 00 00");
  CHECK(hex(std::span{message}.subspan(48)) ==
        "00 00 00 3f "              // the passthrough element
        "00 00 00 80 3f 03 f1 7f "  // no layer skipped, 1.0; offset 3; offset 49, negative, last; one empty bin
        "80 "                       // offset 0, last, and the layer's bins are over
        "01 00 00 00 40 ff bf 00 "  // one layer skipped, 2.0; a run of empty bins, 2 + 0 of them
        "c7 c0");                   // offset 199, negative, last
  CHECK(decoded(gs::binned{}, info, message, 4) == from);
}

TEST_CASE("bins of every length, layers of every size") {
  for (std::uint32_t const length : {1u, 2u, 50u, 62u, 63u, 64u, 65u, 500u, 16382u, 16383u}) {
    auto const bins = bins_of(length);
    std::vector<gs::layer> list;
    for (std::uint64_t const size : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{length} - 1,
                                     std::uint64_t{length}, std::uint64_t{length} + 1, std::uint64_t{0},
                                     std::uint64_t{3} * length, std::uint64_t{300} * length / (length > 500 ? 50 : 1)})
      list.push_back({"", size});
    gs::layout const layers{list};
    auto const n = layers.size();
    CAPTURE(length);
    for (double const density : {0.0, 0.001, 0.02, 0.3, 1.0})
      there_and_back(bins, layers, with_signs(random_places(n, density), 2));
    for (auto const one : {std::uint64_t{0}, n / 2, n - 1})
      there_and_back(bins, layers, with_signs({static_cast<gs::index_type>(one)}));
  }
}

TEST_CASE("runs of empty bins, and layers without entries") {
  constexpr std::uint64_t n = 5'000'000'000 / 2;
  gs::layout const layers = gs::layout::flat(n);
  auto const size = [&](std::uint32_t length, std::uint64_t empty) {  // between two bins that have an entry
    auto const second = static_cast<gs::index_type>((empty + 1) * length);
    return there_and_back(bins_of(length), layers, with_signs({0, second})).size() - 48 - 5;
  };
  for (std::uint32_t const length : {50u, 500u}) {
    std::size_t const symbol = length == 50 ? 1 : 2;
    CHECK(size(length, 0) == 3 * symbol);  // two entries, and that there are no more
    CHECK(size(length, 1) == 4 * symbol);
    CHECK(size(length, 2) == 4 * symbol + 1);
    CHECK(size(length, 257) == 4 * symbol + 1);
    CHECK(size(length, 258) == 4 * symbol + 4);
    CHECK(size(length, 1'000'000) == 4 * symbol + 4);
  }
  gs::layout const one_bin = gs::layout::flat(62);
  CHECK(there_and_back(bins_of(63), one_bin, with_signs({61})).size() == 48 + 5 + 1);
  CHECK(there_and_back(bins_of(64), one_bin, with_signs({61})).size() == 48 + 5 + 2);
  there_and_back(bins_of(1), layers, with_signs({0, static_cast<gs::index_type>(n - 1)}));

  std::vector<gs::layer> many(1000, {"", 1});  // each entry a layer of its own
  many.insert(many.begin() + 500, 300, {"", 0});
  gs::layout const thousand{many};
  CHECK(there_and_back(bins_of(50), thousand, with_signs(every(1000, 1))).size() == 48 + 6 * 1000);
  CHECK(there_and_back(bins_of(50), thousand, with_signs({127})).size() == 48 + 6);  // empty layers do not count
  CHECK(there_and_back(bins_of(50), thousand, with_signs({128})).size() == 48 + 7);
  CHECK(there_and_back(bins_of(50), thousand, with_signs({999})).size() == 48 + 7);
  CHECK(there_and_back(bins_of(50), thousand, with_signs({})).size() == 48);
}

TEST_CASE("five entries a bin: compressed 40 and 200 times") {
  gs::layout const layers{{"conv", 500'000}, {"fc", 5'000'000}, {"bias", 100}};
  auto const bins = gs::bin_lengths{}.of(layers);
  gs::message_info const info{layers.size(), 0, 100, &layers, bins};
  auto places = every(500'000, 10);
  for (auto const i : every(5'500'000, 100, 500'000)) places.push_back(i);
  auto const from = with_signs(places, 100);
  gs::binned const codec{};
  auto const message = encoded(codec, info, from);
  gs::range const bias{5'500'000, 100};
  auto const breakdown = codec.breakdown(info, from.view(), {&bias, 1}, message);
  REQUIRE(breakdown.kind_count == 3);
  auto const& [conv, fc, passed] = std::tie(breakdown.kinds[0], breakdown.kinds[1], breakdown.kinds[2]);
  CHECK(conv.bin_length == 50);
  CHECK(conv.elements == 500'000);
  CHECK(conv.entries == 50'000);
  CHECK(conv.rate() == doctest::Approx(40).epsilon(0.001));
  CHECK(fc.bin_length == 500);
  CHECK(fc.elements == 5'000'000);
  CHECK(fc.entries == 50'000);
  CHECK(fc.rate() == doctest::Approx(200).epsilon(0.001));
  CHECK(passed.bin_length == 0);
  CHECK(passed.elements == 100);
  CHECK(passed.rate() == doctest::Approx(1).epsilon(0.001));
  CHECK(conv.bytes + fc.bytes + passed.bytes == doctest::Approx(static_cast<double>(message.size())).epsilon(1e-12));
  std::ostringstream text;
  text << breakdown;
  CHECK(text.str().starts_with(", rate 39.99"));
  CHECK(contains(text.str(), " in bins of 50 and 199.9"));
  CHECK(contains(text.str(), " passed through"));
}

TEST_CASE("a step's report accounts for every byte") {
  auto const recipe = gs::recipe{.density = 0.05, .selector = gs::chunked{.size = 500}, .codec = gs::binned{}};
  gs::compressor alone{gs::host{.threads = 1}, mixed_layers(), recipe};
  auto const sent = alone.compress(std::span<float const>{gradient(mixed_layers().size(), 0, 0)});
  CHECK(alone.report().message.bytes() == 0);
  auto const size = static_cast<double>(alone.encode(sent).size());
  CHECK(size == doctest::Approx(alone.report().message.bytes()));
  for (double const density : {0.05, 0.99, 1.0}) {  // at last, segments are sent in full
    auto const said = on_ranks(2, [&](communicator comm) {
      auto mine = recipe;
      mine.density = density;
      gs::compressor reducer{gs::host{.threads = 1}, mixed_layers(), mine};
      auto update = gradient(mixed_layers().size(), comm.rank(), 0);
      auto const report = reducer.exchange(comm, std::span{update});
      std::uint64_t elements = 0;
      for (auto const& kind : report.message.kinds) elements += kind.elements;
      findings found;
      found.expect(std::fabs(report.message.bytes() - static_cast<double>(report.bytes_sent)) < 1e-6,
                   "bytes are missing");
      found.expect(elements == mixed_layers().size(), "elements are missing");
      gs::compressor idle{gs::host{.threads = 1}, mixed_layers(), mine};
      auto const nothing =
          static_cast<double>(idle.encode(idle.compress(std::vector<float>(mixed_layers().size()))).size());
      found.expect(std::fabs(idle.report().message.bytes() - nothing) < 1e-6, "bytes of a message without entries");
      for (auto const& kind : idle.report().message.kinds) found.expect(kind.bytes >= 0, "less than no bytes");
      return found.text();
    });
    CHECK(said == std::vector<std::string>(2));
  }
}

namespace {

/// A codec of one's own, whose messages have no header: 8 bytes that say how many entries follow.
struct bare {
  [[nodiscard]] std::uint64_t max_bytes(std::uint64_t, std::uint64_t count, std::uint64_t) const {
    return 8 + 8 * count;
  }
  [[nodiscard]] std::uint64_t encode(gs::message_info const&, gs::selection_view in, std::span<std::byte> to) const {
    gs::wire::store_one(to, std::uint64_t{in.indices.size()});
    gs::wire::store(to.subspan(8), in.indices);
    gs::wire::store(to.subspan(8 + in.indices.size_bytes()), in.values);
    return 8 + 8 * in.indices.size();
  }
  [[nodiscard]] gs::selection_view decode(gs::message_info const&, std::span<std::byte const> from,
                                          gs::selection_span out) const {
    auto const count = gs::wire::load_one<std::uint64_t>(from);
    std::span const indices = out.indices.first(count);
    std::span const values = out.values.first(count);
    gs::wire::load(indices, from.subspan(8));
    gs::wire::load(values, from.subspan(8 + 4 * count));
    return {indices, values, {}};
  }
  [[maybe_unused]] friend bool operator==(bare const&, bare const&) = default;
};
static_assert(gs::codec<bare>);

}  // namespace

TEST_CASE("with a selector whose bins lie within layers, any codec's report tells their kinds, and every byte") {
  auto const check = [](auto codec) {
    auto const recipe = gs::recipe{
        .density = 0.5, .selector = gs::adacomp{}, .partitioner = gs::layerwise{}, .codec = std::move(codec)};
    auto const said = on_ranks(2, [&](communicator comm) {
      findings found;
      gs::compressor reducer{gs::host{.threads = 1}, mixed_layers(), recipe};
      for (std::uint64_t step = 0; step < 3; ++step) {
        auto update = gradient(mixed_layers().size(), comm.rank(), step);
        if (step == 2) std::fill(update.begin(), update.end(), 0.0f);  // with nothing in the residual: no entries
        if (step == 2)
          reducer.restore(gs::compressor{gs::host{}, mixed_layers(), recipe}.state()), reducer.connect(comm);
        auto const report = reducer.exchange(comm, std::span{update});
        std::uint64_t elements = 0;
        std::uint64_t entries = 0;
        for (auto const& kind : report.message.kinds) elements += kind.elements, entries += kind.entries;
        found.expect(report.message.kind_count == 3, "not three kinds");
        found.expect(elements == mixed_layers().size() && entries == report.selected,
                     "elements or entries are missing");
        found.expect(std::fabs(report.message.bytes() - static_cast<double>(report.bytes_sent)) < 1e-6,
                     "bytes are missing");
      }
      return found.text();
    });
    CHECK(said == std::vector<std::string>(2));
  };
  check(gs::packed{.values = gs::ternary{}});
  check(gs::packed{.indices = gs::fixed_width{}});
  check(gs::coo{});
  check(bare{});
}

TEST_CASE("more kinds than a report has places for: the last stands for all others, and no byte is lost") {
  gs::byte_breakdown all;
  for (std::uint32_t length = 1; length <= 14; ++length) {
    gs::byte_breakdown one;
    one.of(length).elements = 100;
    one.of(length).bytes = 8;
    all.add(one);
  }
  CHECK(all.kind_count == gs::byte_breakdown::most);
  CHECK(all.bytes() == 14 * 8);
  CHECK(all.kinds[9].bin_length == 10);
  CHECK(all.kinds[10].bin_length == gs::layer_kind_bytes::several);
  CHECK(all.kinds[10].elements == 400);
  gs::byte_breakdown sum;
  sum.add(all);
  sum.add(all);
  CHECK(sum.bytes() == 2 * 14 * 8);
  CHECK(sum.kinds[10].elements == 800);
  std::ostringstream text;
  text << sum;
  CHECK(contains(text.str(), "in bins of 10 and 50 in other bins"));
}

// ---- What is not a message ---------------------------------------------------------------------------------

TEST_CASE("a binned message without its layers, or without bins that it takes") {
  content const one{{5}, {1.0f}, {}};
  auto const refused = [&](gs::message_info const& info) {
    bytes room(1000);
    auto const how = ending([&] { (void)gs::binned{}.encode(info, one.view(), room); });
    guarded out{1, 0};
    CHECK(ending([&] { (void)gs::binned{}.decode(info, room, out.span()); }) == how);
    return how;
  };
  CHECK(refused({10, 0, 0}) == "invalid_argument: gradsieve: binned needs message_info's layers, of 10 elements");
  CHECK(refused({10, 0, 0, &small_layers}).starts_with("invalid_argument: gradsieve: binned needs"));
  CHECK(refused({1334, 0, 0, &small_layers}) ==
        "invalid_argument: gradsieve: binned needs message_info's bins, of 5 layers");
  for (std::uint32_t const length : {0u, 16384u})
    CHECK(refused({1334, 0, 0, &small_layers, std::vector<std::uint32_t>(5, length)}) ==
          "invalid_argument: gradsieve: a bin's length is " + std::to_string(length) + ", expected 1 to 16383");
  auto const with = [](gs::chunked chunks) {
    return ending([&] {
      gs::compressor{gs::host{}, gs::layout{{"fc", 9}}, gs::recipe{.selector = chunks, .codec = gs::binned{}}};
    });
  };
  CHECK(with({.size = 16383}) == "");
  CHECK(with({.size = 16384}) ==
        "invalid_argument: gradsieve: a bin of layer 'fc' has 16384 elements, this codec takes 1 to 16383");
}

TEST_CASE("a binned message that is cut, goes on, or is changed") {
  gs::message_info const info{1334, 9, 1, &small_layers, small_bins};
  gs::binned const codec{};
  auto const from = with_signs({3, 4, 49, 100, 129, 133, 700, 1332, 1333}, 1);
  auto const message = encoded(codec, info, from);
  for (std::size_t size = 48; size < message.size(); ++size) {
    bytes truncated(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK(verdict(codec, info, truncated, 10) != "");
    reseal(truncated);
    CHECK(verdict(codec, info, truncated, 10) != "");
  }
  auto longer = message;
  longer.push_back(std::byte{0});
  reseal(longer);
  CHECK(verdict(codec, info, longer, 10) ==
        "gradsieve: message size is " + std::to_string(longer.size()) + ", expected " + std::to_string(message.size()));
  for (std::size_t at = 48; at < message.size(); ++at)
    for (unsigned change = 1; change < 256; ++change) {
      auto damaged = message;
      damaged[at] ^= static_cast<std::byte>(change);
      reseal(damaged);
      if (!verdict(codec, info, damaged, 10).empty()) continue;
      if (encoded(codec, info, decoded(codec, info, damaged, 10)) != damaged)
        FAIL_CHECK("taken, but encode() writes something else: byte " << at << " changed by " << change);
    }
}

TEST_CASE("the same bit turned in two words is noticed") {
  gs::message_info const info{1334, 1, 16, &small_layers, small_bins};
  auto const indices = random_places(1334, 0.2);
  content const from{indices, std::vector<float>(indices.size(), -0.5f), std::vector<float>(16)};
  auto const message = encoded(gs::binned{}, info, from);
  CHECK(unnoticed_flips(gs::binned{}, info, message, 1334) == 0);
}

TEST_CASE("symbols that lie, under a right checksum") {
  // a layer of three bins of 50 and one of 10 elements, and a second one; 1.0 as the scale
  gs::layout const layers{{"conv", 160}, {"conv2", 20}};
  auto const bins = gs::bin_lengths{}.of(layers);
  gs::message_info const info{180, 0, 0, &layers, bins};
  auto const said = [&](std::uint64_t count, std::vector<unsigned> const& tail,
                        std::vector<unsigned> const& scale = {0, 0, 0x80, 0x3F}) {
    bytes message(48);
    message.push_back(std::byte{0});
    for (auto const b : scale) message.push_back(static_cast<std::byte>(b));
    for (auto const b : tail) message.push_back(static_cast<std::byte>(b));
    gs::wire::seal({gs::binned::id, 180, 0, count, 0}, message);
    return verdict(gs::binned{}, info, message, 10);
  };
  auto const entry = [](unsigned offset, bool last = true) { return offset | (last ? 0x80u : 0u); };
  constexpr unsigned end = 63;
  constexpr unsigned empty = 63 | 0x40;
  constexpr unsigned run = 63 | 0x80;
  constexpr unsigned long_run = 63 | 0xC0;
  std::string const start = "gradsieve: message ";
  CHECK(said(2, {entry(0, false), entry(49), end}) == "");
  CHECK(said(1, {run, 1, entry(9)}) == "");
  CHECK(said(1, {entry(50), end}) == start + "offset in a bin is 50, expected below 50");
  CHECK(said(1, {entry(62), end}) == start + "offset in a bin is 62, expected below 50");
  CHECK(said(1, {run, 1, entry(10)}) == start + "offset in a bin is 10, expected below 10");
  CHECK(said(2, {entry(7, false), entry(7), end}) == start + "offset in a bin is 7, expected at least 8");
  CHECK(said(2, {entry(7, false), entry(3), end}) == start + "offset in a bin is 3, expected at least 8");
  CHECK(said(1, {entry(7, false), end}) == start + "offset in a bin is 63, expected below 50");
  CHECK(said(1, {entry(7, false)}).starts_with(start + "size is "));
  CHECK(said(1, {entry(7)}).starts_with(start + "size is "));  // nothing says that no more come
  CHECK(said(1, {end}) == start + "entry count of a layer is 0, expected at least 1");
  CHECK(said(1, {empty, empty, entry(0), end}) ==
        start + "number of runs of empty bins, side by side, is 2, expected 1");
  CHECK(said(1, {entry(0), empty, end}) == start + "number of runs of empty bins, side by side, is 2, expected 1");
  CHECK(said(1, {run, 2, entry(0)}) == start + "run of empty bins is 4, expected below 4");
  CHECK(said(1, {run, 255, entry(0)}) == start + "run of empty bins is 257, expected below 4");
  CHECK(said(1, {long_run, 255, 255, 255, 255, entry(0)}) ==
        start + "run of empty bins is 4294967553, expected below 4");
  CHECK(said(1, {long_run, 0, 0}).starts_with(start + "size is "));
  CHECK(said(1, {entry(0, false), entry(1), end}) == start + "entry count from here on is 2, expected at most 1");
  CHECK(said(3, {entry(0, false), entry(1), end}).starts_with(start + "size is "));
  CHECK(said(2, {entry(0), end, 2, 0, 0, 0, 0, entry(0)}) ==
        start.substr(0, start.size() - 1) + " skips 2 layers, more than are left of the layout");
  CHECK(said(2, {entry(0), end, 0x81, 0, 0, 0, 0, 0, entry(0)}) ==
        start + "last byte of a number is 0, expected at least 1");
  CHECK(said(2, {entry(0), end, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1}) ==
        start + "bytes of a number is 6, expected at most 5");
  CHECK(said(1, {entry(0), end}, {0, 0, 0x80, 0x7F}).starts_with(start + "scale of a layer, as bits, is 2139095040"));
  CHECK(said(1, {entry(0), end}, {0, 0, 0x80, 0xBF}).starts_with(start + "scale of a layer, as bits, is 3212836864"));
  CHECK(said(0, {}).starts_with(start + "size is 53, expected 48"));
}

TEST_CASE("any bytes behind the header of a binned message") {
  gs::message_info const info{1334, 9, 0, &small_layers, small_bins};
  data::generator random{3};
  auto const good = encoded(gs::binned{}, info, with_signs(random_places(1334, 0.1)));
  int taken = 0;
  for (int i = 0; i < 50'000; ++i) {
    auto message = good;
    if (i % 2 == 0)
      for (std::size_t b = 53; b < message.size(); ++b) message[b] = static_cast<std::byte>(random.bits());
    if (i % 3 == 0) message.resize(48 + random.below(good.size() - 48));
    for (auto changes = 1 + random.below(3); changes > 0 && message.size() > 48; --changes)
      message[48 + random.below(message.size() - 48)] ^= static_cast<std::byte>(1u << random.below(8));
    if (i % 5 == 0) poke(message, 24, random.below(200));
    reseal(message);
    taken += verdict(gs::binned{}, info, message, 1334).empty() ? 1 : 0;
  }
  CHECK(taken > 0);
  CHECK(taken < 25'000);
}
