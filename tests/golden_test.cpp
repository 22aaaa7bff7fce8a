// The bytes of every codec, as they stand in tests/golden: a change of the format shows, and so does a machine that
// writes others. A file holds messages one behind the other. With GRADSIEVE_WRITE_GOLDEN=1 the files are written anew.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gradsieve/gradsieve.hpp>

#include "messages.hpp"

namespace gs = gradsieve;
using namespace messages;

namespace {

gs::layout const layers{{"conv1.weight", 900}, {"conv1.bias", 4}, {"none", 0}, {"fc.weight", 7000}, {"head", 96}};

/// Entries by rule, without a random number: the same on every machine. Gaps up to `most`, of every size below.
content selection(std::uint64_t most) {
  content made{{}, {}, {1.5f, -0.0f, 0x1p-149f, -0x1.fffffep127f}};
  std::uint64_t at = 0;
  for (std::uint64_t i = 1; at < layers.size(); at += 1 + i * i * 7919 % most, ++i) {
    if (at >= 900 && at < 904) continue;  // the bias passes through
    made.indices.push_back(static_cast<gs::index_type>(at));
    made.values.push_back(static_cast<float>(static_cast<double>(i * 2654435761u % 20'011) - 10'005) * 0x1p-9f);
  }
  return made;
}

/// None, a few, and many.
template <class Codec>
void check(std::string const& name, Codec const& codec) {
  content all[3]{selection(1), selection(200), selection(9)};
  all[0].indices.clear();
  all[0].values.clear();
  all[2].indices.resize(300);
  all[2].values.resize(300);
  gs::message_info const info{layers.size(), layers.hash(), 4, &layers};
  bytes written;
  for (auto const& each : all) {
    auto const message = encoded(codec, info, each);
    written.insert(written.end(), message.begin(), message.end());
  }
  auto const path = std::string{GRADSIEVE_GOLDEN_DIR} + "/" + name + ".bin";
  if (std::getenv("GRADSIEVE_WRITE_GOLDEN") != nullptr)
    std::ofstream{path, std::ios::binary}.write(reinterpret_cast<char const*>(written.data()),
                                                static_cast<std::streamsize>(written.size()));
  std::ifstream file{path, std::ios::binary};
  std::vector<char> const text{std::istreambuf_iterator<char>{file}, {}};
  auto const golden = std::as_bytes(std::span{text});
  INFO(path);
  REQUIRE(!golden.empty());
  CHECK(std::equal(golden.begin(), golden.end(), written.begin(), written.end()));

  std::size_t at = 0;
  for (auto expected : all) {
    auto const size = encoded(codec, info, expected).size();
    if constexpr (requires { codec.quantise(info, expected.indices, std::span{expected.values}); })
      codec.quantise(info, expected.indices, std::span{expected.values});
    REQUIRE(at + size <= golden.size());
    CHECK(decoded(codec, info, golden.subspan(at, size), 3000) == expected);
    at += size;
  }
}

}  // namespace

TEST_CASE("golden messages") {
  check("coo", gs::coo{});
  check("raw32_fp32", gs::packed{.indices = gs::raw32{}, .values = gs::fp32{}});
  check("delta_fp16", gs::packed{.indices = gs::delta{}, .values = gs::fp16{}});
  check("bitmap_ternary", gs::packed{.indices = gs::bitmap{}, .values = gs::ternary{}});
  check("fixed_width_bf16", gs::packed{.indices = gs::fixed_width{}, .values = gs::bf16{}});
  check("fixed_width_64_ternary", gs::packed{.indices = gs::fixed_width{.chunk = 64}, .values = gs::ternary{}});
  check("automatic_fp32", gs::packed{});
  check("binned", gs::binned{});
}
