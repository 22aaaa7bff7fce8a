// MPI's names of the types that are summed, and checks of the sizes of a call.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <gradsieve/comm/mpi_session.hpp>
#include <gradsieve/core/error.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::mpi {

namespace detail {

inline MPI_Datatype datatype(float) { return MPI_FLOAT; }
inline MPI_Datatype datatype(double) { return MPI_DOUBLE; }
inline MPI_Datatype datatype(std::uint32_t) { return MPI_UINT32_T; }
inline MPI_Datatype datatype(std::uint64_t) { return MPI_UINT64_T; }

template <class T>
concept reducible = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::uint32_t> ||
                    std::same_as<T, std::uint64_t>;

/// @throws mismatch, naming this rank
inline void expect(int rank, char const* does, std::size_t n, std::size_t wanted) {
  if (n != wanted)
    throw mismatch("gradsieve: rank " + std::to_string(rank) + " " + does + " " + std::to_string(n) + ", expected " +
                   std::to_string(wanted));
}

/// Checks sizes for each of `ranks`, of what a rank sends (`gives`) or of its receive buffer. @throws mismatch
inline void expect_sum(int rank, std::size_t ranks, bool gives, std::size_t bytes,
                       std::span<std::size_t const> sizes) {
  expect(rank, "passes sizes:", sizes.size(), ranks);
  for (std::size_t const size : sizes) {
    if (size > bytes) expect(rank, gives ? "has left to give bytes:" : "has room left for bytes:", bytes, size);
    bytes -= size;
  }
  expect(rank, gives ? "has too many bytes to send:" : "has too many bytes to receive into:", bytes, 0);
}

}  // namespace detail

}  // namespace gradsieve::mpi
