// States of whole buckets where a node's ranks each keep a part.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include <gradsieve/core/node_share.hpp>
#include <gradsieve/step/checkpoint.hpp>

#include "compression.hpp"
#include "space_memory.hpp"

namespace example {

/// Gathers and cuts states, as buckets change. Without nodes both return what they are given.
template <class Space>
class node_states {
 public:
  /// @pre the peers outlive this
  node_states(Space where, peers_of<Space> const& peers) : where_{where}, peers_{&peers} {}

  /// The state of all that a compressor's layers hold on to: of a rank alone its own; in a node of all its ranks' parts
  /// together, as a compressor without nodes would have it. Collective in a node.
  [[nodiscard]] std::vector<std::byte> whole_state(compressor_in<Space>& of) const {
    auto const state = of.state();
    auto const* const nodes = std::get_if<nodes_of<Space>>(peers_);
    if (nodes == nullptr || nodes->inside.size() == 1) return state;
    auto const mine = gs::checkpoint::read(state);
    std::vector<std::byte> sent(sizeof mine.step + mine.values.size());
    gs::wire::store_one(std::span{sent}, mine.step);
    std::ranges::copy(mine.values, sent.begin() + sizeof mine.step);

    auto const share_of = [&](int rank) { return gs::node_share{of.layers().size(), nodes->inside.size(), rank}; };
    std::vector<std::size_t> sizes;
    std::size_t sum = 0;
    for (int rank = 0; rank < nodes->inside.size(); ++rank) {
      sizes.push_back(sizeof mine.step + 4 * mine.states * share_of(rank).size());
      sum += sizes.back();
    }
    std::vector<std::byte> all(sum);
    gather(nodes->inside, sent, all, sizes);

    gs::checkpoint whole{mine.states, mine.store, of.layers().size(), of.layers().hash(), mine.step, {}, {}};
    auto const for_each_rank = [&](auto const& body) {
      std::size_t at = 0;
      for (int rank = 0; rank < nodes->inside.size(); ++rank) {
        body(share_of(rank), std::span<std::byte const>{all}.subspan(at));
        at += sizes[static_cast<std::size_t>(rank)];
      }
    };
    for_each_rank([&](gs::node_share const&, std::span<std::byte const> bytes) {
      whole.step = std::max(whole.step, gs::wire::load_one<std::uint64_t>(bytes));
    });
    std::vector<float> row(whole.n);
    return whole.write([&](std::size_t s) {
      for_each_rank([&](gs::node_share const& share, std::span<std::byte const> bytes) {
        gs::wire::load(std::span{row}.subspan(share.begin(), share.size()),
                       bytes.subspan(sizeof mine.step + 4 * s * share.size(), 4 * share.size()));
      });
      return std::span<float const>{row};
    });
  }

  /// The opposite: this rank's part of a state of these layers.
  [[nodiscard]] std::vector<std::byte> part_of(std::vector<std::byte> whole, gs::layout const& layers) const {
    auto const* const nodes = std::get_if<nodes_of<Space>>(peers_);
    if (nodes == nullptr || nodes->inside.size() == 1) return whole;
    auto const found = gs::checkpoint::read(whole);
    auto const share = gs::node_share{layers.size(), nodes->inside.size(), nodes->inside.rank()};
    std::vector<float> row(share.size());
    return gs::checkpoint{found.states, found.store, share.size(), share.cut(layers).hash(), found.step, {}, {}}.write(
        [&](std::size_t s) {
          gs::wire::load(std::span{row}, found.values.subspan(4 * (s * found.n + share.begin()), 4 * share.size()));
          return std::span<float const>{row};
        });
  }

 private:
  using memory = memory_of<Space>;

  /// An all-gather of host memory.
  void gather(communicator_of<Space> const& comm, std::span<std::byte> mine, std::span<std::byte> all,
              std::span<std::size_t const> sizes) const {
    auto const buffer = memory::template allocate<std::byte>(where_, mine.size() + all.size());
    auto const out = buffer.span().first(mine.size());
    auto const in = buffer.span().subspan(mine.size());
    memory::copy(where_, mine, out);
    comm.all_gather(where_, out, in, sizes);
    memory::copy(where_, in, all);
    memory::finish(where_);
  }

  Space where_;
  peers_of<Space> const* peers_;
};

}  // namespace example
