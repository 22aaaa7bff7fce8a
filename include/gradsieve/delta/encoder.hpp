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

/// Compares and encodes, in a space. encode() without `before` compares with the weights of keep(), and brings them up
/// to date.
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

  template <class T>
  void keep(gradient_ref<T const> from, std::uint64_t version) {
    if (kept_.size() != from.size_bytes()) kept_ = host_buffer<std::byte>(from.size_bytes());
    team_.run(from.size(), sections_.size(), [&](auto&, std::uint64_t s) {
      copy_section(from, sections_[s], kept_.data() + sections_[s].first * sizeof(T));
    });
    version_ = version;
  }

  /// `about`: the header without what is a chunk's own.
  template <class T>
  std::span<std::byte const> encode(gradient_ref<T const> const* before, gradient_ref<T const> after,
                                    delta_header about, std::uint64_t chunk_bytes,
                                    std::optional<delta_versions> versions) {
    about.versions = versions.value_or(delta_versions{version_, version_ + 1});
    std::span<T> const own{reinterpret_cast<T*>(kept_.data()), before != nullptr ? 0 : after.size()};
    auto const message = before != nullptr ? encode_changes<T>(*before, after, about, chunk_bytes)
                                           : encode_changes<T>(gradient_ref<T>{own}, after, about, chunk_bytes);
    version_ = about.versions.to;
    return message;
  }
  [[nodiscard]] std::span<std::byte const> message() const noexcept { return message_.first(bytes_); }
  void reserve(std::uint64_t bytes) {
    if (message_.size() < bytes) message_ = host_buffer<std::byte>(bytes);
  }
  [[nodiscard]] static std::vector<std::byte> copy_of(std::span<std::byte const> message) {
    return {message.begin(), message.end()};
  }

 private:
  /// A thread's memory. Pages hold the bytes of sections until the sizes of all are known.
  struct scratch {
    static constexpr std::size_t page_bytes = std::size_t{1} << 20;

    host_buffer<index_type> indices;
    host_buffer<std::byte> before, after;  // see readable()
    std::vector<host_buffer<std::byte>> pages;
    std::size_t page = 0, used = 0;

    [[nodiscard]] std::byte* take(std::uint64_t bytes) {
      if (page < pages.size() && used + bytes > page_bytes) {
        ++page;
        used = 0;
      }
      if (page == pages.size()) pages.emplace_back(page_bytes);
      return pages[page].data() + std::exchange(used, used + bytes);
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

    [[nodiscard]] std::uint64_t bytes() const noexcept {
      return delta_header::bytes + (sections + 7) / 8 + 2 * changed + payload;
    }
    [[nodiscard]] chunk with(found const& next) const noexcept {
      return {at, first, sections + 1, changed + (next.count > 0 ? 1 : 0), payload + next.bytes};
    }
  };

  template <class T, class Before>
  std::span<std::byte const> encode_changes(gradient_ref<Before> before, gradient_ref<T const> after,
                                            delta_header const& about, std::uint64_t chunk_bytes) {
    chunks_.clear();
    team_.for_each_memory([](scratch& own) { own.page = own.used = 0; });
    team_.run(after.size(), sections_.size(),
              [&](scratch& own, std::uint64_t s) { found_[s] = find<T>(own, sections_[s], before, after); });
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
    team_.run(bytes_, plan_.size(), [&](auto&, std::uint64_t c) {
      auto const to = message_.span().subspan(plan_[c].at, plan_[c].bytes());
      write(plan_[c], after, about, to);
      chunks_[c] = to;
    });
    return message();
  }

  /// Compares a section, and encodes what differs.
  template <class T, class Before>
  [[nodiscard]] found find(scratch& own, delta_section const& at, gradient_ref<Before> const& before,
                           gradient_ref<T const> const& after) {
    using list = host_kernels::list_differences<sizeof(T), !std::is_const_v<Before>>;
    if (own.indices.size() == 0) own.indices = host_buffer<index_type>(at.most + host_kernels::block);
    auto* const old = readable(before, at, own.before);
    auto const* const now = readable(after, at, own.after);
    auto const count = host_kernels::run<list>(level_, old, now, std::size_t{at.size}, own.indices.data());
    if (count == 0) return {};
    if (!at.is_sparse(count, sizeof(T))) return {at.size, at.size * sizeof(T)};
    auto const bytes = at.bytes(count, sizeof(T)), values = bytes - count * sizeof(T);
    auto* const to = own.take(bytes);
    at.with_codec(count, [&](auto const& codec, message_info const& info) {
      static_cast<void>(codec.encode(info, own.indices.first(count), {to, values}));
    });
    for (std::size_t i = 0; i < count; ++i)
      copy_values<sizeof(T)>(now + own.indices[i] * sizeof(T), 1, to + values + i * sizeof(T));
    return {static_cast<std::uint32_t>(count), bytes, to};
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
      if (entries.at != nullptr) {
        std::memcpy(std::exchange(at, at + entries.bytes), entries.at, entries.bytes);
        continue;
      }
      auto const [first, size] = sections_[each.first + i];
      after.for_each_run(first, size, [&at](std::span<T const> run) {
        copy_values<sizeof(T)>(reinterpret_cast<std::byte const*>(run.data()), run.size(), at);
        at += run.size_bytes();
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
/// Memory: the message twice, 0.3 to 1.3 MiB per thread, and with keep() the weights; allocated as they are needed. On
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
    return encode_from(before, after, versions);
  }
  /// As above, from version() to the next number.
  template <class Before, class After>
  std::span<std::byte const> encode(Before const& before, After const& after) & {
    return encode_from(before, after, {});
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
    return encode_kept(after, versions);
  }
  /// As above, from version() to the next number.
  template <class After>
  std::span<std::byte const> encode(After const& after) & {
    return encode_kept(after, {});
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
  using numbers_of = std::optional<delta_versions>;

  template <class Before, class After>
  std::span<std::byte const> encode_from(Before const& before, After const& after, numbers_of numbers) {
    auto const from = detail::checked_weights<Space>(before, layers_);
    auto const to = detail::checked_weights<Space>(after, layers_);
    using value = typename decltype(to)::value_type;
    static_assert(std::same_as<value, typename decltype(from)::value_type>, "both versions have one format");
    gradient_ref<value const> const old{from};
    return encode_changes<value>(&old, to, numbers);
  }
  template <class After>
  std::span<std::byte const> encode_kept(After const& after, numbers_of numbers) {
    auto const to = detail::checked_weights<Space>(after, layers_);
    using value = typename decltype(to)::value_type;
    constexpr auto format = detail::weight_format<value>;
    if (kept_format_ != format)
      throw invalid_argument("gradsieve: this delta_encoder has no copy of " + detail::weight_format_name(format) +
                             " weights: call keep() before");
    auto const message = encode_changes<value>(nullptr, to, numbers);
    kept_format_ = format;
    return message;
  }
  template <class T>
  std::span<std::byte const> encode_changes(gradient_ref<T const> const* before, gradient_ref<T const> after,
                                            numbers_of numbers) {
    using header = detail::delta_header;
    std::uint64_t least = header::bytes;
    for (auto const& each : writer_.sections()) least = larger(least, header::bytes + 3 + each.size * sizeof(T));
    if (options_.chunk_bytes < least)
      throw invalid_argument("gradsieve: delta_options::chunk_bytes is " + std::to_string(options_.chunk_bytes) +
                             ", these layers need at least " + std::to_string(least));
    if (before != nullptr || std::same_as<Space, host>) kept_format_ = 0;  // a host's copy is updated on the way
    return writer_.template encode<T>(before, after, header::of<T>(layers_), options_.chunk_bytes, numbers);
  }

  layout layers_;
  delta_options options_;
  detail::delta_writer<Space> writer_;
  std::uint16_t kept_format_ = 0;  // 0: no copy
};

}  // namespace gradsieve
