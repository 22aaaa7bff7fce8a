// What every exchange must do, as a part of a recipe: the same mean on all ranks, nothing lost, and no rank left
// waiting when another one fails. Ranks are threads.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>

#include "conformance.hpp"
#include "sanitized.hpp"

namespace exchange_conformance {

namespace gs = gradsieve;
using conformance::findings;
using conformance::same_bits;

/// What an exchange promises beyond the concept.
struct promises {
  bool shards = false;  ///< each rank gets its shard_of() the mean and zeros elsewhere, as with reduce_scatter
  std::chrono::milliseconds patience{10'000};  ///< how long a rank waits for the others before it gives up
};

/// Whether encode() fails on this thread.
inline thread_local bool failing = false;

/// A codec whose encode() fails on demand.
template <class Codec>
struct fails_on_demand : Codec {
  [[nodiscard]] std::uint64_t encode(gs::message_info const& info, gs::selection_view const in,
                                     std::span<std::byte> to) const {
    if (failing) throw std::runtime_error("this rank's encode() fails");
    return Codec::encode(info, in, to);
  }
  [[maybe_unused]] friend bool operator==(fails_on_demand const&, fails_on_demand const&) = default;
};

/// One run of the suite.
template <class Recipe>
class suite {
  using codec_type = fails_on_demand<decltype(Recipe::codec)>;
  using recipe_type = gs::recipe<decltype(Recipe::selector), decltype(Recipe::partitioner), decltype(Recipe::residual),
                                 codec_type, decltype(Recipe::exchange)>;
  using compressor_type = gs::compressor<gs::host, recipe_type>;
  using values = std::vector<float>;
  static_assert(std::is_same_v<decltype(Recipe::residual), gs::error_feedback>,
                "the exchange's suite counts what stays by the rule of error_feedback");

 public:
  suite(Recipe const& from, promises what) : promised_{what} {
    recipe_.selector = from.selector;
    recipe_.partitioner = from.partitioner;
    recipe_.codec = codec_type{from.codec};
    recipe_.exchange = from.exchange;
  }

  [[nodiscard]] std::string run() {
    for (int world = 1; world <= 5 && found_.text().empty(); ++world) {
      steps(gs::layout{}, world, 0.1);
      steps(gs::layout{{"few.weight", 3}, {"few.bias", 1}}, world, 0.4);
      for (double const density : {0.1, 1.0, 0.0, 0.002}) {
        if (sanitized && density < 0.1) continue;
        steps({{"a.weight", 1500}, {"a.bias", 16}, {"empty", 0}, {"scale", 1}, {"b.weight", 2900}, {"b.norm", 40}},
              world, density);
      }
    }
    return found_.text();
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  /// What the ranks have before and after a step.
  struct ranks {
    std::vector<compressor_type> compressors;
    std::vector<values> before, gradients, updates, after;  // accumulators, by rank
    std::vector<std::string> thrown;

    [[nodiscard]] int size() const { return static_cast<int>(compressors.size()); }
    [[nodiscard]] float accumulator(int rank, std::size_t i) const {
      return before[at(rank)][i] + gradients[at(rank)][i];
    }
    [[nodiscard]] float given(int rank, std::size_t i) const { return accumulator(rank, i) - after[at(rank)][i]; }
  };

  static values residual_of(compressor_type& from) {
    auto const now = from.residual();
    return {now.begin(), now.end()};
  }

  /// Calls f(rank, communicator) on all ranks. A rank that waits for too long gives up.
  template <class F>
  void step_of(ranks& all, std::uint64_t step, F const& f) const {
    auto const count = at(all.size());
    all.before.assign(count, {});
    all.gradients.assign(count, {});
    all.updates.assign(count, {});
    all.after.assign(count, {});
    all.thrown.assign(count, {});
    gs::threads::run(
        all.size(),
        [&](gs::threads::communicator_ref comm) {
          auto const r = at(comm.rank());
          auto& own = all.compressors[r];
          all.before[r] = residual_of(own);
          all.gradients[r] = conformance::whole_numbers(own.layers().size(), 100 * step + r);
          all.updates[r] = all.gradients[r];
          try {
            f(comm, own, all.updates[r]);
          } catch (std::exception const& error) {
            all.thrown[r] = error.what();
          }
          all.after[r] = residual_of(own);
        },
        promised_.patience);
  }

  void steps(gs::layout const& layers, int world, double density) {
    auto const n = layers.size();
    ranks all;
    recipe_.density = density;
    found_.in(world, " ranks, n ", n, ", density ", density);
    found_.attempt([&] {
      for (int r = 0; r < world; ++r) all.compressors.emplace_back(gs::host{.threads = 1}, layers, recipe_);
    });
    if (all.size() < world) return;
    std::vector<double> came_in(n), applied(n);
    bool any = false;
    for (std::uint64_t step = 0; step < 10; ++step) {
      found_.in(world, " ranks, n ", n, ", density ", density, ", step ", step);
      std::vector<unsigned char> skips;
      if (step == 3)
        for (std::size_t l = 0; l < layers.count(); ++l) skips.push_back(l % 2 == 0);
      bool encode_fails = step == 5 && gs::detail::encodes_values(recipe_.exchange);
      bool const rank_fails = step == 7 && world > 1;
      step_of(all, step, [&](auto const& comm, compressor_type& own, values& update) {
        if (rank_fails && comm.rank() == world - 1) return own.fail(comm, std::span{update});
        failing = encode_fails && comm.rank() == 0;
        own.exchange(comm, std::span{update}, skips);
      });
      if (encode_fails && density >= 1)  // all is sent as it is, and nothing encoded
        encode_fails = std::ranges::any_of(all.thrown, [](auto const& text) { return !text.empty(); });
      if (encode_fails || rank_fails) {
        expect_failed(all, rank_fails ? world - 1 : -1);
        for (int r = 0; r < world; ++r)
          for (std::size_t i = 0; i < n && !(rank_fails && r == world - 1); ++i)
            came_in[i] += static_cast<double>(all.gradients[at(r)][i]);
        continue;
      }
      for (int r = 0; r < world; ++r) {
        found_.expect(all.thrown[at(r)].empty(), "rank ", r, " throws '", all.thrown[at(r)], '\'');
        if (!all.thrown[at(r)].empty()) return;
      }
      check(all, layers, skips);
      for (std::size_t i = 0; i < n; ++i) {
        for (int r = 0; r < world; ++r) came_in[i] += static_cast<double>(all.gradients[at(r)][i]);
        applied[i] += static_cast<double>(update_of(all, i));
        any = any || update_of(all, i) != 0;
      }
    }
    found_.expect(any || density == 0 || n == 0, "nothing is ever sent");
    for (std::size_t i = 0; i < n; ++i) {
      double stays = 0;
      for (int r = 0; r < world; ++r) stays += static_cast<double>(all.after[at(r)][i]);
      found_.expect(std::fabs(came_in[i] - applied[i] * world - stays) <= 1e-4 * (1 + std::fabs(came_in[i])),
                    "element ", i, ": ", came_in[i], " came in, ", applied[i], " was applied on each rank, ", stays,
                    " stays");
    }
  }

  /// The mean of element i: where each rank has its shard, from the rank that has it.
  float update_of(ranks const& all, std::size_t i) const {
    int owner = 0;
    if (promised_.shards)
      for (int r = 0; r < all.size(); ++r) {
        auto const shard = gs::shard_of(all.updates[0].size(), all.size(), r);
        if (i >= shard.offset && i < shard.offset + shard.size) owner = r;
      }
    return all.updates[at(owner)][i];
  }

  void check(ranks const& all, gs::layout const& layers, std::vector<unsigned char> const& skips) {
    int const world = all.size();
    constexpr bool lossy = gs::quantises<codec_type> || gs::rounding_separable_codec<codec_type>;
    for (std::size_t l = 0; l < layers.count(); ++l) {
      bool const skipped = !skips.empty() && skips[l] != 0;
      for (auto i = layers.offset(l); i < layers.offset(l) + layers[l].size; ++i) {
        float const update = update_of(all, i);
        double sum = 0;
        double magnitude = 0;
        for (int r = 0; r < world; ++r) {
          float const here = all.updates[at(r)][i];
          found_.expect(same_bits(here, update) || (promised_.shards && here == 0), "element ", i, " is ", here,
                        " on rank ", r, ", and ", update, " on another");
          auto const given = static_cast<double>(all.given(r, i));
          sum += given;
          magnitude += std::fabs(lossy ? static_cast<double>(all.accumulator(r, i)) : given);
          found_.expect(!skipped || given == 0, "rank ", r, " gave ", given, " of element ", i, ", which is skipped");
        }
        found_.expect(std::fabs(static_cast<double>(update) * world - sum) <= 2e-6 * magnitude, "element ", i, " is ",
                      update, ", the ranks gave ", sum, " in all");
      }
    }
  }

  /// All ranks have thrown and given nothing up. The rank `silent` has joined by fail(): it returns, and has
  /// accumulated nothing.
  void expect_failed(ranks const& all, int silent) {
    for (int r = 0; r < all.size(); ++r) {
      found_.expect(r == silent || !all.thrown[at(r)].empty(), "a rank fails, and rank ", r, " does not throw");
      for (char const* const waits : {" has waited ", " has left the group"})
        found_.expect(all.thrown[at(r)].find(waits) == std::string::npos, "a rank fails, and rank ", r,
                      " waits for it: ", all.thrown[at(r)]);
      for (std::size_t i = 0; i < all.before[at(r)].size(); ++i) {
        float const expected = r == silent ? all.before[at(r)][i] : all.accumulator(r, i);
        found_.expect(all.after[at(r)][i] == expected, "a rank fails, and rank ", r, " gives up element ", i, ": ",
                      expected, " becomes ", all.after[at(r)][i]);
      }
    }
  }

  recipe_type recipe_{};
  promises promised_;
  findings found_;
};

/// Returns what is wrong with a recipe's exchange, a line each; nothing if it does what the concept, and `what`, say.
/// The recipe's density is not used; its residual store is error_feedback. Other policies of one's own may be in it.
template <class Recipe>
[[nodiscard]] std::string run(Recipe const& recipe, promises what = {}) {
  return suite<Recipe>{recipe, what}.run();
}

}  // namespace exchange_conformance
