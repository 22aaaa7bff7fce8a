// Memory of the host space.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>

#include <gradsieve/host/tuning.hpp>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace gradsieve::inline GRADSIEVE_ABI {

/// Uninitialised, cache-line aligned memory of the host for trivial T. The thread that writes a page first decides on
/// its NUMA node. Large buffers ask for huge pages, as scattered reads would else miss the address cache.
template <class T>
class host_buffer {
 public:
  /// Empty.
  host_buffer() = default;
  /// Memory for `size` elements. @throws std::bad_alloc
  explicit host_buffer(std::size_t size)
      : data_{allocate(size * sizeof(T)), release{alignment_of(size * sizeof(T))}}, size_{size} {}

  [[nodiscard]] T* data() const noexcept { return data_.get(); }                     ///< the first element
  [[nodiscard]] std::size_t size() const noexcept { return size_; }                  ///< elements
  [[nodiscard]] std::span<T> span() const noexcept { return {data_.get(), size_}; }  ///< all elements
  /// The first elements. @pre count <= size()
  [[nodiscard]] std::span<T> first(std::size_t count) const noexcept { return {data_.get(), count}; }
  /// Element i. @pre i < size()
  T& operator[](std::size_t i) const noexcept { return data_[i]; }

 private:
  static constexpr std::size_t huge_page = std::size_t{1} << 21;
  struct release {
    std::align_val_t alignment{64};
    void operator()(T* memory) const noexcept { ::operator delete(memory, alignment); }
  };

  [[nodiscard]] static constexpr std::align_val_t alignment_of(std::size_t bytes) noexcept {
    return std::align_val_t{bytes >= host_kernels::huge_bytes ? huge_page : 64};
  }

  [[nodiscard]] static T* allocate(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    void* const memory = ::operator new(bytes, alignment_of(bytes));
#if defined(__linux__)
    if (bytes >= host_kernels::huge_bytes) ::madvise(memory, bytes, MADV_HUGEPAGE);  // a hint only
#endif
    return static_cast<T*>(memory);
  }

  std::unique_ptr<T[], release> data_;
  std::size_t size_ = 0;
};

}  // namespace gradsieve
