// Named ranges in torch's profiler, from a thread that is not the backward pass's.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#if defined(GRADSIEVE_TORCH_CUDA)
#include <nvtx3/nvToolsExt.h>
#endif

namespace example {

/// Who listens to a thread's ranges: torch.profiler and the like, which torch keeps by thread. Nothing else of the
/// thread's state goes along, such as dispatch modes of Python's. Cost: a copy of a few pointers.
class listeners {
 public:
  /// Those of this thread.
  [[nodiscard]] static listeners here() {
    return {at::get_record_function_tls_(), c10::ThreadLocalDebugInfo::current()};
  }
  /// Makes them this thread's.
  void enter() const {
    at::set_record_function_tls_(callbacks_);
    c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(state_);
  }

 private:
  listeners(at::RecordFunctionTLS const& callbacks, std::shared_ptr<c10::ThreadLocalDebugInfo> state)
      : callbacks_{callbacks}, state_{std::move(state)} {}

  at::RecordFunctionTLS callbacks_;
  std::shared_ptr<c10::ThreadLocalDebugInfo> state_;
};

/// While it lives, they are this thread's.
class listening {
 public:
  explicit listening(listeners const& to) : before_{listeners::here()} { to.enter(); }
  listening(listening const&) = delete;
  listening& operator=(listening const&) = delete;
  ~listening() { before_.enter(); }

 private:
  listeners before_;
};

/// The name of a bucket's range.
[[nodiscard]] inline std::string bucket_range(std::size_t index) {
  return "gradsieve: bucket " + std::to_string(index);
}

/// From construction to destruction a range of this name, as record_function makes one in Python; with CUDA an NVTX
/// range too, around what enqueues the work.
class named_range {
 public:
  explicit named_range(std::string name) : name_{std::move(name)}, range_{at::RecordScope::USER_SCOPE} {
    if (range_.isActive()) range_.before(name_.c_str());
#if defined(GRADSIEVE_TORCH_CUDA)
    nvtxRangePushA(name_.c_str());
#endif
  }
  named_range(named_range const&) = delete;
  named_range& operator=(named_range const&) = delete;
  ~named_range() {
#if defined(GRADSIEVE_TORCH_CUDA)
    nvtxRangePop();
#endif
  }

 private:
  std::string name_;
  at::RecordFunction range_;  // of which older torch keeps the name's address
};

}  // namespace example
