// Policies of a user's own that return what no policy may: refused by a sentence, before memory is touched that is not
// theirs. With AddressSanitizer the last test is a fuzzer of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/comm/self.hpp>

#include "steps.hpp"

using namespace steps;

namespace {

gs::host const here{.threads = 1};
gs::layout const two_layers{{"a", 600}, {"b", 400}};

/// What the partitioner below returns. Of the process, not of the policy: ranks agree on it.
inline std::vector<gs::segment> split_into;
inline std::vector<gs::segment> assigned;

/// Returns what it is told to.
template <bool Disjoint = false, bool SingleOwner = false, bool WithinLayers = false, bool NeedsNorms = false>
struct told {
  static constexpr char const* name = "told";
  using default_exchange = gs::gather;
  static constexpr gs::partitioner_traits traits{
      .needs_norms = NeedsNorms, .disjoint = Disjoint, .within_layers = WithinLayers, .single_owner = SingleOwner};
  void split(std::span<gs::range const>, int, gs::segment_list& list) const { list = split_into; }
  void assign(std::span<gs::segment> segments, std::span<double const>, gs::step_budget const,
              gs::partition_scratch&) const {
    for (std::size_t s = 0; s < std::min(segments.size(), assigned.size()); ++s) segments[s] = assigned[s];
  }
  friend bool operator==(told const&, told const&) = default;
};

/// What a step ends with where split() and assign() return these.
template <class Partitioner = told<>>
std::string step_with(std::vector<gs::segment> split, std::vector<gs::segment> assign, int world = 1) {
  split_into = std::move(split);
  assigned = std::move(assign);
  auto const said = on_ranks(world, [](communicator comm) {
    std::vector<float> gradient(two_layers.size(), 1.0f);
    return ending([&] {
      gs::compressor reducer{here, two_layers, gs::recipe{.density = 0.5, .partitioner = Partitioner{}}};
      reducer.exchange(comm, std::span{gradient});
    });
  });
  return said[0];
}

std::string const split_said = "invalid_argument: gradsieve: the partitioner told's split(): ";
std::string const assign_said = "invalid_argument: gradsieve: the partitioner told's assign() ";

}  // namespace

TEST_CASE("a partitioner whose split() returns other segments than it may") {
  CHECK(step_with({{0, 600}, {600, 400}}, {{0, 600, 5}, {600, 400, 5}}) == "");
  CHECK(step_with({{0, 600}, {600, 0}, {600, 400}}, {}) == "");
  CHECK(step_with({{0, 1001}}, {}) ==
        split_said + "segment 0 (offset 0, size 1001) ends behind the last layer, at 1000");
  CHECK(step_with({{0, 600}, {600, ~std::uint64_t{0}}}, {}) ==
        split_said + "segment 1 (offset 600, size 18446744073709551615) ends behind the last layer, at 1000");
  CHECK(contains(step_with({{5000, 0}, {0, 1000}}, {}), "segment 0 (offset 5000, size 0) ends behind"));
  CHECK(step_with({{0, 600}, {599, 401}}, {}) ==
        split_said +
            "segment 1 (offset 599, size 401) begins before element 600, where the segment before it ends or "
            "the first layer begins");
  CHECK(contains(step_with({{600, 400}, {0, 600}}, {}), "elements 0 to 599 are in no segment"));
  CHECK(step_with({}, {}) == split_said + "elements 0 to 599 are in no segment, so that they would never be sent");
  CHECK(contains(step_with({{0, 600}, {700, 300}}, {}), "elements 600 to 699 are in no segment"));
  CHECK(contains(step_with({{0, 999}}, {}), "elements 999 to 999 are in no segment"));
  CHECK(contains(step_with<told<false, false, true>>({{0, 500}, {500, 500}}, {}),
                 "segment 1 (offset 500, size 500) is not within one layer, as within_layers promises"));
  CHECK(step_with<told<false, false, true>>({{0, 500}, {500, 100}, {600, 400}}, {}) == "");
}

TEST_CASE("a partitioner whose segments leave holes where layers pass through, and one of none") {
  split_into = {{10, 90}};
  assigned = {{10, 90, 9}};
  gs::recipe const recipe{.density = 0.5, .partitioner = told<>{}};
  auto const made = [&](gs::layout const& layers) { return ending([&] { gs::compressor{here, layers, recipe}; }); };
  CHECK(made({{"x.bias", 10}, {"w", 40}, {"y.bias", 5}, {"v", 45}}) == "");
  CHECK(contains(made({{"w", 10}, {"v", 90}}), "elements 0 to 9 are in no segment"));
  CHECK(contains(made({{"x.bias", 11}, {"w", 89}}), "begins before element 11"));
  split_into = {{0, 4}};
  CHECK(contains(made({{"x.bias", 11}}), "ends behind the last layer, at 0"));
  split_into = {};
  assigned = {};
  CHECK(made({{"x.bias", 11}}) == "");
  CHECK(made({}) == "");
}

TEST_CASE("a partitioner whose assign() returns other segments than it may") {
  std::vector<gs::segment> const whole{{0, 1000}};
  CHECK(step_with(whole, {{1, 1000, 5}}) ==
        assign_said + "moved segment 0 (offset 0, size 1000) to offset 1, size 1000; only k and owner are its to set");
  CHECK(contains(step_with(whole, {{0, 1001, 5}}), "moved segment 0 (offset 0, size 1000) to offset 0, size 1001"));
  CHECK(contains(step_with(whole, {{~std::uint64_t{0}, 2, 1}}), "moved segment 0"));
  CHECK(step_with(whole, {{0, 1000, 1001}}) ==
        "invalid_argument: gradsieve: the partitioner told gives 1001 entries of a segment of 1000");
  CHECK(contains(step_with(whole, {{0, 1000, 700}}), "the partitioner told gives 700 entries, the density allows 501"));
  for (int const owner : {1, 2, -2, -7})
    CHECK(step_with(whole, {{0, 1000, 5, owner}}) == assign_said + "gave segment 0 (offset 0, size 1000) the owner " +
                                                         std::to_string(owner) +
                                                         ", expected a rank below 1, or every_rank");
  CHECK(contains(step_with(whole, {{0, 1000, 5, 3}}, 3), "the owner 3, expected a rank below 3"));
  CHECK(step_with(whole, {{0, 1000, 5, 2}}, 3) == "");
  CHECK(contains(step_with<told<true>>(whole, {{0, 1000, 5}}, 2),
                 "to every rank; as disjoint promises, one rank selects from a segment"));
  CHECK(step_with<told<true>>(whole, {{0, 1000, 5}}, 1) == "");
  std::vector<gs::segment> const halves{{0, 600}, {600, 400}};
  CHECK(contains(step_with<told<true, true>>(halves, {{0, 600, 5, 0}, {600, 400, 5, 1}}, 2),
                 "to rank 1, another to rank 0; as single_owner promises, one rank selects in a step"));
  CHECK(step_with<told<true, true>>(halves, {{0, 600, 5, 1}, {600, 400, 0, 0}}, 2) == "");
  CHECK(contains(step_with<told<false, false, false, true>>(whole, {{0, 1000, 5, 9}}, 2), "the owner 9"));
}

TEST_CASE("after a refused decision the next one is as if nothing had been") {
  split_into = {{0, 1000}};
  gs::compressor reducer{here, two_layers,
                         gs::recipe{.density = 0.5, .partitioner = told<false, false, false, true>{}}};
  std::vector<float> gradient(1000, 1.0f);
  for (gs::segment const bad : {gs::segment{900, 1000, 5}, gs::segment{0, 1000, 2000}, gs::segment{0, 1000, 5, -3}}) {
    assigned = {bad};
    CHECK(contains(ending([&] { reducer.exchange(gs::self{}, gradient); }), "told"));
  }
  assigned = {{0, 1000, 7}};
  CHECK(reducer.exchange(gs::self{}, gradient).selected == 7);
}

// ---- Codecs and selectors --------------------------------------------------------------------------------------

namespace misbehaving {

/// What the value codec below returns.
inline std::uint64_t bytes_a_value = 4, most_a_value = 4;

struct told_values {
  static constexpr char const* name = "told_values";
  static constexpr std::uint16_t id = 40'000;
  [[nodiscard]] std::uint64_t max_bytes(std::uint64_t count) const { return most_a_value * count; }
  [[nodiscard]] std::uint64_t bytes(gs::message_info const&, std::span<gs::index_type const> places) const {
    return bytes_a_value * places.size();
  }
  void encode(gs::message_info const&, std::span<gs::index_type const>, std::span<float const> values,
              std::span<std::byte> to) const {
    std::fill(to.begin(), to.end(), std::byte{1});
    if (to.size() >= values.size_bytes()) gs::wire::store(to, values);
  }
  void decode(gs::message_info const&, std::span<gs::index_type const>, std::span<std::byte const> from,
              std::span<float> values) const {
    if (from.size() >= values.size_bytes()) gs::wire::load(values, from);
  }
  friend bool operator==(told_values const&, told_values const&) = default;
};
static_assert(gs::value_codec<told_values>);

/// What the index codec below returns, besides the true size.
inline std::uint64_t more_written = 0, more_read = 0;

struct told_indices : gs::raw32 {
  static constexpr char const* name = "told_indices";
  static constexpr std::uint16_t id = 40'001;
  [[nodiscard]] std::uint64_t encode(gs::message_info const& info, std::span<gs::index_type const> in,
                                     std::span<std::byte> to) const {
    return gs::raw32::encode(info, in, to) + more_written;
  }
  [[nodiscard]] std::uint64_t decode(gs::message_info const& info, std::span<std::byte const> from,
                                     std::span<gs::index_type> out) const {
    return gs::raw32::decode(info, from, out) + more_read;
  }
  friend bool operator==(told_indices const&, told_indices const&) = default;
};
static_assert(gs::index_codec<told_indices>);

/// A codec of whole messages, by coo, that returns too much, or other lists than it was given.
struct told_codec {
  static constexpr char const* name = "told_codec";
  static inline std::uint64_t more = 0;
  static inline gs::index_type added = 0;
  static inline std::size_t longer = 0;

  [[nodiscard]] std::uint64_t max_bytes(std::uint64_t n, std::uint64_t count, std::uint64_t passthrough) const {
    return gs::coo{}.max_bytes(n, count, passthrough);
  }
  [[nodiscard]] std::uint64_t encode(gs::message_info const& info, gs::selection_view in,
                                     std::span<std::byte> to) const {
    return gs::coo{}.encode(info, in, to) + more;
  }
  [[nodiscard]] gs::selection_view decode(gs::message_info const& info, std::span<std::byte const> from,
                                          gs::selection_span out) const {
    auto const found = gs::coo{}.decode(info, from, out);
    for (std::size_t i = 0; i < found.indices.size(); ++i) out.indices[i] += added;
    return {{found.indices.data(), found.indices.size() + longer},
            {found.values.data(), found.values.size() + longer},
            found.passthrough};
  }
  friend bool operator==(told_codec const&, told_codec const&) = default;
};
static_assert(gs::codec<told_codec>);

template <class Recipe>
std::string exchange_with(Recipe const& recipe, int world = 1) {
  auto const said = on_ranks(world, [&](communicator comm) {
    auto values = gradient(two_layers.size(), comm.rank(), 0);
    return ending([&] {
      gs::compressor reducer{here, two_layers, recipe};
      reducer.exchange(comm, std::span{values});
    });
  });
  return said[0];
}

template <class Recipe>
std::string encode_with(Recipe const& recipe) {
  auto const values = gradient(two_layers.size(), 0, 0);
  return ending([&] {
    gs::compressor reducer{here, two_layers, recipe};
    static_cast<void>(reducer.encode(reducer.compress(values)));
  });
}

}  // namespace misbehaving
using namespace misbehaving;

TEST_CASE("a value codec that needs more bytes than its max_bytes()") {
  gs::recipe const recipe{.codec = gs::packed{gs::raw32{}, told_values{}}};
  CHECK(exchange_with(recipe) == "");
  bytes_a_value = 400;
  auto const said =
      "invalid_argument: gradsieve: the value codec told_values's bytes() returned 4000 bytes, its "
      "max_bytes() is 40";
  CHECK(exchange_with(recipe) == said);
  CHECK(encode_with(recipe) == said);
  bytes_a_value = 4;
  most_a_value = 1;
  CHECK(contains(exchange_with(recipe), "bytes() returned 40 bytes, its max_bytes() is 10"));
  CHECK(contains(exchange_with(gs::recipe{.codec = recipe.codec, .exchange = gs::reduce_scatter{}}, 2),
                 "the value codec told_values's bytes() returned"));
  most_a_value = 4;
}

TEST_CASE("an index codec that returns more bytes than there are") {
  gs::recipe const recipe{.codec = gs::packed{told_indices{}, gs::fp32{}}};
  gs::recipe const summing{.codec = recipe.codec, .exchange = gs::index_union{}};
  CHECK(exchange_with(recipe) == "");
  more_written = 1 << 20;
  auto const said =
      "invalid_argument: gradsieve: the index codec told_indices's encode() returned 1048616 bytes, its "
      "max_bytes() is 40";
  CHECK(exchange_with(recipe) == said);
  CHECK(exchange_with(summing) == said);
  more_written = 0;
  for (std::uint64_t const more : {std::uint64_t{41}, std::uint64_t{1} << 40, 0 - std::uint64_t{60}}) {
    more_read = more;
    CHECK(contains(exchange_with(recipe), "the index codec told_indices's decode() returned"));
  }
  more_read = 0;
}

TEST_CASE("a codec that returns more bytes, indices or entries than there are") {
  gs::recipe const recipe{.codec = told_codec{}};
  CHECK(exchange_with(recipe) == "");
  told_codec::more = 1 << 20;
  CHECK(
      contains(exchange_with(recipe), "the codec told_codec's encode() returned 1048704 bytes, its max_bytes() left "));
  CHECK(contains(encode_with(recipe), "the codec told_codec's encode() returned"));
  told_codec::more = 0;
  told_codec::added = 1'000'000;
  CHECK(contains(exchange_with(recipe), "is not below 1000"));
  told_codec::added = 0;
  told_codec::longer = 1'000'000;
  CHECK(contains(exchange_with(recipe), "the codec told_codec's decode() returned lists that are not a part of those"));
  CHECK(contains(exchange_with(gs::recipe{.codec = told_codec{}, .exchange = gs::reduce_scatter{}}, 2),
                 "the codec told_codec's decode() returned lists that are not a part of those"));
  told_codec::longer = 0;
}

namespace misbehaving {

struct told_selector {
  static constexpr char const* name = "told_selector";
  static inline std::array<gs::index_type, 3> places{};
  template <class Workspace>
  gs::index_type select(Workspace&, gs::accumulator_ref const, gs::index_type, gs::selection_span out) const {
    for (std::size_t i = 0; i < places.size() && i < out.indices.size(); ++i) {
      out.indices[i] = places[i];
      out.values[i] = 1;
    }
    return static_cast<gs::index_type>(-1);  // clamped to the room there is
  }
  [[nodiscard]] gs::index_type capacity(gs::index_type) const { return 3; }
  friend bool operator==(told_selector const&, told_selector const&) = default;
};

}  // namespace misbehaving
using namespace misbehaving;

TEST_CASE("a selector that writes indices of its own") {
  gs::recipe const recipe{.selector = told_selector{}, .partitioner = gs::layerwise{}};
  gs::recipe const flat{.selector = told_selector{}};
  told_selector::places = {1, 500, 999};
  CHECK(exchange_with(flat) == "");
  CHECK(contains(exchange_with(recipe),
                 "the selector told_selector's select() wrote indices 1 to 999, the segment has 0 "
                 "to 599"));
  told_selector::places = {1, 500, 1000};
  CHECK(encode_with(flat) ==
        "invalid_argument: gradsieve: the selector told_selector's select() wrote indices 1 to 1000, "
        "the segment has 0 to 999");
  told_selector::places = {1, 4'000'000'000, 999};
  CHECK(contains(encode_with(flat), "the selector told_selector's select() wrote indices that do not increase"));
}

// ---- Fuzzer ------------------------------------------------------------------------------------------------------

TEST_CASE("faulty policies at random: a step works, or is refused") {
  data::generator random{42};
  auto const below = [&](std::uint64_t limit) { return random.bits() % limit; };
  int worked = 0, refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<gs::segment> split, assign;
    std::uint64_t at = below(8) == 0 ? below(1200) : 0;
    for (auto left = below(4) + 1; left > 0; --left) {
      std::uint64_t const size = left == 1 && at < 1000 && below(4) > 0 ? 1000 - at : below(700);
      split.push_back({at, size});
      at += below(8) == 0 ? below(2000) : size;
    }
    for (auto each : split) {
      if (below(10) == 0) each.offset = random.bits() >> below(64);
      if (below(10) == 0) each.size = random.bits() >> below(64);
      each.k =
          static_cast<gs::index_type>(below(8) == 0 ? random.bits() : std::min<std::uint64_t>(below(100), each.size));
      each.owner = below(8) == 0 ? static_cast<int>(random.bits()) : static_cast<int>(below(3)) - 1;
      assign.push_back(each);
    }
    bytes_a_value = below(4) == 0 ? below(2000) : 4;
    most_a_value = below(4) == 0 ? below(8) : 4;
    more_written = below(8) == 0 ? random.bits() >> below(64) : 0;
    more_read = below(8) == 0 ? random.bits() >> below(64) : 0;
    split_into = split;
    assigned = assign;
    gs::recipe const recipe{
        .density = 0.5, .partitioner = told<>{}, .codec = gs::packed{told_indices{}, told_values{}}};
    auto const said = exchange_with(recipe, 2);
    (said.empty() ? worked : refused) += 1;
    CHECK_MESSAGE(!contains(said, "exception: "), said);
  }
  CHECK(worked > 10);
  CHECK(refused > 100);
  bytes_a_value = most_a_value = 4;
  more_written = more_read = 0;
}
