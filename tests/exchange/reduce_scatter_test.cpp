// A shard for every rank: reduce_scatter against gather, its bytes, and what happens to ranks and messages that fail.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "steps.hpp"

using namespace steps;

namespace {

constexpr gs::host here{.threads = 1};

template <class Recipe>
auto with_exchange(Recipe const& of, auto exchange) {
  gs::recipe<decltype(of.selector), decltype(of.partitioner), decltype(of.residual), decltype(of.codec),
             decltype(exchange)>
      made{};
  made.density = of.density;
  made.selector = of.selector;
  made.partitioner = of.partitioner;
  made.residual = of.residual;
  made.codec = of.codec;
  made.exchange = exchange;
  made.passthrough = of.passthrough;
  return made;
}

/// Steps by both exchanges: each rank's shard of one is that of the other, to the bit, and the residuals are equal.
template <class Recipe>
std::string against_gather(int world, gs::layout const& layers, Recipe const& recipe) {
  auto const n = layers.size();
  return joined(on_ranks(world, [&](communicator comm) {
    findings found;
    gs::compressor whole{here, layers, with_exchange(recipe, gs::gather{})};
    gs::compressor shards{here, layers, with_exchange(recipe, gs::reduce_scatter{})};
    auto const mine = gs::shard_of(n, world, comm.rank());
    gs::detail::layer_split const split{layers, recipe.passthrough};
    for (std::uint64_t step = 0; step < 5; ++step) {
      auto all = gradient(n, comm.rank(), step);
      auto part = all;
      whole.exchange(comm, std::span{all});
      traffic moved{};
      auto const report = shards.exchange(counting{{comm}, &moved}, std::span{part});
      found.expect(report.bytes_sent == moved.sent && report.bytes_received == moved.received,
                   "bytes that are reported");
      auto expected = std::vector<float>(n);
      std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(mine.offset), mine.size,
                  expected.begin() + static_cast<std::ptrdiff_t>(mine.offset));
      for (auto const& each : split.passthrough)
        std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(each.offset), each.size,
                    expected.begin() + static_cast<std::ptrdiff_t>(each.offset));
      if (report.passthrough_elements >
          split.passthrough_elements)  // segments sent in full: their mean is on all ranks
        for (std::size_t i = 0; i < n; ++i)
          if (part[i] != 0) expected[i] = all[i];
      found.expect(same_bits(part, expected), "the shard in step " + std::to_string(step));
      found.expect(same_bits(residual_of(whole), residual_of(shards)), "the residual in step " + std::to_string(step));
    }
    return found.text();
  }));
}

struct fails_to_encode : gs::coo {
  static constexpr char const* name = "fails_to_encode";
  static inline thread_local bool fails = false;
  [[nodiscard]] std::uint64_t encode(gs::message_info const info, gs::selection_view const in,
                                     std::span<std::byte> to) const {
    if (fails) throw std::runtime_error("this codec fails");
    return gs::coo::encode(info, in, to);
  }
};

/// Damages what this rank receives in the all_to_all of this number.
struct damaging : forwarding {
  int which;
  std::size_t byte;
  unsigned char by;
  int* calls;
  void all_to_all(gs::host const& where, std::span<std::byte const> out, std::span<std::size_t const> out_sizes,
                  std::span<std::byte> in, std::span<std::size_t const> in_sizes) const {
    real.all_to_all(where, out, out_sizes, in, in_sizes);
    if ((*calls)++ == which && byte < in.size()) in[byte] ^= static_cast<std::byte>(by);
  }
};

}  // namespace

TEST_CASE("shards are equal, in order, and all there is") {
  for (std::uint64_t const n : {0u, 1u, 5u, 7u, 8u, 9u, 1000u, 4'294'967'295u})
    for (int const world : {1, 2, 3, 5, 8, 1000}) {
      std::uint64_t next = 0;
      std::uint64_t const first = gs::shard_of(n, world, 0).size;
      CHECK(first == (n + static_cast<std::uint64_t>(world) - 1) / static_cast<std::uint64_t>(world));
      for (int r = 0; r < world; ++r) {
        auto const each = gs::shard_of(n, world, r);
        REQUIRE(each.offset == next);
        REQUIRE(each.size <= first);
        if (each.offset + each.size < n) REQUIRE(each.size == first);
        next += each.size;
      }
      CHECK(next == n);
    }
}

TEST_CASE("all shards together are gather's update, to the bit") {
  for (int const world : {1, 2, 3, 5, 7, 8}) {
    CAPTURE(world);
    CHECK(against_gather(world, mixed_layers(), gs::recipe{.density = 0.05}) == "");
    CHECK(against_gather(world, mixed_layers(), gs::recipe{.density = 0.05, .codec = gs::packed{}}) == "");
  }
  CHECK(against_gather(3, mixed_layers(),
                       gs::recipe{.density = 0.05,
                                  .selector = gs::laplacian{},
                                  .partitioner = gs::layerwise{},
                                  .residual = gs::momentum_correction{},
                                  .codec = gs::packed{.indices = gs::delta{}}}) == "");
  CHECK(against_gather(3, mixed_layers(),
                       gs::recipe{.density = 0.5, .selector = gs::adacomp{}, .partitioner = gs::layerwise{}}) == "");
  // Values that are coded one by one are rounded alike, wherever a message is cut.
  CHECK(against_gather(3, mixed_layers(), gs::recipe{.density = 0.05, .codec = gs::packed{.values = gs::fp16{}}}) ==
        "");
  CHECK(against_gather(3, mixed_layers(), gs::recipe{.density = 1.0}) == "");  // all is all-reduced
  for (std::uint64_t const n : {0u, 1u, 2u, 3u})                               // shards without elements
    for (double const density : {0.0, 0.4})
      CHECK(against_gather(5, gs::layout::flat(n), gs::recipe{.density = density}) == "");
}

TEST_CASE("bytes received do not grow with the ranks") {
  constexpr std::uint64_t n = 1'000'000;
  constexpr double density = 0.05;
  double const entries = 8.0 * gs::budget_of(density, n);
  double alone = 0;  // with two ranks, of a message that goes to one rank, that which stays there is a half
  for (int const world : {2, 4, 8, 16, 32}) {
    std::vector<std::uint64_t> received(at(world));
    CHECK(joined(on_ranks(world, [&](communicator comm) {
            gs::compressor reducer{here, gs::layout::flat(n),
                                   gs::recipe{.density = density, .exchange = gs::reduce_scatter{}}};
            data::generator random{static_cast<std::uint64_t>(comm.rank()) + 7};
            std::vector<float> update(n);
            for (float& x : update) x = static_cast<float>(random.laplace());
            reducer.connect(comm);
            traffic moved{};
            auto const report = reducer.exchange(counting{{comm}, &moved}, std::span{update});
            received[at(comm.rank())] = report.bytes_received;
            return report.bytes_received == moved.received ? std::string{} : std::string{"counted otherwise"};
          })) == "");
    auto const most = static_cast<double>(std::ranges::max(received));
    // The mean of what a rank gets of the others, and what all would be with that which is its own.
    double const with_own = most * world / (world - 1);
    MESSAGE(world << " ranks: " << most << " bytes received, " << most / entries << " of k entries; with a rank's own "
                  << with_own / entries);
    CHECK(most < 1.05 * entries);
    if (world == 2) alone = with_own;
    CHECK(with_own < 1.05 * alone);
  }
}

TEST_CASE("a rank whose codec fails makes all throw, and nothing is given up") {
  auto const n = mixed_layers().size();
  for (int const odd : {0, 2})
    CHECK(joined(on_ranks(3, [&](communicator comm) {
            findings found;
            gs::compressor reducer{
                here, mixed_layers(),
                gs::recipe{.density = 0.05, .codec = fails_to_encode{}, .exchange = gs::reduce_scatter{}}};
            for (std::uint64_t step = 0; step < 4; ++step) {
              auto update = gradient(n, comm.rank(), step);
              auto const given = update;
              auto const before = residual_of(reducer);
              bool const mine = comm.rank() == odd && step % 2 == 1;
              fails_to_encode::fails = mine;
              auto const how = ending([&] { reducer.exchange(comm, std::span{update}); });
              fails_to_encode::fails = false;
              if (step % 2 == 0) {
                found.expect(how.empty(), how);
                continue;
              }
              found.expect(contains(how, mine ? "this codec fails" : "failed in this step; nothing was sent"), how);
              found.expect(same_bits(update, given), "the gradient changed");
              auto const after = residual_of(reducer);
              bool kept = true;
              for (std::size_t i = 0; i < n; ++i) kept = kept && after[i] == before[i] + given[i];
              found.expect(kept, "something was given up");
            }
            return found.text();
          })) == "");
}

TEST_CASE("damaged messages and sizes are found, and never read out of bounds") {
  gs::layout const layers{{"a", 300}, {"b", 333}};
  auto const run = [&](int which, std::size_t byte, unsigned char by, auto codec) {
    return on_ranks(3, [&](communicator comm) {
      int calls = 0;
      gs::compressor reducer{
          here, layers,
          gs::recipe<gs::radix, gs::whole, gs::error_feedback, decltype(codec), gs::reduce_scatter>{.density = 0.1}};
      auto update = gradient(layers.size(), comm.rank(), 0);
      return ending([&] {
        reducer.exchange(damaging{{comm}, comm.rank() == 1 ? which : -1, byte, by, &calls}, std::span{update});
      });
    });
  };
  for (std::size_t byte = 0; byte < 300; byte += 7) {
    auto const said = run(1, byte, 0x40, gs::packed{.values = gs::ternary{}});
    CHECK(said[0] == "");
    CHECK((byte > 150 || contains(said[1], "corrupt_message: gradsieve: message")));
    CHECK(contains(run(1, byte, 0x40, gs::coo{})[1], "corrupt_message: gradsieve: message"));
  }
  // A size that is a lie: too large for the room, or no size at all.
  CHECK(contains(run(0, 23, 0x40, gs::coo{})[1], "mismatch: gradsieve: rank 2 announces a size of "));
  CHECK(contains(run(0, 0, 0x01, gs::coo{})[1], "mismatch: gradsieve: all_to_all: rank 0 passes "));
}

TEST_CASE("coded_all_reduce: with a codec without loss the bits of gather, at any density") {
  for (int const world : {1, 2, 3, 8})
    for (double const density : {0.05, 0.6, 1.0}) {
      CAPTURE(world);
      CAPTURE(density);
      CHECK(joined(on_ranks(world, [&](communicator comm) {
              findings found;
              auto const recipe = gs::recipe{.density = density, .codec = gs::packed{}};
              gs::compressor plain{here, mixed_layers(), recipe};
              gs::compressor coded{here, mixed_layers(), with_exchange(recipe, gs::coded_all_reduce{.returned = 8})};
              for (std::uint64_t step = 0; step < 4; ++step) {
                auto expected = gradient(mixed_layers().size(), comm.rank(), step);
                auto update = expected;
                plain.exchange(comm, std::span{expected});
                traffic moved{};
                auto const report = coded.exchange(counting{{comm}, &moved}, std::span{update});
                found.expect(report.bytes_sent == moved.sent && report.bytes_received == moved.received, "bytes");
                found.expect(update == expected, "the update in step " + std::to_string(step));
                found.expect(residual_of(plain) == residual_of(coded), "the residual in step " + std::to_string(step));
              }
              return found.text();
            })) == "");
    }
}

TEST_CASE("coded_all_reduce: what ranks select together is returned") {
  CHECK(joined(on_ranks(8, [&](communicator comm) {
          findings found;
          gs::recipe const recipe{.density = 0.05, .partitioner = gs::deft{}};
          gs::compressor plain{here, mixed_layers(), with_exchange(recipe, gs::gather{})};
          gs::compressor coded{here, mixed_layers(), with_exchange(recipe, gs::coded_all_reduce{.returned = 1})};
          for (std::uint64_t step = 0; step < 4; ++step) {
            auto expected = gradient(mixed_layers().size(), comm.rank(), step);
            auto update = expected;
            plain.exchange(comm, std::span{expected});
            coded.exchange(comm, std::span{update});
            found.expect(update == expected, "the update in step " + std::to_string(step));
          }
          return found.text();
        })) == "");
}

TEST_CASE("coded_all_reduce returns the largest sums of a shard, and its rank keeps the others") {
  constexpr std::uint64_t n = 4'001;
  constexpr double density = 0.05;
  for (int const world : {3, 8})
    for (double const times : {0.125, 1.0, 2.0}) {
      CAPTURE(world);
      CAPTURE(times);
      CHECK(joined(on_ranks(world, [&](communicator comm) {
              findings found;
              auto const layers = gs::layout::flat(n);
              gs::recipe const recipe{.density = density};
              gs::compressor shards{here, layers, with_exchange(recipe, gs::reduce_scatter{})};
              gs::compressor coded{here, layers, with_exchange(recipe, gs::coded_all_reduce{.returned = times})};
              auto const mine = gs::shard_of(n, world, comm.rank());
              for (std::uint64_t step = 0; step < 4; ++step) {
                auto sum = gradient(n, comm.rank(), step);
                if (step == 0)
                  std::ranges::fill(sum, 1.0f);  // all ranks select the same, and sums are equal: the first
                auto update = sum;
                shards.restore(coded.state());
                shards.exchange(comm, std::span{sum});
                auto const report = coded.exchange(comm, std::span{update});
                // What the ranks have selected from this shard, of which the largest sums are returned.
                auto const before = residual_of(shards);
                std::vector<std::uint64_t> places;
                for (auto i = mine.offset; i < mine.offset + mine.size; ++i)
                  if (sum[i] != 0) places.push_back(i);
                std::ranges::sort(places, std::less{}, [&](auto at) { return std::pair{-std::abs(sum[at]), at}; });
                std::size_t returned = 0;
                for (auto const i : places) returned += update[i] != 0 ? 1 : 0;
                for (std::size_t at = 0; at < places.size(); ++at) {
                  auto const i = places[at];
                  found.expect(update[i] == (at < returned ? sum[i] : 0.0f), "element " + std::to_string(i));
                }
                auto const all = static_cast<double>(std::ranges::count_if(update, [](float v) { return v != 0; }));
                auto const k = static_cast<double>(report.selected);
                found.expect(all <= std::ceil(times * k) + world, std::to_string(all) + " returned");
                found.expect(all >= 0.7 * std::min(times, step == 0 ? 1.0 : 1.5) * k,
                             std::to_string(all) + " returned");
                auto const after = residual_of(coded);
                for (std::uint64_t i = 0; i < n; ++i) {
                  bool const own = i >= mine.offset && i < mine.offset + mine.size;
                  float const kept = own && update[i] == 0 ? sum[i] * static_cast<float>(world) : 0.0f;
                  found.expect(std::abs(after[i] - before[i] - kept) <= 1e-5f * std::abs(kept) + 1e-7f,
                               "residual " + std::to_string(i));
                }
              }
              return found.text();
            })) == "");
    }
}

TEST_CASE("messages about shards: an index behind the last element is a fault") {
  gs::message_info const info{6, 0};  // two shards of 10 elements
  std::vector<gs::index_type> const indices{1, 3};
  std::vector<float> const values{2, 4};
  gs::host::workspace work{here, 10};
  gs::decoded_messages<gs::host::workspace> decoded;
  for (std::uint64_t const all : {10u, 9u}) {
    std::vector<std::byte> bytes(gs::coo{}.max_bytes(6, 2, 0));
    static_cast<void>(gs::coo{}.encode(info, {indices, values, {}}, bytes));
    std::vector<std::span<std::byte const>> const messages(2, bytes);
    decoded.reserve(2, 4, 0);
    auto const read = [&] {
      decoded.add_all(work, gs::coo{}, info, messages, [](auto) { return std::uint64_t{2}; }, false, 6, all);
    };
    if (all == 9) {
      CHECK_THROWS_WITH_AS(read(), "gradsieve: message index is 9, expected below 9", gs::corrupt_message);
      CHECK(decoded.messages().empty());
    } else {
      read();
      CHECK(std::ranges::equal(decoded.messages()[0].indices, indices));
      CHECK(std::ranges::equal(decoded.messages()[1].indices, std::array{7, 9}));
    }
  }
}

TEST_CASE("coded_all_reduce: room for what is returned, and finite rests") {
  auto const run = [](int world, gs::layout const& layers, auto const& recipe, float size) {
    CAPTURE(world);
    CAPTURE(recipe);
    CHECK(joined(on_ranks(world, [&](communicator comm) {
            findings found;
            gs::compressor coded{here, layers, recipe};
            for (std::uint64_t step = 0; step < 3; ++step) {
              auto update = gradient(layers.size(), comm.rank(), step);
              if (size > 1) std::ranges::fill(update, step == 0 ? size : 1.0f);
              auto const report = coded.exchange(comm, std::span{update});
              found.expect(report.non_finite == 0, "not finite in step " + std::to_string(step));
              auto const rest = residual_of(coded);
              found.expect(std::ranges::all_of(rest, [](float each) { return std::isfinite(each); }), "residual");
            }
            return found.text();
          })) == "");
  };
  for (double const density : {0.3, 1.0})
    for (double const returned : {0.125, 0.14, 0.275, 0.5, 1.0}) {
      gs::coded_all_reduce const exchange{.returned = returned};
      for (int const world : {3, 5, 8}) {
        run(world, gs::layout::flat(750), gs::recipe{.density = density, .exchange = exchange}, 1);
        run(world, mixed_layers(), gs::recipe{.density = density, .partitioner = gs::layerwise{}, .exchange = exchange},
            1);
        run(world, mixed_layers(), gs::recipe{.density = density, .partitioner = gs::deft{}, .exchange = exchange}, 1);
        run(world, mixed_layers(), gs::recipe{.density = density, .partitioner = gs::cyclic{}, .exchange = exchange},
            1);
      }
    }
  run(3, gs::layout::flat(300), gs::recipe{.density = 0.3, .exchange = gs::coded_all_reduce{.returned = 0.125}}, 3e38f);
}

TEST_CASE("coded_all_reduce: what a rank receives does not grow with the ranks, and nothing is lost") {
  constexpr std::uint64_t n = 100'000;
  auto const check = [](int world, std::string const& name, auto exchange, double least, double most) {
    double ratio = 0;  // of rank 0
    CHECK(joined(on_ranks(world, [&](communicator comm) {
            findings found;
            gs::recipe const recipe{.density = 0.06, .codec = gs::packed{.values = gs::sign{}}};
            gs::compressor coded{here, gs::layout::flat(n), with_exchange(recipe, exchange)};
            std::vector<double> came_in(n), applied(n);
            for (std::uint64_t step = 0; step < 4; ++step) {
              auto update = gradient(n, comm.rank(), step);
              std::vector<float> sums = update;
              comm.all_reduce(here, std::span{sums}, gs::reduction::sum);
              auto const report = coded.exchange(comm, std::span{update});
              // A ring would receive two times 4 bytes an element.
              double const fewer = 2 * 4.0 * n * (world - 1) / world / static_cast<double>(report.bytes_received);
              found.expect(fewer > least && fewer < most, std::to_string(fewer) + " times fewer");
              if (comm.rank() == 0) ratio = fewer;
              for (std::size_t i = 0; i < n; ++i) {
                came_in[i] += static_cast<double>(sums[i]);
                applied[i] += static_cast<double>(update[i]) * world;
              }
            }
            std::vector<float> rests = residual_of(coded);
            comm.all_reduce(here, std::span{rests}, gs::reduction::sum);
            double off = 0;
            for (std::size_t i = 0; i < n; ++i)
              off = std::max(off, std::abs(came_in[i] - applied[i] - static_cast<double>(rests[i])));
            found.expect(off < 1e-3, "lost " + std::to_string(off));
            return found.text();
          })) == "");
    MESSAGE(world << " ranks, " << name << ": " << ratio << " times fewer bytes than a ring");
  };
  for (int const world : {2, 4, 8, 16}) {
    check(world, "gather", gs::gather{}, 140.0 / world, 150.0 / world);
    check(world, "1 k returned", gs::coded_all_reduce{.returned = 1}, 52, 85);
    check(world, "2 k returned", gs::coded_all_reduce{}, 42, 58);
    check(world, "all returned", gs::coded_all_reduce{.returned = 16}, 30, 58);
  }
}

TEST_CASE("coded_all_reduce at density 1: everything in few bits, and what is rounded waits") {
  constexpr std::uint64_t n = 100'000;
  gs::layout const layers{{"a.weight", 40'000}, {"a.bias", 200}, {"b.weight", 59'800}};
  auto const check = [&](int world, double bits, auto values, auto selector, auto partitioner, bool passes) {
    CAPTURE(world);
    CAPTURE(values);
    CHECK(joined(on_ranks(world, [&](communicator comm) {
            findings found;
            auto const biases = passes ? std::vector<std::string>{"*.bias"} : std::vector<std::string>{};
            auto const recipe = gs::recipe{.density = 1,
                                           .selector = selector,
                                           .partitioner = partitioner,
                                           .codec = gs::packed{.values = values},
                                           .exchange = gs::coded_all_reduce{},
                                           .passthrough = {.patterns = biases}};
            gs::compressor coded{here, layers, recipe};
            std::vector<double> came_in(n), applied(n);
            double const norms = decltype(partitioner)::traits.needs_norms ? 64 : 0;
            for (std::uint64_t step = 0; step < 3; ++step) {
              auto update = gradient(n, comm.rank(), step);
              std::vector<float> sums = update;
              comm.all_reduce(here, std::span{sums}, gs::reduction::sum);
              auto const report = coded.exchange(comm, std::span{update});
              auto const handshakes = 72.0 * (world - 1) + (step == 0 ? 32 * (world - 1) : 0) + (passes ? 804 : 0);
              auto const received = static_cast<double>(report.bytes_received) - handshakes - norms;
              auto const each = 8 * received / (2.0 * n * (world - 1) / world);  // bits of an element, each way
              found.expect(each > bits && each <= bits + 0.2, std::to_string(each) + " bits an element");
              found.expect(report.selected + report.passthrough_elements == n, "entries");
              for (std::size_t i = 0; i < n; ++i) {
                came_in[i] += static_cast<double>(sums[i]);
                applied[i] += static_cast<double>(update[i]) * world;
              }
            }
            auto const rest = residual_of(coded);
            std::vector<float> rests = rest;
            comm.all_reduce(here, std::span{rests}, gs::reduction::sum);
            double off = 0, moved = 0;
            for (std::size_t i = 0; i < n; ++i) {
              off = std::max(off, std::abs(came_in[i] - applied[i] - static_cast<double>(rests[i])));
              moved += std::abs(applied[i]);
            }
            found.expect(off < 1e-3, "lost " + std::to_string(off));
            found.expect(moved > 0, "nothing was sent");
            return found.text();
          })) == "");
  };
  for (int const world : {2, 3, 8}) {
    check(world, 8, gs::int8{}, gs::radix{}, gs::whole{}, true);
    check(world, 4, gs::int4{}, gs::laplacian{}, gs::layerwise{}, false);
    check(world, 2, gs::int2{}, gs::chunked{.size = 512}, gs::whole{}, true);
    check(world, 1, gs::sign{}, gs::radix{}, gs::deft{}, false);
  }
}
