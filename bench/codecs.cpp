// Messages: writing them, reading them, and adding up what the ranks have sent.
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
      gs::message_info const info{at.n, reducer.layers().hash(), 0};
      gs::host_buffer<std::byte> message(codec.max_bytes(at.n, entries.indices.size(), 0));
      gs::host_buffer<gs::index_type> indices(entries.indices.size());
      gs::host_buffer<float> values(entries.indices.size());
      auto const bytes = codec.encode(info, entries, message.span());
      row.measure(bytes + 8 * entries.indices.size(), [&](auto) {
        return seconds([&] {
          if (decode)
            benchmark::DoNotOptimize(codec.decode(info, message.first(bytes), {indices.span(), values.span(), {}}));
          else
            benchmark::DoNotOptimize(codec.encode(info, entries, message.span()));
        });
      });
      row.count("bytes_per_entry", static_cast<double>(bytes) / static_cast<double>(entries.indices.size()));
    });
}

/// The mean of as many messages as there are ranks, into a gradient: decoding, and n writes.
void add_apply(int ranks, setting const& at) {
  add("apply/ranks:" + std::to_string(ranks) + "/" + at.name(), [=](benchmark::State& state) {
    gs::recipe const recipe{.density = at.density, .residual = gs::none{}};  // every message from one gradient alone
    gs::compressor reducer{gs::host{at.threads}, gs::layout::flat(at.n), recipe};
    row<float> row{state, at};
    std::vector<std::vector<std::byte>> messages;
    for (int r = 0; r < ranks; ++r) {
      reducer.compress(row.gradients.next());
      auto const bytes = reducer.encode();
      messages.emplace_back(bytes.begin(), bytes.end());
    }
    std::vector<std::span<std::byte const>> const received(messages.begin(), messages.end());
    auto const update = zeros(gs::host_team{at.threads}, at.n);
    row.measure(4 * at.n + 8 * at.k() * received.size(),
                [&](auto) { return seconds([&] { reducer.apply(std::span{received}, update.span()); }); });
  });
}

}  // namespace

void add_codecs(options const& chosen) {
  for (double const density : {0.001, 0.01}) add_codec("coo", gs::coo{}, usual(chosen, density));
  for (int const ranks : {1, 4, 16}) add_apply(ranks, usual(chosen, 0.001));
  if (!chosen.full) return;
  for (double const density : {0.0001, 0.001, 0.01, 0.1}) {
    add_codec("coo", gs::coo{}, usual(chosen, density));
    for (int ranks = 1; ranks <= 64; ranks *= 4) add_apply(ranks, usual(chosen, density));
  }
}

}  // namespace bench
