// What a group is exchanged by where nothing is compressed.
#pragma once

#include <span>

#include <gradsieve/concepts.hpp>
#include <gradsieve/report.hpp>
#include <gradsieve/space/host.hpp>

namespace gradsieve {

/// An all-reduce in binary32, and the division by the number of ranks; host memory. Has no state, so that one serves
/// gradients of any size.
struct dense_mean {
  /// Replaces the gradient by its mean over all ranks. Collective. @throws what the transport throws.
  template <communicator Comm>
  step_report exchange(Comm const& comm, std::span<float> gradient) const {
    static_assert(has_all_reduce<Comm, host, float>, "this communicator needs all_reduce for float");
    step_report report;
    report.world = comm.size();
    report.bytes_sent = report.bytes_received = report.bytes_dense = gradient.size_bytes();
    stopwatch watch;
    comm.all_reduce(host{}, gradient, reduction::sum);
    watch.charge(report.seconds.exchange);
    auto const ranks = static_cast<float>(comm.size());
    for (float& value : gradient) value /= ranks;
    watch.charge(report.seconds.apply);
    return report;
  }
};

}  // namespace gradsieve
