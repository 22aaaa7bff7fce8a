// What a group is exchanged by where nothing is compressed.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/float_environment.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/workspace.hpp>
#include <gradsieve/report.hpp>

namespace gradsieve {

/// An all-reduce in the gradient's own format, float or double, and the division by the number of ranks; host memory.
/// Has no state, so that one serves gradients of any size. A rank that fails sends a NaN as its first element. Where
/// the first mean is NaN, all ranks then ask each other in a second all-reduce, of one value, whether one has failed.
/// A plain sum: it is infinite where the ranks' values add up to more than the format holds.
struct dense_mean {
  /// Replaces the gradient by its mean over all ranks. Collective. @throws what the transport throws;
  /// communication_error if another rank called fail(): the gradient is of no use then.
  template <communicator Comm, std::floating_point T>
  GRADSIEVE_PRECISE step_report exchange(Comm const& comm, std::span<T> gradient) const {
    static_assert(has_all_reduce<Comm, host, T>, "this communicator needs all_reduce for the gradient's type");
    float_environment const mode;
    step_report report;
    report.world = comm.size();
    report.bytes_sent = report.bytes_received = report.baseline_bytes = gradient.size_bytes();
    report.passthrough_elements = gradient.size();
    stopwatch watch;
    comm.all_reduce(host{}, gradient, reduction::sum);
    if (!gradient.empty() && is_nan(gradient.front())) {
      report.bytes_sent += sizeof(T);
      report.bytes_received += sizeof(T);
      if (any_failed<T>(comm, false))
        throw communication_error("gradsieve: another rank failed in this step; there is no mean");
    }
    watch.charge(report.seconds.exchange);
    auto const ranks = static_cast<T>(comm.size());
    for (T& value : gradient) value /= ranks;
    watch.charge(report.seconds.apply);
    return report;
  }

  /// Takes part in an exchange() of the other ranks as one that has failed: it throws on them. Overwrites the gradient,
  /// which has to be as long as theirs. Collective. @throws what the transport throws.
  template <communicator Comm, std::floating_point T>
  void fail(Comm const& comm, std::span<T> gradient) const {
    std::fill(gradient.begin(), gradient.end(), T{});
    if (!gradient.empty()) gradient.front() = nan<T>();
    comm.all_reduce(host{}, gradient, reduction::sum);
    if (!gradient.empty()) any_failed<T>(comm, true);
  }

 private:
  template <class T>
  using bits = std::conditional_t<std::same_as<T, float>, std::uint32_t, std::uint64_t>;

  /// The bits of infinity; a NaN has more. Bits, as -ffinite-math-only does not optimise them away.
  template <class T>
  static constexpr bits<T> infinity = std::same_as<T, float> ? bits<T>{infinite_key} : bits<T>{0x7FF} << 52;

  template <class T>
  [[nodiscard]] static constexpr T nan() noexcept {
    return gradsieve::bit_cast<T>(infinity<T> | infinity<T> >> 1);
  }

  template <class T>
  [[nodiscard]] static constexpr bool is_nan(T x) noexcept {
    static_assert(sizeof(T) == sizeof(bits<T>), "the gradient is of float or double");
    return (gradsieve::bit_cast<bits<T>>(x) & (~bits<T>{0} >> 1)) > infinity<T>;
  }

  template <class T, class Comm>
  static bool any_failed(Comm const& comm, bool mine) {
    T failed = mine ? 1 : 0;
    comm.all_reduce(host{}, std::span{&failed, 1}, reduction::max);
    return failed > 0;
  }
};

}  // namespace gradsieve
