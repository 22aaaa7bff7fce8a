// Sums on a device in the format of a value codec that is chosen at run time.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <variant>

#include <gradsieve/cuda.cuh>
#include <gradsieve/run_time/any_codec.hpp>
#include <gradsieve/run_time/any_policy.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// @cond internal
namespace detail {

/// Whether sums in this codec's format are formed on a device.
template <class Values>
struct sums_run_there : std::bool_constant<requires { sizeof(device_value_sum<Values>); }> {};

/// The sums of each of these codecs.
template <class List>
struct device_sums;
template <class... Values>
struct device_sums<type_list<Values...>> {
  using type = std::variant<device_value_sum<Values>...>;
};

}  // namespace detail

/// Memory: that of the sum that was chosen. @pre its values are summed on a device, see detail::check_device()
template <class... Types>
class device_value_sum<any_summed_values<Types...>> {
 public:
  void reserve(cuda_workspace const& work, any_summed_values<Types...> const& how, std::uint64_t most, bool flagged,
               int world) {
    std::visit(
        [&]<class Values>(Values const& values) {
          if constexpr (detail::sums_run_there<Values>::value)
            chosen_.template emplace<device_value_sum<Values>>().reserve(work, values, most, flagged, world);
        },
        how.chosen);
  }

  template <class Comm>
  sum_traffic run(Comm const& comm, cuda_workspace const& work, cuda_kernels::entry_list const& own,
                  std::span<float> sums) const {
    return std::visit([&](auto const& it) { return it.run(comm, work, own, sums); }, chosen_);
  }

 private:
  typename detail::device_sums<detail::those_of<detail::sums_run_there, type_list<Types...>>>::type chosen_;
};

template <class Indices, class Values, class Summed>
struct summed_values<any_codec<Indices, Values, Summed>> {
  using type = Summed;
  [[nodiscard]] static type of(any_codec<Indices, Values, Summed> const& how) { return how.values; }
};
/// @endcond

}  // namespace gradsieve
