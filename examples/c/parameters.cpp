// The C interface to exchanged parameters and second moments.
#if defined(GRADSIEVE_C_CUDA)  // before what is compiled for a device
#include <gradsieve/parameters.cuh>
#endif

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/parameters.hpp>

#include "objects.hpp"

using namespace c_interface;

namespace c_interface {

template <class Space>
struct parameters_in {
  gs::parameter_exchange<gs::any_compressor<menu_in<Space>, Space>> owner;
  ranks_in<Space> ranks{};
};
template <class Space>
struct moments_in {
  gs::second_moments<Space> owner;
  ranks_in<Space> ranks{};
};

}  // namespace c_interface

struct gradsieve_parameters {
  c_interface::pool memory;
  c_interface::in_a_space<c_interface::parameters_in> in;
  mutable std::atomic_flag busy{};
};

struct gradsieve_moments {
  c_interface::pool memory;
  c_interface::in_a_space<c_interface::moments_in> in;
  mutable std::atomic_flag busy{};
};

namespace {

/// A caller's parameters or gradient, once they are known to be there.
template <class T>
std::span<T> values_of(T* values, std::size_t size, char const* what) {
  need(values != nullptr || size == 0, what);
  return {values, size};
}

void need_size(std::size_t size, std::uint64_t n) {
  if (size != n)
    throw gs::invalid_argument("gradsieve: " + std::to_string(size) + " values, the layers have " + std::to_string(n));
}

/// Exchanges the changes of `own` by a compressor that was made, and ends it.
gradsieve_status create(gradsieve_status status, gradsieve_compressor* with, float const* own, std::size_t size,
                        float weight, float momentum, gradsieve_parameters** made) {
  if (made != nullptr) *made = nullptr;
  std::unique_ptr<gradsieve_compressor> const holds{with};
  if (status != GRADSIEVE_OK) return status;
  return guarded([&] {
    need(made != nullptr, "made");
    auto const first = values_of(own, size, "own");
    gs::parameter_options options{.momentum = momentum};
    if (!(weight < 0)) options.weight = weight;
    std::visit(
        [&]<class Space>(compressor_in<Space>& by) {
          parameters_in<Space> one{{std::move(by.owner), first, options}};
          *made = new gradsieve_parameters{std::move(with->memory), std::move(one)};
        },
        with->in);
  });
}

template <class Object, class Body>
gradsieve_status with_parameters(Object* which, Body const& body) noexcept {
  return with(which, "parameters", body);
}
template <class Object, class Body>
gradsieve_status with_moments(Object* which, Body const& body) noexcept {
  return with(which, "moments", body);
}

/// in(make) calls make(space, pool).
template <class In>
gradsieve_status create_moments(gradsieve_layer const* layers, std::size_t count, double density, std::uint32_t every,
                                gradsieve_moments** made, In const& in) {
  return guarded([&] {
    need(made != nullptr, "made");
    *made = nullptr;
    gs::moment_options const options{.density = density, .every = every};
    in([&]<class Space>(Space const& where, pool memory) {
      moments_in<Space> one{{where, layout_of(layers, nullptr, count), options}};
      *made = new gradsieve_moments{std::move(memory), std::move(one)};
    });
  });
}

}  // namespace

extern "C" {

gradsieve_status gradsieve_create_parameters(char const* recipe, gradsieve_layer const* layers,
                                             std::uint32_t const* dimensions, std::size_t count, float const* own,
                                             std::size_t size, float weight, gradsieve_parameters** made) {
  return gradsieve_create_parameters_with_momentum(recipe, layers, dimensions, count, own, size, weight, 0, made);
}

gradsieve_status gradsieve_create_parameters_with_momentum(char const* recipe, gradsieve_layer const* layers,
                                                           std::uint32_t const* dimensions, std::size_t count,
                                                           float const* own, std::size_t size, float weight,
                                                           float momentum, gradsieve_parameters** made) {
  gradsieve_compressor* with = nullptr;
  auto const status = gradsieve_create_with_dimensions(recipe, layers, dimensions, count, &with);
  return create(status, with, own, size, weight, momentum, made);
}

gradsieve_status gradsieve_create_parameters_on_device(char const* recipe, gradsieve_layer const* layers,
                                                       std::uint32_t const* dimensions, std::size_t count,
                                                       float const* own, std::size_t size, float weight,
                                                       float momentum, gradsieve_device const* where,
                                                       gradsieve_parameters** made) {
  gradsieve_compressor* with = nullptr;
  auto const status = gradsieve_create_on_device(recipe, layers, dimensions, count, where, &with);
  return create(status, with, own, size, weight, momentum, made);
}

void gradsieve_destroy_parameters(gradsieve_parameters* which) { delete which; }

gradsieve_status gradsieve_exchange_parameters(gradsieve_parameters* which, gradsieve_communicator const* comm,
                                               float* own, std::size_t size, unsigned char const* skipped) {
  return gradsieve_exchange_weighted_parameters(which, comm, own, size, skipped, 1.0f);
}

gradsieve_status gradsieve_exchange_weighted_parameters(gradsieve_parameters* which, gradsieve_communicator const* comm,
                                                        float* own, std::size_t size, unsigned char const* skipped,
                                                        float factor) {
  return with_parameters(which, [&](auto& by) {
    auto const values = values_of(own, size, "own");
    by.ranks.how->connect(comm);
    std::span const by_layer{skipped, skipped == nullptr ? 0 : by.owner.compressor().layers().count()};
    by.owner.exchange_parameters(by.ranks.comm, values, by_layer, factor);
  });
}

gradsieve_status gradsieve_common(gradsieve_parameters const* which, float const** common) {
  return with_parameters(which, [&](auto& by) {
    need(common != nullptr, "common");
    *common = by.owner.common().data();
  });
}

gradsieve_status gradsieve_get_parameters_report(gradsieve_parameters const* which, gradsieve_report* to) {
  return with_parameters(which, [&](auto& by) {
    need(to != nullptr, "report");
    *to = report_of(by.owner.report());
  });
}

gradsieve_status gradsieve_rescale_parameters(gradsieve_parameters* which, float factor, float* own, std::size_t size) {
  return with_parameters(which, [&](auto& by) {
    by.owner.rescale(factor, values_of(own, size, "own"));
  });
}

gradsieve_status gradsieve_absorb_parameters(gradsieve_parameters* which, void const* state, std::size_t state_size,
                                             float* own, std::size_t size) {
  return with_parameters(which, [&](auto& by) {
    need(state != nullptr || state_size == 0, "state");
    by.owner.absorb(bytes_of(state, state_size), values_of(own, size, "own"));
  });
}

gradsieve_status gradsieve_join_parameters(gradsieve_parameters* which, void const* state, std::size_t state_size,
                                           float* own, std::size_t size) {
  return with_parameters(which, [&](auto& by) {
    need(state != nullptr || state_size == 0, "state");
    by.owner.join(bytes_of(state, state_size), values_of(own, size, "own"));
  });
}

gradsieve_status gradsieve_save_parameters(gradsieve_parameters* which, void* to, std::size_t* size) {
  return save(to, size, [&] {
    auto const used = use(which, "parameters");
    return std::visit([](auto& by) { return by.owner.state(); }, which->in);
  });
}

gradsieve_status gradsieve_load_parameters(gradsieve_parameters* which, void const* state, std::size_t state_size,
                                           float* own, std::size_t size) {
  return with_parameters(which, [&](auto& by) {
    need(state != nullptr || state_size == 0, "state");
    by.owner.restore(bytes_of(state, state_size), values_of(own, size, "own"));
  });
}

gradsieve_status gradsieve_create_moments(gradsieve_layer const* layers, std::size_t count, double density,
                                          std::uint32_t every, gradsieve_moments** made) {
  return create_moments(layers, count, density, every, made, [](auto const& make) { make(gs::host{}, pool{}); });
}

gradsieve_status gradsieve_create_moments_on_device(gradsieve_layer const* layers, std::size_t count, double density,
                                                    std::uint32_t every, gradsieve_device const* where,
                                                    gradsieve_moments** made) {
  return create_moments(layers, count, density, every, made, [&](auto const& make) { on_device(where, make); });
}

void gradsieve_destroy_moments(gradsieve_moments* which) { delete which; }

gradsieve_status gradsieve_measure_moments(gradsieve_moments* which, gradsieve_communicator const* comm,
                                           float const* gradient, std::size_t size) {
  return with_moments(which, [&](auto& by) {
    auto const values = values_of(gradient, size, "gradient");
    by.ranks.how->connect(comm);
    by.owner.measure(by.ranks.comm, values);
  });
}

gradsieve_status gradsieve_moment_factors(gradsieve_moments const* which, float const** factors) {
  return with_moments(which, [&](auto& by) {
    need(factors != nullptr, "factors");
    *factors = by.owner.factors().data();
  });
}

gradsieve_status gradsieve_clip(gradsieve_moments const* which, float* gradient, std::size_t size, float most,
                                float* norm) {
  return with_moments(which, [&](auto& by) {
    auto const values = values_of(gradient, size, "gradient");
    need_size(size, by.owner.layers().size());
    by.owner.clip(values, most);
    if (norm != nullptr) *norm = by.owner.norm();
  });
}

gradsieve_status gradsieve_save_moments(gradsieve_moments const* which, void* to, std::size_t* size) {
  return save(to, size, [&] {
    auto const used = use(which, "moments");
    return std::visit([](auto& by) { return by.owner.state(); }, which->in);
  });
}

gradsieve_status gradsieve_load_moments(gradsieve_moments* which, void const* state, std::size_t size) {
  return with_moments(which, [&](auto& by) {
    need(state != nullptr || size == 0, "state");
    by.owner.restore(bytes_of(state, size));
  });
}

}  // extern "C"
