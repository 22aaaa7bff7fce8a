// Work at the end of a backward pass.
#pragma once

#include <functional>
#include <utility>

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>

namespace example {

/// body() when the backward pass that calls this is over, behind what others, such as DDP, have asked for there until
/// then. What it throws, backward() throws. False, and no call, outside of a backward pass.
inline bool at_end_of_backward(std::function<void()> body) {
  auto& engine = torch::autograd::Engine::get_default_engine();
  try {
    engine.queue_callback([&engine, body = std::move(body)] { engine.queue_callback(body); });
    return true;
  } catch (c10::Error const&) {
    return false;
  }
}

}  // namespace example
