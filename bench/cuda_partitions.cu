// Steps whose segments are layers, and what an exchange does beside the transport.
//
//   exchange/  with a communicator; of P ranks that are not there, one rank's part
#include <gradsieve/comm/self.hpp>

#include "cuda_steps.cuh"

namespace bench {

/// One rank of several that are not there: they all hold what it holds, and their messages cost nothing.
struct one_of {
  static constexpr bool stream_ordered = true;
  int ranks = 1;

  [[nodiscard]] int rank() const { return 0; }
  [[nodiscard]] int size() const { return ranks; }
  template <class Space, class T>
  void all_reduce(Space const&, std::span<T>, gs::reduction) const {}
  template <class Space>
  void all_gather(Space const& where, std::span<std::byte const> mine, std::span<std::byte> all) const {
    for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
      gs::self{}.all_gather(where, mine, all.subspan(r * mine.size(), mine.size()));
  }
  template <class Space>
  void all_gather(Space const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  std::span<std::size_t const>) const {
    all_gather(where, mine, all);
  }
};
static_assert(gs::has_all_gather<one_of, gs::device> && one_of::stream_ordered);

namespace {

/// One rank's part of a whole exchange: what a transport costs comes on top.
template <class Partitioner, class Codec = gs::coo>
void add_exchange(std::string const& who, Partitioner partitioner, int ranks, setting const& at, Codec codec = {}) {
  add("exchange/" + who + "/ranks:" + std::to_string(ranks) + "/" + at.name(), [=](benchmark::State& state) {
    gs::recipe const recipe{.density = at.density, .partitioner = partitioner, .codec = codec};
    gs::compressor reducer{gs::device{stream()}, layers_of(at.n, 64), recipe};
    row<float> row{state, at};
    gs::cuda_buffer<float> update{gs::device{stream()}, at.n};
    auto const prepare = [&](std::span<float const> gradient) {
      gs::device{stream()}.copy(std::as_bytes(gradient), std::as_writable_bytes(update.span()));
    };
    auto const step = [&](std::span<float const>) { reducer.exchange(one_of{ranks}, update.span()); };
    row.settle([&](std::span<float const> gradient) {
      prepare(gradient);
      step(gradient);
    });
    row.measure(12 * at.n, step, prepare);
    gs::step_report const report = reducer.report();  // throws what went wrong
    row.count("selected_per_k", static_cast<double>(report.selected) / at.k());
    row.count("bytes_sent_per_k", static_cast<double>(report.bytes_sent) / at.k());
  });
}

part const partitions{[] {
  for (auto const n : sizes({bucket, 1 << 26, 1 << 28}, {1 << 26}))
    for (double const density : {0.001, 0.01}) {
      if (chosen.quick && density != 0.001) continue;
      setting const at{.n = n, .density = density, .law = "layers"};
      promise const limits{.largest = false};
      add_step<float>("step", "radix_layerwise", gs::recipe{.density = density, .partitioner = gs::layerwise{}}, limits,
                      at);
      add_step<float>("step", "radix_deft", gs::recipe{.density = density, .partitioner = gs::deft{}}, limits, at);
      for (int const ranks : {1, 16}) {
        add_exchange("radix", gs::whole{}, ranks, at);
        add_exchange("radix_deft", gs::deft{}, ranks, at);
        add_exchange("radix_fixed_width_fp16", gs::whole{}, ranks, at,
                     gs::packed{.indices = gs::fixed_width{}, .values = gs::fp16{}});
        add_exchange("radix_elias_fano_fp16", gs::whole{}, ranks, at,
                     gs::packed{.indices = gs::elias_fano{}, .values = gs::fp16{}});
      }
    }
}};

}  // namespace
}  // namespace bench
