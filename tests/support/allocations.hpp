// Counts every allocation of a test program; one file of it includes this. Weak: a sanitizer may bring operators of its
// own, and then nothing is counted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "sanitized.hpp"

static std::atomic<std::uint64_t> allocations{0};
static std::atomic<std::uint64_t> allocated_bytes{0};  // never fewer

[[gnu::weak]] void* operator new(std::size_t size) {
  ++allocations;
  allocated_bytes += size;
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc{};
}
[[gnu::weak]] void* operator new(std::size_t size, std::align_val_t alignment) {
  ++allocations;
  allocated_bytes += size;
  auto const step = static_cast<std::size_t>(alignment);
  if (void* const memory = std::aligned_alloc(step, (size + step - 1) / step * step)) return memory;
  throw std::bad_alloc{};
}
[[gnu::weak]] void* operator new(std::size_t size, std::nothrow_t const&) noexcept {
  ++allocations;
  allocated_bytes += size;
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::weak]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::weak]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::weak]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::weak]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

// Whether both kinds of allocation are counted, asked by direct calls: a compiler may leave out a new expression whose
// memory goes unused, never a call of the function. True where a sanitizer counts in its own way.
inline bool allocations_are_counted() {
  auto const before = allocations.load();
  ::operator delete(::operator new(64));
  ::operator delete(::operator new(64, std::align_val_t{64}), std::align_val_t{64});
  return sanitized || allocations.load() == before + 2;
}
