// Applies weight deltas, and fingerprints weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/codec/bits.hpp>
#include <gradsieve/codec/checked.hpp>
#include <gradsieve/delta/format.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A hash of the bits of all weights, their format and layers, for use as a version. Two versions of a model have the
/// same one with a probability of about 2^-60; it does not stop forgery. It does not depend on threads and pieces.
/// Cost: one read. @throws invalid_argument if the size is wrong
template <class Weights>
[[nodiscard]] std::uint64_t weights_fingerprint(host where, layout const& layers, Weights const& weights) {
  auto const from = detail::checked_weights<host>(weights, layers);
  using value = typename decltype(from)::value_type;
  auto const sections = detail::sections_of(layers);
  std::vector<std::uint64_t> sums(sections.size());
  detail::delta_team<host_buffer<std::byte>> team{where};
  team.run(from.size(), sections.size(), [&](host_buffer<std::byte>& scratch, std::uint64_t s) {
    std::span const here{detail::readable(from, sections[s], scratch), sections[s].size};
    sums[s] = wire::mixed(wire::checksum(std::as_bytes(here)), s + 1);
  });
  std::uint64_t total = wire::mixed(layers.hash(), detail::weight_format<value>);
  for (auto const each : sums) total += each;
  return total;
}

namespace detail {

/// How far weights are.
struct delta_progress {
  std::uint64_t version = 0;
  bool started = false;  // chunks of a delta that leads `to` a version were applied; the next begins with `section`
  std::uint64_t to = 0;
  std::uint64_t section = 0;

  friend bool operator==(delta_progress const&, delta_progress const&) = default;
};

/// Reads messages and writes weights, in a space.
template <class Space>
class delta_reader;

template <>
class delta_reader<host> {
 public:
  delta_reader(host where, std::vector<delta_section> sections, delta_progress const& = {})
      : team_{where}, sections_{std::move(sections)} {}

  void refresh(delta_progress&) const noexcept {}

  template <class T>
  void verify(std::span<std::span<std::byte const> const> messages, layout const& layers, delta_progress& at) {
    at = checked<T>(messages, layers, at);
  }
  /// Throws, or writes all.
  template <class T>
  void apply(std::span<std::span<std::byte const> const> messages, gradient_ref<T> const& to, layout const& layers,
             delta_progress& at) {
    auto const next = checked<T>(messages, layers, at);
    team_.run(to.size(), changes_.size(),
              [&](host_buffer<index_type>& own, std::uint64_t c) { write(own, changes_[c], to); });
    at = next;
  }
  /// Checks all that apply() is given. Returns how far the weights will be. @throws as delta_decoder::apply()
  template <class T>
  [[nodiscard]] delta_progress checked(std::span<std::span<std::byte const> const> messages, layout const& layers,
                                       delta_progress next) {
    chunks_.clear();
    changes_.clear();
    for (auto const& each : messages) split(each);
    check_sums();
    for (auto const& each : chunks_) read<T>(each, layers, next);
    team_.run(layers.size(), changes_.size(), [&](host_buffer<index_type>& own, std::uint64_t c) {
      if (own.size() == 0) own = host_buffer<index_type>(delta_section::most);
      auto const& section = sections_[changes_[c].section];
      if (changes_[c].count < section.size) wire::check_indices(section.size, decode(own, changes_[c]));
    });
    if (next.started && next.section == sections_.size()) next = {next.to};
    return next;
  }

 private:
  struct change {
    std::uint32_t section, count;
    std::byte const* bytes;
  };

  /// Splits bytes at the ends of chunks. @throws corrupt_message
  void split(std::span<std::byte const> left) {
    do {
      wire::expect(left.size() >= delta_header::bytes, "size", left.size(), "at least ", delta_header::bytes);
      auto const size = delta_header::load(left).size;
      wire::expect(size >= delta_header::bytes && size <= left.size(), "size", left.size(), "at least ",
                   larger(size, delta_header::bytes));
      chunks_.push_back(left.first(size));
      left = left.subspan(size);
    } while (!left.empty());
  }

  /// @throws corrupt_message unless all chunks are of this format, and whole
  void check_sums() {
    std::uint64_t bytes = 0;
    for (auto const& each : chunks_) bytes += each.size();
    team_.run(bytes, chunks_.size(), [&](auto&, std::uint64_t c) {
      using header = delta_header;
      auto const [kind, size, n, hash, versions, sections, sum] = header::load(chunks_[c]);
      wire::expect((kind & 0xFFFF'FFFFu) == header::magic, "magic number", kind & 0xFFFF'FFFFu, "", header::magic);
      wire::expect((kind >> 32 & 0xFFFFu) == header::version, "version", kind >> 32 & 0xFFFFu, "", header::version);
      if (header::sum(chunks_[c]) != sum)
        throw corrupt_message("gradsieve: message checksum does not match: the bytes are damaged");
    });
  }

  /// Reads a chunk but for its entries.
  template <class T>
  void read(std::span<std::byte const> const from, layout const& layers, delta_progress& at) {
    auto const header = delta_header::load(from);
    auto const refuse = [](std::string const& text) { throw mismatch("gradsieve: this delta " + text); };
    auto const text = [](std::uint64_t x) { return std::to_string(x); };
    if (auto const format = header.kind >> 48; format != weight_format<T>)
      refuse("is of " + weight_format_name(format) + " weights, these are " + weight_format_name(weight_format<T>));
    if (header.n != layers.size() || header.layout_hash != layers.hash())
      refuse("is of " + text(header.n) + " weights in other layers than the " + text(layers.size()) + " here");
    if (header.versions.from != at.version)
      refuse("starts from version " + text(header.versions.from) + ", the weights have version " + text(at.version));
    if (at.started && header.versions.to != at.to)
      refuse("leads to version " + text(header.versions.to) + ", chunks to version " + text(at.to) + " came before");
    if (at.started && at.section == sections_.size()) refuse("has a chunk behind its last one");
    std::uint64_t const first = header.sections & 0xFFFF'FFFFu, count = header.sections >> 32;
    if (first != at.section)
      refuse("has a chunk that begins with section " + text(first) + ", expected section " + text(at.section) +
             ": a chunk is missing or came twice");
    wire::expect(count <= sections_.size() - first && (count > 0 || sections_.empty()), "number of sections", count,
                 "from 1 to ", sections_.size() - first);
    at = {at.version, true, header.versions.to, first + count};

    auto const counts = header.bytes + (count + 7) / 8;
    wire::expect(from.size() >= counts, "size", from.size(), "at least ", counts);
    auto const bits = from.subspan(header.bytes, counts - header.bytes);
    auto end = counts + 2 * wire::count_bits(bits);
    wire::expect(from.size() >= end, "size", from.size(), "at least ", end);
    wire::expect(wire::padding_is_zero(bits, count, 1), "padding of sections", 1, "", 0);
    auto counted = counts;
    wire::for_each_bit(bits, [&](std::uint64_t bit) {
      auto const& section = sections_[first + bit];
      auto const entries =
          std::uint32_t{wire::load_one<std::uint16_t>(from.subspan(std::exchange(counted, counted + 2)))} + 1;
      wire::expect(entries == section.size || section.is_sparse(entries, sizeof(T)), "entry count", entries,
                   "fewer than or all of ", section.size);
      changes_.push_back({static_cast<std::uint32_t>(first + bit), entries, from.data() + end});
      end += section.bytes(entries, sizeof(T));
    });
    wire::expect(from.size() == end, "size", from.size(), "", end);
  }

  [[nodiscard]] std::span<index_type> decode(host_buffer<index_type>& own, change const& each) const {
    auto const& section = sections_[each.section];
    auto const indices = own.first(each.count);
    section.with_codec(each.count, [&](auto const& codec, message_info const& info) {
      static_cast<void>(codec.decode(info, {each.bytes, section.index_bytes(each.count)}, indices));
    });
    return indices;
  }

  template <class T>
  void write(host_buffer<index_type>& own, change const& each, gradient_ref<T> const& weights) const {
    auto const& section = sections_[each.section];
    bool const all = each.count == section.size;
    auto const indices = all ? std::span<index_type>{} : decode(own, each);
    auto const* from = each.bytes + (all ? 0 : section.index_bytes(each.count));
    std::uint64_t begin = 0;  // of the run, in the section
    std::size_t next = 0;
    weights.for_each_run(section.first, section.size, [&](std::span<T> run) {
      auto const store = [&](std::span<T> to) {
        wire::load(to, {std::exchange(from, from + to.size_bytes()), to.size_bytes()});
      };
      auto const first = next;
      if (all) store(run);
      for (; next < indices.size() && indices[next] - begin < run.size(); ++next)
        __builtin_prefetch(&run[indices[next] - begin], 1);
      for (auto i = first; i < next; ++i) store(run.subspan(indices[i] - begin, 1));
      begin += run.size();
    });
  }

  delta_team<host_buffer<index_type>> team_;
  std::vector<delta_section> sections_;
  std::vector<std::span<std::byte const>> chunks_;
  std::vector<change> changes_;
};

}  // namespace detail

/// Applies the messages of a delta_encoder to a receiver's weights, by overwriting what changed. A call checks all that
/// it is given before it writes: length, checksum, layers, format, versions, and that indices increase within their
/// section. If it throws, the weights and this object are as before, and the next message may follow. Its bytes must
/// not change during the call. It does not read the weights to find out whether they have the version that their holder
/// says. Not for concurrent use.
/// Cost: two reads of the message, and a write at each entry. Memory: 256 KiB per thread, and 16 bytes for each section
/// of 2^16 weights that changed; allocated before anything is written. On a device, where apply() waits but in a
/// capture: 70 bytes for each section, at construction.
template <class Space = host>
class delta_decoder {
 public:
  /// For weights with these layers, of this version.
  explicit delta_decoder(Space where, layout layers, std::uint64_t version = 0)
      : layers_{std::move(layers)}, at_{version}, reader_{where, detail::sections_of(layers_), at_} {}

  [[nodiscard]] layout const& layers() const noexcept { return layers_; }  ///< the layers
  /// The version of the weights; the one before, until a delta's last chunk was applied.
  [[nodiscard]] std::uint64_t version() const noexcept { return at_.version; }
  /// False after some but not all chunks of a delta: the weights are between two versions.
  [[nodiscard]] bool complete() const noexcept { return !at_.started; }

  /// Waits for the replays of a graph that holds apply(), and brings version() up to date. Nothing on a host.
  /// @throws corrupt_message if one of their messages was refused; it has changed nothing
  void check() { reader_.refresh(at_); }

  /// Expects the first chunk of the same delta again, as after a connection that broke. Harmless: the delta overwrites
  /// the same places.
  void restart() {
    check();
    at_.section = 0;
  }
  /// Says that the caller has replaced all weights by those of a version.
  void reset(std::uint64_t version) noexcept { at_ = {version}; }

  /// Checks all that apply() would check of messages for weights of format T, and changes nothing: for several decoders
  /// of which all or none are to go on. Returns the version that the weights would have, or nothing if chunks would be
  /// missing. Not in a capture. @throws as apply() and check()
  template <weight_value T>
  [[nodiscard]] std::optional<std::uint64_t> verify(std::span<std::span<std::byte const> const> messages) {
    check();
    auto next = at_;
    reader_.template verify<T>(messages, layers_, next);
    return next.started ? std::nullopt : std::optional{next.version};
  }
  /// As above, of one message, or of chunks behind each other.
  template <weight_value T>
  [[nodiscard]] std::optional<std::uint64_t> verify(std::span<std::byte const> message) {
    return verify<T>(std::span<std::span<std::byte const> const>{&message, 1});
  }

  /// Applies the next message, or the next chunks of one, behind each other.
  /// @throws corrupt_message if bytes are missing or damaged; mismatch if they are for other layers, another format or
  /// version, or if a chunk is missing or came twice; invalid_argument if the weights' size is wrong, or the message
  /// lies in their memory
  template <class Weights>
  void apply(std::span<std::byte const> message, Weights&& weights) {
    apply(std::span<std::span<std::byte const> const>{&message, 1}, weights);
  }
  /// As above, for bytes that lie apart, in their order; each item has whole chunks.
  template <class Weights>
  void apply(std::span<std::span<std::byte const> const> messages, Weights&& weights) {
    auto const to = detail::checked_weights<Space>(weights, layers_);
    using element = typename decltype(to)::element_type;
    static_assert(!std::is_const_v<element> && !detail::temporary_memory<Weights>,
                  "apply() overwrites the weights: they must not be const or a temporary");
    to.for_each_run(0, to.size(), [&](auto const run) {
      for (auto const& each : messages)
        if (detail::shares_memory(each, std::as_bytes(run)))
          throw invalid_argument("gradsieve: a delta's message lies in the memory of the weights");
    });
    reader_.template apply<element>(messages, to, layers_, at_);
  }

 private:
  layout layers_;
  detail::delta_progress at_;
  detail::delta_reader<Space> reader_;
};

}  // namespace gradsieve
