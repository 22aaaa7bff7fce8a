// The bytes of every codec, as they stand in tests/golden: a change of the format shows, and so does a machine that
// writes others. A file holds messages one behind the other. With GRADSIEVE_WRITE_GOLDEN=1 the files are written anew.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "golden.hpp"
#include "messages.hpp"

namespace gs = gradsieve;
using namespace messages;

namespace {

template <class Codec>
void check(std::string const& name, Codec const& codec) {
  using golden::info;
  auto all = golden::contents();
  if constexpr (requires { codec.quantise(info, all[0].indices, std::span{all[0].values}); })
    for (auto& each : all) codec.quantise(info, each.indices, std::span{each.values});
  bytes written;
  for (auto const& each : all) {
    auto const message = encoded(codec, info, each);
    written.insert(written.end(), message.begin(), message.end());
  }
  if (std::getenv("GRADSIEVE_WRITE_GOLDEN") != nullptr)
    std::ofstream{golden::path_of(name), std::ios::binary}.write(reinterpret_cast<char const*>(written.data()),
                                                                 static_cast<std::streamsize>(written.size()));
  auto const kept = golden::read(name);
  INFO(name);
  REQUIRE(!kept.empty());
  CHECK(kept == written);

  std::size_t at = 0;
  for (auto const& expected : all) {
    auto const size = encoded(codec, info, expected).size();
    REQUIRE(at + size <= kept.size());
    CHECK(decoded(codec, info, std::span{kept}.subspan(at, size), 3000) == expected);
    at += size;
  }
}

}  // namespace

TEST_CASE("golden messages") {
  golden::for_each_codec([](std::string const& name, auto const& codec) { check(name, codec); });
}
