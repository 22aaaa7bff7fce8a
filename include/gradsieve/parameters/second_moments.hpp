// Estimates the second moments and the norm of the mean gradient from a small sample of the ranks' gradients.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/arguments.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/moment_factors.hpp>
#include <gradsieve/host/moments.hpp>
#include <gradsieve/host/parameters.hpp>
#include <gradsieve/parameters/agreement.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// For optimizers with second moments if each rank steps its own parameters, as with parameter_exchange: squares of a
/// rank's own gradient are up to P times as large as those of the mean, so steps are too short. Computes for each layer
/// f = |mean of the ranks' gradients|^2 / mean of their |gradient|^2, in [1/P, 1], from samples at the same random
/// positions on all ranks, averaged over some 50 measurements; and an estimate of the mean gradient's norm. Call
/// measure() in each step, before clipping. Then, with Adam: `v <- b2 * v + (1 - b2) * f * g * g`.
///
/// All ranks get the same factors and norm, so that they clip equally. Ranks call measure() equally often, with equal
/// layouts and options; the first call in a world, and after restore(), compares these and waits. On a device all else
/// is enqueued, and factors() and the norm stay in device memory; a CUDA graph repeats the positions of its capture.
/// Members of a moved-from object throw invalid_argument. Not for concurrent use.
/// Cost of a step: with `norms` a pass that reads the gradient, and an all_reduce of 12 bytes per layer; in steps that
/// measure also one of `density` of the elements (at least 16 per layer) and 12 bytes per layer: at density 0.001 and
/// `every` 1 a thousandth of a dense all-reduce. Memory: the samples, and some bytes per layer and tile.
/// Source: own derivation.
///
/// @snippet parameters.cpp second moments
template <space Space>
class second_moments {
  using parts = typename Space::moments;
  using arithmetic = typename parts::arithmetic;

 public:
  /// Starts with factors of 1. Allocates. Local. @throws invalid_argument, std::bad_alloc, device_error
  second_moments(Space where, layout layers, moment_options options = {})
      : where_{where}, layers_{std::move(layers)}, options_{options} {
    options_.check();
    parts_ = std::make_unique<parts>(where_, layers_, options_);
  }

  /// Measures this step's gradient (a vector, array or span of float, float16 or bfloat16, in memory of the space), or,
  /// in steps that `every` excludes, only its norm. If a layer is not finite on some rank, its factors do not change.
  /// Collective. @throws mismatch on all ranks if they differ in layout, options or step; exceptions of the
  /// communicator; invalid_argument, on this rank only, for a gradient of another size; no rank then learns anything.
  template <communicator Comm, class Gradient>
  void measure(Comm const& comm, Gradient const& gradient) {
    auto& at = alive();
    arithmetic const exact;
    int const world = detail::world_of(comm);
    auto const values = parts::span_of(gradient);
    if (world != met_) meet(comm, world);
    bool const measures = step_ % options_.every == 0;
    if (values.size() == layers_.size())
      at.write(std::span<typename decltype(values)::value_type const>{values}, step_, measures);
    else
      at.write_nothing();
    ++step_;
    world_ = world;
    auto const message = at.message(measures);
    bytes_ = message.size_bytes();
    if (!message.empty()) {
      comm.all_reduce(where_, message, reduction::sum);
      at.read(world_, measures);
    }
    detail::check_gradient_size(values.size(), layers_.size());
  }

  /// One factor per layer, in the layout's order, in memory of the space; it multiplies the squares of an own gradient.
  [[nodiscard]] std::span<float const> factors() const { return alive().factors(); }

  /// An estimate of the L2 norm of the mean of all ranks' gradients in the last step: sqrt(the sum over layers of f
  /// times the mean over ranks of |gradient|^2, which is exact). Not finite if a gradient is not: then skip the step,
  /// on all ranks. 0 before any measurement, and without `norms`. On a device it waits.
  [[nodiscard]] float norm() const { return alive().norm(); }

  /// Multiplies a gradient so that the mean gradient's norm is at most `most`; the same factor on all ranks. Does
  /// nothing if norm() is not finite. Local. Cost: a pass, if it clips. @throws invalid_argument unless `most` > 0.
  template <class Gradient>
  void clip(Gradient&& gradient, float most) const {
    arithmetic const exact;
    if (!(is_finite(most) && most > 0)) throw invalid_argument("gradsieve: clip() needs a norm above 0");
    alive().clip(parts::span_of(gradient), most);
  }

  [[nodiscard]] std::uint64_t bytes() const { return alive(), bytes_; }    ///< all-reduced by the last measure()
  [[nodiscard]] std::uint64_t step() const { return alive(), step_; }      ///< number of measure() calls so far
  [[nodiscard]] layout const& layers() const { return alive(), layers_; }  ///< as at construction
  [[nodiscard]] moment_options const& options() const { return alive(), options_; }  ///< as at construction

  /// All measurements as bytes, equal on all ranks. Little-endian: magic u32 | version u32 | layers u64 | layout hash
  /// u64 | step u64 | world u64 | options' hash u64 | checksum u64, then for each layer two binary64 and a u64. Local.
  /// Waits.
  [[nodiscard]] std::vector<std::byte> state() const {
    auto const moments = alive().moments();
    std::vector<std::byte> out(header_bytes + 24 * moments.size());
    auto const bytes = std::span{out};
    wire::store_all(bytes, magic, version, std::uint64_t{moments.size()}, layers_.hash(), step_,
                    static_cast<std::uint64_t>(world_), options_.hash());
    std::size_t at = header_bytes;
    for (auto const& each : moments) at += wire::store_all(bytes.subspan(at), each.of_mean, each.of_own, each.measured);
    wire::store_one(bytes.subspan(48), wire::checksum_around(bytes, 48));
    return out;
  }

  /// Continues from a state(). Local, but call it on all ranks. Waits. @throws corrupt_state; mismatch if it is of
  /// another layout or other options; nothing has changed then.
  void restore(std::span<std::byte const> bytes) {
    auto& at = alive();
    auto const refuse = [](std::string const& why) { throw corrupt_state("gradsieve: second moments' state " + why); };
    wire::check_begin(bytes, header_bytes, magic, version, refuse);
    std::uint64_t count = 0, hash = 0, step = 0, world = 0, options = 0;
    wire::load_all(bytes.subspan(8), count, hash, step, world, options);
    wire::check_sum(bytes, 48, refuse);
    if (count != layers_.count() || hash != layers_.hash() || bytes.size() != header_bytes + 24 * count)
      throw mismatch("gradsieve: second moments' state belongs to another layout");
    if (options != options_.hash())
      throw mismatch(
          "gradsieve: second moments' state belongs to other options (density, window, every, norms, seed): restore it "
          "into an object with those that it was saved with");
    std::vector<detail::layer_moments> moments(count);
    bool sound = world >= 1 && world < (std::uint64_t{1} << 31);
    std::size_t from = header_bytes;
    for (auto& each : moments) {
      from += wire::load_all(bytes.subspan(from), each.of_mean, each.of_own, each.measured);
      sound = sound && is_finite(each.of_mean) && is_finite(each.of_own) && each.of_mean >= 0 && each.of_own >= 0 &&
              each.measured <= options_.window;
    }
    if (!sound) refuse("holds a value that is negative or not finite, more measurements than its window, or no ranks");
    at.set_moments(std::move(moments), static_cast<int>(world));
    step_ = step;
    world_ = static_cast<int>(world);
    met_ = 0;
  }

 private:
  static constexpr std::uint32_t magic = 0x4D53'5247;  // "GRSM"
  static constexpr std::uint32_t version = 3;
  static constexpr std::size_t header_bytes = 56;

  parts& alive() const {
    if (!parts_) throw invalid_argument("gradsieve: these second_moments were moved from");
    return *parts_;
  }

  /// Compares layout, options and step of the ranks.
  template <class Comm>
  void meet(Comm const& comm, int world) {
    detail::agreement<3> all{{layers_.hash() ^ layers_.size(), options_.hash(), step_}};
    Space::template parameters<float>::reduce_largest(comm, where_, all.words());
    static constexpr std::array what{"layout", "options (density, window, every, norms or seed)",
                                     "step: restore() the same state on all ranks"};
    for (std::size_t i = 0; i < what.size(); ++i)
      if (!all.on(i)) throw mismatch(std::string{"gradsieve: the ranks' second_moments differ in their "} + what[i]);
    met_ = world;
  }

  Space where_;
  layout layers_;
  moment_options options_;
  std::unique_ptr<parts> parts_;
  std::uint64_t step_ = 0;
  std::uint64_t bytes_ = 0;
  int world_ = 1;
  int met_ = 0;  // world size at the last comparison
};

}  // namespace gradsieve
