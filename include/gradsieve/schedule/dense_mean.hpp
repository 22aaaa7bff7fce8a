// What a group is exchanged by where nothing is compressed.
#pragma once

#include <concepts>
#include <span>

#include <gradsieve/concepts.hpp>
#include <gradsieve/float_environment.hpp>
#include <gradsieve/report.hpp>
#include <gradsieve/space/host.hpp>

namespace gradsieve {

/// An all-reduce in the gradient's own format, float or double, and the division by the number of ranks; host memory.
/// Has no state, so that one serves gradients of any size.
struct dense_mean {
  /// Replaces the gradient by its mean over all ranks. Collective. @throws what the transport throws.
  template <communicator Comm, std::floating_point T>
  GRADSIEVE_PRECISE step_report exchange(Comm const& comm, std::span<T> gradient) const {
    static_assert(has_all_reduce<Comm, host, T>, "this communicator needs all_reduce for the gradient's type");
    float_environment const mode;
    step_report report;
    report.world = comm.size();
    report.bytes_sent = report.bytes_received = report.bytes_dense = gradient.size_bytes();
    report.dense_elements = gradient.size();
    stopwatch watch;
    comm.all_reduce(host{}, gradient, reduction::sum);
    watch.charge(report.seconds.exchange);
    auto const ranks = static_cast<T>(comm.size());
    for (T& value : gradient) value /= ranks;
    watch.charge(report.seconds.apply);
    return report;
  }
};

}  // namespace gradsieve
