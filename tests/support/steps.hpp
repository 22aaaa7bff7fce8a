// What the compressor's tests share: layers of every kind, gradients, a user's selector, and ranks that are threads.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>

#include "data.hpp"
#include "sanitized.hpp"

namespace steps {

namespace gs = gradsieve;
using communicator = gs::threads::communicator_ref;

inline std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

/// Selected and passed through by turns, one empty, one of a single element, more than one tile.
inline gs::layout mixed_layers() {
  return {{"conv.weight", 1500}, {"conv.bias", 16}, {"unused", 0},  {"scale", 1}, {"fc.weight", 2900},
          {"block.norm", 40},    {"fc.bias", 8},    {"unused2", 0}, {"head", 37}};
}

/// A user's selector: what is larger than a few times the mean.
struct above_mean {
  float times = 2.5f;

  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  [[nodiscard]] GRADSIEVE_HD float fit(Workspace& work, gs::accumulator_ref const acc, gs::index_type) const {
    return times * work.mean_abs(acc);
  }
  [[nodiscard]] GRADSIEVE_HD constexpr bool keep(float value, float mean) const noexcept {
    return gs::abs(value) > mean;
  }

  friend bool operator==(above_mean const&, above_mean const&) = default;
  friend std::ostream& operator<<(std::ostream& out, above_mean const& it) { return out << "above_mean " << it.times; }
};

/// Laplace noise at scales that differ by layer-sized stretches, with ties and zeros here and there.
inline std::vector<float> gradient(std::uint64_t n, int rank, std::uint64_t step, std::uint64_t seed = 1) {
  data::generator random{seed * 7919 + step * 31 + static_cast<std::uint64_t>(rank) * 1'000'003};
  std::vector<float> values(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    double const scale = i % 4096 < 1600 ? 1.0 : 0.05;
    values[i] = static_cast<float>(scale * random.laplace());
    if (i % 97 == 5) values[i] = 0;
    if (i % 89 == 7) values[i] = 0.25f;
  }
  return values;
}

template <class T>
bool same_bits(std::span<T const> a, std::span<T const> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  return same_bits(std::span<T const>{a}, std::span<T const>{b});
}

inline std::uint64_t hash(std::span<std::byte const> bytes, std::uint64_t h = 0xCBF2'9CE4'8422'2325u) {
  for (auto const each : bytes) h = (h ^ static_cast<std::uint64_t>(each)) * 0x0000'0100'0000'01B3u;
  return h;
}

template <class T>
std::uint64_t hash(std::vector<T> const& values, std::uint64_t h = 0xCBF2'9CE4'8422'2325u) {
  return hash(std::as_bytes(std::span{values}), h);
}

/// All states of a compressor, one after the other, as state() saves them.
template <class Compressor>
std::vector<float> states_of(Compressor& compressor) {
  auto const bytes = compressor.state();
  std::vector<float> values(Compressor::residual_type::states * compressor.layers().size());
  if (!values.empty()) std::memcpy(values.data(), bytes.data() + bytes.size() - 4 * values.size(), 4 * values.size());
  return values;
}

template <class Compressor>
std::vector<float> residual_of(Compressor& compressor) {
  auto const now = compressor.residual();
  return {now.begin(), now.end()};
}

/// Bytes that a rank has handed to its communicator, and has got from it.
struct traffic {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

/// A communicator that passes every call on: for those that do something else in one of them.
struct forwarding {
  communicator real;

  [[nodiscard]] int rank() const { return real.rank(); }
  [[nodiscard]] int size() const { return real.size(); }
  template <class T>
  void all_reduce(gs::host const& where, std::span<T> in_out, gs::reduction how) const {
    real.all_reduce(where, in_out, how);
  }
  template <class T>
  void reduce_scatter(gs::host const& where, std::span<T const> all, std::span<T> mine, gs::reduction how) const {
    real.reduce_scatter(where, all, mine, how);
  }
  template <class... Sizes>
  void all_gather(gs::host const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  Sizes const&... sizes) const {
    real.all_gather(where, mine, all, sizes...);
  }
  void broadcast(gs::host const& where, std::span<std::byte> in_out, int root) const {
    real.broadcast(where, in_out, root);
  }
  void send_receive(gs::host const& where, std::span<std::byte const> out, int to, std::span<std::byte> in,
                    int from) const {
    real.send_receive(where, out, to, in, from);
  }
  void all_to_all(gs::host const& where, std::span<std::byte const> out, std::span<std::size_t const> out_sizes,
                  std::span<std::byte> in, std::span<std::size_t const> in_sizes) const {
    real.all_to_all(where, out, out_sizes, in, in_sizes);
  }
};

/// A communicator that counts.
struct counting : forwarding {
  traffic* moved;

  template <class T>
  void all_reduce(gs::host const& where, std::span<T> in_out, gs::reduction how) const {
    moved->sent += in_out.size_bytes();
    moved->received += in_out.size_bytes();
    real.all_reduce(where, in_out, how);
  }
  template <class... Sizes>
  void all_gather(gs::host const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  Sizes const&... sizes) const {
    moved->sent += mine.size();
    moved->received += all.size() - mine.size();
    real.all_gather(where, mine, all, sizes...);
  }
  void broadcast(gs::host const& where, std::span<std::byte> in_out, int root) const {
    (rank() == root ? moved->sent : moved->received) += in_out.size();
    real.broadcast(where, in_out, root);
  }
  void send_receive(gs::host const& where, std::span<std::byte const> out, int to, std::span<std::byte> in,
                    int from) const {
    moved->sent += out.size();
    moved->received += in.size();
    real.send_receive(where, out, to, in, from);
  }
  void all_to_all(gs::host const& where, std::span<std::byte const> out, std::span<std::size_t const> out_sizes,
                  std::span<std::byte> in, std::span<std::size_t const> in_sizes) const {
    auto const own = static_cast<std::size_t>(rank());
    moved->sent += out.size() - out_sizes[own];
    moved->received += in.size() - in_sizes[own];
    real.all_to_all(where, out, out_sizes, in, in_sizes);
  }
};

/// What a call ended with: empty, or the kind of exception and its message.
template <class F>
std::string ending(F const& f) {
  try {
    f();
    return {};
  } catch (gs::mismatch const& error) {
    return std::string{"mismatch: "} + error.what();
  } catch (gs::communication_error const& error) {
    return std::string{"communication_error: "} + error.what();
  } catch (gs::corrupt_message const& error) {
    return std::string{"corrupt_message: "} + error.what();
  } catch (gs::corrupt_state const& error) {
    return std::string{"corrupt_state: "} + error.what();
  } catch (gs::non_finite_gradient const& error) {
    return std::string{"non_finite_gradient: "} + error.what();
  } catch (gs::invalid_argument const& error) {
    return std::string{"invalid_argument: "} + error.what();
  } catch (std::exception const& error) {
    return std::string{"exception: "} + error.what();
  }
}

/// One rank goes on with a state of `own_step` steps while the others have `step` behind them. Returns what the rank's
/// next exchange ends with, and then, where all are brought to one state, whether they go on together.
template <class Comm, class Recipe>
std::string rejoin(Comm const& comm, Recipe const& recipe, int odd, std::uint64_t step, std::uint64_t own_step) {
  auto const n = mixed_layers().size();
  gs::host const where{.threads = 1};
  gs::compressor compressor{where, mixed_layers(), recipe};
  std::vector<std::byte> saved = compressor.state();
  for (std::uint64_t s = 0; s < step; ++s) {
    auto update = gradient(n, comm.rank(), s);
    compressor.exchange(comm, std::span{update});
    if (s + 1 == own_step) saved = compressor.state();
  }
  gs::compressor fresh{where, mixed_layers(), recipe};
  if (own_step > 0) fresh.restore(saved);
  auto& mine = comm.rank() == odd ? fresh : compressor;
  auto update = gradient(n, comm.rank(), step);
  auto const how = ending([&] { mine.exchange(comm, std::span{update}); });
  if (how.empty()) return how;
  if (own_step == 0) return how;
  mine.restore(saved);
  update = gradient(n, comm.rank(), own_step);
  auto const again = ending([&] { mine.exchange(comm, std::span{update}); });
  return how + (again.empty() ? "" : ", and then " + again);
}

/// A selector that fails on the threads that set `failing`.
inline thread_local bool failing = false;

struct fails_on_demand {
  template <class Workspace>
  gs::index_type select(Workspace& work, gs::accumulator_ref const acc, gs::index_type k,
                        gs::selection_span out) const {
    if (failing) throw std::runtime_error("this selector fails");
    return gs::radix{}.select(work, acc, k, out);
  }
  friend bool operator==(fails_on_demand const&, fails_on_demand const&) = default;
};

/// Calls f on every rank; returns what each rank reports, or an exception that left f.
inline std::vector<std::string> on_ranks(int ranks, std::function<std::string(communicator)> const& f) {
  std::vector<std::string> said(at(ranks));
  gs::threads::run(ranks, [&](communicator comm) {
    auto& mine = said[at(comm.rank())];
    auto const thrown = ending([&] { mine = f(comm); });
    if (!thrown.empty()) mine = thrown;
  });
  return said;
}

inline std::string joined(std::vector<std::string> const& said) {
  std::string all;
  for (auto const& each : said) all += each;
  return all;
}

/// Remembers the first thing that went wrong: a rank that stopped would leave the others waiting.
class findings {
 public:
  void expect(bool good, std::string const& what) {
    if (!good && text_.empty()) text_ = what;
  }
  [[nodiscard]] std::string const& text() const noexcept { return text_; }

 private:
  std::string text_;
};

inline bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

/// A partitioner of one's own that does as another one, and says neither whether one rank selects nor whether segments
/// lie within layers: what does not fit is found when it runs.
template <class Other>
struct unsaid {
  using default_exchange = typename Other::default_exchange;
  static constexpr gs::partitioner_traits traits{.needs_norms = Other::traits.needs_norms,
                                                 .disjoint = Other::traits.disjoint};

  void split(std::span<gs::range const> layers, int world, gs::segment_list& list) const {
    Other{}.split(layers, world, list);
  }
  void assign(std::span<gs::segment> segments, std::span<double const> norms, gs::step_budget const budget,
              gs::partition_scratch& scratch) const {
    Other{}.assign(segments, norms, budget, scratch);
  }

  [[maybe_unused]] friend bool operator==(unsaid const&, unsaid const&) = default;
};

}  // namespace steps
