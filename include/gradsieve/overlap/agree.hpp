// Broadcasts one plan to all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/plan/plan.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Broadcasts rank 0's plan to every rank; the plans of other ranks are not read. (Plans that ranks make separately may
/// differ if a rounding decides a tie.) Collective.
/// @throws corrupt_message, on every rank that got damaged bytes; mismatch, on every rank, if the plans' hashes differ.
template <communicator Comm, space Space>
[[nodiscard]] plan agree(Space const& where, Comm const& comm, plan const& mine) {
  static_assert(has_broadcast<Comm, Space> && has_all_gather<Comm, Space>,
                "this communicator needs broadcast and all_gather");
  auto const world = static_cast<std::size_t>(world_of(comm));
  auto bytes = comm.rank() == 0 ? mine.to_bytes() : std::vector<std::byte>{};
  std::uint64_t size = bytes.size();
  comm.broadcast(where, std::as_writable_bytes(std::span{&size, 1}), 0);
  bytes.resize(size);
  comm.broadcast(where, std::span{bytes}, 0);

  std::vector<std::uint64_t> hashes(world);
  plan agreed;
  std::exception_ptr damage;
  try {
    agreed = plan::from_bytes(bytes);
  } catch (...) {
    damage = std::current_exception();
  }
  std::uint64_t const hash = damage ? 0 : agreed.hash();
  comm.all_gather(where, std::as_bytes(std::span{&hash, 1}), std::as_writable_bytes(std::span{hashes}));
  if (damage) std::rethrow_exception(damage);
  for (std::size_t r = 0; r < hashes.size(); ++r)
    if (hashes[r] != hashes[0])
      throw mismatch("gradsieve: rank " + std::to_string(r) + " and rank 0 differ in their plan");
  return agreed;
}

}  // namespace gradsieve::detail
