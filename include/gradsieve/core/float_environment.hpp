// The floating-point mode of a thread.
#pragma once

#include <cstdint>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// While it exists, the calling thread rounds to the nearest, keeps subnormal numbers and traps nothing; its destructor
/// restores the mode. So results do not depend on the caller's mode: -ffast-math links code that flushes subnormals,
/// and torch.set_flush_denormal does so, perhaps on some threads or ranks only. No effect on processors other than
/// x86-64 and AArch64. Cost: some ten cycles.
class float_environment {
 public:
  float_environment() noexcept : caller_{read()} {
    if ((caller_ & mask) != standard) write((caller_ & ~mask) | standard);
  }
  ~float_environment() {
    if ((caller_ & mask) != standard) write(caller_);
  }
  float_environment(float_environment const&) = delete;
  float_environment& operator=(float_environment const&) = delete;

 private:
#if defined(__x86_64__) && defined(__GNUC__)
  using word = std::uint32_t;
  static constexpr word mask = 0xFFC0;      // all of MXCSR but the flags of past exceptions
  static constexpr word standard = 0x1F80;  // exceptions masked

  [[nodiscard]] static word read() noexcept {
    word now = 0;
    __asm__ volatile("stmxcsr %0" : "=m"(now));
    return now;
  }
  static void write(word to) noexcept { __asm__ volatile("ldmxcsr %0" : : "m"(to) : "memory"); }
#elif defined(__aarch64__) && defined(__GNUC__)
  using word = std::uint64_t;
  static constexpr word mask = 0x07FF'9F07;  // the mode bits of FPCR
  static constexpr word standard = 0;

  [[nodiscard]] static word read() noexcept {
    word now = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(now));
    return now;
  }
  static void write(word to) noexcept { __asm__ volatile("msr fpcr, %0" : : "r"(to) : "memory"); }
#else
  using word = std::uint32_t;
  static constexpr word mask = 0;
  static constexpr word standard = 0;
  [[nodiscard]] static word read() noexcept { return 0; }
  static void write(word) noexcept {}
#endif

  word caller_;
};

}  // namespace gradsieve
