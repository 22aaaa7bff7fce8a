// A compressor behind virtual functions, for gradients of several formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include <gradsieve/concepts/communicator.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/report.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/skipped_layers.hpp>
#include <gradsieve/host/space.hpp>
#include <gradsieve/run_time/any_communicator.hpp>
#include <gradsieve/run_time/any_policy.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

struct device;            // cuda/device.cuh
struct device_selection;  // cuda/selection_stage.cuh
class device_report;      // cuda/report.cuh
template <communicator Inside, communicator Across>
struct two_level;  // two_level.hpp

/// The ranks of a node, and those with the same position in the other nodes, over any transports: see two_level.
template <class Space>
using any_nodes = two_level<any_communicator_of<Space>, any_communicator_of<Space>>;

namespace detail {

template <class Gradient>
auto checked_device_gradient(Gradient& gradient, layout const& layers);  // cuda/pieces.cuh

template <class Space>
struct step_results;
template <>
struct step_results<host> {
  using selection = host_selection;
  using report = step_report;
};
template <>
struct step_results<device> {
  using selection = device_selection;
  using report = device_report;
};

/// A compressor's members besides its steps; with nodes, those of this rank's part.
template <class Space>
struct around_steps {
  virtual std::span<float const> residual() = 0;
  virtual std::uint64_t step() const = 0;
  virtual std::uint64_t accumulated() const = 0;
  virtual Space where() const = 0;
  virtual typename step_results<Space>::report report() const = 0;
  virtual void discard_step() = 0;
  virtual void rescale(float) = 0;
  virtual double residual_norm() = 0;
  virtual std::vector<std::byte> state() = 0;
  virtual void restore(std::span<std::byte const>) = 0;
  virtual void absorb(std::span<std::byte const>) = 0;

 protected:
  ~around_steps() = default;
};

/// A compressor for gradients of these formats: either for all ranks alike, or for nodes. Each refuses the other's
/// ranks.
template <class Space, class Formats>
struct any_step;
template <class Space, class... T>
struct any_step<Space, type_list<T...>> {
  using gradient = std::variant<gradient_ref<T>...>;
  using constant_gradient = std::variant<gradient_ref<T const>...>;
  using selection = typename step_results<Space>::selection;
  using report_type = typename step_results<Space>::report;
  using ranks = any_communicator_of<Space>;

  virtual ~any_step() = default;
  virtual void exchange(ranks const&, gradient const&, skipped_layers) { refuse_ranks(); }
  virtual void exchange(any_nodes<Space> const&, gradient const&, skipped_layers) { refuse_nodes(); }
  virtual void fail(ranks const&, gradient const&) { refuse_ranks(); }
  virtual void fail(any_nodes<Space> const&, gradient const&) { refuse_nodes(); }
  virtual void connect(ranks const&) { refuse_ranks(); }
  virtual selection compress(constant_gradient const&, int) { refuse_messages(); }
  virtual applied_update apply(std::span<std::span<std::byte const> const>, gradient const&) { refuse_messages(); }
  virtual std::span<std::byte const> encode(selection const&) { refuse_messages(); }
  virtual around_steps<Space>& around() = 0;
  virtual around_steps<Space> const& around() const = 0;
  virtual step_report read_report() const = 0;  // on a device it waits
  virtual layout const& layers() const = 0;

 private:
  [[noreturn]] static void refuse_messages() {
    throw invalid_argument("gradsieve: with nodes a step is an exchange: messages of one's own are for ranks alike");
  }
  [[noreturn]] static void refuse_ranks() {
    throw invalid_argument("gradsieve: this compressor was made for the nodes of a two_level: exchange with these");
  }
  [[noreturn]] static void refuse_nodes() {
    throw invalid_argument("gradsieve: this compressor was made for ranks that are alike: for nodes hand the two_level "
                           "over at construction");
  }
};

}  // namespace detail
}  // namespace gradsieve
