// The policies of one compressor, named.
#pragma once

#include <cstdint>
#include <ostream>

#include <gradsieve/codec/coo.hpp>
#include <gradsieve/dense_layers.hpp>
#include <gradsieve/density.hpp>
#include <gradsieve/exchange/gather.hpp>
#include <gradsieve/exchange/index_union.hpp>
#include <gradsieve/exchange/leader.hpp>
#include <gradsieve/fields.hpp>
#include <gradsieve/fingerprint.hpp>
#include <gradsieve/partitioner/whole.hpp>
#include <gradsieve/residual/error_feedback.hpp>
#include <gradsieve/selector/radix.hpp>

namespace gradsieve {

/// What a gradient element that is NaN or infinite does to its step.
enum class non_finite {
  skip,  ///< counts as zero, and is counted in the report
  fail   ///< the step throws non_finite_gradient, on every rank, before anything changes; costs a reading pass
};

/// Name the policies you change; the others keep their defaults:
/// recipe{.density = 0.001, .selector = laplacian{}, .partitioner = deft{}}.
template <class Selector = radix, class Partitioner = whole, class Residual = error_feedback, class Codec = coo,
          class Exchange = typename Partitioner::default_exchange>
struct recipe {
  density_schedule density = 0.01;
  Selector selector{};
  Partitioner partitioner{};
  Residual residual{};
  Codec codec{};
  Exchange exchange{};
  dense_layers dense{};
  non_finite on_non_finite = non_finite::skip;

  friend bool operator==(recipe const&, recipe const&) = default;

  friend std::ostream& operator<<(std::ostream& out, recipe const& it) {
    out << "density " << it.density << ", ";
    print(out, it.selector);
    print(out << ", ", it.partitioner);
    print(out << ", ", it.residual);
    print(out << ", ", it.codec);
    print(out << ", ", it.exchange);
    return out << ", " << it.dense << (it.on_non_finite == non_finite::fail ? ", fails on non-finite" : "");
  }

  /// @throws invalid_argument if the density leaves [0, 1], or a policy's check() says so.
  void check() const {
    gradsieve::check(density);
    gradsieve::check(selector);
    gradsieve::check(partitioner);
    gradsieve::check(residual);
    gradsieve::check(codec);
    gradsieve::check(exchange);
  }

  /// A number made of all policies' names and fields, the same on every machine: what ranks compare at first contact.
  [[nodiscard]] std::uint64_t hash() const {
    fingerprint all;
    gradsieve::add_to(all, density);
    gradsieve::add_to(all, selector);
    gradsieve::add_to(all, partitioner);
    gradsieve::add_to(all, residual);
    gradsieve::add_to(all, codec);
    gradsieve::add_to(all, exchange);
    gradsieve::add_to(all, dense);
    gradsieve::add_to(all, on_non_finite);
    return all.value();
  }
};

}  // namespace gradsieve
