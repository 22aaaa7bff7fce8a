// What every selector must do: the entries of its choice, through a compressor and called directly, on many laws.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/gradsieve.hpp>

#include "conformance.hpp"
#include "sanitized.hpp"

namespace selector_conformance {

namespace gs = gradsieve;
using conformance::findings;
using conformance::joined_layers;
using conformance::same_bits;

/// One run of the suite.
template <class Selector>
  requires gs::selector<Selector, gs::host_workspace>
class suite {
  using recipe_type = gs::recipe<Selector, joined_layers>;
  using compressor_type = gs::compressor<gs::host, recipe_type>;
  static constexpr bool bins = gs::bin_selector<Selector>;

 public:
  explicit suite(Selector chosen) : chosen_{chosen} {}

  [[nodiscard]] std::string run() {
    for (std::uint64_t const n : {0u, 1u, 2u, 37u, 4096u, 9001u}) {
      if (sanitized && n > 1000) continue;
      conformance::for_each_law(n, [&](std::string const& law, std::vector<float> const& values) {
        for (std::uint64_t const k : {std::uint64_t{0}, std::uint64_t{1}, n / 50 + 1, n / 2, n}) {
          if (k > n) continue;
          found_.in(law, ", n ", n, ", k ", k);
          any_threads(gs::layout::flat(n), 1, data::density_for(k, n), {values});
          if constexpr (!bins)
            if (k > 0) found_.attempt([&] { direct(values, static_cast<gs::index_type>(k)); });
        }
      });
    }
    steps();
    skipped();
    return found_.text();
  }

 private:
  struct choice {
    std::vector<gs::index_type> indices;
    std::vector<float> values;
    [[nodiscard]] bool same(choice const& other) const {
      return indices == other.indices && same_bits(values, other.values);
    }
  };

  static gs::layout mixed_layers() {
    return {{"a.weight", 700},  {"a.bias", 16}, {"empty", 0},      {"scale", 1},
            {"b.weight", 6001}, {"b.norm", 40}, {"c.weight", 5000}};
  }
  static bool passes(gs::layer const& each) { return each.name == "a.bias" || each.name == "b.norm"; }

  compressor_type compressor(gs::layout const& layers, std::uint32_t joined, double density, int threads) const {
    recipe_type recipe{};
    recipe.density = density;
    recipe.selector = chosen_;
    recipe.partitioner.count = joined;
    return {gs::host{.threads = threads}, layers, recipe};
  }

  /// The segments of a step, as the compressor makes them.
  static gs::segment_list segments(gs::layout const& layers, std::uint32_t joined, double density) {
    std::vector<gs::range> selected;
    std::uint64_t elements = 0;
    for (std::size_t i = 0; i < layers.count(); ++i)
      if (!passes(layers[i]) && layers[i].size > 0) {
        selected.push_back({layers.offset(i), layers[i].size});
        elements += layers[i].size;
      }
    gs::segment_list list;
    gs::partition_scratch scratch;
    joined_layers const how{joined};
    how.split(selected, 1, list);
    how.assign(list, {}, {density, elements, 0, 1}, scratch);
    return list;
  }

  /// Entries of one segment: in index order, within it, not too many, its accumulators, and no zeros.
  void check(std::span<float const> values, std::uint64_t first, gs::index_type k, choice const& got) {
    auto const most = gs::selection_capacity(chosen_, k);
    found_.expect(got.indices.size() <= most, got.indices.size(), " entries, capacity(k) is ", most);
    for (std::size_t e = 0; e < got.indices.size(); ++e) {
      std::uint64_t const i = got.indices[e];
      found_.expect(e == 0 || got.indices[e - 1] < i, "entry ", e, " (index ", i, ") is not above the one before it");
      found_.expect(i >= first && i < first + values.size(), "entry ", e, " (index ", i, ") is not of the segment");
      if (i < first || i >= first + values.size()) continue;
      float const own = values[i - first];
      if constexpr (!gs::quantising_selector<Selector>)
        found_.expect(same_bits(got.values[e], own), "entry ", e, " (index ", i, ") is ", got.values[e],
                      ", the accumulator has ", own);
      if constexpr (!gs::shared_selector<Selector>)
        found_.expect(own != 0 && got.values[e] != 0, "entry ", e, " (index ", i, ") is a zero");
    }
  }

  /// What the next step selects from.
  static std::vector<float> accumulators(compressor_type& reducer, std::vector<float> const& gradient) {
    auto const residual = reducer.residual();
    std::vector<float> sum(residual.begin(), residual.end());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
    return sum;
  }

  /// Some steps of one compressor; each is checked.
  std::vector<choice> compressed(gs::layout const& layers, std::uint32_t joined, double density, int threads,
                                 std::vector<std::vector<float>> const& gradients) {
    auto reducer = compressor(layers, joined, density, threads);
    std::vector<choice> all;
    for (auto const& gradient : gradients) {
      auto const sum = accumulators(reducer, gradient);
      auto const sent = reducer.compress(gradient);
      all.push_back({{sent.indices.begin(), sent.indices.end()}, {sent.values.begin(), sent.values.end()}});
      for (std::size_t i = 0; i < layers.count(); ++i) {
        auto const at = std::ranges::lower_bound(sent.indices, layers.offset(i));
        found_.expect(!passes(layers[i]) || at == sent.indices.end() || *at >= layers.offset(i) + layers[i].size,
                      "step ", all.size(), ": an entry of '", layers[i].name, "', which passes through");
      }
      std::size_t e = 0;
      for (auto const& each : segments(layers, joined, density)) {
        choice part;
        for (; e < sent.indices.size() && sent.indices[e] < each.offset + each.size; ++e) {
          part.indices.push_back(sent.indices[e]);
          part.values.push_back(sent.values[e]);
        }
        check(std::span{sum}.subspan(each.offset, each.size), each.offset, each.k, part);
      }
      found_.expect(e == sent.indices.size(), "step ", all.size(), ": entries behind the last segment");
    }
    return all;
  }

  void any_threads(gs::layout const& layers, std::uint32_t joined, double density,
                   std::vector<std::vector<float>> const& gradients) {
    found_.attempt([&] {
      auto const once = compressed(layers, joined, density, 1, gradients);
      for (int const threads : {1, 2, 3}) {
        auto const again = compressed(layers, joined, density, threads, gradients);
        for (std::size_t s = 0; s < once.size(); ++s)
          found_.expect(again[s].same(once[s]), "step ", s + 1, ": ", threads, " threads choose other entries than ",
                        threads == 1 ? "before" : "one");
      }
    });
  }

  /// Warm steps, over segments of several sizes: gradients that drift, jump in scale, and stop.
  void steps() {
    auto const layers = mixed_layers();
    auto const n = layers.size();
    std::vector<std::vector<float>> gradients;
    for (std::uint64_t step = 0; step < 4; ++step) gradients.push_back(data::drifting(n, step, 1));
    for (float& x : gradients[2]) x *= 1000;
    gradients.push_back(std::vector<float>(n));
    gradients.push_back(data::make(data::law::two_values, n));
    gradients.push_back(std::vector<float>(n, -0.0f));
    for (std::uint32_t const joined : {1u, 2u, 100u})
      for (double const density : {0.03, 0.002, 0.6, 1.0}) {
        if (gs::layer_bin_selector<Selector> && joined > 1) continue;
        if (sanitized && density != 0.03) continue;
        found_.in("steps, ", joined, " layers a segment, density ", density);
        any_threads(layers, joined, density, gradients);
      }
  }

  /// A skipped layer sends nothing and keeps its gradient; it takes nothing from the others.
  void skipped() {
    auto const layers = mixed_layers();
    for (std::uint32_t const joined : {1u, 100u}) {
      if (gs::layer_bin_selector<Selector> && joined > 1) continue;
      found_.in("skipped layers, ", joined, " layers a segment");
      found_.attempt([&] {
        auto reducer = compressor(layers, joined, 0.05, 2);
        for (std::uint64_t step = 0; step < 3; ++step) {
          std::vector<unsigned char> skips(layers.count());
          for (std::size_t i = 0; i < skips.size(); ++i) skips[i] = (i + step) % 3 == 0;
          auto update = data::drifting(layers.size(), step, 5);
          auto const sum = accumulators(reducer, update);
          reducer.exchange(gs::self{}, std::span{update}, skips);
          auto const left = reducer.residual();
          for (std::size_t l = 0; l < layers.count(); ++l)
            for (auto i = layers.offset(l); skips[l] != 0 && i < layers.offset(l) + layers[l].size; ++i)
              found_.expect(update[i] == 0 && same_bits(left[i], sum[i]), "step ", step, ": element ", i, " of '",
                            layers[l].name, "', which is skipped, was sent");
        }
      });
    }
  }

  /// The selector's members, called as a step calls them, with candidates from any key and with any warm threshold.
  void direct(std::vector<float> const& values, gs::index_type k) {
    auto const n = values.size();
    gs::host_workspace work{gs::host{.threads = 2}, n};
    gs::segment const all{0, n};
    work.plan(std::span{&all, 1}, {}, n);
    std::vector<float> state(n);
    std::array<float*, 1> const states{state.data()};
    gs::gradient_ref<float const> const gradient{values};
    gs::warm_threshold warm{};
    gs::accumulator_ref const acc{state, 0, 0, 3, &warm};
    auto const median = gs::magnitude_key(values[n / 2]);
    for (gs::warm_threshold const left : {gs::warm_threshold{}, {1, k}, {median + 1, k}, {gs::infinite_key - 1, k}}) {
      std::vector<gs::key_type> keys{0, 1, median + 1, gs::infinite_key - 1};
      auto const others = keys.size();
      std::fill(state.begin(), state.end(), 0.0f);
      if constexpr (gs::predicting_selector<Selector, gs::host_workspace>) {
        gs::error_feedback const residual;
        auto preview = work.preview(gs::host_kernels::incoming{states, gradient, 1.0f, residual}, [] {});
        warm = left;
        keys.push_back(gs::predict_candidate_threshold(chosen_, preview, acc, k));
        std::ranges::copy(values, state.begin());
        found_.expect(chosen_.predict(work, acc, k) == keys.back(), "predict() differs after the accumulate pass");
        if constexpr (gs::warm_selector<Selector>)
          found_.expect(left.key == 0 || !chosen_.predicts_warm() || keys.back() == left.key, "predict() returns ",
                        keys.back(), ", the warm threshold is ", left.key, ", as predicts_warm() promises");
      }
      for (std::size_t i = 0; i < keys.size(); ++i)
        select_directly(work, acc, states, gradient, k, keys[i], left, i == others);
    }
  }

  void select_directly(gs::host_workspace& work, gs::accumulator_ref const acc, std::array<float*, 1> const& states,
                       gs::gradient_ref<float const> const gradient, gs::index_type k, gs::key_type key,
                       gs::warm_threshold const left, bool predicted) {
    auto const n = acc.values.size();
    auto const room = std::min<std::size_t>(gs::selection_capacity(chosen_, k), n);
    auto const collect = [&] {  // as the accumulate pass does
      std::fill_n(states[0], n, 0.0f);
      *acc.warm = left;
      work.accumulate(gs::error_feedback{}, states, gradient, 1.0f, true, std::span{&key, 1});
    };
    auto const taken = [&](auto const& write) {
      conformance::guarded<gs::index_type> indices{room, 0xABAB'ABABu};
      conformance::guarded<float> kept{room, -77.0f};
      std::uint64_t const count = write(gs::selection_span{indices.span(), kept.span(), {}});
      found_.expect(count <= room, "select() returned ", count, " entries, there is room for ", room);
      found_.expect(indices.untouched_outside() && kept.untouched_outside(), "select() wrote outside of its room");
      auto const end = static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(count, room));
      return choice{{indices.span().begin(), indices.span().begin() + end},
                    {kept.span().begin(), kept.span().begin() + end}};
    };
    collect();
    auto const got = taken([&](gs::selection_span out) { return gs::select(chosen_, work, acc, k, out); });
    check({acc.values.data(), n}, 0, k, got);
    if constexpr (gs::candidate_selector<Selector>) {
      if (!predicted) return;
      collect();
      auto const found = work.collected(acc);
      auto const wanted = gs::detail::choose_among(chosen_, acc, found, k);
      if (!wanted.made) return;
      gs::threshold const at =
          wanted.rank > 0 ? work.kth_largest(acc, wanted.rank) : gs::threshold{found.threshold - 1, 0};
      auto const settled = chosen_.settle(acc, found, k, at);
      auto const other = taken([&](gs::selection_span out) { return work.compact(acc, settled, out); });
      found_.expect(other.same(got), "select() gives ", got.indices.size(), " entries, choose() and settle() ",
                    other.indices.size(), " or others, with candidates from key ", key, ", warm {", left.key, ", ",
                    left.k, '}');
    }
  }

  Selector chosen_;
  findings found_;
};

/// Returns what is wrong with a selector, a line each; nothing if it does what the concept says. Local.
template <class Selector>
[[nodiscard]] std::string run(Selector const& chosen) {
  return suite<Selector>{chosen}.run();
}

}  // namespace selector_conformance
