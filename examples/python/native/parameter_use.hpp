// Parameters of a bucket that no rank used in a step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/skipped_layers.hpp>

#include "compression.hpp"
#include "space_memory.hpp"

namespace example {

/// What one rank knows about the parameters of a bucket in a step, in the bucket's order.
struct parameter_use {
  static constexpr std::uint32_t used = 1;           ///< this rank used the parameter
  static constexpr std::uint32_t updated = 1 << 16;  ///< its gradient holds the update of an earlier step too

  std::vector<std::uint32_t> marks;  ///< of each parameter, 0 or these together; empty: all are used
  bool unused_is_left = false;       ///< the framework takes nothing for a parameter that no rank used
  bool fixed = false;                ///< which are used is the same in every step
  bool agreed = false;               ///< the marks are the same on all ranks
};

/// Which parameters no rank used, as the ranks find out together.
template <class Space>
class unused_parameters {
 public:
  explicit unused_parameters(std::size_t parameters) : known_(parameters, unknown) {}

  /// The members of the bucket that no rank used; nothing if the framework takes all. Valid until the next call.
  /// Collective where the framework does not: one message of 4 bytes a member; none where that is agreed, or fixed and
  /// known.
  /// @throws std::invalid_argument, on every rank that would take it, for a gradient with an earlier update.
  [[nodiscard]] gs::skipped_layers find(Space const& where, peers_of<Space> const& peers, gs::layout const& parameters,
                                        std::span<std::size_t const> members, parameter_use const& mine) {
    skipped_.clear();
    marks_ = mine.marks;
    bool const known = mine.fixed && std::ranges::all_of(members, [&](auto m) { return known_[m] != unknown; });
    if (mine.unused_is_left && !known && !mine.agreed) add_up(where, peers);
    for (std::size_t i = 0; i < marks_.size(); ++i) {
      if (mine.unused_is_left && !known) known_[members[i]] = marks_[i] % parameter_use::updated > 0 ? is_used : is_not;
      bool const skipped = mine.unused_is_left && known_[members[i]] == is_not;
      if (!skipped && marks_[i] >= parameter_use::updated) refuse(parameters[members[i]].name);
      if (mine.unused_is_left) skipped_.push_back(skipped ? 1 : 0);
    }
    return skipped_;
  }

 private:
  enum use : unsigned char { unknown, is_used, is_not };
  using memory = memory_of<Space>;

  /// @pre fewer ranks than parameter_use::updated
  void add_up(Space const& where, peers_of<Space> const& peers) {
    auto const buffer = memory::template allocate<std::uint32_t>(where, marks_.size());
    auto const marks = buffer.span();
    memory::copy(where, std::span{marks_}, marks);
    if (auto const* const nodes = std::get_if<nodes_of<Space>>(&peers)) {
      nodes->inside.all_reduce(where, marks, gs::reduction::sum);
      nodes->across.all_reduce(where, marks, gs::reduction::sum);
    } else {
      std::get<communicator_of<Space>>(peers).all_reduce(where, marks, gs::reduction::sum);
    }
    memory::copy(where, marks, std::span{marks_});
    memory::finish(where);
  }

  [[noreturn]] static void refuse(std::string const& name) {
    throw std::invalid_argument(
        "gradsieve: the gradient of '" + name +
        "' still holds the update of an earlier backward pass, which this recipe's residual would count again: call "
        "optimizer.zero_grad() after each update; to accumulate gradients, run all backward passes but the last inside "
        "model.no_sync()");
  }

  std::vector<use> known_;  // of each parameter
  std::vector<std::uint32_t> marks_;
  std::vector<unsigned char> skipped_;
};

/// Holds on to the parts of a bucket whose parameters are skipped, which are zero meanwhile.
template <class Space, class T>
class skipped_parts {
 public:
  skipped_parts(Space where, std::span<T> bucket, gs::layout const& parameters, std::span<std::size_t const> members,
                gs::skipped_layers skipped)
      : where_{where} {
    std::size_t at = 0;
    for (std::size_t i = 0; i < skipped.size(); ++i) {
      auto const part = bucket.subspan(at, parameters[members[i]].size);
      at += part.size();
      if (!skipped[i] || part.empty()) continue;
      parts_.emplace_back(part, memory::template allocate<T>(where_, part.size()));
      memory::copy(where_, part, parts_.back().second.span());
      memory::fill_with_zeros(where_, part);
    }
  }

  void put_back() const {
    for (auto const& [part, kept] : parts_) memory::copy(where_, kept.span(), part);
    if (!parts_.empty()) memory::finish(where_);
  }

 private:
  using memory = memory_of<Space>;

  Space where_;
  std::vector<std::pair<std::span<T>, typename memory::template buffer<T>>> parts_;
};

}  // namespace example
