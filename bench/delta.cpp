// Weight deltas against the speed of memory: gradsieve_bench_delta [elements] [seconds a row]. A row times in turn, and
// keeps the least times of, as others may have the machine: a read of both versions, a copy of one, encode() of both,
// encode() with a copy of its own, and apply(). In GB/s encode has the bytes of both versions; apply the lines that it
// must change, read and written, and the message, read twice. entropy_ratio: the message over the fewest bits that say
// which elements changed, and their values.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <gradsieve/delta.hpp>

namespace gs = gradsieve;

namespace {

/// What any comparison has to read.
struct read_words {
  template <gs::simd>
  GRADSIEVE_INLINE static std::uint64_t run(std::uint64_t const* a, std::uint64_t const* b,
                                            std::size_t count) noexcept {
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < count; ++i) total += a[i] ^ b[i];
    return total;
  }
};

struct random_bits {
  std::uint64_t state = 0x9E37'79B9'7F4A'7C15;
  std::uint64_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  }
};

template <class T>
class row {
 public:
  row(std::uint64_t n, int threads, double part)
      : team_{threads}, before_(n), after_(n), copy_(n), layers_{gs::layout::flat(n)}, threads_{threads} {
    random_bits bits;
    for (std::uint64_t i = 0; i < n; ++i) {
      auto const word = bits.next();
      std::memcpy(static_cast<void*>(&before_[i]), &word, sizeof(T));
    }
    std::copy_n(before_.data(), n, after_.data());
    std::copy_n(before_.data(), n, copy_.data());
    auto const limit = static_cast<std::uint64_t>(part * 4'294'967'296.0);
    for (std::uint64_t i = 0; i < n; ++i)
      if (auto const word = bits.next(); word >> 32 < limit) {
        auto& first = *reinterpret_cast<unsigned char*>(&after_[i]);
        first = static_cast<unsigned char>(first ^ (1 + word % 255));
        ++changed_;
      }
  }

  void measure(benchmark::State& state, double for_seconds) {
    gs::delta_encoder encoder{gs::host{threads_}, layers_}, keeper{gs::host{threads_}, layers_};
    gs::delta_decoder decoder{gs::host{threads_}, layers_};
    keeper.keep(before_.span());
    std::span<std::byte const> message;
    auto const end = std::chrono::steady_clock::now() + std::chrono::duration<double>(for_seconds);
    bool forth = true;  // what is kept goes from one version to the other and back
    do {
      time("read", [&] { read(); });
      time("memcpy", [&] { copy(); });
      time("encode", [&] { message = encoder.encode(before_.span(), after_.span(), {0, 1}); });
      time("keep", [&] { benchmark::DoNotOptimize(keeper.encode((forth ? after_ : before_).span()).data()); });
      decoder.reset(0);
      time("apply", [&] { decoder.apply(message, copy_.span()); });
      forth = !forth;
    } while (std::chrono::steady_clock::now() < end || !forth);
    report(state, static_cast<double>(message.size()));
  }

 private:
  template <class Body>
  void time(char const* what, Body const& body) {
    auto const start = std::chrono::steady_clock::now();
    body();
    auto const took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    auto const at = least_.try_emplace(what, took).first;
    at->second = std::min(at->second, took);
  }

  void read() {
    auto const words = before_.size() * sizeof(T) / 8;
    std::vector<std::uint64_t> sums(static_cast<std::size_t>(team_.size()));
    team_.run(before_.size(), [&](int w) {
      auto const [begin, end] = team_.part(words, w);
      sums[static_cast<std::size_t>(w)] = gs::host_kernels::run<read_words>(
          gs::host_kernels::best_simd(), reinterpret_cast<std::uint64_t const*>(before_.data()) + begin,
          reinterpret_cast<std::uint64_t const*>(after_.data()) + begin, std::size_t{end - begin});
    });
    benchmark::DoNotOptimize(sums.data());
  }

  void copy() {
    team_.run(before_.size(), [&](int w) {
      auto const [begin, end] = team_.part(before_.size(), w);
      std::memcpy(copy_.data() + begin, before_.data() + begin, (end - begin) * sizeof(T));
    });
  }

  void report(benchmark::State& state, double message) {
    for (auto _ : state) state.SetIterationTime(least_["encode"]);
    auto const bytes = static_cast<double>(before_.size() * sizeof(T));
    auto const count = static_cast<double>(changed_), p = count / static_cast<double>(before_.size());
    auto const lines = bytes / 64 * (1 - std::pow(1 - p, 64.0 / sizeof(T)));
    auto const entropy = (-p * std::log2(p) - (1 - p) * std::log2(1 - p)) / p + 8 * sizeof(T);
    for (char const* const what : {"read", "memcpy", "encode", "keep", "apply"}) {
      auto const moved = std::strcmp(what, "apply") == 0 ? 128 * lines + 2 * message : 2 * bytes;
      state.counters[std::string(what) + "_GBps"] = moved / least_[what] / 1e9;
    }
    state.counters["encode/read"] = least_["encode"] / least_["read"];
    state.counters["keep/read"] = least_["keep"] / least_["read"];
    state.counters["apply/memcpy"] = least_["apply"] / least_["memcpy"];
    state.counters["apply_ns_entry"] = least_["apply"] / count * 1e9;
    state.counters["bits_entry"] = 8 * message / count;
    state.counters["entropy_ratio"] = 8 * message / count / entropy;
  }

  gs::detail::host_team team_;
  gs::host_buffer<T> before_, after_, copy_;
  gs::layout layers_;
  int threads_;
  std::uint64_t changed_ = 0;
  std::map<std::string, double> least_;
};

template <class T>
void add(std::string const& format, std::uint64_t n, double for_seconds) {
  for (int const threads : {1, 2})
    for (char const* const part : {"0.001", "0.01", "0.08"}) {
      auto const name = format + "/changed:" + part + "/threads:" + std::to_string(threads);
      benchmark::RegisterBenchmark(name.c_str(),
                                   [=](benchmark::State& state) {
                                     row<T>{n, threads, std::strtod(part, nullptr)}.measure(state, for_seconds);
                                   })
          ->Iterations(1)
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::uint64_t const n = argc > 1 ? std::strtoull(argv[1], nullptr, 10) / 64 * 64 : std::uint64_t{1} << 27;
  double const for_seconds = argc > 2 ? std::strtod(argv[2], nullptr) : 2;
  add<gs::bfloat16>("bf16", n, for_seconds);
  add<std::uint8_t>("8bit", n, for_seconds);
  add<float>("fp32", n, for_seconds);
  benchmark::RunSpecifiedBenchmarks();
}
