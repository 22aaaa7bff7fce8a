// Memory runs out at any allocation: an object is as it was or works again, nothing is lost, and no rank is left
// waiting.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/layer_states.hpp>

#include "failing_allocations.hpp"
#include "steps.hpp"

using namespace steps;
using failing_allocations::at_every_allocation;

namespace {

gs::host const here{.threads = 1};

// LLVM's OpenMP allocates when it starts, which no test may see fail.
[[maybe_unused]] int const threads_of_openmp = gs::detail::host_team{0}.size();

// Between them they have every exchange and every kind of buffer.
gs::recipe const plain{.density = 0.02};
gs::recipe const shared_out{
    .density = 0.02, .partitioner = gs::deft{}, .residual = gs::momentum_correction{.momentum = 0.5f}};
gs::recipe const led{.density = 0.02, .partitioner = gs::cyclic{}, .on_non_finite = gs::non_finite::fail};
gs::recipe const in_chunks{
    .density = 0.02, .selector = gs::chunked{.size = 64}, .codec = gs::packed{.values = gs::fp16{}}};
gs::recipe const apart{
    .density = 0.02, .partitioner = gs::deft{}, .codec = gs::packed{.indices = gs::delta{}, .values = gs::fp16{}}};
gs::recipe const in_bins{
    .density = 0.5, .selector = gs::adacomp{}, .partitioner = gs::layerwise{}, .codec = gs::binned{}};

/// Calls f for each of these recipes.
template <class F>
void for_each_recipe(F const& f) {
  f(plain);
  f(shared_out);
  f(led);
  f(in_chunks);
  f(in_bins);
  f(apart);
}

template <class Recipe>
auto made(Recipe const& recipe) {
  return gs::compressor{here, mixed_layers(), recipe};
}

struct nothing {};

/// ending(), which makes its text where memory is to be had again.
template <class F>
std::string ending_of(F const& f) {
  try {
    f();
    return {};
  } catch (std::bad_alloc const&) {
    failing_allocations::left = -1;
    return "no memory";
  } catch (std::exception const& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("a constructor") {
  for_each_recipe([](auto const& recipe) {
    auto const failed =
        at_every_allocation([] { return nothing{}; }, [&](nothing) { made(recipe); }, [](nothing, bool) {});
    CHECK(failed > 20);
  });
}

TEST_CASE("an exchange, on one of two ranks: all throw, nothing is lost, and the next step works") {
  auto const n = mixed_layers().size();
  for_each_recipe([&](auto const& recipe) {
    bool refused = true;
    std::int64_t allowed = 0;
    for (; refused && allowed < 1000; ++allowed) {  // in the first step with two ranks, which makes their buffers
      CAPTURE(allowed);
      refused = false;
      auto const said = on_ranks(2, [&](communicator comm) {
        findings found;
        auto compressor = made(recipe);
        auto const g = gradient(n, comm.rank(), 0);
        auto update = g;
        if (comm.rank() == 1) failing_allocations::left = allowed;
        bool no_memory = false;
        bool other = false;
        try {
          compressor.exchange(comm, std::span{update});
        } catch (std::bad_alloc const&) {
          no_memory = true;
        } catch (gs::communication_error const&) {
          other = true;
        }
        failing_allocations::left = -1;
        found.expect(no_memory ? comm.rank() == 1 : true, "memory was refused to another rank");
        if (comm.rank() == 1 && no_memory) refused = true;
        if (!no_memory && !other) return found.text();
        found.expect(same_bits(update, g), "the gradient was written");
        auto const kept = residual_of(compressor);
        found.expect(same_bits(kept, g) || kept == std::vector<float>(n), "a part of the gradient has entered");
        std::vector<double> before(kept.begin(), kept.end());
        comm.all_reduce(here, std::span{before}, gs::reduction::sum);
        std::vector<float> none(n);
        compressor.exchange(comm, std::span{none});
        auto const left = residual_of(compressor);
        std::vector<double> after(left.begin(), left.end());
        comm.all_reduce(here, std::span{after}, gs::reduction::sum);
        if constexpr (decltype(compressor)::residual_type::states == 1)
          for (std::size_t i = 0; i < n; ++i)
            found.expect(std::fabs(before[i] - after[i] - 2 * static_cast<double>(none[i])) < 1e-4, "mass was lost");
        return found.text();
      });
      CHECK(joined(said) == "");
    }
    CHECK(allowed > 5);
    CHECK(allowed < 1000);
  });
}

TEST_CASE("an exchange that skips other layers than the last one") {
  auto const n = mixed_layers().size();
  auto const g = gradient(n, 0, 0);
  for_each_recipe([&](auto const& recipe) {
    std::array<bool, 9> const first{true, false, true, true, false, false, false, true, true};
    std::array<bool, 9> const then{false, true, false, false, true, true, false, false, true};
    auto const after_first = [&] {
      auto compressor = made(recipe);
      auto update = g;
      compressor.exchange(gs::self{}, update, first);
      return compressor;
    };
    auto const failed = at_every_allocation(
        after_first,
        [&](auto& compressor) {
          auto update = g;
          compressor.exchange(gs::self{}, update, then);
        },
        [&](auto& compressor, bool) {
          auto update = g;
          auto const report = compressor.exchange(gs::self{}, update, then);
          std::uint64_t elements = 0;
          for (auto const& kind : report.message.kinds) elements += kind.elements;
          if (report.message.kind_count > 0) CHECK(elements + report.skipped_elements == n);
          CHECK(report.skipped_elements == 16 + 2900 + 40 + 37);
        });
    CHECK(failed > 1);
  });
}

TEST_CASE("compress and encode, and an averager") {
  auto const n = mixed_layers().size();
  auto const g = gradient(n, 0, 0);
  for_each_recipe([&](auto const& recipe) {
    auto whole = made(recipe);
    auto const selection = whole.compress(g);
    auto const bytes = whole.encode(selection);
    std::vector<std::byte> const message(bytes.begin(), bytes.end());
    std::vector<float> expected(n);
    auto const server = [&] { return gs::averager{here, mixed_layers(), recipe}; };
    server().apply(std::array<std::span<std::byte const>, 1>{message}, expected);

    SUBCASE("encode") {
      struct sender {
        decltype(made(recipe)) compressor;
        gs::host_selection selection;
      };
      auto const failed = at_every_allocation(
          [&] {
            sender one{made(recipe), {}};
            one.selection = one.compressor.compress(g);
            return one;
          },
          [](auto& one) { static_cast<void>(one.compressor.encode(one.selection)); },
          [&](auto& one, bool) {
            CHECK(same_bits(one.compressor.encode(one.selection), std::span<std::byte const>{message}));
          });
      CHECK(failed >= 1);
    }
    SUBCASE("encode, of a selection in memory of one's own") {
      std::vector<gs::index_type> const indices(selection.indices.begin(), selection.indices.end());
      std::vector<float> const values(selection.values.begin(), selection.values.end());
      std::vector<float> const passing(selection.passthrough.begin(), selection.passthrough.end());
      gs::selection_view const copy{indices, values, passing};
      auto const failed = at_every_allocation(
          [&] { return made(recipe); }, [&](auto& one) { static_cast<void>(one.encode(copy)); },
          [&](auto& one, bool) { CHECK(same_bits(one.encode(copy), std::span<std::byte const>{message})); });
      CHECK(failed >= (gs::quantises<decltype(recipe.codec)> ? 2 : 1));
    }
    SUBCASE("an averager's constructor") {
      auto const failed =
          at_every_allocation([] { return nothing{}; }, [&](nothing) { server(); }, [](nothing, bool) {});
      CHECK(failed >= 5);
    }
    SUBCASE("apply, of one message and then of four") {
      std::vector<std::span<std::byte const>> const messages(4, message);
      auto const failed = at_every_allocation(
          [&] {
            auto one = server();
            std::vector<float> update(n);
            one.apply(std::span{messages}.first(1), update);
            return one;
          },
          [&](auto& one) {
            std::vector<float> update(n);  // an allocation too
            one.apply(messages, update);
          },
          [&](auto& one, bool) {
            for (int times = 0; times < 2; ++times) {  // whatever failed, the next call works, and the one behind it
              std::vector<float> update(n, 1.0f);
              one.apply(messages, update);
              for (std::size_t i = 0; i < n; ++i) CHECK(update[i] == doctest::Approx(expected[i]));
            }
          });
      CHECK(failed >= 3);
    }
    SUBCASE("compress, where the world was another one before") {
      auto const failed =
          at_every_allocation([&] { return made(recipe); }, [&](auto& one) { one.compress(g); },
                              [&](auto& one, bool) { CHECK(same_bits(residual_of(one), residual_of(whole))); });
      CHECK(failed == 0);
    }
  });
}

TEST_CASE("state, restore and absorb") {
  auto const n = mixed_layers().size();
  for_each_recipe([&](auto const& recipe) {
    auto source = made(recipe);
    source.compress(gradient(n, 1, 0));
    auto const foreign = source.state();
    auto const trained = [&] {
      auto one = made(recipe);
      one.compress(gradient(n, 0, 0));
      return one;
    };
    auto reference = trained();
    auto const before = reference.state();
    CHECK(at_every_allocation(
              trained, [](auto& one) { static_cast<void>(one.state()); },
              [&](auto& one, bool) { CHECK(one.state() == before); }) >= 1);
    CHECK(at_every_allocation(
              trained, [&](auto& one) { one.restore(foreign); },
              [&](auto& one, bool failed) { CHECK(one.state() == (failed ? before : foreign)); }) >= 1);
    reference.absorb(foreign);
    auto const both = reference.state();
    CHECK(at_every_allocation(
              trained, [&](auto& one) { one.absorb(foreign); },
              [&](auto& one, bool failed) { CHECK(one.state() == (failed ? before : both)); }) >= 1);
    // What was sent can still be taken back where nothing was absorbed.
    at_every_allocation(
        trained, [&](auto& one) { one.absorb(foreign); },
        [&](auto& one, bool failed) {
          one.discard_step();
          auto again = trained();
          again.discard_step();
          if (failed) CHECK(one.state() == again.state());
        });
  });
}

TEST_CASE("the states of layers") {
  gs::recipe const with_momentum{.density = 0.02, .residual = gs::momentum_correction{}};
  auto source = made(with_momentum);
  source.compress(gradient(mixed_layers().size(), 0, 0));
  auto const state = source.state();
  auto const empty = [] { return gs::layer_states{mixed_layers()}; };
  CHECK(at_every_allocation([] { return nothing{}; }, [&](nothing) { empty(); }, [](nothing, bool) {}) > 5);
  CHECK(at_every_allocation(
            empty, [&](auto& all) { all.put(mixed_layers(), state); },
            [&](auto& all, bool failed) { CHECK(all.has("fc.weight") == !failed); }) > 5);
  auto const full = [&] {
    auto all = empty();
    all.put(mixed_layers(), state);
    return all;
  };
  CHECK(at_every_allocation(
            full, [](auto& all) { static_cast<void>(all.take(mixed_layers())); },
            [&](auto& all, bool) {
              auto again = made(with_momentum);
              again.restore(all.take(mixed_layers()));
              CHECK(again.state().size() >= state.size() - 64);
              CHECK(residual_of(again) == residual_of(source));
            }) > 2);
}

TEST_CASE("rescale, after a state without warm thresholds") {
  auto source = made(plain);
  source.compress(gradient(mixed_layers().size(), 0, 0));
  gs::layer_states all{mixed_layers()};
  all.put(mixed_layers(), source.state());
  auto const state = all.take(mixed_layers());
  auto const restored = [&] {
    auto one = made(plain);
    one.restore(state);
    return one;
  };
  auto scaled = restored();
  scaled.rescale(0.5f);
  CHECK(at_every_allocation(
            restored, [](auto& one) { one.rescale(0.5f); },
            [&](auto& one, bool failed) {
              auto untouched = restored();
              CHECK(residual_of(one) == residual_of(failed ? untouched : scaled));
            }) >= 1);
}

TEST_CASE("a rank that gets no memory to meet more ranks than a few tells the others") {
  for (int const world : {33, 40}) {
    CAPTURE(world);
    auto const said = on_ranks(world, [&](communicator comm) {
      gs::compressor one{here, gs::layout::flat(100), plain};
      std::vector<float> update(100, 1.0f);
      if (comm.rank() == 1) failing_allocations::left = 0;
      auto const how = ending_of([&] { one.exchange(comm, std::span{update}); });
      failing_allocations::left = -1;
      auto const expected = comm.rank() == 1 ? how == "no memory" : contains(how, "rank 1 failed in this step");
      auto const next = ending_of([&] { one.exchange(comm, std::span{update}); });
      return expected && next.empty() ? std::string{} : how + "; " + next;
    });
    CHECK(joined(said) == "");
  }
}
