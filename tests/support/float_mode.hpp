// The floating-point mode of a thread: read, written, and set for a while. On x86-64 and AArch64.
#pragma once

#include <cstdint>

namespace float_mode {

#if defined(__x86_64__) || defined(__aarch64__)
#if defined(__x86_64__)
using mode_word = std::uint32_t;
inline mode_word read_mode() {
  mode_word now = 0;
  __asm__ volatile("stmxcsr %0" : "=m"(now));
  return now & 0xFFC0u;
}
inline void write_mode(mode_word to) { __asm__ volatile("ldmxcsr %0" : : "m"(to) : "memory"); }
inline constexpr mode_word flushing = 0x1F80u | 0x8040u;
inline constexpr mode_word upwards = 0x1F80u | 0x4000u;
/// Every rounding, with subnormal numbers and without.
inline constexpr mode_word all_modes[] = {0x1F80, 0x3F80, 0x5F80, 0x7F80, 0x9FC0, 0xBFC0, 0xDFC0, 0xFFC0};
#else
using mode_word = std::uint64_t;
inline mode_word read_mode() {
  mode_word now = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(now));
  return now;
}
inline void write_mode(mode_word to) { __asm__ volatile("msr fpcr, %0" : : "r"(to) : "memory"); }
inline constexpr mode_word flushing = 1u << 24;
inline constexpr mode_word upwards = 1u << 22;
/// Those that round to the nearest, with subnormal numbers and without.
inline constexpr mode_word all_modes[] = {0, flushing};
#endif

/// Sets the mode of a thread until it goes.
class mode {
 public:
  explicit mode(mode_word to) { write_mode(to); }
  ~mode() { write_mode(before_); }
  mode(mode const&) = delete;
  mode& operator=(mode const&) = delete;

 private:
  mode_word before_ = read_mode();
};
#endif

}  // namespace float_mode
