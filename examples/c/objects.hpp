// What the objects of the C interface share: communicators of functions, memory of two spaces, exceptions as statuses.
#pragma once

#if defined(GRADSIEVE_C_CUDA)  // nvcc compiles it then
#include <gradsieve/cuda/device.cuh>
#endif

#include <gradsieve/gradsieve.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <memory_resource>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <gradsieve/run_time/any_communicator.hpp>
#include <gradsieve/run_time/any_compressor.hpp>

#include "../recipes.hpp"

namespace c_interface {

namespace gs = gradsieve;

inline thread_local std::string last_error;

inline gradsieve_status fail(gradsieve_status status, char const* why) noexcept {
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
  } catch (gs::non_finite_gradient const& why) {
    return fail(GRADSIEVE_NON_FINITE, why.what());
  } catch (std::invalid_argument const& why) {
    return fail(GRADSIEVE_INVALID_ARGUMENT, why.what());
  } catch (std::bad_alloc const&) {
    return fail(GRADSIEVE_NO_MEMORY, "gradsieve: no memory");
  } catch (std::exception const& why) {
    return fail(GRADSIEVE_OTHER, why.what());
  } catch (...) {
    return fail(GRADSIEVE_OTHER, "gradsieve: something that is no std::exception was thrown");
  }
}

inline void need(bool there, char const* what) {
  if (!there) throw gs::invalid_argument(std::string{"gradsieve: "} + what + " is null");
}

/// Holds an object of the caller's during a call: another thread, or a collective of that call, may not use it too.
class in_use {
 public:
  explicit in_use(std::atomic_flag& by) : by_{by} {
    if (by_.test_and_set())
      throw gs::invalid_argument("gradsieve: this object is in use, by another thread or by a call that is not over");
  }
  in_use(in_use const&) = delete;
  in_use& operator=(in_use const&) = delete;
  ~in_use() { by_.clear(); }

 private:
  std::atomic_flag& by_;
};
/// @throws gradsieve::invalid_argument for null, or if it is in use
template <class Object>
[[nodiscard]] in_use use(Object const* which, char const* what) {
  need(which != nullptr, what);
  return in_use{which->busy};
}

inline std::span<std::byte const> bytes_of(void const* from, std::size_t size) {
  return {static_cast<std::byte const*>(from), size};
}

/// @throws gradsieve::invalid_argument for null
inline std::vector<std::span<std::byte const>> messages_of(void const* const* messages, std::size_t const* sizes,
                                                           std::size_t count) {
  need((messages != nullptr && sizes != nullptr) || count == 0, "messages or sizes");
  std::vector<std::span<std::byte const>> all;
  for (std::size_t i = 0; i < count; ++i) {
    need(messages[i] != nullptr || sizes[i] == 0, "a message");
    all.push_back(bytes_of(messages[i], sizes[i]));
  }
  return all;
}

inline gs::layout layout_of(gradsieve_layer const* layers, std::uint32_t const* dimensions, std::size_t count) {
  need(layers != nullptr || count == 0, "layers");
  std::vector<gs::layer> list;
  for (std::size_t i = 0; i < count; ++i)
    list.push_back(
        {layers[i].name == nullptr ? "" : layers[i].name, layers[i].size, dimensions == nullptr ? 0 : dimensions[i]});
  return gs::layout{std::move(list)};
}

/// body(pointer to values of this format). @throws gradsieve::invalid_argument for a format that there is not
template <class Void, class Body>
void with_format(gradsieve_format format, Void* values, Body const& body) {
  auto const as = [&]<class T>(T) {
    body(static_cast<std::conditional_t<std::is_const_v<Void>, T const, T>*>(values));
  };
  switch (format) {
    case GRADSIEVE_FLOAT32:
      return as(float{});
    case GRADSIEVE_FLOAT16:
      return as(gs::float16{});
    case GRADSIEVE_BFLOAT16:
      return as(gs::bfloat16{});
  }
  throw gs::invalid_argument("gradsieve: there is no format " + std::to_string(static_cast<int>(format)));
}

inline gradsieve_report report_of(gs::step_report const& of) {
  return {of.step,       of.selected,       of.union_size,     of.non_finite,     of.saturated,
          of.bytes_sent, of.bytes_received, of.baseline_bytes, of.seconds.total()};
}

/// Writes bytes as gradsieve_save() does.
template <class Make>
gradsieve_status save(void* to, std::size_t* size, Make const& make) noexcept {
  gradsieve_status status = GRADSIEVE_OK;
  auto const rest = guarded([&] {
    need(size != nullptr, "size");
    need(to != nullptr || *size == 0, "to");
    auto const bytes = make();
    bool const fits = bytes.size() <= *size;
    if (fits) std::memcpy(to, bytes.data(), bytes.size());
    *size = bytes.size();
    if (!fits) status = fail(GRADSIEVE_ROOM, "gradsieve: the state needs more room; the size was written");
  });
  return rest == GRADSIEVE_OK ? status : rest;
}

/// A table of functions as a communicator of a space, whose memory they get.
template <class Space>
class transport final : public gs::any_communicator_of<Space>::transport {
  using bytes = typename gs::any_communicator_of<Space>::bytes;
  using buffer = typename gs::any_communicator_of<Space>::buffer;
  using sizes = typename gs::any_communicator_of<Space>::sizes;

 public:
  /// From now on calls go there. @throws gradsieve::invalid_argument
  void connect(gradsieve_communicator const* to) {
    need(to != nullptr, "communicator");
    auto const& table = *to;
    need(table.all_reduce_float != nullptr && table.all_reduce_double != nullptr && table.all_gather != nullptr,
         "the communicator's all_reduce_float, all_reduce_double or all_gather");
    if (table.size < 1 || table.rank < 0 || table.rank >= table.size)
      throw gs::invalid_argument("gradsieve: communicator: rank " + std::to_string(table.rank) + " of " +
                                 std::to_string(table.size));
    if (table.size != table_.size) equal_.assign(static_cast<std::size_t>(table.size), 0);
    table_ = table;
  }
  int rank() const override { return table_.rank; }
  int size() const override { return table_.size; }
  void all_reduce(Space const&, std::span<float> all, gs::reduction how) const override {
    call("all_reduce_float", table_.all_reduce_float, all.data(), all.size(), how == gs::reduction::max);
  }
  void all_reduce(Space const&, std::span<double> all, gs::reduction how) const override {
    call("all_reduce_double", table_.all_reduce_double, all.data(), all.size(), how == gs::reduction::max);
  }
  void all_reduce([[maybe_unused]] Space const& where, std::span<std::uint32_t> all, gs::reduction how) const override {
    if constexpr (std::is_same_v<Space, gs::host>)
      if (table_.all_reduce_uint32 == nullptr) {
        std::vector<double> exact{all.begin(), all.end()};  // of fewer than 2^21 ranks
        all_reduce(where, std::span{exact}, how);
        std::ranges::transform(exact, all.begin(), [](double sum) {
          if (!(sum >= 0 && sum < 0x1p53))
            throw gs::corrupt_message("gradsieve: all_reduce_double returned a sum or maximum of counts that is none");
          return static_cast<std::uint32_t>(static_cast<std::uint64_t>(sum));
        });
        return;
      }
    call("all_reduce_uint32", table_.all_reduce_uint32, all.data(), all.size(), how == gs::reduction::max);
  }
  void all_gather(Space const& where, bytes mine, buffer all) const override {
    std::ranges::fill(equal_, mine.size());
    all_gather(where, mine, all, equal_);
  }
  void all_gather(Space const&, bytes mine, buffer all, sizes each) const override {
    call("all_gather", table_.all_gather, mine.data(), mine.size(), all.data(), each.data());
  }
  void broadcast(Space const&, buffer in_out, int root) const override {
    call("broadcast", table_.broadcast, in_out.data(), in_out.size(), root);
  }
  void send_receive(Space const&, bytes out, int to, buffer in, int from) const override {
    call("send_receive", table_.send_receive, out.data(), out.size(), to, in.data(), in.size(), from);
  }
  void all_to_all(Space const&, bytes out, sizes out_sizes, buffer in, sizes in_sizes) const override {
    call("all_to_all", table_.all_to_all, out.data(), out_sizes.data(), in.data(), in_sizes.data());
  }

 private:
  template <class Function, class... Arguments>
  void call(char const* what, Function const& function, Arguments const&... arguments) const {
    if (function == nullptr) throw gs::communication_error(std::string{"gradsieve: the communicator has no "} + what);
    std::uint64_t const before = table_.completed == nullptr ? 0 : *table_.completed;
    int const code = function(table_.context, arguments...);
    auto const refuse = [&](std::string const& why) {
      throw gs::communication_error(std::string{"gradsieve: the communicator's "} + what + why);
    };
    if (code != 0) refuse(" returned " + std::to_string(code));
    if (table_.completed != nullptr && *table_.completed == before) refuse(" was interrupted");
  }
  gradsieve_communicator table_{};
  mutable std::vector<std::size_t> equal_;  // sizes of shares, one a rank
};

/// A communicator that calls the table of the last connect().
template <class Space>
struct ranks_in {
  std::shared_ptr<transport<Space>> how = std::make_shared<transport<Space>>();
  gs::any_communicator_of<Space> comm{how};
};
using ranks = ranks_in<gs::host>;

// ---- The spaces of memory --------------------------------------------------------------------------------------

/// An object in one of the spaces that this library is compiled for.
#if defined(GRADSIEVE_C_CUDA)
template <template <class> class Object>
using in_a_space = std::variant<Object<gs::host>, Object<gs::device>>;

/// A caller's own pool of device memory, in the order of its stream.
class pool_memory final : public std::pmr::memory_resource {
 public:
  explicit pool_memory(gradsieve_device const& of) : of_{of} {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t) override {
    auto* const memory = of_.allocate(of_.context, bytes);
    if (memory == nullptr && bytes > 0) throw std::bad_alloc{};
    return memory;
  }
  void do_deallocate(void* memory, std::size_t, std::size_t) override { of_.release(of_.context, memory); }
  [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
    return this == &other;
  }
  gradsieve_device of_;
};
#else
template <template <class> class Object>
using in_a_space = std::variant<Object<gs::host>>;
#endif

/// A pool that a device's memory is from, which outlives what is in it; or null.
using pool = std::unique_ptr<std::pmr::memory_resource>;

/// body(the device, its pool). @throws gradsieve::invalid_argument without CUDA
template <class Body>
void on_device([[maybe_unused]] gradsieve_device const* where, [[maybe_unused]] Body const& body) {
#if defined(GRADSIEVE_C_CUDA)
  need(where != nullptr, "device");
  if ((where->allocate == nullptr) != (where->release == nullptr))
    throw gs::invalid_argument("gradsieve: a device has allocate and release, or neither");
  pool memory;
  gs::device at{static_cast<cudaStream_t>(where->stream)};
  if (where->allocate != nullptr) {
    memory = std::make_unique<pool_memory>(*where);
    at.memory = memory.get();
  }
  body(at, std::move(memory));
#else
  throw gs::invalid_argument("gradsieve: memory is on a GPU, this library was built without CUDA");
#endif
}

/// The recipes of a space: on a host all.
template <class Space>
using menu_in = std::conditional_t<std::is_same_v<Space, gs::host>, gs::full_menu, example::menu>;
template <class Space>
using recipe_in = gs::any_recipe<menu_in<Space>>;

template <class Space>
struct compressor_in {
  gs::any_compressor<menu_in<Space>, Space> owner;
  ranks_in<Space> ranks{};   // with nodes those across
  ranks_in<Space> inside{};  // with nodes

  /// Both communicators. @throws gradsieve::invalid_argument
  [[nodiscard]] static gs::any_nodes<Space> nodes(ranks_in<Space> const& of_node, gradsieve_communicator const* inside,
                                                  ranks_in<Space> const& of_place,
                                                  gradsieve_communicator const* across) {
    of_node.how->connect(inside);
    of_place.how->connect(across);
    return {of_node.comm, of_place.comm};
  }
  /// A gradient's layers that are skipped; null: none.
  [[nodiscard]] gs::skipped_layers skipping(unsigned char const* skipped) const {
    return std::span{skipped, skipped == nullptr ? 0 : owner.layers().count()};
  }
};

/// body(the object in its space).
template <class Object, class Body>
gradsieve_status with(Object* which, char const* what, Body const& body) noexcept {
  return guarded([&] {
    auto const used = use(which, what);
    std::visit(body, which->in);
  });
}

}  // namespace c_interface

struct gradsieve_compressor {
  c_interface::pool memory;
  c_interface::in_a_space<c_interface::compressor_in> in;
  std::string text{};  // of gradsieve_describe()
  mutable std::atomic_flag busy{};
};
