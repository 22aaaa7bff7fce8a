// Exchanges that send indices and values apart: with every codec that fits, in its bytes, and its rounding.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "steps.hpp"

using namespace steps;

namespace {

gs::host const here{.threads = 1};
constexpr std::uint64_t many = sanitized ? 40'000 : 200'000;

/// What a rank had after some steps, and what went through its communicator in the last one.
struct ending_of_rank {
  std::vector<float> update;
  std::vector<float> residual;
  traffic moved;
  gs::step_report report;
};

template <class Partitioner, class Exchange, class Codec>
std::vector<ending_of_rank> run(int world, Codec codec, float scale = 1, std::uint64_t n = many) {
  std::vector<ending_of_rank> all(at(world));
  gs::threads::run(world, [&](communicator comm) {
    auto& mine = all[at(comm.rank())];
    gs::recipe<gs::radix, Partitioner, gs::error_feedback, Codec, Exchange> recipe{.density = 0.01};
    recipe.codec = codec;
    gs::compressor compressor{here, gs::layout::flat(n), recipe};
    for (std::uint64_t step = 0; step < 3; ++step) {
      mine.update = gradient(n, comm.rank(), step);
      for (float& x : mine.update) x *= scale;
      mine.moved = {};
      mine.report = compressor.exchange(counting{{comm}, &mine.moved}, std::span{mine.update});
    }
    mine.residual = residual_of(compressor);
  });
  return all;
}

template <class Partitioner, class Exchange>
void check_index_codecs() {
  for (int const world : {1, 2, 5}) {
    CAPTURE(world);
    auto const plain = run<Partitioner, Exchange>(world, gs::coo{});
    auto const check = [&](auto const& indices, double bits) {  // at most; with uniform positions delta has 9.6
      INFO(indices);
      auto const coded = run<Partitioner, Exchange>(world, gs::packed{.indices = indices});
      double words = 0;
      double listed = 0;
      for (std::size_t r = 0; r < plain.size(); ++r) {
        CHECK(same_bits(coded[r].update, plain[0].update));
        CHECK(same_bits(coded[r].residual, plain[r].residual));
        CHECK(coded[r].report.bytes_sent == coded[r].moved.sent);
        CHECK(coded[r].report.bytes_received == coded[r].moved.received);
        words += static_cast<double>(plain[r].moved.sent) - static_cast<double>(coded[r].moved.sent);
        listed += coded[r].report.selected;
      }
      CHECK(32 - 8 * words / listed <= bits);
    };
    check(gs::raw32{}, 32);
    check(gs::delta{}, 15);
    check(gs::fixed_width{}, 15);
    check(gs::automatic{}, 15);
    check(gs::bitmap{}, 32);  // at 1 % larger than raw32, which then travels
  }
}

/// The largest finite values that a sum of `world` ranks may have, and more.
template <class Partitioner, class Exchange, class Values>
void check_rounding(Values const& values, float largest) {
  for (int const world : {1, 2, 3, 4, 7}) {
    CAPTURE(world);
    for (float const scale : {1.0f, largest / 4}) {
      CAPTURE(scale);
      auto const all = run<Partitioner, Exchange>(world, gs::packed{.indices = gs::delta{}, .values = values}, scale);
      std::uint64_t sent = 0;
      for (auto const& each : all) {
        CHECK(same_bits(each.update, all[0].update));
        CHECK(each.report.bytes_sent == each.moved.sent);
        CHECK(each.report.bytes_received == each.moved.received);
        sent += each.report.union_size;
        CHECK(std::ranges::all_of(each.residual, [](float x) { return gs::is_finite(x); }));
      }
      CHECK(sent > 0);
      // every sum has the format: what its mean times the ranks is rounded to
      std::size_t wrong = 0;
      for (float const mean : all[0].update) {
        auto const sum = mean * static_cast<float>(world);
        std::vector<float> rounded{sum};
        values.quantise({}, {}, rounded);
        wrong += std::fabs(rounded[0] - sum) > 1e-6f * std::fabs(sum) ? 1 : 0;
      }
      CHECK(wrong == 0);
    }
  }
}

/// An index codec that throws on one rank in one step, and one that writes what it should not.
inline thread_local bool throws_now = false;
struct failing_indices {
  static constexpr char const* name = "failing_indices";
  static constexpr std::uint16_t id = 40'000;
  [[nodiscard]] std::uint64_t max_bytes(std::uint64_t n, std::uint64_t count) const noexcept {
    return gs::delta{}.max_bytes(n, count);
  }
  [[nodiscard]] std::uint64_t encode(gs::message_info const& info, std::span<gs::index_type const> in,
                                     std::span<std::byte> to) const {
    if (throws_now) throw std::runtime_error("this codec fails");
    return gs::delta{}.encode(info, in, to);
  }
  [[nodiscard]] std::uint64_t decode(gs::message_info const& info, std::span<std::byte const> from,
                                     std::span<gs::index_type> out) const {
    return gs::delta{}.decode(info, from, out);
  }
  [[maybe_unused]] friend bool operator==(failing_indices const&, failing_indices const&) = default;
};

template <class Partitioner, class Exchange>
void check_failure() {
  auto const said = on_ranks(3, [](communicator comm) {
    findings found;
    gs::recipe<gs::radix, Partitioner, gs::error_feedback, gs::packed<failing_indices>, Exchange> const recipe{
        .density = 0.01};
    gs::compressor compressor{here, gs::layout::flat(many), recipe};
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto update = gradient(many, comm.rank(), step);
      throws_now = step == 1 && comm.rank() == 1;
      auto const how = ending([&] { compressor.exchange(comm, std::span{update}); });
      throws_now = false;
      if (step != 1)
        found.expect(how.empty(), "a step failed: " + how);
      else
        found.expect(contains(how, comm.rank() == 1 ? "this codec fails" : "rank 1 failed in this step"), how);
    }
    found.expect(compressor.step() == 3, "the failed step counts");
    return found.text();
  });
  CHECK(joined(said) == "");
}

/// Changes a bit of the leader's coded list on its way to one rank.
struct flipping : forwarding {
  bool const* armed;

  void broadcast(gs::host const& where, std::span<std::byte> in_out, int root) const {
    real.broadcast(where, in_out, root);
    if (*armed && rank() == 2) in_out[0] ^= std::byte{0x1F};  // the width of the first block
  }
};

}  // namespace

TEST_CASE("any index codec: the same update and residual in fewer bytes") {
  SUBCASE("deft, index_union") { check_index_codecs<gs::deft, gs::index_union>(); }
  SUBCASE("whole, index_union") { check_index_codecs<gs::whole, gs::index_union>(); }
  SUBCASE("cyclic, leader") { check_index_codecs<gs::cyclic, gs::leader>(); }
}

TEST_CASE("values of 16 bits: sums have the format, the same bits on all ranks, up to its largest value") {
  SUBCASE("deft, index_union, fp16") { check_rounding<gs::deft, gs::index_union>(gs::fp16{}, 65504.0f); }
  SUBCASE("deft, index_union, bf16") { check_rounding<gs::deft, gs::index_union>(gs::bf16{}, 1e38f); }
  SUBCASE("cyclic, leader, fp16") { check_rounding<gs::cyclic, gs::leader>(gs::fp16{}, 65504.0f); }
}

TEST_CASE("16-bit values cost half, and what does not fit is kept and counted") {
  auto const plain = run<gs::deft, gs::index_union>(4, gs::packed{});
  auto const half = run<gs::deft, gs::index_union>(4, gs::packed{.values = gs::fp16{}});
  auto const k = gs::budget_of(0.01, many);
  CHECK(half[0].moved.sent < plain[0].moved.sent - 2 * k + 16);
  auto const large = run<gs::deft, gs::index_union>(4, gs::packed{.values = gs::fp16{}}, 65504.0f);
  CHECK(large[0].report.saturated > 0);
  CHECK(plain[0].report.saturated == 0);
  CHECK(half[0].report.saturated == 0);
}

TEST_CASE("few entries, more ranks than entries, and none") {
  for (std::uint64_t const n : {1u, 3u, 300u})
    for (int const world : {2, 5}) {
      CAPTURE(n);
      CAPTURE(world);
      auto const fp16 = gs::packed{.indices = gs::delta{}, .values = gs::fp16{}};
      for (auto const& all :
           {run<gs::cyclic, gs::leader>(world, fp16, 1, n), run<gs::deft, gs::index_union>(world, fp16, 1, n),
            run<gs::whole, gs::index_union>(world, fp16, 1, n), run<gs::whole, gs::index_union>(world, fp16, 0, n)})
        for (auto const& each : all) CHECK(same_bits(each.update, all[0].update));
    }
}

TEST_CASE("an index codec that throws on one rank fails the step on all of them") {
  check_failure<gs::deft, gs::index_union>();
  check_failure<gs::cyclic, gs::leader>();
}

TEST_CASE("a coded list that is damaged on its way to one rank makes all ranks throw, and nothing is given up") {
  for (bool const fp16 : {false, true}) {
    CAPTURE(fp16);
    auto const with = [](auto codec) {
      return on_ranks(4, [&](communicator comm) {
        findings found;
        bool armed = false;
        gs::recipe const recipe{.density = 0.01, .partitioner = gs::cyclic{}, .codec = codec};
        gs::compressor compressor{here, gs::layout::flat(many), recipe};
        for (std::uint64_t step = 0; step < 4; ++step) {
          auto update = gradient(many, comm.rank(), step);
          auto expected = residual_of(compressor);
          for (std::size_t i = 0; i < many; ++i) expected[i] += update[i];
          armed = step == 1;
          auto const how = ending([&] { compressor.exchange(flipping{{comm}, &armed}, std::span{update}); });
          bool const good =
              step != 1 ? how.empty() : contains(how, comm.rank() == 2 ? "out of order or out of range" : "damaged on their way");
          found.expect(good, "step " + std::to_string(step) + ": " + how);
          if (step == 1) found.expect(same_bits(residual_of(compressor), expected), "something was given up");
        }
        return found.text();
      });
    };
    if (fp16)
      CHECK(joined(with(gs::packed{.indices = gs::delta{}, .values = gs::fp16{}})) == "");
    else
      CHECK(joined(with(gs::packed{.indices = gs::delta{}})) == "");
  }
}
