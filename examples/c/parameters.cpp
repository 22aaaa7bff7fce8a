// The C interface to exchanged parameters and second moments.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "objects.hpp"

using namespace c_interface;

struct gradsieve_parameters {
  gs::parameter_exchange<gs::any_compressor<>> owner;
  c_interface::ranks ranks{};
  mutable std::atomic_flag busy{};
};

struct gradsieve_moments {
  gs::second_moments<gs::host> owner;
  c_interface::ranks ranks{};
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
  if (made != nullptr) *made = nullptr;
  gradsieve_compressor* with = nullptr;
  auto const status = gradsieve_create_with_dimensions(recipe, layers, dimensions, count, &with);
  std::unique_ptr<gradsieve_compressor> const holds{with};
  if (status != GRADSIEVE_OK) return status;
  return guarded([&] {
    need(made != nullptr, "made");
    auto const first = values_of(own, size, "own");
    gs::parameter_options options{.momentum = momentum};
    if (!(weight < 0)) options.weight = weight;
    *made = new gradsieve_parameters{{std::move(with->owner), first, options}};
  });
}

void gradsieve_destroy_parameters(gradsieve_parameters* which) { delete which; }

gradsieve_status gradsieve_exchange_parameters(gradsieve_parameters* which, gradsieve_communicator const* comm,
                                               float* own, std::size_t size, unsigned char const* skipped) {
  return gradsieve_exchange_weighted_parameters(which, comm, own, size, skipped, 1.0f);
}

gradsieve_status gradsieve_exchange_weighted_parameters(gradsieve_parameters* which, gradsieve_communicator const* comm,
                                                        float* own, std::size_t size, unsigned char const* skipped,
                                                        float factor) {
  return guarded([&] {
    auto const used = use(which, "parameters");
    auto const values = values_of(own, size, "own");
    which->ranks.how->connect(comm);
    std::span const by_layer{skipped, skipped == nullptr ? 0 : which->owner.compressor().layers().count()};
    which->owner.exchange_parameters(which->ranks.comm, values, by_layer, factor);
  });
}

gradsieve_status gradsieve_common(gradsieve_parameters const* which, float const** common) {
  return guarded([&] {
    auto const used = use(which, "parameters");
    need(common != nullptr, "common");
    *common = which->owner.common().data();
  });
}

gradsieve_status gradsieve_get_parameters_report(gradsieve_parameters const* which, gradsieve_report* to) {
  return guarded([&] {
    auto const used = use(which, "parameters");
    need(to != nullptr, "report");
    *to = report_of(which->owner.report());
  });
}

gradsieve_status gradsieve_rescale_parameters(gradsieve_parameters* which, float factor, float* own, std::size_t size) {
  return guarded([&] {
    auto const used = use(which, "parameters");
    which->owner.rescale(factor, values_of(own, size, "own"));
  });
}

gradsieve_status gradsieve_absorb_parameters(gradsieve_parameters* which, void const* state, std::size_t state_size,
                                             float* own, std::size_t size) {
  return guarded([&] {
    auto const used = use(which, "parameters");
    need(state != nullptr || state_size == 0, "state");
    which->owner.absorb(bytes_of(state, state_size), values_of(own, size, "own"));
  });
}

gradsieve_status gradsieve_join_parameters(gradsieve_parameters* which, void const* state, std::size_t state_size,
                                           float* own, std::size_t size) {
  return guarded([&] {
    auto const used = use(which, "parameters");
    need(state != nullptr || state_size == 0, "state");
    which->owner.join(bytes_of(state, state_size), values_of(own, size, "own"));
  });
}

gradsieve_status gradsieve_save_parameters(gradsieve_parameters* which, void* to, std::size_t* size) {
  return save(to, size, [&] {
    auto const used = use(which, "parameters");
    return which->owner.state();
  });
}

gradsieve_status gradsieve_load_parameters(gradsieve_parameters* which, void const* state, std::size_t state_size,
                                           float* own, std::size_t size) {
  return guarded([&] {
    auto const used = use(which, "parameters");
    need(state != nullptr || state_size == 0, "state");
    which->owner.restore(bytes_of(state, state_size), values_of(own, size, "own"));
  });
}

gradsieve_status gradsieve_create_moments(gradsieve_layer const* layers, std::size_t count, double density,
                                          std::uint32_t every, gradsieve_moments** made) {
  return guarded([&] {
    need(made != nullptr, "made");
    *made = nullptr;
    gs::moment_options const options{.density = density, .every = every};
    *made = new gradsieve_moments{{gs::host{}, layout_of(layers, nullptr, count), options}};
  });
}

void gradsieve_destroy_moments(gradsieve_moments* which) { delete which; }

gradsieve_status gradsieve_measure_moments(gradsieve_moments* which, gradsieve_communicator const* comm,
                                           float const* gradient, std::size_t size) {
  return guarded([&] {
    auto const used = use(which, "moments");
    auto const values = values_of(gradient, size, "gradient");
    which->ranks.how->connect(comm);
    which->owner.measure(which->ranks.comm, values);
  });
}

gradsieve_status gradsieve_moment_factors(gradsieve_moments const* which, float const** factors) {
  return guarded([&] {
    auto const used = use(which, "moments");
    need(factors != nullptr, "factors");
    *factors = which->owner.factors().data();
  });
}

gradsieve_status gradsieve_clip(gradsieve_moments const* which, float* gradient, std::size_t size, float most,
                                float* norm) {
  return guarded([&] {
    auto const used = use(which, "moments");
    auto const values = values_of(gradient, size, "gradient");
    need_size(size, which->owner.layers().size());
    which->owner.clip(values, most);
    if (norm != nullptr) *norm = which->owner.norm();
  });
}

gradsieve_status gradsieve_save_moments(gradsieve_moments const* which, void* to, std::size_t* size) {
  return save(to, size, [&] {
    auto const used = use(which, "moments");
    return which->owner.state();
  });
}

gradsieve_status gradsieve_load_moments(gradsieve_moments* which, void const* state, std::size_t size) {
  return guarded([&] {
    auto const used = use(which, "moments");
    need(state != nullptr || size == 0, "state");
    which->owner.restore(bytes_of(state, size));
  });
}

}  // extern "C"
