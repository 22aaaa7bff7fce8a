// Checks a partitioner's results, so that a faulty user partitioner throws an error that names the fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Checks the results of one partitioner's members; errors name the partitioner.
template <class Partitioner>
class segment_check {
 public:
  /// Checks the result of split() for these layers: segments in order and without overlap, within the layers, that
  /// contain all their elements. Cost: O(layers + segments). @throws invalid_argument
  static void split(std::span<range const> layers, std::span<segment const> segments) {
    std::uint64_t const end = layers.empty() ? 0 : layers.back().offset + layers.back().size;
    std::uint64_t covered = layers.empty() ? 0 : layers.front().offset;  // no segment may begin before this
    std::size_t next = 0;                                                // the first layer not known to be covered
    for (std::size_t s = 0; s < segments.size(); ++s) {
      auto const [offset, size] = range{segments[s].offset, segments[s].size};
      if (offset > end || size > end - offset)
        refuse_split("segment " + text_of(s, segments[s]) + " ends behind the last layer, at " + std::to_string(end));
      if (size == 0) continue;
      if (offset < covered)
        refuse_split("segment " + text_of(s, segments[s]) + " begins before element " + std::to_string(covered) +
                     ", where the segment before it ends or the first layer begins");
      next = require_covered(layers, next, covered, offset);
      covered = offset + size;
      if constexpr (Partitioner::traits.within_layers.value_or(false))
        if (!within_one(layers, next, segments[s]))
          refuse_split("segment " + text_of(s, segments[s]) + " is not within one layer, as within_layers promises");
    }
    require_covered(layers, next, covered, end);
  }

  /// Checks what assign() made of the segments that split() had returned; it may set their k and owner and nothing
  /// else. Cost: O(segments). @throws invalid_argument
  static void assign(Partitioner const& how, std::span<segment const> planned, std::span<segment const> segments,
                     int world) {
    int owner = segment::every_rank;  // of all segments with entries, if single_owner is promised
    bool found = false;
    for (std::size_t s = 0; s < segments.size(); ++s) {
      auto const& each = segments[s];
      if (each.offset != planned[s].offset || each.size != planned[s].size)
        refuse_assign("moved segment " + text_of(s, planned[s]) + " to offset " + std::to_string(each.offset) +
                      ", size " + std::to_string(each.size) + "; only k and owner are its to set");
      if (each.k > each.size)
        throw invalid_argument("gradsieve: " + who() + " gives " + std::to_string(each.k) +
                               " entries of a segment of " + std::to_string(each.size));
      if (each.owner < segment::every_rank || each.owner >= world)
        refuse_assign("gave segment " + text_of(s, each) + " the owner " + std::to_string(each.owner) +
                      ", expected a rank below " + std::to_string(world) + ", or every_rank");
      if (each.k == 0 || each.k == each.size || world == 1) continue;  // every rank may own what is sent in full
      if (is_disjoint(how) && each.owner == segment::every_rank)
        refuse_assign("gave segment " + text_of(s, each) +
                      " to every rank; as disjoint promises, one rank selects from a segment");
      if constexpr (Partitioner::traits.single_owner.value_or(false))
        if (found && each.owner != owner)
          refuse_assign("gave segment " + text_of(s, each) + " to rank " + std::to_string(each.owner) +
                        ", another to rank " + std::to_string(owner) +
                        "; as single_owner promises, one rank selects in a step");
      owner = each.owner;
      found = true;
    }
  }

  /// The partitioner, for an error text.
  [[nodiscard]] static std::string who() { return "the " + titled<Partitioner>("partitioner"); }

 private:
  [[noreturn]] static void refuse_split(std::string const& what) {
    throw invalid_argument("gradsieve: " + who() + "'s split(): " + what);
  }
  [[noreturn]] static void refuse_assign(std::string const& what) {
    throw invalid_argument("gradsieve: " + who() + "'s assign() " + what);
  }
  [[nodiscard]] static std::string text_of(std::size_t s, segment const& each) {
    return std::to_string(s) + " (offset " + std::to_string(each.offset) + ", size " + std::to_string(each.size) + ")";
  }

  /// Checks that no layer has elements from `covered` to before `to`. Returns the first layer that ends after `to`.
  static std::size_t require_covered(std::span<range const> layers, std::size_t next, std::uint64_t covered,
                                     std::uint64_t to) {
    for (; next < layers.size() && layers[next].offset < to; ++next) {
      std::uint64_t const first = larger(covered, layers[next].offset);
      std::uint64_t const last = smaller(to, layers[next].offset + layers[next].size);
      if (first < last)
        refuse_split("elements " + std::to_string(first) + " to " + std::to_string(last - 1) +
                     " are in no segment, so that they would never be sent");
      if (layers[next].offset + layers[next].size > to) break;
    }
    return next;
  }

  /// @pre layers[next] is the first layer that ends after the segment's begin
  [[nodiscard]] static bool within_one(std::span<range const> layers, std::size_t next, segment const& each) {
    return next < layers.size() && each.offset >= layers[next].offset &&
           each.offset + each.size <= layers[next].offset + layers[next].size;
  }
};

}  // namespace gradsieve::detail
