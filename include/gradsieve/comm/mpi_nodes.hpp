// The MPI communicators of nodes, for two_level.
#pragma once

#include <cstdint>
#include <string>

#include <gradsieve/comm/mpi_session.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/process.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::mpi {

/// The two communicators of gradsieve::two_level: the ranks of this node, and the ranks with the same position in other
/// nodes. Owns both; they have the error handler of `all`, which the caller keeps.
/// @snippet two_level.cpp nodes
/// Ranks: construction and destruction are collective.
class nodes {
 public:
  /// Splits `all`. A node consists of ranks that share memory (MPI_COMM_TYPE_SHARED), or, with `ranks` > 0, of that
  /// many consecutive ranks. Ranks keep their order, within and across nodes. @throws invalid_argument, on all ranks,
  /// unless all nodes have the same number of ranks; error.
  explicit nodes(MPI_Comm all, int ranks = 0) {
    if (ranks < 0)
      throw invalid_argument("gradsieve: a node of " + std::to_string(ranks) +
                             " ranks; the least is 1, 0: MPI decides");
    int rank = 0;
    int place = 0;
    detail::check(MPI_Comm_rank(all, &rank), "MPI_Comm_rank");
    if (ranks == 0)
      detail::check(MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &own_.inside),
                    "MPI_Comm_split_type");
    else
      detail::check(MPI_Comm_split(all, rank / ranks, rank, &own_.inside), "MPI_Comm_split");
    int size = 0;
    detail::check(MPI_Comm_size(own_.inside, &size), "MPI_Comm_size");
    detail::check(MPI_Comm_rank(own_.inside, &place), "MPI_Comm_rank");
    int most[] = {size, -size};
    detail::check(MPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_INT, MPI_MAX, all), "MPI_Allreduce");
    if (most[0] != -most[1])
      throw invalid_argument("gradsieve: nodes have from " + std::to_string(-most[1]) + " to " +
                             std::to_string(most[0]) + " ranks; two_level needs equally many in each");
    int first = rank;  // orders the nodes equally at all positions
    detail::check(MPI_Bcast(&first, 1, MPI_INT, 0, own_.inside), "MPI_Bcast");
    detail::check(MPI_Comm_split(all, place, first, &own_.across), "MPI_Comm_split");
  }

  [[nodiscard]] MPI_Comm inside() const noexcept { return own_.inside; }  ///< the ranks of this node
  [[nodiscard]] MPI_Comm across() const noexcept { return own_.across; }  ///< one rank of each node

 private:
  /// Frees the communicators, unless MPI has ended or would wait, or this is a child of fork().
  struct pair {
    MPI_Comm inside = MPI_COMM_NULL;
    MPI_Comm across = MPI_COMM_NULL;
    std::int64_t process = process_id();

    pair() = default;
    pair(pair const&) = delete;
    pair& operator=(pair const&) = delete;
    ~pair() {
      int finalised = 0;
      if (process != process_id() || detail::gave_up.load()) return;
      if (MPI_Finalized(&finalised) != MPI_SUCCESS || finalised) return;
      if (inside != MPI_COMM_NULL) MPI_Comm_free(&inside);
      if (across != MPI_COMM_NULL) MPI_Comm_free(&across);
    }
  };

  pair own_;
};

}  // namespace gradsieve::mpi
