// A compressor whose recipe is chosen by name at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/report.hpp>

#include "../../communicator.hpp"
#include "../../recipes.hpp"
#include "any_codec.hpp"

namespace example {

/// What NaN and infinity in a gradient do: count as zero, make the exchange throw, or come out as NaN on every rank.
enum class bad_values { skip, fail, propagate };

/// A recipe by name and the numbers that go with it.
struct compression {
  named_policies policies;
  any_codec codec;
  double density = 0.01;
  std::uint64_t warmup = 0;  ///< steps over which the density falls from 0.25
  names passthrough;         ///< patterns of layers that pass through
  bad_values on_non_finite = bad_values::skip;
};

/// gs::compressor in a space, without its recipe's type; see there.
template <class Space>
class any_compressor {
 public:
  virtual ~any_compressor() = default;
  virtual void exchange(communicator_of<Space> const& comm, std::span<float> gradient) = 0;
  virtual void exchange(communicator_of<Space> const& comm, std::span<gs::float16> gradient) = 0;
  virtual void exchange(communicator_of<Space> const& comm, std::span<gs::bfloat16> gradient) = 0;
  virtual gs::step_report report() = 0;  ///< of the last exchange; on a device this waits for it
  virtual void discard_step() = 0;
  virtual void rescale(float factor) = 0;
  virtual double residual_norm() = 0;
  virtual std::vector<std::byte> state() = 0;
  virtual void restore(std::span<std::byte const> bytes) = 0;
  virtual void absorb(std::span<std::byte const> bytes) = 0;
  [[nodiscard]] virtual gs::layout const& layers() const = 0;
};

/// Policies and a codec by '+', in any order: "laplacian+deft+bf16". What is left open: radix, whole (layerwise with
/// adacomp), error_feedback, and packed with automatic indices and fp32 (with adacomp binned). For a device, where
/// messages have a fixed size: packed with fixed_width indices and fp32, and with deft and cyclic coo.
/// @throws usage_error; std::invalid_argument for numbers outside their limits.
[[nodiscard]] compression parse_compression(std::string const& recipe, policy_defaults const& open,
                                            bool on_device = false);

/// @throws what gs::compressor does.
[[nodiscard]] std::unique_ptr<any_compressor<gs::host>> make_compressor(gs::host where, compression const& chosen,
                                                                        gs::layout const& layers);

}  // namespace example
