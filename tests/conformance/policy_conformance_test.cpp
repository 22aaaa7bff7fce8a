// Every partitioner, residual store and codec passes its conformance suite, and wrong ones do not.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/published.hpp>

#include "codec_conformance.hpp"
#include "index_codec_conformance.hpp"
#include "partitioner_conformance.hpp"
#include "residual_conformance.hpp"
#include "value_codec_conformance.hpp"

namespace gs = gradsieve;

TEST_CASE("partitioners") {
  CHECK(partitioner_conformance::run(gs::whole{}) == "");
  CHECK(partitioner_conformance::run(gs::layerwise{}) == "");
  CHECK(partitioner_conformance::run(gs::micro{}) == "");
  CHECK(partitioner_conformance::run(gs::cyclic{}) == "");
  CHECK(partitioner_conformance::run(gs::deft{}) == "");
  CHECK(partitioner_conformance::run(gs::deft{.sharing = gs::deft_sharing::by_fragment, .rotate_every = 1}) == "");
}

TEST_CASE("residual stores") {
  CHECK(residual_conformance::run(gs::none{}) == "");
  CHECK(residual_conformance::run(gs::error_feedback{}, {.waits_in = 0}) == "");
  CHECK(residual_conformance::run(gs::error_feedback{.decay = 0.5f}) == "");
  CHECK(residual_conformance::run(gs::momentum_correction{}) == "");
  CHECK(residual_conformance::run(gs::momentum_correction{.masking = false, .clip = 100}) == "");
  CHECK(residual_conformance::run(gs::filtered{.beta = 0.5f}, {.waits_in = 1}) == "");
  CHECK(residual_conformance::run(gs::in_bfloat16<>{}) == "");
}

TEST_CASE("codecs") {
  CHECK(codec_conformance::run(gs::coo{}) == "");
  CHECK(codec_conformance::run(gs::binned{}) == "");
  CHECK(codec_conformance::run(gs::packed{}) == "");
  CHECK(codec_conformance::run(gs::packed{.indices = gs::delta{}, .values = gs::ternary{}}) == "");
}

TEST_CASE("index codecs") {
  CHECK(index_codec_conformance::run(gs::raw32{}) == "");
  CHECK(index_codec_conformance::run(gs::delta{}) == "");
  CHECK(index_codec_conformance::run(gs::elias_fano{}) == "");
  CHECK(index_codec_conformance::run(gs::bitmap{}) == "");
  CHECK(index_codec_conformance::run(gs::fixed_width{.chunk = 64}) == "");
  CHECK(index_codec_conformance::run(gs::fixed_width{.chunk = 65536}) == "");
  CHECK(index_codec_conformance::run(gs::automatic{}) == "");
}

TEST_CASE("value codecs") {
  CHECK(value_codec_conformance::run(gs::fp32{}) == "");
  CHECK(value_codec_conformance::run(gs::fp16{}) == "");
  CHECK(value_codec_conformance::run(gs::bf16{}) == "");
  CHECK(value_codec_conformance::run(gs::int8{}) == "");
  CHECK(value_codec_conformance::run(gs::int4{.block = 7}) == "");
  CHECK(value_codec_conformance::run(gs::int2{}) == "");
  CHECK(value_codec_conformance::run(gs::ternary{}) == "");
  CHECK(value_codec_conformance::run(gs::sign{}) == "");
  CHECK(value_codec_conformance::run(gs::qsgd{}) == "");
}

namespace wrong {

std::string first_line(std::string const& text) { return text.substr(0, text.find('\n')); }

// ---- Partitioners ------------------------------------------------------------------------------------------

enum class split_fault { none, gap, twice, much, owner, step };

/// layerwise, but for a fault.
template <split_fault Fault>
struct partitioner : gs::layerwise {
  void split(std::span<gs::range const> layers, int world, gs::segment_list& list) const {
    gs::layerwise::split(layers, world, list);
    if (list.empty()) return;
    if (Fault == split_fault::gap) --list.back().size;
    if (Fault == split_fault::twice) list.push_back(list.back());
  }
  void assign(std::span<gs::segment> segments, std::span<double const> norms, gs::step_budget const budget,
              gs::partition_scratch& scratch) const {
    static int calls = 0;
    gs::layerwise::assign(segments, norms, budget, scratch);
    for (auto& each : segments) {
      if (Fault == split_fault::much && each.size > 2) each.k = std::max(each.k, gs::budget_of(0.4, each.size));
      if (Fault == split_fault::owner) each.owner = budget.world;
      if (Fault == split_fault::step && each.k > 0) each.k -= static_cast<gs::index_type>(++calls % 3 == 0);
    }
  }
  [[maybe_unused]] friend bool operator==(partitioner const&, partitioner const&) = default;
};

// ---- Residual stores ---------------------------------------------------------------------------------------

enum class store_fault { cleared, fades, noise, extra };

/// error_feedback, but for a fault.
template <store_fault Fault>
struct store {
  static constexpr std::size_t states = 1;
  void accumulate_element(float gradient, gs::element_state<1>& state) const noexcept {
    static int calls = 0;
    if (Fault == store_fault::fades) state[0] *= 0.5f;
    if (Fault == store_fault::noise) state[0] += static_cast<float>(++calls % 2);
    state[0] += gradient + (Fault == store_fault::extra ? 1.0f : 0.0f);
  }
  void remove_sent(float sent, gs::element_state<1>& state, bool) const noexcept {
    state[0] = Fault == store_fault::cleared ? 0.0f : state[0] - sent;
  }
  [[maybe_unused]] friend bool operator==(store const&, store const&) = default;
};

// ---- Codecs ------------------------------------------------------------------------------------------------

enum class message_fault { last, room, trusting };

/// The count, indices, values, and what passes through: a codec without checks, but for a fault as coo is with them.
template <message_fault Fault>
struct codec {
  std::uint64_t max_bytes(std::uint64_t, std::uint64_t count, std::uint64_t passthrough) const {
    return 8 + 8 * count + 4 * passthrough;
  }
  std::uint64_t encode(gs::message_info const&, gs::selection_view const in, std::span<std::byte> to) const {
    std::uint64_t const count = in.indices.size() - (Fault == message_fault::last && in.indices.size() > 1 ? 1 : 0);
    gs::wire::store_one(to, count);
    gs::wire::store(to.subspan(8), in.indices.first(count));
    gs::wire::store(to.subspan(8 + 4 * count), in.values.first(count));
    gs::wire::store(to.subspan(8 + 8 * count), in.passthrough);
    return 8 + 8 * count + 4 * in.passthrough.size() + (Fault == message_fault::room ? 1 : 0);
  }
  gs::selection_view decode(gs::message_info const& info, std::span<std::byte const> from,
                            gs::selection_span out) const {
    auto const refuse = [](bool unless) {
      if (!unless) throw gs::corrupt_message("not a message");
    };
    if (Fault != message_fault::trusting) refuse(from.size() >= 8);
    std::uint64_t count = 0;
    std::memcpy(&count, from.data(), 8);
    refuse(count <= out.indices.size());
    if (Fault != message_fault::trusting) refuse(from.size() >= 8 + 8 * count + 4 * info.passthrough);
    std::memcpy(out.indices.data(), from.data() + 8, 4 * count);
    std::memcpy(out.values.data(), from.data() + 8 + 4 * count, 4 * count);
    std::memcpy(out.passthrough.data(), from.data() + 8 + 8 * count, 4 * info.passthrough);
    return {out.indices.first(count), out.values.first(count), out.passthrough.first(info.passthrough)};
  }
  [[maybe_unused]] friend bool operator==(codec const&, codec const&) = default;
};

/// raw32 that says it has read a byte less.
struct indices : gs::raw32 {
  std::uint64_t decode(gs::message_info const& info, std::span<std::byte const> from,
                       std::span<gs::index_type> out) const {
    auto const read = gs::raw32::decode(info, from, out);
    return read > 0 ? read - 1 : 0;
  }
  [[maybe_unused]] friend bool operator==(indices const&, indices const&) = default;
};

/// fp16 that does not say what it rounds.
struct half {
  static constexpr std::uint16_t id = 40'000;
  std::uint64_t max_bytes(std::uint64_t count) const { return gs::fp16{}.max_bytes(count); }
  std::uint64_t bytes(gs::message_info const& info, std::span<gs::index_type const> at) const {
    return gs::fp16{}.bytes(info, at);
  }
  void encode(gs::message_info const& info, std::span<gs::index_type const> at, std::span<float const> in,
              std::span<std::byte> to) const {
    gs::fp16{}.encode(info, at, in, to);
  }
  void decode(gs::message_info const& info, std::span<gs::index_type const> at, std::span<std::byte const> from,
              std::span<float> out) const {
    gs::fp16{}.decode(info, at, from, out);
  }
  [[maybe_unused]] friend bool operator==(half const&, half const&) = default;
};

/// bf16, whose quantise() halves besides.
struct halving : gs::bf16 {
  void quantise(gs::message_info const& info, std::span<gs::index_type const> at,
                std::span<float> values) const noexcept {
    gs::bf16::quantise(info, at, values);
    for (float& x : values) x /= 2;
  }
  [[maybe_unused]] friend bool operator==(halving const&, halving const&) = default;
};

}  // namespace wrong

TEST_CASE("wrong partitioners are reported, with the layers") {
  using wrong::split_fault;
  auto const line = [](auto how) { return wrong::first_line(partitioner_conformance::run(how)); };
  CHECK(line(wrong::partitioner<split_fault::none>{}) == "");
  CHECK(
      line(wrong::partitioner<split_fault::gap>{}) ==
      "one element, 1 ranks: threw 'gradsieve: the partitioner layerwise's split(): elements 0 to 0 are in no segment, "
      "so that they would never be sent'");
  CHECK(line(wrong::partitioner<split_fault::twice>{}) ==
        "one element, 1 ranks: threw 'gradsieve: the partitioner layerwise's split(): segment 1 (offset 0, size 1) "
        "begins "
        "before element 1, where the segment before it ends or the first layer begins'");
  CHECK(line(wrong::partitioner<split_fault::much>{}) ==
        "one layer, 1 ranks, density 0, step 0, equal norms: 400 entries in all, the density allows 1");
  CHECK(line(wrong::partitioner<split_fault::owner>{}) ==
        "one element, 1 ranks, density 0, step 0, equal norms: threw 'gradsieve: the partitioner layerwise's assign() "
        "gave "
        "segment 0 (offset 0, size 1) the owner 1, expected a rank below 1, or every_rank'");
  CHECK(line(wrong::partitioner<split_fault::step>{}) ==
        "one element, 1 ranks, density 0.0001, step 0, equal norms: assign() decides otherwise by what segments or "
        "scratch "
        "hold from the step before");
}

TEST_CASE("wrong residual stores are reported, with the states") {
  using wrong::store_fault;
  auto const line = [](auto store) { return wrong::first_line(residual_conformance::run(store, {.waits_in = 0})); };
  CHECK(line(wrong::store<store_fault::cleared>{}) == "states 0, gradient 1: of 1 0.5 is sent, and 0 stays");
  CHECK(line(wrong::store<store_fault::fades>{}) == "step 11: element 0: -74 came in, 0 was sent, -25.9009 stays");
  CHECK(line(wrong::store<store_fault::noise>{}) == "nothing comes in: the accumulator becomes 1");
  CHECK(line(wrong::store<store_fault::extra>{}) == "nothing comes in: the accumulator becomes 1");
}

TEST_CASE("wrong codecs are reported, with the message") {
  using wrong::message_fault;
  CHECK(wrong::first_line(codec_conformance::run(wrong::codec<message_fault::last>{})) ==
        "n 1271, 2 entries, 0 elements that pass through, usual values: decode() gives another selection than encode() "
        "was given");
  CHECK(
      wrong::first_line(codec_conformance::run(wrong::codec<message_fault::room>{})) ==
      "n 0, 0 entries, 0 elements that pass through, usual values: encode() returns 9, max_bytes() for 0 entries is 8");
  CHECK(
      wrong::first_line(codec_conformance::run(wrong::codec<message_fault::trusting>{})) ==
      "n 1271, 0 entries, 0 elements that pass through, usual values: a message cut to 0 bytes: decode() reads beyond "
      "its end");
  CHECK(wrong::first_line(index_codec_conformance::run(wrong::indices{})) ==
        "n 1, 1 indices: decode() has read 3 bytes, encode() wrote 4");
  CHECK(wrong::first_line(value_codec_conformance::run(wrong::half{})) ==
        "1 values, usual values: decode() gives other values than encode() was given");
  CHECK(wrong::first_line(value_codec_conformance::run(wrong::halving{})) ==
        "1 values, usual values: quantise() changes values that it has rounded");
}
