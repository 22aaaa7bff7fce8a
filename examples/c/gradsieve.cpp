// The C interface: every recipe of the menu is compiled here, once.
#include <gradsieve/gradsieve.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/any_compressor.hpp>

namespace gs = gradsieve;

namespace {

/// A table of functions as a communicator.
class transport final : public gs::any_communicator::transport {
  using bytes = gs::any_communicator::bytes;
  using room = gs::any_communicator::room;

 public:
  /// From now on calls go there.
  void connect(gradsieve_communicator const& table) {
    if (table.size != table_.size) equal_.assign(static_cast<std::size_t>(table.size), 0);
    table_ = table;
  }
  int rank() const override { return table_.rank; }
  int size() const override { return table_.size; }
  void all_reduce(std::span<float> all, gs::reduction how) const override {
    done("all_reduce_float",
         table_.all_reduce_float(table_.context, all.data(), all.size(), how == gs::reduction::max));
  }
  void all_reduce(std::span<double> all, gs::reduction how) const override {
    done("all_reduce_double",
         table_.all_reduce_double(table_.context, all.data(), all.size(), how == gs::reduction::max));
  }
  void all_gather(bytes mine, room all) const override {
    std::ranges::fill(equal_, mine.size());
    all_gather(mine, all, equal_);
  }
  void all_gather(bytes mine, room all, gs::any_communicator::sizes each) const override {
    done("all_gather", table_.all_gather(table_.context, mine.data(), mine.size(), all.data(), each.data()));
  }
  void broadcast(room in_out, int root) const override {
    has(table_.broadcast != nullptr, "broadcast");
    done("broadcast", table_.broadcast(table_.context, in_out.data(), in_out.size(), root));
  }
  void send_receive(bytes out, int to, room in, int from) const override {
    has(table_.send_receive != nullptr, "send_receive");
    done("send_receive", table_.send_receive(table_.context, out.data(), out.size(), to, in.data(), in.size(), from));
  }

 private:
  static void has(bool there, char const* what) {
    if (!there) throw gs::communication_error(std::string{"gradsieve: the communicator has no "} + what);
  }
  static void done(char const* what, int code) {
    if (code != 0)
      throw gs::communication_error(std::string{"gradsieve: the communicator's "} + what + " returned " +
                                    std::to_string(code));
  }
  gradsieve_communicator table_{};
  mutable std::vector<std::size_t> equal_;  // sizes of shares, one a rank
};

}  // namespace

struct gradsieve_compressor {
  gs::any_compressor<> owner;
  std::shared_ptr<transport> how = std::make_shared<transport>();
  gs::any_communicator comm{how};
  std::string text{};  // of gradsieve_describe()
};

namespace {

thread_local std::string last_error;

gradsieve_status fail(gradsieve_status status, char const* why) noexcept {
  try {
    last_error = why;
  } catch (...) {
    last_error.clear();
  }
  return status;
}

/// body(), with what it throws as a status.
template <class Body>
gradsieve_status guarded(Body const& body) noexcept {
  try {
    body();
    return GRADSIEVE_OK;
  } catch (gs::invalid_argument const& why) {
    return fail(GRADSIEVE_INVALID_ARGUMENT, why.what());
  } catch (gs::mismatch const& why) {
    return fail(GRADSIEVE_MISMATCH, why.what());
  } catch (gs::corrupt_message const& why) {
    return fail(GRADSIEVE_CORRUPT, why.what());
  } catch (gs::corrupt_state const& why) {
    return fail(GRADSIEVE_CORRUPT, why.what());
  } catch (gs::communication_error const& why) {
    return fail(GRADSIEVE_COMMUNICATION, why.what());
  } catch (std::bad_alloc const&) {
    return fail(GRADSIEVE_NO_MEMORY, "gradsieve: no memory");
  } catch (std::exception const& why) {
    return fail(GRADSIEVE_OTHER, why.what());
  } catch (...) {
    return fail(GRADSIEVE_OTHER, "gradsieve: something that is no std::exception was thrown");
  }
}

void need(bool there, char const* what) {
  if (!there) throw gs::invalid_argument(std::string{"gradsieve: "} + what + " is null");
}

std::span<std::byte const> bytes_of(void const* from, std::size_t size) {
  return {static_cast<std::byte const*>(from), size};
}

}  // namespace

extern "C" {

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
  return guarded([&] {
    need(recipe != nullptr, "recipe");
    need(layers != nullptr || count == 0, "layers");
    need(made != nullptr, "made");
    *made = nullptr;
    std::vector<gs::layer> list;
    for (std::size_t i = 0; i < count; ++i)
      list.push_back(
          {layers[i].name == nullptr ? "" : layers[i].name, layers[i].size, dimensions == nullptr ? 0 : dimensions[i]});
    *made = new gradsieve_compressor{{gs::host{}, gs::layout{std::move(list)}, gs::any_recipe<>::parse(recipe)}};
  });
}

void gradsieve_destroy(gradsieve_compressor* which) { delete which; }

gradsieve_status gradsieve_exchange(gradsieve_compressor* which, gradsieve_communicator const* comm, float* gradient,
                                    std::size_t size) {
  return gradsieve_exchange_skipping(which, comm, gradient, size, nullptr);
}

gradsieve_status gradsieve_exchange_skipping(gradsieve_compressor* which, gradsieve_communicator const* comm,
                                             float* gradient, std::size_t size, unsigned char const* skipped) {
  return guarded([&] {
    need(which != nullptr, "compressor");
    need(comm != nullptr, "communicator");
    need(comm->all_reduce_float != nullptr && comm->all_reduce_double != nullptr && comm->all_gather != nullptr,
         "the communicator's all_reduce_float, all_reduce_double or all_gather");
    if (comm->size < 1 || comm->rank < 0 || comm->rank >= comm->size)
      throw gs::invalid_argument("gradsieve: communicator: rank " + std::to_string(comm->rank) + " of " +
                                 std::to_string(comm->size));
    need(gradient != nullptr || size == 0, "gradient");
    which->how->connect(*comm);
    std::span const by_layer{skipped, skipped == nullptr ? 0 : which->owner.layers().count()};
    which->owner.exchange(which->comm, {gradient, size}, by_layer);
  });
}

gradsieve_status gradsieve_compress(gradsieve_compressor* which, float const* gradient, std::size_t size,
                                    void const** message, std::size_t* message_size) {
  return gradsieve_compress_as(which, 0, gradient, size, message, message_size);
}

gradsieve_status gradsieve_compress_as(gradsieve_compressor* which, int rank, float const* gradient, std::size_t size,
                                       void const** message, std::size_t* message_size) {
  return guarded([&] {
    need(which != nullptr, "compressor");
    need(gradient != nullptr || size == 0, "gradient");
    need(message != nullptr && message_size != nullptr, "message or message_size");
    auto const made = which->owner.encode(which->owner.compress({gradient, size}, rank));
    *message = made.data();
    *message_size = made.size();
  });
}

gradsieve_status gradsieve_apply(gradsieve_compressor* which, void const* const* messages, std::size_t const* sizes,
                                 std::size_t count, float* gradient, std::size_t size) {
  return guarded([&] {
    need(which != nullptr, "compressor");
    need((messages != nullptr && sizes != nullptr) || count == 0, "messages or sizes");
    need(gradient != nullptr || size == 0, "gradient");
    std::vector<std::span<std::byte const>> all;
    for (std::size_t i = 0; i < count; ++i) {
      need(messages[i] != nullptr || sizes[i] == 0, "a message");
      all.push_back(bytes_of(messages[i], sizes[i]));
    }
    which->owner.apply(all, {gradient, size});
  });
}

gradsieve_status gradsieve_get_report(gradsieve_compressor const* which, gradsieve_report* to) {
  return guarded([&] {
    need(which != nullptr, "compressor");
    need(to != nullptr, "report");
    auto const of = which->owner.report();
    *to = {of.step,       of.selected,       of.union_size,     of.non_finite,     of.saturated,
           of.bytes_sent, of.bytes_received, of.baseline_bytes, of.seconds.total()};
  });
}

gradsieve_status gradsieve_describe(gradsieve_compressor* which, char const** text) {
  return guarded([&] {
    need(which != nullptr, "compressor");
    need(text != nullptr, "text");
    which->text = which->owner.describe();
    *text = which->text.c_str();
  });
}

gradsieve_status gradsieve_discard_step(gradsieve_compressor* which) {
  return guarded([&] {
    need(which != nullptr, "compressor");
    which->owner.discard_step();
  });
}

gradsieve_status gradsieve_residual_norm(gradsieve_compressor* which, double* norm) {
  return guarded([&] {
    need(which != nullptr, "compressor");
    need(norm != nullptr, "norm");
    *norm = which->owner.residual_norm();
  });
}

gradsieve_status gradsieve_save(gradsieve_compressor* which, void* to, std::size_t* size) {
  gradsieve_status status = GRADSIEVE_OK;
  auto const rest = guarded([&] {
    need(which != nullptr, "compressor");
    need(size != nullptr, "size");
    need(to != nullptr || *size == 0, "to");
    auto const bytes = which->owner.state();
    bool const fits = bytes.size() <= *size;
    if (fits) std::memcpy(to, bytes.data(), bytes.size());
    *size = bytes.size();
    if (!fits) status = fail(GRADSIEVE_ROOM, "gradsieve: the state needs more room; the size was written");
  });
  return rest == GRADSIEVE_OK ? status : rest;
}

gradsieve_status gradsieve_load(gradsieve_compressor* which, void const* state, std::size_t size) {
  return guarded([&] {
    need(which != nullptr, "compressor");
    need(state != nullptr || size == 0, "state");
    which->owner.restore(bytes_of(state, size));
  });
}

}  // extern "C"
