// The compiler's functions for vector instructions.
#pragma once

#include <gradsieve/core/config.hpp>

#if GRADSIEVE_X86
#include <immintrin.h>
#elif GRADSIEVE_NEON
#include <arm_neon.h>
#endif
