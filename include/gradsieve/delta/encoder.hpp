// Encodes what changed between two versions of the weights of a model.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/delta/format.hpp>
#include <gradsieve/host/simd/differences.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

/// Compares and encodes, in a space. encode() without `before` compares with the weights of keep(), and updates them.
template <class Space>
class delta_writer;

template <>
class delta_writer<host> {
 public:
  delta_writer(host where, std::vector<delta_section> sections)
      : team_{where},
        level_{smaller(where.simd_limit, host_kernels::best_simd())},
        sections_{std::move(sections)},
        found_(sections_.size()) {}

  [[nodiscard]] std::span<delta_section const> sections() const noexcept { return sections_; }
  [[nodiscard]] std::span<std::span<std::byte const> const> chunks() const noexcept { return chunks_; }
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
  [[nodiscard]] std::span<std::byte const> message() const noexcept { return message_.first(bytes_); }
  void reserve(std::uint64_t bytes) {
    if (message_.size() < bytes) message_ = host_buffer<std::byte>(bytes);
  }
  [[nodiscard]] static std::vector<std::byte> copy_of(std::span<std::byte const> message) {
    return {message.begin(), message.end()};
  }

  template <class T>
  void keep(gradient_ref<T const> from, std::uint64_t version) {
    if (kept_.size() != from.size_bytes()) kept_ = host_buffer<std::byte>(from.size_bytes());
    auto* const to = reinterpret_cast<T*>(kept_.data());
    team_.run(from.size(), sections_.size(), [&](auto&, std::uint64_t s) {
      from.read(sections_[s].first, sections_[s].size, to + sections_[s].first);
    });
    version_ = version;
  }

  /// `about`: the header without what is a chunk's own. `versions` null: to the next version.
  template <class T>
  std::span<std::byte const> encode(std::optional<gradient_ref<T const>> before, gradient_ref<T const> after,
                                    delta_header about, std::uint64_t chunk_bytes, delta_versions const* versions) {
    chunks_.clear();
    for (auto& each : team_.workers()) each.memory.used = 0;
    gradient_ref<T> const own{std::span{reinterpret_cast<T*>(kept_.data()), before ? 0 : after.size()}};
    team_.run(after.size(), sections_.size(), [&](scratch& memory, std::uint64_t s) {
      found_[s] = before ? find(memory, sections_[s], *before, after) : find(memory, sections_[s], own, after);
    });
    plan_.assign(1, {});
    for (std::size_t s = 0; s < found_.size(); ++s) {
      auto& last = plan_.back();
      if (auto const next = last.with(found_[s]); next.bytes() <= chunk_bytes)
        last = next;
      else
        plan_.push_back(chunk{.at = last.at + last.bytes(), .first = s}.with(found_[s]));
    }
    bytes_ = plan_.back().at + plan_.back().bytes();
    chunks_.reserve(plan_.size());
    if (message_.size() < bytes_) reserve(bytes_ + bytes_ / 8);
    chunks_.resize(plan_.size());
    about.versions = versions != nullptr ? *versions : delta_versions{version_, version_ + 1};
    team_.run(bytes_, plan_.size(), [&](auto&, std::uint64_t c) {
      auto const to = message_.span().subspan(plan_[c].at, plan_[c].bytes());
      write(plan_[c], after, about, to);
      chunks_[c] = to;
    });
    version_ = about.versions.to;
    return message();
  }

 private:
  /// A thread's memory. Pages hold the bytes of sections until the sizes of all are known.
  struct scratch {
    static constexpr std::size_t page_bytes = std::size_t{1} << 20;

    host_buffer<index_type> indices;
    host_buffer<std::byte> values, before, after;  // see list_differences and readable()
    std::vector<host_buffer<std::byte>> pages;
    std::size_t used = 0;  // bytes of pages

    [[nodiscard]] std::byte* take(std::size_t bytes) {
      if (used % page_bytes + bytes > page_bytes) used = (used / page_bytes + 1) * page_bytes;
      if (used / page_bytes == pages.size()) pages.emplace_back(page_bytes);
      return pages[used / page_bytes].data() + std::exchange(used, used + bytes) % page_bytes;
    }
  };
  struct found {
    std::uint32_t count = 0;
    std::uint64_t bytes = 0;
    std::byte const* at = nullptr;  // null: all elements, or none
  };
  struct chunk {
    std::uint64_t at = 0;
    std::size_t first = 0, sections = 0, changed = 0;
    std::uint64_t payload = 0;

    [[nodiscard]] std::uint64_t bytes() const noexcept { return delta_header::chunk_bytes(sections, changed, payload); }
    [[nodiscard]] chunk with(found const& next) const noexcept {
      return {at, first, sections + 1, changed + (next.count > 0 ? 1 : 0), payload + next.bytes};
    }
  };

  /// Compares a section, and encodes what differs. `before` gets it, unless it is const.
  template <class Before, class T>
  [[nodiscard]] found find(scratch& own, delta_section const& at, gradient_ref<Before> const& before,
                           gradient_ref<T const> const& after) {
    constexpr std::size_t room = delta_section::most + host_kernels::block;
    if (own.indices.size() == 0) own.indices = host_buffer<index_type>(room);
    if (own.values.size() == 0) own.values = host_buffer<std::byte>(room * 4);
    auto* const values = reinterpret_cast<T*>(own.values.data());
    auto const count = host_kernels::run<host_kernels::list_differences<Before>>(
        level_, readable(before, at, own.before), readable(after, at, own.after), std::size_t{at.size},
        own.indices.data(), values);
    if (count == 0) return {};
    if (!at.is_sparse(count, sizeof(T))) return {at.size, at.size * sizeof(T)};
    std::span const to{own.take(at.bytes(count, sizeof(T))), at.bytes(count, sizeof(T))};
    at.with_codec(count, [&](auto const& codec, message_info const& info) {
      auto const indices = codec.encode(info, own.indices.first(count), to.first(at.index_bytes(count)));
      wire::store(to.subspan(indices), std::span<T const>{values, count});
    });
    return {static_cast<std::uint32_t>(count), to.size(), to.data()};
  }

  template <class T>
  void write(chunk const& each, gradient_ref<T const> const& after, delta_header made,
             std::span<std::byte> const to) const noexcept {
    auto* const bits = to.data() + delta_header::bytes;
    auto* count = bits + (each.sections + 7) / 8;
    auto* at = count + 2 * each.changed;
    std::memset(bits, 0, (each.sections + 7) / 8);
    for (std::size_t i = 0; i < each.sections; ++i) {
      auto const& entries = found_[each.first + i];
      if (entries.count == 0) continue;
      bits[i / 8] |= static_cast<std::byte>(1u << (i % 8));
      wire::store_one({std::exchange(count, count + 2), 2}, static_cast<std::uint16_t>(entries.count - 1));
      if (entries.at != nullptr)
        std::memcpy(std::exchange(at, at + entries.bytes), entries.at, entries.bytes);
      else
        after.for_each_run(sections_[each.first + i].first, entries.count, [&at](std::span<T const> run) {
          wire::store({std::exchange(at, at + run.size_bytes()), run.size_bytes()}, run);
        });
    }
    made.size = to.size();
    made.sections = each.first | std::uint64_t{each.sections} << 32;
    made.store(to);
    made.checksum = delta_header::sum(to);
    made.store(to);
  }

  delta_team<scratch> team_;
  simd level_;
  std::vector<delta_section> sections_;
  std::vector<found> found_;  // of each section
  std::vector<chunk> plan_;
  host_buffer<std::byte> message_, kept_;
  std::vector<std::span<std::byte const>> chunks_;
  std::uint64_t version_ = 0, bytes_ = 0;
};

}  // namespace detail

/// How a delta is split.
struct delta_options {
  /// The most bytes of a chunk. One section must fit: 2^16 weights, or a layer that is smaller, and some 70 bytes.
  std::uint64_t chunk_bytes = std::uint64_t{1} << 22;
};

/// Encodes the weights of a model whose bits differ from the version before, lossless, NaN payloads and the signs of
/// zeros included. Weights are contiguous memory or `pieces`, of a format of weight_value. The message is a row of
/// chunks, of which a receiver takes all at once, or one by one in this order. The bytes do not depend on threads and
/// instruction sets. Not for concurrent use.
/// Cost: one read of both versions; of 16-bit weights 25 bits per change if 1 % changed, and one bit for each 2^16
/// weights of a layer of which none did. A section of which all or nearly all changed has no indices.
/// Memory: the message twice, 0.5 to 2 MiB per thread, and with keep() the weights; allocated as they are needed. On
/// a device, where all calls wait but in a capture: the message, a bit per weight, and with keep() the weights.
template <class Space = host>
class delta_encoder {
 public:
  /// An encoder of weights with these layers, whose first version is 0.
  explicit delta_encoder(Space where, layout layers, delta_options options = {})
      : layers_{std::move(layers)}, options_{options}, writer_{where, detail::sections_of(layers_)} {}

  [[nodiscard]] layout const& layers() const noexcept { return layers_; }  ///< the layers
  /// The version that the last message leads to.
  [[nodiscard]] std::uint64_t version() const noexcept { return writer_.version(); }

  /// Encodes what changed from `before` to `after`, and drops a copy of keep(). Returns the message, valid until the
  /// next call.
  /// @throws invalid_argument if sizes differ from the layout's, or chunk_bytes is too small for this format
  template <class Before, class After>
  std::span<std::byte const> encode(Before const& before, After const& after, delta_versions versions) & {
    return encode_changes(&before, after, &versions);
  }
  /// As above, from version() to the next number.
  template <class Before, class After>
  std::span<std::byte const> encode(Before const& before, After const& after) & {
    return encode_changes(&before, after, nullptr);
  }
  /// Of a temporary encoder: a message of its own, in host memory.
  template <class Before, class After>
  std::vector<std::byte> encode(Before const& before, After const& after, delta_versions versions = {}) && {
    return writer_.copy_of(encode(before, after, versions));
  }

  /// Copies these weights, for calls of encode() without `before`. @throws invalid_argument if the size is wrong
  template <class Weights>
  void keep(Weights const& weights, std::uint64_t version = 0) {
    auto const from = detail::checked_weights<Space>(weights, layers_);
    using value = typename decltype(from)::value_type;
    kept_format_ = 0;
    writer_.keep(gradient_ref<value const>{from}, version);
    kept_format_ = detail::weight_format<value>;
  }
  /// Encodes what changed since the last message, or keep(), and updates the copy in the same pass. If memory does not
  /// suffice it throws and drops the copy. @throws invalid_argument without a copy of this format, or as above
  template <class After>
  std::span<std::byte const> encode(After const& after, delta_versions versions) & {
    return encode_changes<After>(nullptr, after, &versions);
  }
  /// As above, from version() to the next number.
  template <class After>
  std::span<std::byte const> encode(After const& after) & {
    return encode_changes<After>(nullptr, after, nullptr);
  }

  /// The last message, valid until the next call. On a device: of a graph's last replay; waits.
  /// @throws invalid_argument if there was no room for it; nothing was written then, and its changes are in the next
  /// one
  [[nodiscard]] std::span<std::byte const> message() { return writer_.message(); }
  /// Makes room for messages of this many bytes, which a device needs before encode() is captured in a graph. Such a
  /// call compares with the copy or with the same `before`, goes to the next number, and returns all of the room.
  void reserve(std::uint64_t bytes) { writer_.reserve(bytes); }
  /// The chunks that make up the last message, at least one; none before the first.
  [[nodiscard]] std::span<std::span<std::byte const> const> chunks() const noexcept { return writer_.chunks(); }

 private:
  /// `before` null: the copy. `versions` null: the next number.
  template <class Before, class After>
  std::span<std::byte const> encode_changes(Before const* before, After const& after, delta_versions const* versions) {
    using header = detail::delta_header;
    auto const to = detail::checked_weights<Space>(after, layers_);
    using value = typename decltype(to)::value_type;
    constexpr auto format = detail::weight_format<value>;
    std::optional<gradient_ref<value const>> old;
    if (before != nullptr) {
      auto const from = detail::checked_weights<Space>(*before, layers_);
      static_assert(std::same_as<value, typename decltype(from)::value_type>, "both versions have one format");
      old = from;
    } else if (kept_format_ != format) {
      throw invalid_argument("gradsieve: this delta_encoder has no copy of " + detail::weight_format_name(format) +
                             " weights: call keep() before");
    }
    std::uint64_t least = header::bytes;
    for (auto const& each : writer_.sections())
      least = larger(least, header::chunk_bytes(1, 1, each.size * sizeof(value)));
    if (options_.chunk_bytes < least)
      throw invalid_argument("gradsieve: delta_options::chunk_bytes is " + std::to_string(options_.chunk_bytes) +
                             ", these layers need at least " + std::to_string(least));
    if (old || std::same_as<Space, host>) kept_format_ = 0;  // a host's copy is updated on the way
    auto const message =
        writer_.template encode<value>(old, to, header::of<value>(layers_), options_.chunk_bytes, versions);
    if (!old) kept_format_ = format;
    return message;
  }

  layout layers_;
  delta_options options_;
  detail::delta_writer<Space> writer_;
  std::uint16_t kept_format_ = 0;  // 0: no copy
};

}  // namespace gradsieve
