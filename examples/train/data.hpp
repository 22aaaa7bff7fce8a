// Reads labelled images: the digits table shipped with the example, or MNIST-style IDX files, plain or
// gzipped.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "eigen.hpp"

namespace example {

/// One sample a column, and its class.
struct samples {
  Eigen::MatrixXf features;
  std::vector<int> labels;

  [[nodiscard]] Eigen::Index count() const { return features.cols(); }
};

struct dataset {
  samples train;
  samples test;
  int classes = 0;
};

using file_bytes = std::vector<unsigned char>;

/// Whole file; zlib hands plain files through unchanged.
[[nodiscard]] inline file_bytes read_file(std::filesystem::path const& path) {
  auto const file = std::unique_ptr<gzFile_s, int (*)(gzFile)>{gzopen(path.c_str(), "rb"), gzclose};
  if (!file) throw std::runtime_error("cannot read '" + path.string() + "'");
  file_bytes content;
  std::array<unsigned char, 1 << 16> chunk;
  for (;;) {
    int const got = gzread(file.get(), chunk.data(), static_cast<unsigned>(chunk.size()));
    int state = Z_OK;
    gzerror(file.get(), &state);
    if (got < 0 || state != Z_OK) throw std::runtime_error("'" + path.string() + "' is damaged or cut short");
    if (got == 0) return content;
    content.insert(content.end(), chunk.begin(), chunk.begin() + got);
  }
}

/// The items of an IDX file of unsigned bytes with this many dimensions, each one column.
[[nodiscard]] inline Eigen::MatrixXf read_idx(std::filesystem::path const& path, std::size_t dimensions) {
  auto const content = read_file(path);
  auto const fail = [&](std::string const& why) -> void {
    throw std::runtime_error("'" + path.string() + "' is no IDX file of " + std::to_string(dimensions) +
                             "-dimensional bytes: " + why);
  };
  auto const word = [&](std::size_t i) {
    std::uint64_t value = 0;
    for (std::size_t b = 0; b < 4; ++b) value = value << 8 | content[4 * i + b];
    return value;
  };
  std::size_t const header = 4 * (dimensions + 1);
  if (content.size() < header) fail("it has " + std::to_string(content.size()) + " bytes");
  if (word(0) != 0x800 + dimensions) fail("its magic number is " + std::to_string(word(0)));
  std::uint64_t const count = word(1);
  std::uint64_t each = 1;
  for (std::size_t i = 2; i <= dimensions; ++i) each *= word(i);  // at most two dimensions: no overflow
  std::uint64_t const present = content.size() - header;
  if (count == 0 || each == 0 || present / each != count || present % each != 0)
    fail("its header says " + std::to_string(count) + " items of " + std::to_string(each) + " bytes, it holds " +
         std::to_string(present) + " bytes");
  using map = Eigen::Map<Eigen::Matrix<unsigned char, Eigen::Dynamic, Eigen::Dynamic> const>;
  return map(content.data() + header, static_cast<Eigen::Index>(each), static_cast<Eigen::Index>(count)).cast<float>();
}

/// Images and labels that share a prefix ("train", "t10k"), if the images are there.
[[nodiscard]] inline std::optional<samples> read_idx_pair(std::filesystem::path const& directory,
                                                          std::string const& prefix) {
  auto const find = [&](std::string const& rest) {
    auto path = directory / (prefix + rest);
    return std::filesystem::exists(path) ? path : path += ".gz";
  };
  auto const images = find("-images-idx3-ubyte");
  auto const labels = find("-labels-idx1-ubyte");
  if (!std::filesystem::exists(images)) return std::nullopt;
  samples read{.features = read_idx(images, 3) / 255.0f, .labels = {}};
  auto const classes = read_idx(labels, 1);
  if (classes.cols() != read.count())
    throw std::runtime_error("'" + images.string() + "' has " + std::to_string(read.count()) + " items, '" +
                             labels.string() + "' has " + std::to_string(classes.cols()));
  for (float const label : classes.reshaped()) read.labels.push_back(static_cast<int>(label));
  return read;
}

/// Rows of 64 pixel values 0..16 and a label 0..9, by comma.
[[nodiscard]] inline samples read_digits(std::filesystem::path const& path) {
  constexpr std::size_t pixels = 64;
  auto file = std::ifstream{path};
  if (!file) throw std::runtime_error("cannot read '" + path.string() + "'");
  std::vector<float> values;
  samples read;
  for (std::string line; std::getline(file, line);) {
    auto const* at = line.data();
    auto const* const end = line.data() + line.size();
    std::size_t column = 0;
    for (; column <= pixels; ++column) {
      int value = 0;
      auto const [next, failed] = std::from_chars(at, end, value);
      if (failed != std::errc{} || value < 0 || value > (column < pixels ? 16 : 9)) break;
      if (column < pixels) values.push_back(static_cast<float>(value) / 16.0f);
      if (column == pixels) read.labels.push_back(value);
      at = next;
      if (column < pixels && (at == end || *at++ != ',')) break;
    }
    if (column <= pixels)
      throw std::runtime_error("'" + path.string() + "' line " + std::to_string(read.labels.size() + 1) +
                               ": expected 64 pixel values 0..16 and a label 0..9");
  }
  if (read.labels.empty()) throw std::runtime_error("'" + path.string() + "' is empty");
  read.features = Eigen::Map<Eigen::MatrixXf>(values.data(), pixels, static_cast<Eigen::Index>(read.labels.size()));
  return read;
}

/// Every `period`-th sample is for testing; the rule knows no seed, so that every run is judged alike.
[[nodiscard]] inline dataset hold_out(samples const& all, Eigen::Index period) {
  std::vector<Eigen::Index> train, test;
  for (Eigen::Index i = 0; i < all.count(); ++i) (i % period == period - 1 ? test : train).push_back(i);
  auto const pick = [&](std::vector<Eigen::Index> const& columns) {
    samples part{.features = all.features(Eigen::all, columns), .labels = {}};
    for (auto const i : columns) part.labels.push_back(all.labels[static_cast<std::size_t>(i)]);
    return part;
  };
  return {.train = pick(train), .test = pick(test)};
}

/// digits.csv, or IDX files: train-* and t10k-*; where t10k-* is alone it is split.
/// @throws std::runtime_error naming the file and what is wrong with it.
[[nodiscard]] inline dataset load(std::filesystem::path const& directory) {
  dataset data;
  if (auto const table = directory / "digits.csv"; std::filesystem::exists(table)) {
    data = hold_out(read_digits(table), 5);
  } else {
    auto train = read_idx_pair(directory, "train");
    auto test = read_idx_pair(directory, "t10k");
    if (!train && !test)
      throw std::runtime_error("no data in '" + directory.string() +
                               "': expected digits.csv, or {train,t10k}-images-idx3-ubyte[.gz] and "
                               "{train,t10k}-labels-idx1-ubyte[.gz]");
    data = train && test ? dataset{.train = std::move(*train), .test = std::move(*test)}
                         : hold_out(train ? *train : *test, 5);
  }
  if (data.train.count() == 0 || data.test.count() == 0 || data.train.features.rows() != data.test.features.rows())
    throw std::runtime_error("'" + directory.string() + "': too few samples, or images of two sizes");

  // One shift and one scale for all features, learnt from the training samples only.
  float const mean = data.train.features.mean();
  data.train.features.array() -= mean;
  data.test.features.array() -= mean;
  float const spread = std::sqrt(data.train.features.array().square().mean());
  if (spread > 0) data.train.features /= spread, data.test.features /= spread;

  auto const highest = [](samples const& of) { return *std::max_element(of.labels.begin(), of.labels.end()); };
  data.classes = 1 + std::max(highest(data.train), highest(data.test));
  return data;
}

}  // namespace example
