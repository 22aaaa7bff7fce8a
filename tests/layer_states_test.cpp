// States that move between groupings of a gradient's layers.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/gradsieve.hpp>

namespace gs = gradsieve;

namespace {

gs::layout const model{{"conv", 60}, {"norm", 0}, {"head", 100}, {"tail", 41}};
auto const plain = gs::recipe{.density = 0.1};
auto const with_momentum = gs::recipe{.density = 0.1, .residual = gs::momentum_correction{}};

/// Some steps, so that there is something to keep.
template <class Recipe>
auto trained(gs::layout const& layers, Recipe const& recipe, int steps) {
  auto compressor = gs::compressor{gs::host{}, layers, recipe};
  for (int step = 0; step < steps; ++step) {
    std::vector<float> gradient(layers.size());
    std::uint64_t seed = 17 * static_cast<std::uint64_t>(step) + layers.size();
    for (float& value : gradient) value = static_cast<float>(static_cast<double>(gs::mix(seed++) >> 40) / 1e6 - 8);
    compressor.exchange(gs::self{}, gradient);
  }
  return compressor;
}

/// A layer's part of a residual.
std::vector<float> of_layer(std::span<float const> residual, gs::layout const& layers, std::string const& name) {
  for (std::size_t i = 0; i < layers.count(); ++i)
    if (layers[i].name == name) {
      auto const part = residual.subspan(layers.offset(i), layers[i].size);
      return {part.begin(), part.end()};
    }
  return {};
}

template <class Recipe>
void check_there_and_back(Recipe const& recipe) {
  auto source = trained(model, recipe, 4);
  auto const before = source.state();
  auto out = gs::layer_states{model};
  out.put(model, before);

  auto back = gs::layer_states{model};
  for (auto const& part : {gs::layout{{"tail", 41}, {"conv", 60}}, gs::layout{{"head", 100}, {"norm", 0}}}) {
    auto group = gs::compressor{gs::host{}, part, recipe};
    group.restore(out.take(part));
    CHECK(group.step() == 4);
    for (auto const& each : part)
      CHECK(of_layer(group.residual(), part, each.name) == of_layer(source.residual(), model, each.name));
    back.put(part, group.state());
  }
  auto again = gs::compressor{gs::host{}, model, recipe};
  again.restore(back.take(model));
  CHECK(again.step() == source.step());
  // All states, and not only the one that residual() shows.
  auto const values = [](std::vector<std::byte> const& bytes) {
    return std::vector<std::byte>(bytes.end() - 4 * 201 * decltype(recipe.residual)::states, bytes.end());
  };
  CHECK(std::ranges::count(source.residual(), 0.0f) < 100);
  CHECK(values(again.state()) == values(before));
}

template <class Error, class Body>
void check_refused(std::string const& why, Body const& body) {
  try {
    body();
    FAIL("not refused: " << why);
  } catch (Error const& error) {
    CHECK_MESSAGE(std::string{error.what()}.find(why) != std::string::npos, std::string{error.what()});
  }
}

}  // namespace

TEST_CASE("states go into other groups and back without a change, all of an element's") {
  SUBCASE("one state") { check_there_and_back(plain); }
  SUBCASE("two states") { check_there_and_back(with_momentum); }
}

TEST_CASE("layers that were never put begin at zero; later states replace earlier ones") {
  gs::layout const tail{{"tail", 41}};
  auto source = trained(tail, plain, 3);
  auto states = gs::layer_states{model};
  CHECK(!states.has("tail"));
  states.put(tail, source.state());
  CHECK(states.has("tail"));
  CHECK(!states.has("conv"));

  gs::layout const both{{"conv", 60}, {"tail", 41}};
  auto fresh = gs::compressor{gs::host{}, both, plain};
  fresh.restore(states.take(both));
  CHECK(of_layer(fresh.residual(), both, "conv") == std::vector<float>(60));
  CHECK(of_layer(fresh.residual(), both, "tail") == of_layer(source.residual(), tail, "tail"));

  source.rescale(2);
  states.put(tail, source.state());
  fresh.restore(states.take(both));
  CHECK(of_layer(fresh.residual(), both, "tail") == of_layer(source.residual(), tail, "tail"));
}

TEST_CASE("states of several steps count as the latest") {
  gs::layout const tail{{"tail", 41}};
  gs::layout const conv{{"conv", 60}};
  auto states = gs::layer_states{model};
  states.put(tail, trained(tail, plain, 3).state());
  states.put(conv, trained(conv, plain, 2).state());
  auto all = gs::compressor{gs::host{}, model, plain};
  all.restore(states.take(model));
  CHECK(all.step() == 3);
}

TEST_CASE("what does not fit is refused by name") {
  check_refused<gs::invalid_argument>("two layers are called 'a'",
                                      [] { gs::layer_states{gs::layout{{"a", 1}, {"b", 2}, {"a", 3}}}; });
  auto states = gs::layer_states{model};
  check_refused<gs::invalid_argument>("take() before any put()", [&] { static_cast<void>(states.take(model)); });
  check_refused<gs::mismatch>("no layer 'foot'", [&] { static_cast<void>(states.has("foot")); });

  gs::layout const tail{{"tail", 41}};
  gs::layout const foot{{"foot", 41}};
  gs::layout const shorter{{"tail", 40}};
  auto const state = trained(tail, plain, 2).state();
  check_refused<gs::mismatch>("no layer 'foot'", [&] { states.put(foot, trained(foot, plain, 2).state()); });
  check_refused<gs::mismatch>("'tail' has 40 elements, in the model it has 41",
                              [&] { states.put(shorter, trained(shorter, plain, 2).state()); });
  check_refused<gs::mismatch>("another layout", [&] { states.put(gs::layout{{"conv", 60}}, state); });
  check_refused<gs::corrupt_state>("0 bytes", [&] { states.put(tail, {}); });
  auto damaged = state;
  damaged.back() ^= std::byte{1};
  check_refused<gs::corrupt_state>("checksum", [&] { states.put(tail, damaged); });
  CHECK(!states.has("tail"));

  gs::layout const twice{{"tail", 41}, {"tail", 41}};
  check_refused<gs::mismatch>("names layer 'tail' twice", [&] { states.put(twice, trained(twice, plain, 2).state()); });

  states.put(tail, state);
  check_refused<gs::mismatch>("names layer 'tail' twice", [&] { static_cast<void>(states.take(twice)); });
  gs::layout const conv{{"conv", 60}};
  check_refused<gs::mismatch>("2 states an element, this residual store has 1",
                              [&] { states.put(conv, trained(conv, with_momentum, 2).state()); });
  CHECK(!states.has("conv"));
}

TEST_CASE("a forged state takes no more memory than it has bytes") {
  auto states = gs::layer_states{gs::layout{{"huge", 4'000'000'000u}, {"empty", 0}}};
  gs::layout const empty{{"empty", 0}};
  auto forged = trained(empty, plain, 1).state();
  auto const seal = [&] {
    auto const bytes = std::span{forged};
    gs::wire::store_one(bytes.subspan(40), gs::wire::checksum(bytes.subspan(48), gs::wire::checksum(bytes.first(40))));
  };
  gs::wire::store_one(std::span{forged}.subspan(6), std::uint16_t{65535});
  seal();
  check_refused<gs::corrupt_state>("65535 states an element, expected 1 to 16", [&] { states.put(empty, forged); });
  gs::wire::store_one(std::span{forged}.subspan(6), std::uint16_t{16});
  seal();
  states.put(empty, forged);
  CHECK(states.has("empty"));
  CHECK(states.take(empty).size() == 48);
}
