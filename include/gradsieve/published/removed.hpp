// Removed: for one version, its use says what to write instead.
#pragma once

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// @cond internal
#define GRADSIEVE_TOPK \
  " was removed: use the exchange gather, or the partitioner deft, by which no rank receives more with more ranks"
template <class T = void>
struct ok_topk {
  static_assert(!sizeof(T*), "gradsieve: ok_topk" GRADSIEVE_TOPK);
};
template <class T = void>
struct gtopk {
  static_assert(!sizeof(T*), "gradsieve: gtopk" GRADSIEVE_TOPK);
};
#undef GRADSIEVE_TOPK
template <class T = void>
struct one_sign {
  static_assert(!sizeof(T*), "gradsieve: one_sign was removed: use radix, with the value codec sign or ternary");
};
template <class T = void>
struct sbc {
  static_assert(!sizeof(T*), "gradsieve: sbc was removed: use the value codec ternary or sign");
};
/// @endcond

}  // namespace gradsieve
