// What the peers on a device share: a whole step the natural way, accumulate, select, and zero what was sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cuda_bench.cuh"

namespace bench {

/// residual[indices[e]] = 0 for all entries, of which there are at most `most`.
void zero_sent(entries sent, std::uint64_t most, float* residual);

/// *to = value, in stream order: a copy from the host would wait for the stream.
void store(gs::index_type value, gs::index_type* to);

/// Radix select as it is published (Alabi et al. 2012, the one that LDTE-BS compares with): digits of eight bits, most
/// significant first, each a histogram of all n keys that share the digits before it. The host is not asked.
class radix_select {
 public:
  struct progress {
    gs::key_type prefix;
    gs::key_type mask;  ///< of the digits that are known
    std::uint32_t wanted;
  };

  radix_select() : state_{gs::device{stream()}, 1}, counts_{gs::device{stream()}, 256} {
    gs::throw_on_error(cudaMemsetAsync(counts_.data(), 0, 256 * sizeof(std::uint32_t), stream()), "cudaMemsetAsync");
  }

  /// The k-th largest key of the values, in device memory.
  gs::key_type* operator()(std::span<float const> values, std::uint64_t k);

 private:
  gs::cuda_buffer<progress> state_;
  gs::cuda_buffer<std::uint32_t> counts_;
};

/// A residual, room for entries, and memory for CUB.
class peer {
 public:
  peer(setting const& at, std::uint64_t room)
      : n_{at.n},
        k_{at.k()},
        residual_{where_, at.n},
        indices_{where_, room},
        values_{where_, room},
        count_{where_, 1} {
    gs::throw_on_error(cudaMemsetAsync(residual_.data(), 0, n_ * sizeof(float), stream()), "cudaMemsetAsync");
    set_count(k_);
  }

  void prepare(std::span<float const>) {}
  [[nodiscard]] entries sent() const { return {indices_.data(), values_.data(), count_.data()}; }
  [[nodiscard]] float const* residual() const { return residual_.data(); }

 protected:
  void set_count(gs::index_type count) { store(count, count_.data()); }

  /// Waits for it.
  [[nodiscard]] gs::index_type read_count() const {
    gs::index_type count = 0;
    where_.copy(std::as_bytes(count_.span()), std::as_writable_bytes(std::span{&count, 1}));
    where_.synchronize();
    return count;
  }

  /// Calls a CUB function, call(memory, bytes), with the memory that it asks for.
  template <class Call>
  void with_memory(Call const& call) {
    std::size_t bytes = 0;
    gs::throw_on_error(call(nullptr, bytes), "CUB");
    if (memory_.size() < bytes) memory_ = gs::cuda_buffer<std::byte>{where_, bytes};
    gs::throw_on_error(call(memory_.data(), bytes), "CUB");
  }

  gs::device where_{stream()};
  std::uint64_t n_;
  gs::index_type k_;
  gs::cuda_buffer<float> residual_;
  gs::cuda_buffer<gs::index_type> indices_;
  gs::cuda_buffer<float> values_;
  gs::cuda_buffer<gs::index_type> count_;

 private:
  gs::cuda_buffer<std::byte> memory_;
};

/// A row for Peer{setting}: step(gradient) is timed, prepare(gradient) before it is not. It may send from `least` to
/// `most` times k, as it says.
template <class Peer>
void add_peer(std::string const& name, setting const& at) {
  add("peer/" + name + "/" + at.name(), [=](benchmark::State& state) {
    Peer peer{at};
    row<float> row{state, at};
    auto const prepare = [&](std::span<float const> gradient) { peer.prepare(gradient); };
    auto const step = [&](std::span<float const> gradient) { peer.step(gradient); };
    row.settle([&](std::span<float const> gradient) {
      prepare(gradient);
      step(gradient);
    });
    row.measure(12 * at.n, step, prepare);
    audit check{at.n};
    auto const gradient = row.gradients.next();
    prepare(gradient);
    check.before(peer.residual(), gradient);
    step(gradient);
    auto const k = static_cast<double>(at.k());
    row.fail_if(check.after(peer.sent(), peer.residual(), static_cast<std::uint64_t>(std::floor(Peer::least * k)),
                            static_cast<std::uint64_t>(std::ceil(Peer::most * k)), true));
    row.count("selected_per_k", static_cast<double>(check.count()) / k);
  });
}

/// The sizes and densities that peers are measured at.
template <class Body>
void for_peer_settings(Body const& body) {
  for (auto const n : sizes({1 << 20, bucket, 1 << 24, 1 << 26, 1 << 28}, {1 << 20, bucket, 1 << 26}))
    for (double const density : {0.001, 0.01, 0.1})
      if (!chosen.quick || density != 0.1) body(setting{.n = n, .density = density});
}

}  // namespace bench
