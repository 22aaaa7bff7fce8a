// The C interface to weight deltas.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#if defined(GRADSIEVE_C_CUDA)
#include <gradsieve/delta.cuh>
#endif
#include <gradsieve/delta.hpp>

#include "objects.hpp"

using namespace c_interface;

struct gradsieve_delta_encoder {
  pool memory;
  in_a_space<gs::delta_encoder> in;
  mutable std::atomic_flag busy{};
};

struct gradsieve_delta_decoder {
  pool memory;
  in_a_space<gs::delta_decoder> in;
  mutable std::atomic_flag busy{};
};

namespace {

gs::host with_threads(int threads) {
  if (threads < 0) throw gs::invalid_argument("gradsieve: " + std::to_string(threads) + " threads");
  return {.threads = threads};
}

/// body(weights as a span of this format). @throws gradsieve::invalid_argument for a format that there is not
template <class Void, class Body>
void with_weights(gradsieve_weight_format format, Void* weights, std::size_t size, Body const& body) {
  need(weights != nullptr || size == 0, "weights");
  using byte = std::conditional_t<std::is_const_v<Void>, std::uint8_t const, std::uint8_t>;
  if (format == GRADSIEVE_WEIGHTS_8_BITS) return body(std::span{static_cast<byte*>(weights), size});
  with_format(static_cast<gradsieve_format>(format), weights,  // the others are those of gradients
              [&](auto* values) { body(std::span{values, size}); });
}

/// body(weights of this format, of which parts[i] are those of layer i).
template <class Void, class Body>
void with_pieces(gradsieve_weight_format format, Void* const* parts, std::size_t count, Body const& body) {
  need(parts != nullptr || count == 0, "parts");
  with_weights(format, static_cast<Void*>(nullptr), 0, [&]<class T>(std::span<T>) {
    std::vector<T*> list;
    for (auto* const each : std::span{parts, count}) list.push_back(static_cast<T*>(each));
    body(gs::pieces{list});
  });
}

/// `in` calls its argument with a space, and its pool.
template <class In>
gradsieve_status create_encoder(gradsieve_layer const* layers, std::size_t count, std::uint64_t chunk_bytes,
                                gradsieve_delta_encoder** made, In const& in) {
  return guarded([&] {
    need(made != nullptr, "made");
    *made = nullptr;
    gs::delta_options options;
    if (chunk_bytes > 0) options.chunk_bytes = chunk_bytes;
    in([&](auto where, pool memory) {
      gs::delta_encoder one{where, layout_of(layers, nullptr, count), options};
      *made = new gradsieve_delta_encoder{std::move(memory), std::move(one)};
    });
  });
}
template <class In>
gradsieve_status create_decoder(gradsieve_layer const* layers, std::size_t count, std::uint64_t version,
                                gradsieve_delta_decoder** made, In const& in) {
  return guarded([&] {
    need(made != nullptr, "made");
    *made = nullptr;
    in([&](auto where, pool memory) {
      gs::delta_decoder one{where, layout_of(layers, nullptr, count), version};
      *made = new gradsieve_delta_decoder{std::move(memory), std::move(one)};
    });
  });
}
template <class In>
gradsieve_status fingerprint_weights(gradsieve_layer const* layers, std::size_t count, gradsieve_weight_format format,
                                     void const* weights, std::size_t size, std::uint64_t* fingerprint, In const& in) {
  return guarded([&] {
    need(fingerprint != nullptr, "fingerprint");
    auto const about = layout_of(layers, nullptr, count);
    in([&](auto where, pool const&) {
      with_weights(format, weights, size,
                   [&](auto values) { *fingerprint = gs::weights_fingerprint(where, about, values); });
    });
  });
}

void give(std::span<std::byte const> made, void const** message, std::size_t* size) {
  *message = made.data();
  *size = made.size();
}

}  // namespace

extern "C" {

gradsieve_status gradsieve_create_delta_encoder(gradsieve_layer const* layers, std::size_t count,
                                                std::uint64_t chunk_bytes, int threads,
                                                gradsieve_delta_encoder** made) {
  return create_encoder(layers, count, chunk_bytes, made,
                        [&](auto const& make) { make(with_threads(threads), pool{}); });
}

gradsieve_status gradsieve_create_delta_encoder_on_device(gradsieve_layer const* layers, std::size_t count,
                                                          std::uint64_t chunk_bytes, gradsieve_device const* where,
                                                          gradsieve_delta_encoder** made) {
  return create_encoder(layers, count, chunk_bytes, made, [&](auto const& make) { on_device(where, make); });
}

void gradsieve_destroy_delta_encoder(gradsieve_delta_encoder* which) { delete which; }

gradsieve_status gradsieve_keep_weights(gradsieve_delta_encoder* which, gradsieve_weight_format format,
                                        void const* weights, std::size_t size, std::uint64_t version) {
  return with(which, "delta encoder",
              [&](auto& by) { with_weights(format, weights, size, [&](auto values) { by.keep(values, version); }); });
}

gradsieve_status gradsieve_encode_delta(gradsieve_delta_encoder* which, gradsieve_weight_format format,
                                        void const* before, void const* after, std::size_t size, std::uint64_t from,
                                        std::uint64_t to, void const** message, std::size_t* message_size) {
  return with(which, "delta encoder", [&](auto& by) {
    need(message != nullptr && message_size != nullptr, "message or message_size");
    with_weights(format, after, size, [&]<class T>(std::span<T> now) {
      std::span const old{static_cast<T*>(before), size};
      give(before == nullptr ? by.encode(now, {from, to}) : by.encode(old, now, {from, to}), message, message_size);
    });
  });
}

gradsieve_status gradsieve_keep_weight_pieces(gradsieve_delta_encoder* which, gradsieve_weight_format format,
                                              void const* const* parts, std::uint64_t version) {
  return with(which, "delta encoder", [&](auto& by) {
    with_pieces(format, parts, by.layers().count(), [&](auto const& weights) { by.keep(weights, version); });
  });
}

gradsieve_status gradsieve_encode_delta_of_pieces(gradsieve_delta_encoder* which, gradsieve_weight_format format,
                                                  void const* const* before, void const* const* after,
                                                  std::uint64_t from, std::uint64_t to, void const** message,
                                                  std::size_t* message_size) {
  return with(which, "delta encoder", [&](auto& by) {
    need(message != nullptr && message_size != nullptr, "message or message_size");
    auto const count = by.layers().count();
    with_pieces(format, after, count, [&](auto const& now) {
      if (before == nullptr) return give(by.encode(now, {from, to}), message, message_size);
      with_pieces(format, before, count, [&](auto const& old) {
        if constexpr (std::is_same_v<decltype(old), decltype(now)>)
          give(by.encode(old, now, {from, to}), message, message_size);
      });
    });
  });
}

gradsieve_status gradsieve_delta_chunk(gradsieve_delta_encoder* which, std::size_t i, void const** chunk,
                                       std::size_t* chunk_size, std::size_t* chunks) {
  return with(which, "delta encoder", [&](auto& by) {
    need(chunk != nullptr && chunk_size != nullptr && chunks != nullptr, "chunk, chunk_size or chunks");
    auto const all = by.chunks();
    if (i >= all.size())
      throw gs::invalid_argument("gradsieve: there is no chunk " + std::to_string(i) + " of " +
                                 std::to_string(all.size()));
    *chunks = all.size();
    *chunk = all[i].data();
    *chunk_size = all[i].size();
  });
}

gradsieve_status gradsieve_create_delta_decoder(gradsieve_layer const* layers, std::size_t count, std::uint64_t version,
                                                int threads, gradsieve_delta_decoder** made) {
  return create_decoder(layers, count, version, made, [&](auto const& make) { make(with_threads(threads), pool{}); });
}

gradsieve_status gradsieve_create_delta_decoder_on_device(gradsieve_layer const* layers, std::size_t count,
                                                          std::uint64_t version, gradsieve_device const* where,
                                                          gradsieve_delta_decoder** made) {
  return create_decoder(layers, count, version, made, [&](auto const& make) { on_device(where, make); });
}

void gradsieve_destroy_delta_decoder(gradsieve_delta_decoder* which) { delete which; }

gradsieve_status gradsieve_apply_delta(gradsieve_delta_decoder* which, gradsieve_weight_format format,
                                       void const* const* messages, std::size_t const* sizes, std::size_t count,
                                       void* weights, std::size_t size) {
  return with(which, "delta decoder", [&](auto& by) {
    auto const all = messages_of(messages, sizes, count);
    with_weights(format, weights, size, [&](auto values) { by.apply(all, values); });
  });
}

gradsieve_status gradsieve_apply_delta_to_pieces(gradsieve_delta_decoder* which, gradsieve_weight_format format,
                                                 void const* const* messages, std::size_t const* sizes,
                                                 std::size_t count, void* const* parts) {
  return with(which, "delta decoder", [&](auto& by) {
    auto const all = messages_of(messages, sizes, count);
    with_pieces(format, parts, by.layers().count(), [&](auto const& weights) { by.apply(all, weights); });
  });
}

gradsieve_status gradsieve_verify_delta(gradsieve_delta_decoder* which, gradsieve_weight_format format,
                                        void const* const* messages, std::size_t const* sizes, std::size_t count,
                                        std::uint64_t* version, int* complete) {
  return with(which, "delta decoder", [&](auto& by) {
    auto const all = messages_of(messages, sizes, count);
    with_weights(format, static_cast<void*>(nullptr), 0, [&]<class T>(std::span<T>) {
      auto const next = by.template verify<T>(all);
      if (version != nullptr) *version = next.value_or(by.version());
      if (complete != nullptr) *complete = next.has_value() ? 1 : 0;
    });
  });
}

gradsieve_status gradsieve_delta_version(gradsieve_delta_decoder const* which, std::uint64_t* version, int* complete) {
  return with(which, "delta decoder", [&](auto& by) {
    if (version != nullptr) *version = by.version();
    if (complete != nullptr) *complete = by.complete();
  });
}

gradsieve_status gradsieve_restart_delta(gradsieve_delta_decoder* which) {
  return with(which, "delta decoder", [](auto& by) { by.restart(); });
}

gradsieve_status gradsieve_reset_delta(gradsieve_delta_decoder* which, std::uint64_t version) {
  return with(which, "delta decoder", [&](auto& by) { by.reset(version); });
}

gradsieve_status gradsieve_fingerprint_weights(gradsieve_layer const* layers, std::size_t count,
                                               gradsieve_weight_format format, void const* weights, std::size_t size,
                                               int threads, std::uint64_t* fingerprint) {
  return fingerprint_weights(layers, count, format, weights, size, fingerprint,
                             [&](auto const& make) { make(with_threads(threads), pool{}); });
}

gradsieve_status gradsieve_fingerprint_weights_on_device(gradsieve_layer const* layers, std::size_t count,
                                                         gradsieve_weight_format format, void const* weights,
                                                         std::size_t size, gradsieve_device const* where,
                                                         std::uint64_t* fingerprint) {
  return fingerprint_weights(layers, count, format, weights, size, fingerprint,
                             [&](auto const& make) { on_device(where, make); });
}

gradsieve_status gradsieve_fingerprint_weight_pieces(gradsieve_layer const* layers, std::size_t count,
                                                     gradsieve_weight_format format, void const* const* parts,
                                                     int threads, gradsieve_device const* where,
                                                     std::uint64_t* fingerprint) {
  return guarded([&] {
    need(fingerprint != nullptr, "fingerprint");
    auto const about = layout_of(layers, nullptr, count);
    with_pieces(format, parts, count, [&](auto const& weights) {
      auto const make = [&](auto space, pool const&) {
        *fingerprint = gs::weights_fingerprint(space, about, weights);
      };
      where == nullptr ? make(with_threads(threads), pool{}) : on_device(where, make);
    });
  });
}

}  // extern "C"
