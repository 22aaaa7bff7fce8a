// The exchange of sharded models (FSDP): every rank has a whole gradient and wants the mean of its shard alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/process.hpp>

#include "bucket_exchange.hpp"
#include "gradient_values.hpp"

namespace example {

/// Units of one sharded model: parameters whose gradients come as one flat tensor, unit by unit, in an order that is
/// the same on all ranks. A unit is cut into pieces, each the part of a parameter that belongs to one rank's shard.
/// What is kept belongs to pieces, so that a unit's gradient may come in any step or not.
/// threads: any, one call at a time.
class shard_hook {
 public:
  /// `pieces`: of all units, one after the other, with unique names. `counts`: how many each unit has.
  /// @throws std::invalid_argument if there are not so many; as bucket_exchange.
  shard_hook(peers_of<gs::host> peers, gs::layout const& pieces, std::vector<std::size_t> const& counts, int threads,
             compression chosen)
      : exchange_{gs::host{.threads = threads}, std::move(peers), pieces, std::move(chosen)},
        seen_(counts.size(), false) {
    std::size_t next = 0;
    for (auto const count : counts) {
      units_.emplace_back(count);
      std::iota(units_.back().begin(), units_.back().end(), next);
      next += count;
    }
    if (next != pieces.count())
      throw std::invalid_argument("gradsieve: the units have " + std::to_string(next) + " pieces, the layout " +
                                  std::to_string(pieces.count()));
  }

  /// Replaces a unit's gradient by what all ranks' exchange leaves here: with shards the mean in this rank's own, and
  /// nothing of use elsewhere. The first unit after end_step(), and one that comes again, begin a step. Waits for the
  /// other ranks.
  /// @throws as bucket_exchange::exchange(); std::invalid_argument for a gradient that is not contiguous in host
  /// memory; gs::communication_error in a child of fork().
  void exchange(std::size_t unit, at::Tensor const& gradient) {
    if (process_ != gs::process_id())
      throw gs::communication_error("gradsieve: this process was forked from the one that registered the hook, whose "
                                    "process group is in that one");
    std::scoped_lock const lock{mutex_};
    auto const& members = units_.at(unit);
    bool const begins = seen_[unit] || !begun_;
    if (begins) seen_.assign(seen_.size(), false);
    seen_[unit] = begun_ = true;
    with_values(gradient, [&](auto values) { exchange_.exchange(begins, values, members); });
  }

  /// What comes next belongs to another step.
  void end_step() {
    std::scoped_lock const lock{mutex_};
    begun_ = false;
  }

  /// body(bucket_exchange) when no exchange is under way.
  /// @throws gs::communication_error in a child that was forked while one was.
  template <class Body>
  decltype(auto) between_steps(Body const& body) {
    std::unique_lock lock{mutex_, std::defer_lock};
    if (process_ == gs::process_id())
      lock.lock();
    else if (!lock.try_lock())
      throw gs::communication_error("gradsieve: this process was forked while a unit was exchanged");
    return body(exchange_);
  }

 private:
  bucket_exchange<gs::host> exchange_;
  std::vector<std::vector<std::size_t>> units_;
  std::vector<bool> seen_;  // in this step
  bool begun_ = false;
  std::int64_t process_ = gs::process_id();
  std::mutex mutex_;
};

}  // namespace example
