// Messages: writing them, reading them, and adding up what the ranks have sent.
#include <array>

#include <gradsieve/host/simd/stream.hpp>
#include <gradsieve/published.hpp>

#include "rows.hpp"

namespace bench {
namespace {

/// Both directions of a codec, on the entries that `radix` chooses.
template <class Codec>
void add_codec(std::string const& codec_name, Codec codec, setting const& at) {
  for (bool const decode : {false, true})
    add("codec/" + codec_name + (decode ? "/decode/" : "/encode/") + at.name(), [=](benchmark::State& state) {
      gs::recipe const recipe{.density = at.density};
      gs::compressor reducer{gs::host{at.threads}, gs::layout::flat(at.n), recipe};
      row<float> row{state, at};
      auto const entries = reducer.compress(row.gradients.next());
      auto const bins = gs::bin_lengths{}.of(reducer.layers());
      gs::message_info const info{at.n, reducer.layers().hash(), 0, &reducer.layers(), bins};
      gs::host_buffer<std::byte> message(codec.max_bytes(at.n, entries.indices.size(), 0));
      gs::host_buffer<gs::index_type> indices(entries.indices.size());
      gs::host_buffer<float> values(entries.indices.size());
      auto const bytes = codec.encode(info, entries, message.span());
      auto const time = row.measure(bytes + 8 * entries.indices.size(), [&](auto) {
        return seconds([&] {
          if (decode)
            benchmark::DoNotOptimize(codec.decode(info, message.first(bytes), {indices.span(), values.span(), {}}));
          else
            benchmark::DoNotOptimize(codec.encode(info, entries, message.span()));
        });
      });
      auto const count = static_cast<double>(entries.indices.size());
      row.count("bytes_per_entry", static_cast<double>(bytes) / count);
      row.count("entries_per_second", count / time);
      if constexpr (requires { codec.indices.encode(info, entries.indices, message.span()); })
        row.count("bits_per_index",
                  8 * static_cast<double>(codec.indices.encode(info, entries.indices, message.span())) / count);
    });
}

/// Every index codec with values as they are, every value codec with the index codec that it will mostly meet.
void add_parts(setting const& at) {
  add_codec("coo", gs::coo{}, at);
  add_codec("raw32+fp32", gs::packed{.indices = gs::raw32{}}, at);
  add_codec("delta+fp32", gs::packed{.indices = gs::delta{}}, at);
  add_codec("elias_fano+fp32", gs::packed{.indices = gs::elias_fano{}}, at);
  add_codec("bitmap+fp32", gs::packed{.indices = gs::bitmap{}}, at);
  add_codec("fixed_width+fp32", gs::packed{.indices = gs::fixed_width{}}, at);
  add_codec("automatic+fp32", gs::packed{}, at);
  add_codec("delta+fp16", gs::packed{.indices = gs::delta{}, .values = gs::fp16{}}, at);
  add_codec("delta+bf16", gs::packed{.indices = gs::delta{}, .values = gs::bf16{}}, at);
  add_codec("delta+ternary", gs::packed{.indices = gs::delta{}, .values = gs::ternary{}}, at);
  add_codec("elias_fano+int8", gs::packed{.indices = gs::elias_fano{}, .values = gs::int8{}}, at);
  add_codec("elias_fano+int4", gs::packed{.indices = gs::elias_fano{}, .values = gs::int4{}}, at);
  add_codec("elias_fano+int2", gs::packed{.indices = gs::elias_fano{}, .values = gs::int2{}}, at);
  add_codec("elias_fano+sign", gs::packed{.indices = gs::elias_fano{}, .values = gs::sign{}}, at);
  add_codec("elias_fano+qsgd", gs::packed{.indices = gs::elias_fano{}, .values = gs::qsgd{}}, at);
  add_codec("binned", gs::binned{}, at);
}

/// Zeros past the caches: what any update of a gradient has to write.
void write_zeros(gs::detail::host_team const& team, std::span<float> to) {
  namespace kernels = gs::host_kernels;
  std::array<float, kernels::line_size<float>> const zeros{};
  team.run(to.size(), [&](int worker) {
    auto [at, end] = team.part(to.size(), worker);
    for (; at < end && kernels::before_line(to.data() + at) > 0; ++at) to[at] = 0;
    for (; at + kernels::line_size<float> <= end; at += kernels::line_size<float>)
      kernels::stream_line(zeros.data(), to.data() + at);
    for (; at < end; ++at) to[at] = 0;
    kernels::stream_fence();
  });
}

/// The mean of as many messages as there are ranks, into a gradient: decoding, and n writes.
void add_apply(int ranks, setting const& at) {
  add("apply/ranks:" + std::to_string(ranks) + "/" + at.name(), [=](benchmark::State& state) {
    gs::recipe const recipe{.density = at.density, .residual = gs::none{}};  // every message from one gradient alone
    gs::compressor reducer{gs::host{at.threads}, gs::layout::flat(at.n), recipe};
    gs::averager averager{gs::host{at.threads}, reducer.layers(), recipe};
    row<float> row{state, at};
    std::vector<std::vector<std::byte>> messages;
    for (int r = 0; r < ranks; ++r) {
      auto const bytes = reducer.encode(reducer.compress(row.gradients.next()));
      messages.emplace_back(bytes.begin(), bytes.end());
    }
    std::vector<std::span<std::byte const>> const received(messages.begin(), messages.end());
    auto const update = zeros(gs::detail::host_team{at.threads}, at.n);
    gs::detail::host_team const team{at.threads};
    std::vector<double> writes;
    auto const time = row.measure(4 * at.n + 8 * at.k() * received.size(), [&](auto) {
      writes.push_back(seconds([&] { write_zeros(team, update.span()); }));
      return seconds([&] { averager.apply(std::span{received}, update.span()); });
    });
    row.count("write_ratio", time / median(writes));
  });
}

}  // namespace

void add_codecs(options const& chosen) {
  for (double const density : {0.001, 0.01}) add_parts(usual(chosen, density));
  for (int const ranks : {1, 4, 16}) add_apply(ranks, usual(chosen, 0.001));
  add_apply(8, usual(chosen, 0.01));
  if (!chosen.full) return;
  for (double const density : {0.0001, 0.001, 0.01, 0.1}) {
    add_parts(usual(chosen, density));
    for (int ranks = 1; ranks <= 64; ranks *= 4) add_apply(ranks, usual(chosen, density));
  }
}

}  // namespace bench
