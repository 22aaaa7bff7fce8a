// The space of this machine's memory and cores.
#pragma once

#include <concepts>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/simd.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

class host_workspace;

namespace detail {

template <class Recipe>
class host_step;
class host_node_exchange;  // host/node_exchange.hpp
template <class T>
class host_parameters;  // host/parameters.hpp
class host_moments;     // host/moments.hpp

}  // namespace detail

/// The space of this machine's memory and cores. Results depend on neither field.
struct host {
  /// @cond internal
  using workspace = host_workspace;
  template <class Recipe>
  using step = detail::host_step<Recipe>;
  using node_exchange = detail::host_node_exchange;
  template <class T>
  using parameters = detail::host_parameters<T>;
  using moments = detail::host_moments;
  template <class>
  using selector_view = host_workspace;
  static constexpr bool stream_ordered = false;
  template <class Stored>
  static constexpr bool keeps = std::same_as<Stored, float>;
  template <class>
  static constexpr bool encodes_with = true;
  template <class Exchange, class Codec>
  static constexpr bool exchanges_with = host_exchange<Exchange, host_workspace, Codec>;
  template <class Codec>
  static constexpr bool sums_with = separable_codec<Codec>;
  /// @endcond

  int threads = 0;                 ///< of a compressor; 0: as many as OpenMP gives, one without OpenMP
  simd simd_limit = simd::avx512;  ///< the best vector instructions to use, up to those that the processor has
  friend bool operator==(host const&, host const&) = default;
};

}  // namespace gradsieve
