// The report of a step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

#include <gradsieve/core/selection.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Seconds of one step, by stage. Encoding and decoding count as exchange.
struct step_seconds {
  double accumulate = 0;  ///< adding the gradient to the residual
  double partition = 0;   ///< decisions that need norms, and moving the layers that pass through
  double select = 0;      ///< choosing and quantising entries
  double exchange = 0;    ///< messages, collectives and waiting for other ranks
  double apply = 0;       ///< writing the update to the gradient
  /// The sum of all stages.
  [[nodiscard]] double total() const noexcept { return accumulate + partition + select + exchange + apply; }
};

/// The bytes of a message that belong to one kind of layer; on the host, of all that the step sends. Passthrough layers
/// are one kind; of the others, all with the same bin length. Every byte counts once. Bytes that belong to no layer,
/// such as a header's, are divided in proportion to elements.
struct layer_kind_bytes {
  static constexpr std::uint32_t several = ~std::uint32_t{0};  ///< the bin_length of a kind with several lengths

  std::uint32_t bin_length = 0;  ///< of these layers' bins; 0: layers that pass through; `several`: all other lengths
  std::uint64_t elements = 0;    ///< of these layers
  std::uint64_t entries = 0;     ///< sent entries of these layers
  double bytes = 0;              ///< their bytes in the message

  /// Compression rate: bytes of these layers as binary32, divided by the bytes sent for them (AdaComp's "effective
  /// compression rate"). 0 if none were sent.
  [[nodiscard]] double rate() const noexcept { return bytes > 0 ? 4 * static_cast<double>(elements) / bytes : 0; }
};

/// A message's bytes by kind of layer. There are kinds only with a selector whose bins lie within layers (`adacomp`).
struct byte_breakdown {
  static constexpr std::size_t most = 10;  ///< kinds: the rules of bin_lengths, the default length, passthrough

  char const* index_codec = "";                    ///< the index codec that wrote it, if the codec chooses one
  std::array<layer_kind_bytes, most + 1> kinds{};  ///< the last one collects those without a place
  std::size_t kind_count = 0;                      ///< number of kinds in use, without the last one

  /// The kind with this bin length; a new one if there is none yet.
  [[nodiscard]] layer_kind_bytes& of(std::uint32_t bin_length) noexcept {
    for (std::size_t i = 0; i < kind_count; ++i)
      if (kinds[i].bin_length == bin_length) return kinds[i];
    bool const has_place = bin_length != layer_kind_bytes::several && kind_count < most;
    auto& made = has_place ? kinds[kind_count++] : kinds.back();
    made.bin_length = has_place ? bin_length : layer_kind_bytes::several;
    return made;
  }

  /// Divides bytes that belong to no layer, such as a header's, among the kinds, in proportion to their elements.
  void share_out(double bytes) noexcept {
    double elements = 0;
    for (auto const& each : kinds) elements += static_cast<double>(each.elements);
    for (auto& each : kinds)
      if (each.elements > 0) each.bytes += bytes * static_cast<double>(each.elements) / elements;
  }

  /// The sum over all kinds.
  [[nodiscard]] double bytes() const noexcept {
    double sum = 0;
    for (auto const& each : kinds) sum += each.bytes;
    return sum;
  }

  /// Adds another message's bytes.
  void add(byte_breakdown const& other) noexcept {
    if (*other.index_codec != '\0') index_codec = other.index_codec;
    for (auto const& each : other.kinds) {
      if (each.elements == 0) continue;
      auto& kind = of(each.bin_length);
      kind.elements += each.elements;
      kind.entries += each.entries;
      kind.bytes += each.bytes;
    }
  }

  friend std::ostream& operator<<(std::ostream& out, byte_breakdown const& it);
};

/// One step of one rank. Bytes are all that the step sends and receives through the transport, including the handshake
/// and the message sizes. The transport's own algorithm (ring, tree) may move them several times.
struct step_report {
  std::uint64_t step = 0;                  ///< counted from 0
  int world = 1;                           ///< number of ranks
  index_type budget = 0;                   ///< the k of all segments together, without those sent in full: what each
                                           ///< rank may send, or all ranks together if segments have owners
  index_type selected = 0;                 ///< entries that this rank chose and sent
  index_type capacity = 0;                 ///< most entries that this rank has memory for: density * n and one per
                                           ///< segment, times what the selector may exceed that by
  std::uint32_t passthrough_layers = 0;    ///< layers that pass through; compressor::passing() lists them
  std::uint64_t passthrough_elements = 0;  ///< sent without indices: layers that pass through, segments sent in full
  std::uint64_t skipped_elements = 0;  ///< of layers that the step skips: neither sent nor selected from
  std::uint64_t union_size = 0;      ///< entries of the averaged update, without passthrough_elements: where all ranks
                                     ///< select, up to `world` times the budget
  std::uint64_t non_finite = 0;      ///< elements whose gradient was NaN or infinite, left out
  std::uint64_t saturated = 0;       ///< values clamped to the largest that codec, sum or output can hold
  std::uint64_t bytes_sent = 0;      ///< by this rank
  std::uint64_t bytes_received = 0;  ///< by this rank
  std::uint64_t baseline_bytes = 0;  ///< of the uncompressed gradient, n values in its own format
  threshold_counts thresholds;       ///< what decided on this rank's thresholds; of `laplacian` on a device, only of
                                     ///< segments whose candidates did not suffice
  bool staged = false;               ///< device memory was copied through host memory for the transport
  byte_breakdown message;            ///< of exchange(), and of compress() once it is encoded
  step_seconds seconds;              ///< on the host; a step on a device only enqueues work, which is not timed

  /// Adds the report of another part of the same gradient, such as another group of a plan.
  void add(step_report const& part) noexcept {
    step = part.step;
    world = part.world;
    budget += part.budget;
    selected += part.selected;
    capacity += part.capacity;
    passthrough_layers += part.passthrough_layers;
    passthrough_elements += part.passthrough_elements;
    skipped_elements += part.skipped_elements;
    union_size += part.union_size;
    non_finite += part.non_finite;
    saturated += part.saturated;
    bytes_sent += part.bytes_sent;
    bytes_received += part.bytes_received;
    baseline_bytes += part.baseline_bytes;
    thresholds.add(part.thresholds);
    staged = staged || part.staged;
    message.add(part.message);
    seconds.accumulate += part.seconds.accumulate;
    seconds.partition += part.seconds.partition;
    seconds.select += part.seconds.select;
    seconds.exchange += part.seconds.exchange;
    seconds.apply += part.seconds.apply;
  }

  /// Entries of the update divided by the budget: from 1, if the ranks' selections are equal or they divide the budget,
  /// up to `world`, if they do not overlap. 0 for an empty budget.
  [[nodiscard]] double build_up() const noexcept {
    return budget == 0 ? 0 : static_cast<double>(union_size) / static_cast<double>(budget);
  }

  /// What a rank receives in a ring all-reduce of the uncompressed gradient, 2 (world - 1) / world times baseline_bytes,
  /// divided by what this one received, of which all-reduces count once. 0 if that is nothing.
  [[nodiscard]] double ring_ratio() const noexcept {
    if (bytes_received == 0) return 0;
    return 2.0 * (world - 1) / world * static_cast<double>(baseline_bytes) / static_cast<double>(bytes_received);
  }

  /// Calls visit(name, value) for every number, in a fixed order, for a log or a dashboard: a std::string_view, and a
  /// std::uint64_t or, for `build_up`, `ring_ratio` and `seconds_...`, a double. The kinds of layers are in `message` only.
  template <class Visit>
  void each(Visit const& visit) const {
    auto const count = [&](std::string_view name, auto value) { visit(name, static_cast<std::uint64_t>(value)); };
    count("step", step);
    count("world", world);
    count("budget", budget);
    count("selected", selected);
    count("capacity", capacity);
    count("passthrough_layers", passthrough_layers);
    count("passthrough_elements", passthrough_elements);
    count("skipped_elements", skipped_elements);
    count("union_size", union_size);
    visit(std::string_view{"build_up"}, build_up());
    count("non_finite", non_finite);
    count("saturated", saturated);
    count("bytes_sent", bytes_sent);
    count("bytes_received", bytes_received);
    count("baseline_bytes", baseline_bytes);
    count("thresholds_estimated", thresholds.of(threshold_origin::estimated));
    count("thresholds_remembered", thresholds.of(threshold_origin::remembered));
    count("thresholds_corrected", thresholds.of(threshold_origin::corrected));
    count("probes", thresholds.probes);
    count("staged", staged);
    visit(std::string_view{"seconds_accumulate"}, seconds.accumulate);
    visit(std::string_view{"seconds_partition"}, seconds.partition);
    visit(std::string_view{"seconds_select"}, seconds.select);
    visit(std::string_view{"seconds_exchange"}, seconds.exchange);
    visit(std::string_view{"seconds_apply"}, seconds.apply);
    visit(std::string_view{"ring_ratio"}, ring_ratio());
  }

  /// The numbers of each() as one JSON object in one line, {"step": 0, "world": 1, ...}. Allocates.
  [[nodiscard]] std::string json() const;
  /// The numbers of each() as a line of a CSV file, without a line end; csv_names() is the first line. Allocates.
  [[nodiscard]] std::string csv() const;
  /// The names of csv()'s columns. Allocates.
  [[nodiscard]] static std::string csv_names();

  /// Writes one line; skipped elements, saturated values, thresholds, message parts and staging only if there are any.
  friend std::ostream& operator<<(std::ostream& out, step_report const& it);

 private:
  template <class Write>
  [[nodiscard]] std::string joined(std::string_view separator, Write const& write) const;
};

}  // namespace gradsieve

#if !defined(GRADSIEVE_COMPILED)
#include <gradsieve/core/report_bodies.hpp>
#endif
