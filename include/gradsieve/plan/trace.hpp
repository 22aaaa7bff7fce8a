// A training step as planners see it: when each gradient is ready, and its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// One gradient tensor: its size and the time to compute it. 0 bytes are allowed, as of layers without parameters.
struct traced_layer {
  std::string name;                 ///< a name for display
  std::uint64_t bytes = 0;          ///< of its gradient, as it is exchanged
  double backward = 0;              ///< seconds from the previous gradient's arrival to its own
  double forward = 0;               ///< seconds of its forward pass
  std::uint32_t dtype = 0;          ///< layers of different numbers are merged only with merge_constraints::mix_dtypes
  std::uint32_t element_bytes = 4;  ///< of one of its elements: 4, or 2 for half precision, 8 for double

  /// Number of elements of its gradient.
  [[nodiscard]] std::uint64_t elements() const noexcept { return bytes / element_bytes; }
  friend bool operator==(traced_layer const&, traced_layer const&) = default;
};

/// The layers of one step in **ready order**: the first is the one whose gradient is ready first, the network's last
/// layer. All times are in seconds from the start of the backward pass.
class trace {
 public:
  /// The bytes of all layers stay below this limit, so that a double holds every sum exactly.
  static constexpr std::uint64_t limit = std::uint64_t{1} << 53;

  /// No layers.
  trace() = default;

  /// These layers, in ready order. @throws invalid_argument, naming the layer and the value, if a time is negative, NaN
  /// or infinite, if their sum is not finite, if the bytes sum to 2^53 or more, or if an element has no byte or more
  /// than 16.
  trace(std::initializer_list<traced_layer> layers) : trace(std::vector<traced_layer>(layers)) {}
  /// As above, with a name for display. @throws invalid_argument as above.
  explicit trace(std::vector<traced_layer> layers, std::string name = {})
      : name_{std::move(name)}, layers_{std::move(layers)} {
    ready_.reserve(layers_.size());
    for (auto const& each : layers_) {
      auto const what = [&each](char const* time) {
        return std::string{time} + " seconds of layer '" + each.name + "'";
      };
      require_between(what("backward"), each.backward, 0, longest);
      require_between(what("forward"), each.forward, 0, longest);
      require_between("bytes of an element of layer '" + each.name + "'", each.element_bytes, 1, 16);
      if (each.bytes >= limit - bytes_)
        throw invalid_argument("gradsieve: trace reaches 2^53 bytes at layer '" + each.name + "' (" +
                               std::to_string(each.bytes) + " bytes)");
      bytes_ += each.bytes;
      forward_ += each.forward;
      ready_.push_back(backward() + each.backward);
    }
    require_between("seconds of all layers", backward() + forward_, 0, longest);
  }

  [[nodiscard]] std::string const& name() const noexcept { return name_; }     ///< empty: none
  [[nodiscard]] std::size_t count() const noexcept { return layers_.size(); }  ///< number of layers
  /// A layer. @pre i < count()
  [[nodiscard]] traced_layer const& operator[](std::size_t i) const noexcept { return layers_[i]; }
  [[nodiscard]] std::vector<traced_layer> const& layers() const noexcept { return layers_; }  ///< all layers
  [[nodiscard]] auto begin() const noexcept { return layers_.begin(); }                       ///< the first layer
  [[nodiscard]] auto end() const noexcept { return layers_.end(); }                           ///< behind the last layer

  /// Bytes of all gradients.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Seconds of the forward pass.
  [[nodiscard]] double forward() const noexcept { return forward_; }
  /// Seconds of the backward pass.
  [[nodiscard]] double backward() const noexcept { return ready_.empty() ? 0 : ready_.back(); }
  /// Seconds of both passes.
  [[nodiscard]] double compute() const noexcept { return forward() + backward(); }
  /// Time at which the gradient of layer i is ready, in seconds from the start of the backward pass. Never decreases.
  [[nodiscard]] double ready(std::size_t i) const noexcept { return ready_[i]; }

  /// The same layers with other totals: all times of a pass are multiplied by one factor. @throws invalid_argument
  /// unless both totals are finite and not negative, or for a positive total of a pass that takes no time.
  [[nodiscard]] trace scaled_to(double backward_seconds, double forward_seconds) const {
    auto const factor = [](char const* what, double wanted, double present) {
      require_between(what, wanted, 0, longest);
      if (wanted > 0 && present == 0)
        throw invalid_argument("gradsieve: " + std::string{what} + " are 0 in this trace and cannot be scaled");
      return present == 0 ? 0 : wanted / present;
    };
    double const slower_backward = factor("backward seconds", backward_seconds, backward());
    double const slower_forward = factor("forward seconds", forward_seconds, forward());
    auto scaled = layers_;
    for (auto& each : scaled) {
      each.backward *= slower_backward;
      each.forward *= slower_forward;
    }
    return trace{std::move(scaled), name_};
  }

  /// True if name and layers are equal.
  friend bool operator==(trace const& a, trace const& b) { return a.name_ == b.name_ && a.layers_ == b.layers_; }

 private:
  static constexpr double longest = 1e12;  // seconds; rejects infinity as well

  std::string name_;
  std::vector<traced_layer> layers_;
  std::vector<double> ready_;
  std::uint64_t bytes_ = 0;
  double forward_ = 0;
};

}  // namespace gradsieve
