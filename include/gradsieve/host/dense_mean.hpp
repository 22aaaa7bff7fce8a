// The exchange of a group without compression.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/float_environment.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/report.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/stopwatch.hpp>
#include <gradsieve/host/workspace.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Dense all-reduce in the gradient's own format, float or double, then a division by the number of ranks; host memory.
/// Stateless; gradients of any size. A rank that fails sends a NaN as its first element; if the first mean is NaN, a
/// second all-reduce of one value tells all ranks if one has failed. The sum is not clamped: it may become infinite.
struct dense_mean {
  /// Replaces the gradient by its mean over all ranks. Collective. @throws what the transport throws;
  /// communication_error if another rank called fail(): the gradient is then not valid.
  template <communicator Comm, std::floating_point T>
  GRADSIEVE_PRECISE step_report exchange(Comm const& comm, std::span<T> gradient) const {
    static_assert(has_all_reduce<Comm, host, T>, "this communicator needs all_reduce for the gradient's type");
    float_environment const mode;
    step_report report;
    report.world = detail::world_of(comm);
    report.bytes_sent = report.bytes_received = report.baseline_bytes = gradient.size_bytes();
    report.passthrough_elements = gradient.size();
    detail::stopwatch watch;
    comm.all_reduce(host{}, gradient, reduction::sum);
    if (!gradient.empty() && is_nan(bits_of(gradient.front()))) {
      report.bytes_sent += sizeof(T);
      report.bytes_received += sizeof(T);
      if (any_failed<T>(comm, false))
        throw communication_error("gradsieve: another rank failed in this step; there is no mean");
    }
    watch.charge(report.seconds.exchange);
    auto const ranks = static_cast<T>(report.world);
    for (T& value : gradient) value = divide(value, ranks);
    watch.charge(report.seconds.apply);
    return report;
  }

  /// Replaces a vector, an array, or pieces of float by the mean. Pieces are copied together and back; that allocates.
  /// @throws invalid_argument for pieces that share memory (the other ranks throw as if this one had failed), and for
  /// pieces given by pointers, as no layout gives their lengths.
  template <communicator Comm, class Gradient>
    requires(!detail::is_gradient_ref<std::remove_cvref_t<Gradient>>)
  step_report exchange(Comm const& comm, Gradient&& gradient) const {
    if constexpr (detail::is_pieces<std::remove_cvref_t<Gradient>>) {
      gradient_ref const all{gradient};
      if (!gradient.data().empty() && gradient.starts().empty())
        throw invalid_argument("gradsieve: dense_mean needs pieces that say how long they are: spans, not pointers");
      std::vector<typename decltype(all)::value_type> flat(all.size());
      try {
        all.check_memory();
      } catch (invalid_argument const&) {
        fail(comm, std::span{flat});
        throw;
      }
      all.read(0, all.size(), flat.data());
      auto const report = exchange(comm, std::span{flat});
      all.write(0, all.size(), flat.data());
      return report;
    } else {
      static_assert(
          requires { std::span{gradient}; }, "a gradient is a vector, an array, a span, or gradsieve::pieces");
      using element = typename decltype(std::span{gradient})::element_type;
      static_assert(std::floating_point<element>, "dense_mean takes a gradient of float or double that can be written");
      return exchange(comm, std::span<element>{gradient});
    }
  }

  /// Joins an exchange() of the other ranks as a failed rank: theirs throws. Overwrites the gradient, of the same size
  /// as theirs. Collective. @throws what the transport throws.
  template <communicator Comm, std::floating_point T>
  void fail(Comm const& comm, std::span<T> gradient) const {
    std::fill(gradient.begin(), gradient.end(), T{});
    if (!gradient.empty()) {
      auto const nan = infinity<T> | infinity<T> >> 1;
      __builtin_memcpy(gradient.data(), &nan, sizeof(T));
    }
    comm.all_reduce(host{}, gradient, reduction::sum);
    if (!gradient.empty()) any_failed<T>(comm, true);
  }

 private:
  template <class T>
  using bits = std::conditional_t<std::same_as<T, float>, std::uint32_t, std::uint64_t>;

  /// The bits of infinity; a NaN has more. NaNs are written and tested as bits in memory, as -ffinite-math-only lets a
  /// compiler assume that no float is one.
  template <class T>
  static constexpr bits<T> infinity = std::same_as<T, float> ? bits<T>{infinite_key} : bits<T>{0x7FF} << 52;

  template <class T>
  [[nodiscard]] static bits<T> bits_of(T const& x) noexcept {
    static_assert(sizeof(T) == sizeof(bits<T>), "the gradient is of float or double");
    bits<T> volatile found = gradsieve::bit_cast<bits<T>>(x);
    return found;
  }
  template <class Bits>
  [[nodiscard]] static constexpr bool is_nan(Bits x) noexcept {
    return (x & (~Bits{0} >> 1)) > (sizeof(Bits) == 4 ? infinity<float> : infinity<double>);
  }

  template <class T, class Comm>
  static bool any_failed(Comm const& comm, bool mine) {
    T failed = mine ? 1 : 0;
    comm.all_reduce(host{}, std::span{&failed, 1}, reduction::max);
    return failed > 0;
  }
};

}  // namespace gradsieve
