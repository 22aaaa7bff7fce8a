// The C interface; recipes are compiled in cmake/compiled/menu.cpp, for a device in device_compressors.cu.
#if defined(GRADSIEVE_C_CUDA)  // before what is compiled for a device
#include <gradsieve/cuda/selection_stage.cuh>
#include <gradsieve/two_level.cuh>
#endif

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/run_time/any_compressor.hpp>

#include "objects.hpp"

using namespace c_interface;

namespace {

/// in(make) calls make(space, pool).
template <class In>
gradsieve_status create(char const* recipe, gradsieve_layer const* layers, std::uint32_t const* dimensions,
                        std::size_t count, gradsieve_compressor** made, In const& in) {
  return guarded([&] {
    need(made != nullptr, "made");
    *made = nullptr;
    need(recipe != nullptr, "recipe");
    in([&]<class Space>(Space const& where, pool memory) {
      compressor_in<Space> one{{where, layout_of(layers, dimensions, count), recipe_in<Space>::parse(recipe)}};
      *made = new gradsieve_compressor{std::move(memory), std::move(one)};
    });
  });
}

template <class In>
gradsieve_status create_nodes(char const* recipe, gradsieve_layer const* layers, std::uint32_t const* dimensions,
                              std::size_t count, gradsieve_communicator const* inside,
                              gradsieve_communicator const* across, gradsieve_compressor** made, In const& in) {
  return guarded([&] {
    need(made != nullptr, "made");
    *made = nullptr;
    need(recipe != nullptr, "recipe");
    in([&]<class Space>(Space const& where, pool memory) {
      ranks_in<Space> of_node, of_place;
      auto const nodes = compressor_in<Space>::nodes(of_node, inside, of_place, across);
      compressor_in<Space> one{
          {where, layout_of(layers, dimensions, count), recipe_in<Space>::parse(recipe), nodes}, of_place, of_node};
      *made = new gradsieve_compressor{std::move(memory), std::move(one)};
    });
  });
}

template <class Compressor, class Body>
gradsieve_status with(Compressor* which, Body const& body) noexcept {
  return c_interface::with(which, "compressor", body);
}

}  // namespace

extern "C" {

int gradsieve_has_devices(void) {
#if defined(GRADSIEVE_C_CUDA)
  return 1;
#else
  return 0;
#endif
}

char const* gradsieve_error(void) { return last_error.c_str(); }

char const* gradsieve_recipe_names(void) {
  try {
    static std::string const names = gs::any_recipe<>::names();
    return names.c_str();
  } catch (...) {
    return "";
  }
}

gradsieve_status gradsieve_create(char const* recipe, gradsieve_layer const* layers, std::size_t count,
                                  gradsieve_compressor** made) {
  return gradsieve_create_with_dimensions(recipe, layers, nullptr, count, made);
}

gradsieve_status gradsieve_create_with_dimensions(char const* recipe, gradsieve_layer const* layers,
                                                  std::uint32_t const* dimensions, std::size_t count,
                                                  gradsieve_compressor** made) {
  return create(recipe, layers, dimensions, count, made,
                [](auto const& make) { make(gs::host{}, pool{}); });
}

gradsieve_status gradsieve_create_nodes(char const* recipe, gradsieve_layer const* layers,
                                        std::uint32_t const* dimensions, std::size_t count,
                                        gradsieve_communicator const* inside, gradsieve_communicator const* across,
                                        gradsieve_compressor** made) {
  return create_nodes(recipe, layers, dimensions, count, inside, across, made,
                      [](auto const& make) { make(gs::host{}, pool{}); });
}

gradsieve_status gradsieve_create_on_device(char const* recipe, gradsieve_layer const* layers,
                                            std::uint32_t const* dimensions, std::size_t count,
                                            gradsieve_device const* where, gradsieve_compressor** made) {
  return create(recipe, layers, dimensions, count, made, [&](auto const& make) { on_device(where, make); });
}

gradsieve_status gradsieve_create_nodes_on_device(char const* recipe, gradsieve_layer const* layers,
                                                  std::uint32_t const* dimensions, std::size_t count,
                                                  gradsieve_communicator const* inside,
                                                  gradsieve_communicator const* across, gradsieve_device const* where,
                                                  gradsieve_compressor** made) {
  return create_nodes(recipe, layers, dimensions, count, inside, across, made,
                      [&](auto const& make) { on_device(where, make); });
}

void gradsieve_destroy(gradsieve_compressor* which) { delete which; }

gradsieve_status gradsieve_exchange(gradsieve_compressor* which, gradsieve_communicator const* comm, float* gradient,
                                    std::size_t size) {
  return gradsieve_exchange_skipping(which, comm, gradient, size, nullptr);
}

gradsieve_status gradsieve_exchange_skipping(gradsieve_compressor* which, gradsieve_communicator const* comm,
                                             float* gradient, std::size_t size, unsigned char const* skipped) {
  return with(which, [&](auto& by) {
    need(gradient != nullptr || size == 0, "gradient");
    by.ranks.how->connect(comm);
    by.owner.exchange(by.ranks.comm, std::span{gradient, size}, by.skipping(skipped));
  });
}

gradsieve_status gradsieve_exchange_pieces(gradsieve_compressor* which, gradsieve_communicator const* comm,
                                           float* const* parts) {
  return with(which, [&](auto& by) {
    auto const count = by.owner.layers().count();
    need(parts != nullptr || count == 0, "parts");
    by.ranks.how->connect(comm);
    by.owner.exchange(by.ranks.comm, gs::pieces{std::span{parts, count}});
  });
}

gradsieve_status gradsieve_exchange_format(gradsieve_compressor* which, gradsieve_communicator const* comm,
                                           gradsieve_format format, void* gradient, std::size_t size) {
  return with(which, [&](auto& by) {
    need(gradient != nullptr || size == 0, "gradient");
    by.ranks.how->connect(comm);
    with_format(format, gradient,
                [&](auto* values) { by.owner.exchange(by.ranks.comm, std::span{values, size}); });
  });
}

gradsieve_status gradsieve_exchange_nodes(gradsieve_compressor* which, gradsieve_communicator const* inside,
                                          gradsieve_communicator const* across, gradsieve_format format, void* gradient,
                                          std::size_t size, unsigned char const* skipped) {
  return with(which, [&](auto& by) {
    need(gradient != nullptr || size == 0, "gradient");
    auto const nodes = by.nodes(by.inside, inside, by.ranks, across);
    with_format(format, gradient, [&](auto* values) {
      by.owner.exchange(nodes, std::span{values, size}, by.skipping(skipped));
    });
  });
}

gradsieve_status gradsieve_mean_factor(gradsieve_communicator const* comm, gradsieve_communicator const* across,
                                       double weight, float* factor) {
  return guarded([&] {
    need(factor != nullptr, "factor");
    ranks inside, between;
    inside.how->connect(comm);
    if (across == nullptr) {
      *factor = gs::mean_factor(inside.comm, weight);
      return;
    }
    between.how->connect(across);
    *factor = gs::mean_factor(gs::two_level{inside.comm, between.comm}, weight);
  });
}

gradsieve_status gradsieve_compress(gradsieve_compressor* which, float const* gradient, std::size_t size,
                                    void const** message, std::size_t* message_size) {
  return gradsieve_compress_as(which, 0, gradient, size, message, message_size);
}

gradsieve_status gradsieve_compress_as(gradsieve_compressor* which, int rank, float const* gradient, std::size_t size,
                                       void const** message, std::size_t* message_size) {
  return gradsieve_compress_format(which, rank, GRADSIEVE_FLOAT32, gradient, size, message, message_size);
}

gradsieve_status gradsieve_compress_format(gradsieve_compressor* which, int rank, gradsieve_format format,
                                           void const* gradient, std::size_t size, void const** message,
                                           std::size_t* message_size) {
  return with(which, [&](auto& by) {
    need(gradient != nullptr || size == 0, "gradient");
    need(message != nullptr && message_size != nullptr, "message or message_size");
    with_format(format, gradient, [&](auto const* values) {
      auto const made = by.owner.encode(by.owner.compress(std::span{values, size}, rank));
      *message = made.data();
      *message_size = made.size();
    });
  });
}

gradsieve_status gradsieve_apply(gradsieve_compressor* which, void const* const* messages, std::size_t const* sizes,
                                 std::size_t count, float* gradient, std::size_t size) {
  return gradsieve_apply_format(which, messages, sizes, count, GRADSIEVE_FLOAT32, gradient, size);
}

gradsieve_status gradsieve_apply_format(gradsieve_compressor* which, void const* const* messages,
                                        std::size_t const* sizes, std::size_t count, gradsieve_format format,
                                        void* gradient, std::size_t size) {
  return with(which, [&](auto& by) {
    auto const all = messages_of(messages, sizes, count);
    need(gradient != nullptr || size == 0, "gradient");
    with_format(format, gradient, [&](auto* values) { by.owner.apply(all, std::span{values, size}); });
  });
}

gradsieve_status gradsieve_get_report(gradsieve_compressor const* which, gradsieve_report* to) {
  return with(which, [&](auto& by) {
    need(to != nullptr, "report");
    *to = report_of(by.owner.report());
  });
}

gradsieve_status gradsieve_describe(gradsieve_compressor* which, char const** text) {
  return with(which, [&](auto& by) {
    need(text != nullptr, "text");
    which->text = by.owner.describe();
    *text = which->text.c_str();
  });
}

gradsieve_status gradsieve_discard_step(gradsieve_compressor* which) {
  return with(which, [&](auto& by) {
    by.owner.discard_step();
  });
}

gradsieve_status gradsieve_residual_norm(gradsieve_compressor* which, double* norm) {
  return with(which, [&](auto& by) {
    need(norm != nullptr, "norm");
    *norm = by.owner.residual_norm();
  });
}

gradsieve_status gradsieve_save(gradsieve_compressor* which, void* to, std::size_t* size) {
  return save(to, size, [&] {
    auto const used = use(which, "compressor");
    return std::visit([](auto& by) { return by.owner.state(); }, which->in);
  });
}

gradsieve_status gradsieve_load(gradsieve_compressor* which, void const* state, std::size_t size) {
  return with(which, [&](auto& by) {
    need(state != nullptr || size == 0, "state");
    by.owner.restore(bytes_of(state, size));
  });
}

}  // extern "C"
