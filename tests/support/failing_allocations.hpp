// operator new that fails when a test says so; one file of a test program includes this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace failing_allocations {

/// Allocations that this thread may still make; below zero: any number.
inline thread_local std::int64_t left = -1;

inline void count() {
  if (left == 0) throw std::bad_alloc{};
  if (left > 0) --left;
}

/// For i = 0, 1, ...: makes an object, calls f(object) with the i-th allocation of this thread failing, and then
/// after(object, whether it failed); until a call ends without asking for the i-th. Returns how many failed.
template <class Make, class F, class After>
std::int64_t at_every_allocation(Make const& make, F const& f, After const& after) {
  for (std::int64_t i = 0;; ++i) {
    auto object = make();
    bool failed = false;
    left = i;
    try {
      f(object);
    } catch (std::bad_alloc const&) {
      failed = true;
    } catch (...) {
      left = -1;
      throw;
    }
    left = -1;
    after(object, failed);
    if (!failed) return i;
  }
}

}  // namespace failing_allocations

[[gnu::noinline]] void* operator new(std::size_t size) {
  failing_allocations::count();
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  failing_allocations::count();
  auto const step = static_cast<std::size_t>(alignment);
  if (void* const memory = std::aligned_alloc(step, (size + step - 1) / step * step)) return memory;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
