// Applies weight deltas.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/wire.hpp>
#include <gradsieve/delta/format.hpp>
#include <gradsieve/host/buffer.hpp>
#include <gradsieve/host/space.hpp>
#include <gradsieve/host/team.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A hash of all weights' bits and of their layers, for use as a version: 64 bits, so two given versions of a model
/// have the same one with a probability of about 2^-60; it does not stop forgery. It does not depend on threads and
/// pieces. Cost: one read. @throws invalid_argument if the size is wrong
template <class Weights>
[[nodiscard]] std::uint64_t weights_fingerprint(host where, layout const& layers, Weights const& weights) {
  auto const from = detail::checked_weights(weights, layers);
  using value = typename decltype(from)::value_type;
  auto const sections = detail::sections_of(layers);
  detail::host_team const team{where.threads};
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(team.size()));
  std::vector<value> copies(sums.size() * detail::delta_section::most);
  team.run(from.size(), [&](int w) {
    auto const [begin, end] = team.part(sections.size(), w);
    auto* const copy = copies.data() + static_cast<std::size_t>(w) * detail::delta_section::most;
    for (auto s = begin; s < end; ++s) {
      std::byte const* bytes = detail::contiguous(from, sections[s]);
      if (bytes == nullptr) {
        from.read(sections[s].first, sections[s].size, copy);
        bytes = reinterpret_cast<std::byte const*>(copy);
      }
      sums[static_cast<std::size_t>(w)] += wire::mixed(wire::checksum({bytes, sections[s].size * sizeof(value)}), s + 1);
    }
  });
  std::uint64_t total = wire::mixed(layers.hash(), detail::weight_format<value>);
  for (auto const each : sums) total += each;
  return total;
}

/// Applies the messages of a delta_encoder to a receiver's weights, by overwriting what changed. A call checks all that
/// it is given before it writes anything: length, checksum, layers, format of the weights, versions, and that indices
/// increase within their section. If it throws, the weights and this object are as before, and the next message may
/// follow. Not checked: that the weights are those of the version that their holder says.
/// Cost: two reads of the message, and what writing to the places of the entries costs; nothing is allocated in steady
/// state. Memory: 256 KiB per thread. Not for concurrent use.
class delta_decoder {
 public:
  /// For weights with these layers, of this version.
  explicit delta_decoder(host where, layout layers, std::uint64_t version = 0)
      : layers_{std::move(layers)},
        team_{where.threads},
        sections_{detail::sections_of(layers_)},
        workers_(static_cast<std::size_t>(team_.size())),
        version_{version} {}

  /// The layers.
  [[nodiscard]] layout const& layers() const noexcept { return layers_; }
  /// The version of the weights; the former one until a delta's last chunk was applied.
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
  /// False after some but not all chunks of a delta: the weights are then between two versions.
  [[nodiscard]] bool complete() const noexcept { return !started_; }

  /// Expects the first chunk of the delta that was begun again, as after a connection that broke. It must have the same
  /// versions, as it overwrites the same places.
  void restart() noexcept { next_ = 0; }
  /// Says that the caller has overwritten all weights with those of a version.
  void reset(std::uint64_t version) noexcept {
    version_ = version;
    started_ = false;
    next_ = 0;
  }

  /// Applies a message, or some of its chunks, behind each other: those that are next.
  /// @throws corrupt_message if bytes are missing or damaged; mismatch if they are for other layers, another format or
  /// version, or a chunk is missing or came twice; invalid_argument if the weights' size is wrong. Nothing was written.
  template <class Weights>
  void apply(std::span<std::byte const> message, Weights&& weights) {
    pieces_.clear();
    do {
      auto const size = message.size() < delta_header::bytes ? delta_header::bytes
                                                             : wire::load_one<std::uint64_t>(message.subspan(8));
      wire::expect(size >= delta_header::bytes, "chunk size", size, "at least ", delta_header::bytes);
      wire::expect(message.size() >= size, "size", message.size(), "at least ", size);
      pieces_.push_back(message.first(size));
      message = message.subspan(size);
    } while (!message.empty());
    apply_all(pieces_, weights_of(weights));
  }
  /// As above, for chunks that lie apart, in their order.
  template <class Weights>
  void apply(std::span<std::span<std::byte const> const> chunks, Weights&& weights) {
    for (auto const& each : chunks) {
      wire::expect(each.size() >= delta_header::bytes, "size", each.size(), "at least ", delta_header::bytes);
      auto const size = wire::load_one<std::uint64_t>(each.subspan(8));
      wire::expect(each.size() == size, "size", each.size(), "", size);
    }
    apply_all(chunks, weights_of(weights));
  }

 private:
  /// A changed section of the chunks at hand.
  struct change {
    std::uint32_t section;
    std::uint32_t count;
    std::byte const* bytes;
  };
  struct worker {
    host_buffer<index_type> indices;
    std::exception_ptr failure;
  };
  /// What the next chunk has to be.
  struct progress {
    std::size_t next;
    bool started;
    delta_versions versions;
  };

  template <class Weights>
  [[nodiscard]] auto weights_of(Weights& weights) const {
    auto const made = detail::checked_weights(weights, layers_);
    static_assert(!std::is_const_v<typename decltype(made)::element_type>, "apply() overwrites the weights: not const");
    return made;
  }

  template <class T>
  void apply_all(std::span<std::span<std::byte const> const> chunks, gradient_ref<T> const weights) {
    if (chunks.empty()) return;
    check_sums(chunks);
    progress at{next_, started_, {version_, to_}};
    changes_.clear();
    for (auto const& each : chunks) read<T>(each, at);
    in_team(weights.size(), [&](worker& own, change const& each) { check<T>(own, each); });
    in_team(weights.size(), [&](worker& own, change const& each) { write(own, each, weights); });
    to_ = at.versions.to;
    started_ = at.next < sections_.size();
    next_ = started_ ? at.next : 0;
    if (!started_) version_ = to_;
  }

  /// @throws corrupt_message unless all checksums are right
  void check_sums(std::span<std::span<std::byte const> const> chunks) {
    std::vector<std::uint8_t> good(chunks.size());
    std::uint64_t bytes = 0;
    for (auto const& each : chunks) bytes += each.size();
    team_.run(bytes, [&](int w) {
      auto const [begin, end] = team_.part(chunks.size(), w);
      for (auto c = begin; c < end; ++c)
        good[c] = wire::checksum_around(chunks[c], delta_header::checksum_at) ==
                  wire::load_one<std::uint64_t>(chunks[c].subspan(delta_header::checksum_at));
    });
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      auto const magic = wire::load_one<std::uint32_t>(chunks[c]);
      wire::expect(magic == delta_header::magic, "magic number", magic, "", delta_header::magic);
      if (good[c] == 0) throw corrupt_message("gradsieve: message checksum does not match: the bytes are damaged");
      auto const version = wire::load_one<std::uint16_t>(chunks[c].subspan(4));
      wire::expect(version == delta_header::version, "version", version, "", delta_header::version);
    }
  }

  /// Reads a chunk but for its entries.
  template <class T>
  void read(std::span<std::byte const> const from, progress& at) {
    auto const header = checked_header<T>(from, at);
    auto const bits = delta_header::bytes;
    auto const counts = bits + (std::uint64_t{header.sections} + 7) / 8;
    wire::expect(from.size() >= counts, "size", from.size(), "at least ", counts);
    auto const changed = wire::count_bits(from.subspan(bits, counts - bits));
    auto end = counts + 2 * changed;
    wire::expect(from.size() >= end, "size", from.size(), "at least ", end);
    wire::expect(wire::padding_is_zero(from.subspan(bits), header.sections, 1), "padding of sections", 1, "", 0);
    std::uint64_t c = counts;
    wire::for_each_bit(from.subspan(bits, counts - bits), [&](std::uint64_t bit) {
      auto const s = header.first + static_cast<std::uint32_t>(bit);
      auto const count = std::uint32_t{wire::load_one<std::uint16_t>(from.subspan(c))} + 1;
      auto const& section = sections_[s];
      wire::expect(count == section.size || section.is_sparse(count, sizeof(T)), "entry count", count,
                   "fewer than or all of ", section.size);
      changes_.push_back({s, count, from.data() + end});
      end += section.bytes(count, sizeof(T));
      c += 2;
    });
    wire::expect(from.size() == end, "size", from.size(), "", end);
  }

  template <class T>
  [[nodiscard]] delta_header checked_header(std::span<std::byte const> const from, progress& at) const {
    delta_header const header{.format = wire::load_one<std::uint16_t>(from.subspan(6)),
                              .size = from.size(),
                              .n = wire::load_one<std::uint64_t>(from.subspan(16)),
                              .layout_hash = wire::load_one<std::uint64_t>(from.subspan(24)),
                              .versions = {wire::load_one<std::uint64_t>(from.subspan(32)),
                                           wire::load_one<std::uint64_t>(from.subspan(40))},
                              .first = wire::load_one<std::uint32_t>(from.subspan(48)),
                              .sections = wire::load_one<std::uint32_t>(from.subspan(52))};
    auto const refuse = [](std::string const& text) { throw mismatch("gradsieve: this delta " + text); };
    auto const number = [](std::uint64_t x) { return std::to_string(x); };
    if (header.format != detail::weight_format<T>)
      refuse(std::string("is of ") + detail::weight_format_name(header.format) + " weights, these are " +
             detail::weight_format_name(detail::weight_format<T>));
    if (header.n != layers_.size() || header.layout_hash != layers_.hash())
      refuse("is of " + number(header.n) + " weights in other layers than the " + number(layers_.size()) + " here");
    if (header.versions.from != at.versions.from)
      refuse("starts from version " + number(header.versions.from) + ", the weights have version " +
             number(at.versions.from));
    if (at.started && header.versions.to != at.versions.to)
      refuse("leads to version " + number(header.versions.to) + ", chunks to version " + number(at.versions.to) +
             " were applied before");
    if (at.started && at.next == sections_.size()) refuse("has a chunk behind its last one");
    if (header.first != at.next)
      refuse("has a chunk that begins with section " + number(header.first) + ", expected section " + number(at.next) +
             ": a chunk is missing or came twice");
    wire::expect(header.sections <= sections_.size() - at.next && (header.sections > 0 || sections_.empty()),
                 "number of sections", header.sections, "from 1 to ", sections_.size() - at.next);
    at = {at.next + header.sections, true, header.versions};
    return header;
  }

  /// Calls body(worker, change) for all changes; what it throws comes out when all threads have ended.
  template <class Body>
  void in_team(std::uint64_t work, Body const& body) {
    team_.run(work, [&](int w) {
      auto& own = workers_[static_cast<std::size_t>(w)];
      try {
        if (own.indices.size() == 0) own.indices = host_buffer<index_type>(detail::delta_section::most);
        auto const [begin, end] = team_.part(changes_.size(), w);
        for (auto c = begin; c < end; ++c) body(own, changes_[c]);
      } catch (...) {
        own.failure = std::current_exception();
      }
    });
    std::exception_ptr first;
    for (auto& each : workers_)
      if (auto const failure = std::exchange(each.failure, nullptr); failure && !first) first = failure;
    if (first) std::rethrow_exception(first);
  }

  /// The indices of a change that has some.
  [[nodiscard]] std::span<index_type const> decode(worker& own, change const& each) const {
    auto const& section = sections_[each.section];
    auto const indices = own.indices.first(each.count);
    section.decode({each.bytes, section.index_bytes(each.count)}, indices);
    return indices;
  }

  template <class T>
  void check(worker& own, change const& each) const {
    auto const& section = sections_[each.section];
    if (each.count < section.size) wire::check_indices(section.size, decode(own, each));
  }

  template <class T>
  void write(worker& own, change const& each, gradient_ref<T> const& weights) const {
    auto const& section = sections_[each.section];
    if (each.count == section.size) {
      auto* from = each.bytes;
      weights.for_each_run(section.first, section.size, [&from](std::span<T> run) {
        detail::copy_values<sizeof(T)>(from, run.size(), reinterpret_cast<std::byte*>(run.data()));
        from += run.size_bytes();
      });
      return;
    }
    auto const indices = decode(own, each);
    auto const* const from = each.bytes + section.index_bytes(each.count);
    if (auto* const to = detail::contiguous(weights, section); to != nullptr)
      for (std::size_t i = 0; i < indices.size(); ++i)
        detail::copy_value<sizeof(T)>(from + i * sizeof(T), to + indices[i] * sizeof(T));
    else
      for (std::size_t i = 0; i < indices.size(); ++i)
        detail::copy_value<sizeof(T)>(from + i * sizeof(T),
                                      reinterpret_cast<std::byte*>(&weights[section.first + indices[i]]));
  }

  layout layers_;
  detail::host_team team_;
  std::vector<detail::delta_section> sections_;
  std::vector<worker> workers_;
  std::vector<change> changes_;
  std::vector<std::span<std::byte const>> pieces_;
  std::uint64_t version_, to_ = 0;
  std::size_t next_ = 0;
  bool started_ = false;
};

}  // namespace gradsieve
