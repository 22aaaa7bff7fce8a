// Counts every allocation of a test program; one file of it includes this. Weak: a sanitizer may bring operators of its
// own, and then nothing is counted. A check that the counter counts must leave `sanitized` programs out.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "sanitized.hpp"

static std::atomic<std::uint64_t> allocations{0};

[[gnu::weak]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc{};
}
[[gnu::weak]] void* operator new(std::size_t size, std::align_val_t alignment) {
  ++allocations;
  auto const step = static_cast<std::size_t>(alignment);
  if (void* const memory = std::aligned_alloc(step, (size + step - 1) / step * step)) return memory;
  throw std::bad_alloc{};
}
[[gnu::weak]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::weak]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::weak]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::weak]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
