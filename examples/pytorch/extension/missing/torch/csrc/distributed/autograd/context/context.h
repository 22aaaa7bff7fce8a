// Stands in for a header that c10d/reducer.hpp includes and that Debian's libtorch-dev does not have. It is on the
// include path only where torch's own is absent. The reducer holds these behind pointers; nothing here uses them.
#pragma once

#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

namespace torch::distributed::autograd {

struct DistAutogradContext {
  using GradCallback = std::function<bool(at::Tensor&)>;
};
using ContextPtr = std::shared_ptr<DistAutogradContext>;

}  // namespace torch::distributed::autograd
