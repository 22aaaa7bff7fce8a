// Any bytes into decode(), behind a header and a checksum that are right: libFuzzer's entry point.
// GRADSIEVE_FUZZ_CODEC names the codec, else all have their turns.
// Input: codec, size, entries that there is room for (2 bytes), entries that the header says (2 bytes), passthrough
// elements. What remains is the payload; or, if the codec's highest bit is set, the gaps and values of a selection,
// which is encoded, and then places of the message and what is changed there.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/published.hpp>

namespace gs = gradsieve;

namespace {

void require(bool good, char const* promise) {
  if (good) return;
  std::fprintf(stderr, "decode_fuzz: broken promise: %s\n", promise);
  std::abort();
}

struct input {
  gs::message_info info;
  std::uint64_t capacity;
  std::uint64_t count;
  bool from_selection;
  std::span<std::byte const> payload;
};

/// A message of this selection: a gap and a value from each byte of the first half of the payload, changed by what the
/// second half says, three bytes a time.
template <class Codec>
std::vector<std::byte> changed_message(Codec const& codec, input const& given) {
  std::vector<gs::index_type> indices;
  std::vector<float> values;
  auto const half = given.payload.size() / 2;
  std::uint64_t next = 0;
  for (auto const each : given.payload.first(half)) {
    auto const byte = std::to_integer<std::uint64_t>(each);
    next += byte < 128 ? byte / 2 : byte < 250 ? byte * byte : byte << 20;
    if (next >= given.info.n) break;
    indices.push_back(static_cast<gs::index_type>(next++));
    values.push_back(static_cast<float>(byte % 2 == 0 ? byte : 1) * (byte % 3 == 0 ? -1.0f : 0.01f));
  }
  std::vector<float> const passthrough(given.info.passthrough, 1.0f);
  std::vector<std::byte> message(codec.max_bytes(given.info.n, indices.size(), passthrough.size()));
  message.resize(codec.encode(given.info, {indices, values, passthrough}, message));
  auto const changes = given.payload.subspan(half);
  for (std::size_t c = 0; c + 3 <= changes.size() && message.size() > 48; c += 3) {
    auto const at = std::to_integer<std::size_t>(changes[c]) | std::to_integer<std::size_t>(changes[c + 1]) << 8;
    if (at % 32 == 31)
      message.resize(message.size() - 1);
    else
      message[48 + at % (message.size() - 48)] ^= changes[c + 2];
  }
  std::size_t const count = given.count % 16 == 0 ? given.count : indices.size();
  gs::wire::seal({Codec::id, given.info.n, given.info.layout_hash, count, given.info.passthrough}, message);
  return message;
}

template <class Codec>
std::vector<std::byte> raw_message(input const& given) {
  std::vector<std::byte> message(gs::message_header::bytes + given.payload.size());
  if (!given.payload.empty())
    std::memcpy(message.data() + gs::message_header::bytes, given.payload.data(), given.payload.size());
  gs::wire::seal({Codec::id, given.info.n, given.info.layout_hash, given.count, given.info.passthrough}, message);
  return message;
}

/// Whether encode() of this policy must give back the bytes that it decoded.
template <class Codec>
bool one_form(Codec const&, std::span<std::byte const>) {
  return true;
}
template <class Values>
bool one_form(gs::packed<gs::automatic, Values> const&, std::span<std::byte const>) {
  return false;  // another codec may have been smaller
}
template <class Values>
bool one_form(gs::packed<gs::fixed_width, Values> const& codec, std::span<std::byte const> part) {
  return part[0] == static_cast<std::byte>(gs::bit_width(codec.indices.chunk) - 1);  // any chunk size is taken
}

template <class Codec>
void decode(Codec const& codec, input const& given) {
  constexpr std::uint64_t large = 1 << 18;  // a bitmap of 2^32 elements would take a second
  if (given.from_selection && codec.max_bytes(given.info.n, 0, 0) > large) return;
  auto const message = given.from_selection ? changed_message(codec, given) : raw_message<Codec>(given);
  std::vector<gs::index_type> indices(given.capacity);
  std::vector<float> values(given.capacity);
  std::vector<float> passthrough(given.info.passthrough);
  gs::selection_view got;
  try {
    got = codec.decode(given.info, message, {indices, values, passthrough});
  } catch (gs::corrupt_message const&) {
    return;
  }
  require(got.indices.size() == gs::wire::load_one<std::uint64_t>(std::span{message}.subspan(24)) &&
              got.indices.size() == got.values.size(),
          "as many entries as the header says");
  require(got.passthrough.size() == given.info.passthrough, "all passthrough elements");
  for (std::size_t i = 0; i < got.indices.size(); ++i) {
    require(got.indices[i] < given.info.n, "indices below n");
    require(i == 0 || got.indices[i - 1] < got.indices[i], "rising indices");
    require(std::isfinite(got.values[i]), "finite values");
  }
  for (float const x : got.passthrough) require(std::isfinite(x), "finite passthrough elements");

  std::vector<std::byte> again(codec.max_bytes(given.info.n, got.indices.size(), got.passthrough.size()));
  again.resize(codec.encode(given.info, got, again));
  std::size_t const parts = std::min(message.size() - 1, gs::message_header::bytes + 4 + 4 * got.passthrough.size());
  if (one_form(codec, std::span{message}.subspan(parts))) require(again == message, "one form for a selection");
  auto indices_again = indices;
  auto values_again = values;
  auto const same = codec.decode(given.info, again, {indices_again, values_again, passthrough});
  require(std::equal(same.indices.begin(), same.indices.end(), got.indices.begin(), got.indices.end()) &&
              (same.values.empty() || std::memcmp(same.values.data(), got.values.data(), got.values.size_bytes()) == 0),
          "what was decoded can be sent on");
}

template <class Indices>
void decode_packed(Indices const& indices, unsigned values, input const& given) {
  switch (values % 8) {
    case 0:
      return decode(gs::packed{.indices = indices, .values = gs::fp32{}}, given);
    case 1:
      return decode(gs::packed{.indices = indices, .values = gs::fp16{}}, given);
    case 2:
      return decode(gs::packed{.indices = indices, .values = gs::bf16{}}, given);
    case 3:
      return decode(gs::packed{.indices = indices, .values = gs::int4{.block = 16}}, given);
    case 4:
      return decode(gs::packed{.indices = indices, .values = gs::sign{.block = 16}}, given);
    case 5:
      return decode(gs::packed{.indices = indices, .values = gs::int2{.block = 16}}, given);
    case 6:
      return decode(gs::packed{.indices = indices, .values = gs::qsgd{.block = 16}}, given);
    default:
      return decode(gs::packed{.indices = indices, .values = gs::ternary{}}, given);
  }
}

/// With bins of one length for all layers; 0: as the paper has them.
void decode_binned(std::uint32_t length, input given) {
  auto const bins =
      (length == 0 ? gs::bin_lengths{} : gs::bin_lengths{.rules = {}, .otherwise = length}).of(*given.info.layers);
  given.info.bins = bins;
  decode(gs::binned{}, given);
}

constexpr std::array<std::string_view, 13> codecs{"coo",         "raw32",      "delta",     "bitmap", "fixed_width",
                                                  "fixed_width", "elias_fano", "automatic", "binned", "binned",
                                                  "binned",      "binned",     "binned"};

/// Places in `codecs`: all, or those of the name in GRADSIEVE_FUZZ_CODEC.
std::vector<unsigned> const& chosen_codecs() {
  static auto const chosen = [] {
    char const* const name = std::getenv("GRADSIEVE_FUZZ_CODEC");
    std::vector<unsigned> places;
    for (unsigned c = 0; c < codecs.size(); ++c)
      if (name == nullptr || codecs[c] == name) places.push_back(c);
    require(!places.empty(), "GRADSIEVE_FUZZ_CODEC names a codec");
    return places;
  }();
  return chosen;
}

void decode_any(unsigned codec, unsigned values, input const& given) {
  switch (codec) {
    case 0:
      return decode(gs::coo{}, given);
    case 1:
      return decode_packed(gs::raw32{}, values, given);
    case 2:
      return decode_packed(gs::delta{}, values, given);
    case 3:
      return decode_packed(gs::bitmap{}, values, given);
    case 4:
      return decode_packed(gs::fixed_width{}, values, given);
    case 5:
      return decode_packed(gs::fixed_width{.chunk = 16}, values, given);
    case 6:
      return decode_packed(gs::elias_fano{}, values, given);
    case 7:
      return decode_packed(gs::automatic{}, values, given);
    case 8:
      return decode_binned(0, given);
    case 9:
      return decode_binned(1, given);
    case 10:
      return decode_binned(63, given);
    case 11:
      return decode_binned(64, given);
    default:
      return decode_binned(16383, given);
  }
}

gs::layout const& layers_of(std::size_t which) {
  static auto const all = [] {
    std::vector<gs::layout> made;
    for (std::uint64_t const n : {0u, 1u, 2u, 64u, 100u, 1000u, 65'537u, 4'294'967'295u})
      made.push_back(gs::layout{{"conv", n / 3}, {"none", 0}, {"fc", n / 2}, {"b", n - n / 3 - n / 2}});
    return made;
  }();
  return all[which % all.size()];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  constexpr std::size_t head = 7;
  if (size < head) return 0;
  auto const two = [&](std::size_t at) { return std::uint64_t{data[at]} | std::uint64_t{data[at + 1]} << 8; };
  auto const& layers = layers_of(data[1]);
  unsigned const which = data[0] & 127;
  auto const& chosen = chosen_codecs();
  unsigned const codec = chosen[which % chosen.size()];
  bool const without = data[1] >= 128 && codec < 8;  // no layout: only binned insists
  decode_any(codec, which / codecs.size(),
             {{layers.size(), layers.hash(), data[6] % 4u, without ? nullptr : &layers},
              two(2) % 2048,
              two(4),
              data[0] >= 128,
              std::as_bytes(std::span{data + head, size - head})});
  return 0;
}
