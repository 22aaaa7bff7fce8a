// A residual that a device keeps as bfloat16: what it holds after every step, to the bit, and that it loses nothing in
// the mean.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "gpu.cuh"

using namespace gpu;

namespace {

auto const layers = steps::mixed_layers();
auto const n = layers.size();
auto const forgetful = gs::recipe{.density = 0.03, .residual = gs::none{}};

std::vector<float> gradient_of(std::uint64_t step) { return steps::gradient(n, 0, step); }

/// The states of one element after the other as a step must leave them, by the functions that both spaces share.
template <class Store>
class expected_states {
 public:
  expected_states(std::uint64_t size, Store store) : store_{store}, now_(size) {}

  /// Removes the entries of the step before, accumulates a gradient; returns the accumulator.
  std::vector<float> accumulate_element(std::vector<float> const& gradient) {
    flush_pending();
    for (std::size_t i = 0; i < now_.size(); ++i) {
      gs::accumulate_element(store_, gradient[i], now_[i]);
      gs::cuda_kernels::rounding{step_, gs::cuda_kernels::rounding::accumulated}.apply<gs::bfloat16>(i, now_[i]);
    }
    return values();
  }
  void sent(gs::selection_view entries, std::vector<std::size_t> const& passed) {
    for (auto const i : passed) remove_sent(i, now_[i][0], true);
    indices_.assign(entries.indices.begin(), entries.indices.end());
    values_.assign(entries.values.begin(), entries.values.end());
    ++step_;
  }
  void flush_pending() {
    for (std::size_t p = 0; p < indices_.size(); ++p) remove_sent(indices_[p], values_[p], false);
    indices_.clear();
  }
  [[nodiscard]] std::vector<float> values(std::size_t s = 0) const {
    std::vector<float> all;
    for (auto const& each : now_) all.push_back(each[s]);
    return all;
  }

 private:
  void remove_sent(std::size_t i, float value, bool full_layer) {
    store_.remove_sent(value, now_[i], full_layer);
    gs::cuda_kernels::rounding{step_, gs::cuda_kernels::rounding::removed}.apply<gs::bfloat16>(i, now_[i]);
  }

  Store store_;
  std::uint64_t step_ = 0;
  std::vector<gs::element_state<Store::states>> now_;
  std::vector<gs::index_type> indices_;
  std::vector<float> values_;
};

/// Elements of the layers that pass through, in order.
std::vector<std::size_t> passed_elements() {
  std::vector<std::size_t> all;
  for (auto const& layer : gs::detail::layer_split{layers, gs::passthrough_layers{}}.passthrough)
    for (std::size_t i = 0; i < layer.size; ++i) all.push_back(layer.offset + i);
  return all;
}

template <class T, class Store>
bool steps_as_expected(gs::recipe<gs::radix, gs::whole, gs::in_bfloat16<Store>> const& recipe,
                       std::uint64_t misalign = 0) {
  gs::device const where{};
  gs::compressor device{where, layers, recipe};
  gs::compressor chooser{gs::host{}, layers, forgetful};
  expected_states<Store> expected{n, recipe.residual.store};
  array<T> const gradient{where, n, misalign};
  auto const passed = passed_elements();
  bool same = true;
  for (std::uint64_t s = 0; s < 5; ++s) {
    auto const given = data::as<T>(gradient_of(s));
    std::vector<float> entering;
    for (auto const each : given) entering.push_back(gs::to_float(each));
    auto const chosen = chooser.compress(expected.accumulate_element(entering));
    gradient.put(given);
    same = same && entries{where, device.compress(gradient.span())} == entries{chosen};
    expected.sent(chosen, passed);
    if (s == 2) {  // looking changes nothing
      expected.flush_pending();
      std::vector<float> kept;
      for (auto const each : fetched(where, device.residual().data(), n)) kept.push_back(gs::to_float(each));
      same = same && steps::same_bits(expected.values(), kept);
    }
  }
  expected.flush_pending();
  auto const states = steps::states_of(device);
  for (std::size_t s = 0; s < Store::states; ++s) {
    auto const of_one = expected.values(s);
    same = same && std::equal(of_one.begin(), of_one.end(), states.begin() + static_cast<std::ptrdiff_t>(s * n));
  }
  return same;
}

}  // namespace

TEST_CASE("small: states and entries are those of the shared functions, to the bit") {
  auto const plain = gs::recipe{.density = 0.03, .residual = gs::in_bfloat16{gs::error_feedback{}}};
  auto const fading = gs::recipe{.density = 0.03, .residual = gs::in_bfloat16{gs::error_feedback{.decay = 0.9f}}};
  auto const momentum = gs::recipe{.density = 0.03, .residual = gs::in_bfloat16{gs::momentum_correction{}}};
  CHECK(steps_as_expected<float>(plain));
  CHECK(steps_as_expected<gs::float16>(fading, 1));
  CHECK(steps_as_expected<gs::bfloat16>(momentum));
}

TEST_CASE("gradients far below their residual are not lost") {
  gs::device const where{};
  std::uint64_t const size = 4096;
  gs::compressor device{where, gs::layout::flat(size),
                        gs::recipe{.density = 1.0 / size, .residual = gs::in_bfloat16{gs::error_feedback{}}}};
  std::vector<float> values(size, 1.0f);
  array<float> const gradient{where, size};
  float const tiny = 0x1p-12f;  // rounded to the nearest, 1 + tiny is 1
  std::uint64_t const count = 64;
  for (std::uint64_t s = 0; s <= count; ++s) {
    values[7] = 100;  // what is sent
    gradient.put(values);
    device.compress(gradient.span());
    std::fill(values.begin(), values.end(), tiny);
  }
  double sum = 0;
  auto const left = fetched(where, device.residual().data(), size);
  for (std::size_t i = 0; i < size; ++i) sum += i == 7 ? 0.0 : static_cast<double>(gs::to_float(left[i])) - 1.0;
  // One rounding has a standard deviation below sqrt(tiny * 2^-7); the elements are independent of each other.
  auto const elements = static_cast<double>(size - 1);
  double const expected = static_cast<double>(count) * static_cast<double>(tiny);
  double const deviation = std::sqrt(static_cast<double>(count) * static_cast<double>(tiny) * 0x1p-7 / elements);
  CHECK(std::fabs(sum / elements - expected) < 5 * deviation);
}

TEST_CASE("small: what can be taken back, saved, and carried to the other format") {
  gs::device const where{};
  auto const recipe = gs::recipe{.density = 0.03, .residual = gs::in_bfloat16{gs::error_feedback{}}};
  gs::compressor first{where, layers, recipe};
  gs::compressor second{where, layers, recipe};
  array<float> const gradient{where, n};
  auto const step = [&](std::uint64_t s) {
    gradient.put(gradient_of(s));
    entries const a{where, first.compress(gradient.span())};
    CHECK(entries{where, second.compress(gradient.span())} == a);
  };
  step(0);
  auto const accumulated = [&] {
    gs::compressor copy{where, layers, recipe};
    gradient.put(gradient_of(0));
    copy.compress(gradient.span());
    copy.discard_step();
    return steps::states_of(copy);
  }();
  first.discard_step();
  CHECK(steps::same_bits(steps::states_of(first), accumulated));
  static_cast<void>(second.residual());  // has left, and comes back
  second.discard_step();
  CHECK(steps::same_bits(steps::states_of(second), accumulated));
  step(1);
  first.rescale(0.5f);
  auto const saved = first.state();
  second.restore(saved);
  CHECK(steps::same_bits(second.state(), saved));
  step(2);
  step(3);

  gs::compressor wide{where, layers, gs::recipe{.density = 0.03}};
  wide.restore(saved);
  CHECK(steps::same_bits(wide.state(), saved));
  std::vector<float> values(n, 0.3f);
  gradient.put(values);
  gs::compressor fresh{where, layers, gs::recipe{.density = 0.03}};
  fresh.compress(gradient.span());
  second.restore(fresh.state());  // to the nearest
  for (float const each : steps::states_of(second))
    CHECK((each == 0 || each == gs::to_float(gs::from_float<gs::bfloat16>(0.3f))));
  second.absorb(saved);
  CHECK(std::isfinite(second.residual_norm()));
}

TEST_CASE("small: exchanges of values that leave exactly") {
  auto const check = [](auto const& recipe) {
    gs::device const where{};
    gs::compressor device{where, layers, recipe};
    gs::compressor alone{where, layers, recipe};
    array<float> const gradient{where, n};
    for (std::uint64_t s = 0; s < 3; ++s) {
      gradient.put(gradient_of(s));
      entries const sent{where, alone.compress(gradient.span())};
      device.exchange(gs::self{}, gradient.span());
      auto const update = gradient.get();
      for (std::size_t p = 0; p < sent.indices.size(); ++p) CHECK(update[sent.indices[p]] == sent.values[p]);
      auto const left = fetched(where, device.residual().data(), n);
      for (auto const i : sent.indices) CHECK(left[i].bits == 0);
      CHECK(steps::same_bits(steps::states_of(device), steps::states_of(alone)));
    }
  };
  check(gs::recipe{.density = 0.03, .residual = gs::in_bfloat16{gs::error_feedback{}}});
  check(gs::recipe{.density = 0.03, .residual = gs::in_bfloat16{gs::error_feedback{}}, .exchange = gs::index_union{}});
  check(gs::recipe{.density = 0.03, .partitioner = gs::layerwise{}, .residual = gs::in_bfloat16{gs::error_feedback{}}});
}

TEST_CASE("small: what was finite stays finite, what is not does not enter") {
  gs::device const where{};
  gs::compressor device{where, layers, gs::recipe{.density = 0.03, .residual = gs::in_bfloat16{gs::error_feedback{}}}};
  array<float> const gradient{where, n};
  std::vector<float> values(n, std::numeric_limits<float>::max());  // between the largest bfloat16 and infinity
  values[3] = std::numeric_limits<float>::quiet_NaN();
  gradient.put(values);
  entries const sent{where, device.compress(gradient.span())};
  CHECK(device.report().get().non_finite == 1);
  for (float const each : sent.values) CHECK(each == gs::to_float(gs::bfloat16{0x7F7F}));
  for (auto const each : fetched(where, device.residual().data(), n)) CHECK(gs::is_finite(gs::to_float(each)));
}
