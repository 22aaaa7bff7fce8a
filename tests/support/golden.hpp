// What the files in tests/golden hold, one message behind the other, and how they are read.
#pragma once

#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/published.hpp>

#include "messages.hpp"

namespace golden {

namespace gs = gradsieve;
using messages::content;

inline gs::layout const layers{
    {"conv1.weight", 900}, {"conv1.bias", 4}, {"none", 0}, {"fc.weight", 7000}, {"head", 96}};

/// Entries by rule, without a random number: the same on every machine. Gaps up to `most`, of every size below.
inline content selection(std::uint64_t most) {
  content made{{}, {}, {1.5f, -0.0f, 0x1p-149f, -0x1.fffffep127f}};
  std::uint64_t at = 0;
  for (std::uint64_t i = 1; at < layers.size(); at += 1 + i * i * 7919 % most, ++i) {
    if (at >= 900 && at < 904) continue;  // the bias passes through
    made.indices.push_back(static_cast<gs::index_type>(at));
    made.values.push_back(static_cast<float>(static_cast<double>(i * 2654435761u % 20'011) - 10'005) * 0x1p-9f);
  }
  return made;
}

inline std::vector<std::uint32_t> const bins = gs::bin_lengths{}.of(layers);
inline gs::message_info const info{layers.size(), layers.hash(), 4, &layers, bins};

/// None, a few, and many.
inline std::array<content, 3> contents() {
  std::array all{selection(1), selection(200), selection(9)};
  all[0].indices.clear();
  all[0].values.clear();
  all[2].indices.resize(300);
  all[2].values.resize(300);
  return all;
}

inline std::string path_of(std::string const& name) { return std::string{GRADSIEVE_GOLDEN_DIR} + "/" + name + ".bin"; }

/// Empty if there is no such file.
inline messages::bytes read(std::string const& name) {
  std::ifstream file{path_of(name), std::ios::binary};
  std::vector<char> const text{std::istreambuf_iterator<char>{file}, {}};
  auto const all = std::as_bytes(std::span{text});
  return {all.begin(), all.end()};
}

/// Calls check(name of the file, codec) for each codec of a device that has one.
template <class Check>
void for_each_device_codec(Check const& check) {
  check("coo", gs::coo{});
  check("raw32_fp32", gs::packed{.indices = gs::raw32{}, .values = gs::fp32{}});
  check("fixed_width_bf16", gs::packed{.indices = gs::fixed_width{}, .values = gs::bf16{}});
  check("fixed_width_64_ternary", gs::packed{.indices = gs::fixed_width{.chunk = 64}, .values = gs::ternary{}});
  check("fixed_width_int8", gs::packed{.indices = gs::fixed_width{}, .values = gs::int8{}});
  check("elias_fano_fp32", gs::packed{.indices = gs::elias_fano{}});
  check("raw32_int4_7", gs::packed{.indices = gs::raw32{}, .values = gs::int4{.block = 7}});
  check("fixed_width_int2_300", gs::packed{.indices = gs::fixed_width{}, .values = gs::int2{.block = 300}});
  check("raw32_sign_33", gs::packed{.indices = gs::raw32{}, .values = gs::sign{.block = 33}});
  check("fixed_width_qsgd_20", gs::packed{.indices = gs::fixed_width{}, .values = gs::qsgd{.block = 20, .seed = 3}});
}

/// For each codec.
template <class Check>
void for_each_codec(Check const& check) {
  for_each_device_codec(check);
  check("delta_fp16", gs::packed{.indices = gs::delta{}, .values = gs::fp16{}});
  check("bitmap_ternary", gs::packed{.indices = gs::bitmap{}, .values = gs::ternary{}});
  check("automatic_fp32", gs::packed{});
  check("binned", gs::binned{});
}

}  // namespace golden
