// Encodes what changed between two versions of the weights of a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/simd.hpp>
#include <gradsieve/core/wire.hpp>
#include <gradsieve/delta/differences.hpp>
#include <gradsieve/delta/format.hpp>
#include <gradsieve/host/buffer.hpp>
#include <gradsieve/host/space.hpp>
#include <gradsieve/host/team.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// How a delta is split.
struct delta_options {
  std::uint64_t chunk_bytes = std::uint64_t{1} << 22;  ///< the most that a chunk has; enough for one section, 2^16 weights
};

/// Encodes the elements of a model's weights whose bits differ, lossless: all values come back with their bits, NaN
/// payloads and the signs of zeros included. The formats are those of weight_value; weights are contiguous memory or
/// `pieces`. The bytes do not depend on threads and instruction sets. Not for concurrent use.
/// Cost: one read of both arrays; of 16-bit weights at 1 % about 25 bits per changed element. Memory: the message
/// twice, 1 MiB per thread, and, after keep(), the weights.
///
/// The message is a row of chunks, of at most delta_options::chunk_bytes each. A receiver takes all of them at once, or
/// one by one in this order. Sections of layers without a change take one bit.
///
/// Example: see delta/README.md.
class delta_encoder {
 public:
  /// An encoder of weights with these layers, whose first version is 0. @throws invalid_argument if a chunk may be too
  /// short for one section of 65,536 elements, or for a whole layer that is smaller
  explicit delta_encoder(host where, layout layers, delta_options options = {})
      : layers_{std::move(layers)},
        options_{options},
        team_{where.threads},
        level_{smaller(where.simd_limit, host_kernels::best_simd())},
        sections_{detail::sections_of(layers_)},
        found_(sections_.size()),
        workers_(static_cast<std::size_t>(team_.size())) {}

  /// The layers.
  [[nodiscard]] layout const& layers() const noexcept { return layers_; }
  /// The version that the last message leads to, from which the next one starts unless told otherwise.
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }

  /// Encodes what changed from `before` to `after`. Returns the message, valid until the next call; see chunks().
  /// @throws invalid_argument if sizes differ from the layout's, or chunk_bytes is too small for this format
  template <class Before, class After>
  std::span<std::byte const> encode(Before const& before, After const& after, delta_versions versions) {
    auto const from = detail::checked_weights(before, layers_);
    auto const to = detail::checked_weights(after, layers_);
    using value = typename decltype(to)::value_type;
    static_assert(std::same_as<value, typename decltype(from)::value_type>, "both versions have one format");
    return encode_changes<value>(gradient_ref<value const>{from}, gradient_ref<value const>{to}, versions);
  }
  /// As above, from version() to the next number.
  template <class Before, class After>
  std::span<std::byte const> encode(Before const& before, After const& after) {
    return encode(before, after, {version_, version_ + 1});
  }

  /// Copies these weights: the next encode() with one argument starts from them. They are version(), unless told
  /// otherwise. Allocates in the first call. @throws invalid_argument if the size is wrong
  template <class Weights>
  void keep(Weights const& weights) {
    auto const from = detail::checked_weights(weights, layers_);
    using value = typename decltype(from)::value_type;
    kept_format_ = 0;
    if (auto const bytes = from.size() * sizeof(value); kept_.size() != bytes) kept_ = host_buffer<std::byte>(bytes);
    team_.run(from.size(), [&](int w) {
      auto const [begin, end] = team_.part(from.size(), w);
      from.read(begin, end - begin, reinterpret_cast<value*>(kept_.data()) + begin);
    });
    kept_format_ = detail::weight_format<value>;
  }
  /// As above, as this version.
  template <class Weights>
  void keep(Weights const& weights, std::uint64_t version) {
    keep(weights);
    version_ = version;
  }

  /// Encodes what changed since the last message, or keep(), and brings the copy up to date in the same pass. If it
  /// throws for want of memory, the copy is lost: call keep() again, and send the weights themselves. @throws
  /// invalid_argument without a copy of this format, or as the other encode()
  template <class After>
  std::span<std::byte const> encode(After const& after, delta_versions versions) {
    auto const to = detail::checked_weights(after, layers_);
    using value = typename decltype(to)::value_type;
    if (kept_format_ != detail::weight_format<value>)
      throw invalid_argument(std::string("gradsieve: this delta_encoder has no copy of ") +
                             detail::weight_format_name(detail::weight_format<value>) + " weights: call keep() before");
    check_chunk(sizeof(value));
    std::span<value> const own{reinterpret_cast<value*>(kept_.data()), to.size()};
    auto const format = std::exchange(kept_format_, std::uint16_t{0});
    auto const message = encode_changes<value>(gradient_ref<value>{own}, gradient_ref<value const>{to}, versions);
    kept_format_ = format;
    return message;
  }
  /// As above, from version() to the next number.
  template <class After>
  std::span<std::byte const> encode(After const& after) {
    return encode(after, delta_versions{version_, version_ + 1});
  }

  /// The chunks of the last message, which lie behind each other in it. At least one, so that versions advance.
  [[nodiscard]] std::span<std::span<std::byte const> const> chunks() const noexcept { return chunks_; }

 private:
  static constexpr std::size_t page_bytes = std::size_t{1} << 20;

  /// A section's entries: none, all of its elements, or `bytes` with indices.
  struct found {
    std::uint32_t count = 0;
    std::byte const* bytes = nullptr;  // null: all elements
  };
  struct chunk {
    std::size_t first = 0, sections = 0, changed = 0;
    std::uint64_t payload = 0, at = 0;

    [[nodiscard]] std::uint64_t bytes() const noexcept {
      return delta_header::bytes + (sections + 7) / 8 + 2 * changed + payload;
    }
  };
  /// A thread's memory. Pages hold the bytes of its sections until all are known.
  struct worker {
    host_buffer<index_type> indices;
    host_buffer<std::byte> before, after;  // of sections that lie in several pieces
    std::vector<host_buffer<std::byte>> pages;
    std::size_t page = 0, used = 0;
    std::exception_ptr failure;

    [[nodiscard]] std::byte* take(std::uint64_t bytes) {
      if (page < pages.size() && used + bytes > page_bytes) ++page, used = 0;
      if (page == pages.size()) pages.emplace_back(page_bytes);
      return pages[page].data() + std::exchange(used, used + bytes);
    }
  };

  /// @throws invalid_argument unless every section fits a chunk
  void check_chunk(std::uint64_t width) const {
    std::uint64_t least = delta_header::bytes;
    for (auto const& each : sections_) least = larger(least, delta_header::bytes + 3 + each.size * width);
    if (options_.chunk_bytes < least)
      throw invalid_argument("gradsieve: delta_options::chunk_bytes is " + std::to_string(options_.chunk_bytes) +
                             ", these layers need at least " + std::to_string(least));
  }

  template <class T, class Before>
  std::span<std::byte const> encode_changes(gradient_ref<Before> before, gradient_ref<T const> after,
                                            delta_versions versions) {
    check_chunk(sizeof(T));
    team_.run(after.size(), [&](int w) {
      auto& own = workers_[static_cast<std::size_t>(w)];
      try {
        own.page = own.used = 0;
        if (own.indices.size() == 0) own.indices = host_buffer<index_type>(detail::delta_section::most + host_kernels::block);
        auto const [begin, end] = team_.part(sections_.size(), w);
        for (auto s = begin; s < end; ++s) found_[s] = find<T>(own, sections_[s], before, after);
      } catch (...) {
        own.failure = std::current_exception();
      }
    });
    for (auto& each : workers_)
      if (auto const failure = std::exchange(each.failure, nullptr)) std::rethrow_exception(failure);
    assemble<T>(after, versions);
    version_ = versions.to;
    return {message_.data(), bytes_};
  }

  /// Compares a section, and encodes what differs.
  template <class T, class Before>
  [[nodiscard]] found find(worker& own, detail::delta_section const& at, gradient_ref<Before> const& before,
                           gradient_ref<T const> const& after) {
    auto const here = [&](auto const& weights, host_buffer<std::byte>& scratch) {
      auto* bytes = detail::contiguous(weights, at);
      if (bytes != nullptr) return bytes;
      if (scratch.size() == 0) scratch = host_buffer<std::byte>(std::size_t{detail::delta_section::most} * 4);
      weights.read(at.first, at.size, reinterpret_cast<T*>(scratch.data()));
      bytes = scratch.data();
      return bytes;
    };
    auto* const old = here(before, own.before);
    auto* const now = here(after, own.after);
    using list = host_kernels::list_differences<sizeof(T), !std::is_const_v<Before>>;
    auto const count = static_cast<std::uint32_t>(
        host_kernels::run<list>(level_, old, now, std::size_t{at.size}, own.indices.data()));
    if (count == 0 || !at.is_sparse(count, sizeof(T))) return {count == 0 ? 0 : at.size, nullptr};
    auto const bytes = at.bytes(count, sizeof(T));
    auto const values = bytes - std::uint64_t{count} * sizeof(T);
    auto* const to = own.take(bytes);
    at.encode(own.indices.first(count), {to, values});
    for (std::uint32_t i = 0; i < count; ++i)
      detail::copy_value<sizeof(T)>(now + own.indices[i] * sizeof(T), to + values + i * sizeof(T));
    return {count, to};
  }

  /// Writes the chunks.
  template <class T>
  void assemble(gradient_ref<T const> const& after, delta_versions versions) {
    plan_.assign(1, {});
    for (std::size_t s = 0; s < sections_.size(); ++s) {
      auto next = plan_.back();
      ++next.sections;
      next.changed += found_[s].count > 0 ? 1 : 0;
      next.payload += payload<T>(s);
      if (next.bytes() <= options_.chunk_bytes)
        plan_.back() = next;
      else
        plan_.push_back({s, 1, found_[s].count > 0 ? 1u : 0u, payload<T>(s), next.at + plan_.back().bytes()});
    }
    bytes_ = plan_.back().at + plan_.back().bytes();
    if (message_.size() < bytes_) message_ = host_buffer<std::byte>(bytes_ + bytes_ / 8);
    chunks_.clear();
    for (auto const& each : plan_) chunks_.push_back({message_.data() + each.at, each.bytes()});
    team_.run(bytes_, [&](int w) {
      auto const [begin, end] = team_.part(plan_.size(), w);
      for (auto c = begin; c < end; ++c) write(plan_[c], after, versions);
    });
  }

  template <class T>
  [[nodiscard]] std::uint64_t payload(std::size_t s) const noexcept {
    return found_[s].count == 0 ? 0 : sections_[s].bytes(found_[s].count, sizeof(T));
  }

  template <class T>
  void write(chunk const& each, gradient_ref<T const> const& after, delta_versions versions) const noexcept {
    auto const to = std::span{message_.data(), message_.size()}.subspan(each.at, each.bytes());
    wire::store_one(to, delta_header::magic);
    wire::store_one(to.subspan(4), delta_header::version);
    wire::store_one(to.subspan(6), detail::weight_format<T>);
    wire::store_one(to.subspan(8), std::uint64_t{each.bytes()});
    wire::store_one(to.subspan(16), layers_.size());
    wire::store_one(to.subspan(24), layers_.hash());
    wire::store_one(to.subspan(32), versions.from);
    wire::store_one(to.subspan(40), versions.to);
    wire::store_one(to.subspan(48), static_cast<std::uint32_t>(each.first));
    wire::store_one(to.subspan(52), static_cast<std::uint32_t>(each.sections));
    auto const bits = to.subspan(delta_header::bytes, (each.sections + 7) / 8);
    std::memset(bits.data(), 0, bits.size());
    auto counts = to.subspan(delta_header::bytes + bits.size());
    auto* at = counts.data() + 2 * each.changed;
    for (std::size_t i = 0; i < each.sections; ++i) {
      auto const& section = sections_[each.first + i];
      auto const& has = found_[each.first + i];
      if (has.count == 0) continue;
      bits[i / 8] |= static_cast<std::byte>(1u << (i % 8));
      wire::store_one(counts, static_cast<std::uint16_t>(has.count - 1));
      counts = counts.subspan(2);
      if (auto const bytes = payload<T>(each.first + i); has.bytes != nullptr)
        std::memcpy(std::exchange(at, at + bytes), has.bytes, bytes);
      else
        after.for_each_run(section.first, section.size, [to_run = &at](std::span<T const> run) {
          detail::copy_values<sizeof(T)>(reinterpret_cast<std::byte const*>(run.data()), run.size(), *to_run);
          *to_run += run.size_bytes();
        });
    }
    wire::store_one(to.subspan(delta_header::checksum_at), wire::checksum_around(to, delta_header::checksum_at));
  }

  layout layers_;
  delta_options options_;
  detail::host_team team_;
  simd level_;
  std::vector<detail::delta_section> sections_;
  std::vector<found> found_;  // of each section
  std::vector<worker> workers_;
  std::vector<chunk> plan_;
  host_buffer<std::byte> message_, kept_;
  std::uint64_t bytes_ = 0, version_ = 0;
  std::uint16_t kept_format_ = 0;  // 0: no copy
  std::vector<std::span<std::byte const>> chunks_;
};

}  // namespace gradsieve
