// Nothing is lost to a codec: what rounding takes off a value stays in the residual.
#include <set>

#include "balance.hpp"

namespace gs = gradsieve;
using namespace steps;

TEST_CASE("mass balance, lossless codecs") {
  balance::one<gs::whole, gs::gather>(gs::radix{}, gs::error_feedback{}, gs::packed{});
  balance::one<gs::layerwise, gs::gather>(gs::laplacian{}, gs::momentum_correction{},
                                          gs::packed{.indices = gs::bitmap{}});
}

TEST_CASE("mass balance, lossy codecs") {
  balance::one<gs::whole, gs::gather>(gs::radix{}, gs::error_feedback{}, gs::packed{.values = gs::fp16{}});
  balance::one<gs::deft, gs::gather>(gs::radix{}, gs::error_feedback{},
                                     gs::packed{.indices = gs::delta{}, .values = gs::bf16{}});
  balance::one<gs::layerwise, gs::gather>(gs::radix{}, gs::momentum_correction{},
                                          gs::packed{.indices = gs::fixed_width{}, .values = gs::ternary{}});
  balance::one<gs::whole, gs::gather>(gs::chunked{.size = 500}, gs::error_feedback{}, gs::binned{});
}

TEST_CASE("mass balance, exchanges that send indices and values apart") {
  auto const fp32 = gs::packed{};
  auto const fp16 = gs::packed{.indices = gs::delta{}, .values = gs::fp16{}};
  auto const bf16 = gs::packed{.indices = gs::fixed_width{}, .values = gs::bf16{}};
  balance::one<gs::deft, gs::index_union>(gs::radix{}, gs::error_feedback{}, fp32);
  balance::one<gs::deft, gs::index_union>(gs::laplacian{}, gs::momentum_correction{}, fp16);
  balance::one<gs::whole, gs::index_union>(gs::radix{}, gs::error_feedback{}, bf16);
  balance::one<gs::cyclic, gs::leader>(gs::radix{}, gs::filtered{}, fp32);
  balance::one<gs::cyclic, gs::leader>(gs::radix{}, gs::error_feedback{}, fp16);
  balance::one<gs::cyclic, gs::leader>(gs::hierarchical{}, gs::momentum_correction{}, bf16);
}

namespace {

constexpr gs::host here{.threads = 1};

auto ternary_recipe() {
  return gs::recipe{.density = 0.05, .codec = gs::packed{.indices = gs::delta{}, .values = gs::ternary{}}};
}

}  // namespace

TEST_CASE("what is emitted is what receivers decode, and the residual keeps the rest, exactly") {
  auto const layers = mixed_layers();
  gs::compressor plain{here, layers, gs::recipe{.density = 0.05}};
  gs::compressor sender{here, layers, ternary_recipe()};
  gs::averager receiver{here, layers, ternary_recipe().codec};
  auto const g = gradient(layers.size(), 0, 0);
  auto const whole = plain.compress(std::span<float const>{g});
  auto const sent = sender.compress(std::span<float const>{g});
  std::vector<float> const values{sent.values.begin(), sent.values.end()};
  std::vector<gs::index_type> const indices{sent.indices.begin(), sent.indices.end()};
  CHECK(std::equal(indices.begin(), indices.end(), whole.indices.begin(), whole.indices.end()));
  CHECK(!std::equal(values.begin(), values.end(), whole.values.begin(), whole.values.end()));
  auto const now = residual_of(sender);
  for (std::size_t e = 0; e < indices.size(); ++e) CHECK(now[indices[e]] == whole.values[e] - values[e]);

  auto const message = sender.encode(sent);
  std::vector<float> update(layers.size());
  receiver.apply(std::span{&message, 1}, std::span{update});
  for (std::size_t e = 0; e < indices.size(); ++e) CHECK(update[indices[e]] == values[e]);
  std::set<float> magnitudes;
  for (float const x : values) magnitudes.insert(std::fabs(x));
  CHECK(magnitudes.size() == 3);  // of conv.weight, fc.weight and head
}

TEST_CASE("a discarded step of a lossy codec gives back every bit") {
  auto const n = mixed_layers().size();
  auto const said = on_ranks(3, [&](communicator comm) {
    findings found;
    gs::compressor reducer{here, mixed_layers(), ternary_recipe()};
    auto update = gradient(n, comm.rank(), 0);
    reducer.exchange(comm, std::span{update});
    auto const before = residual_of(reducer);
    auto const g = gradient(n, comm.rank(), 1);
    update = g;
    reducer.exchange(comm, std::span{update});
    reducer.discard_step();
    auto const after = residual_of(reducer);
    for (std::size_t i = 0; i < n; ++i)
      found.expect(after[i] == before[i] + g[i] || balance::passes(i), "not given back");
    return found.text();
  });
  CHECK(balance::joined(said) == "");
}

TEST_CASE("a compressor may be moved: its messages know their layers") {
  auto const g = gradient(mixed_layers().size(), 0, 0);
  std::vector<std::byte> expected;
  {
    gs::compressor here_first{here, mixed_layers(), ternary_recipe()};
    auto const message = here_first.encode(here_first.compress(std::span<float const>{g}));
    expected.assign(message.begin(), message.end());
  }
  auto first =
      std::make_unique<gs::compressor<gs::host, decltype(ternary_recipe())>>(here, mixed_layers(), ternary_recipe());
  auto second = std::move(*first);
  first.reset();
  auto const message = second.encode(second.compress(std::span<float const>{g}));
  CHECK(std::equal(message.begin(), message.end(), expected.begin(), expected.end()));
}

TEST_CASE("the report names the index codec") {
  auto const text = [](auto const& report) {
    std::ostringstream out;
    out << report;
    return out.str();
  };
  auto const said = on_ranks(2, [&](communicator comm) {
    gs::compressor reducer{here, gs::layout::flat(1000), gs::recipe{.density = 0.6, .codec = gs::packed{}}};
    auto update = gradient(1000, comm.rank(), 0);
    auto const report = reducer.exchange(comm, std::span{update});
    return contains(text(report), ", indices bitmap, ") ? std::string{} : text(report);
  });
  CHECK(balance::joined(said) == "");
  gs::compressor reducer{here, gs::layout::flat(1000), gs::recipe{.density = 0.05, .codec = gs::packed{}}};
  auto const sent = reducer.compress(std::span<float const>{gradient(1000, 0, 0)});
  CHECK(!contains(text(reducer.report()), ", indices "));
  CHECK(reducer.encode(sent).size() == reducer.report().bytes_sent);
  CHECK(contains(text(reducer.report()), ", indices elias_fano, "));
}
