// Text that programs read from files: what is none is refused by a sentence that says what it is, and what makes it
// readable.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

namespace example {

/// What a file is that is no text in UTF-8, and what to do, as the end of a sentence; empty if it may be text. `name`:
/// the file's, as a shell takes it.
[[nodiscard]] inline std::string why_no_text(std::string_view text, std::string const& name) {
  using namespace std::string_view_literals;
  struct form {
    std::string_view begins, is;  // a sentence that ends with a blank is followed by the name
  };
  static constexpr std::array forms{form{"\x1F\x8B"sv, "compressed by gzip; decompress it: gunzip -k "},
                                    form{"\x28\xB5\x2F\xFD"sv, "compressed by zstd; decompress it: unzstd "},
                                    form{"\xFD\x37zXZ"sv, "compressed by xz; decompress it: unxz -k "},
                                    form{"BZh"sv, "compressed by bzip2; decompress it: bunzip2 -k "},
                                    form{"PK\x03\x04"sv, "a zip archive; unpack it: unzip "},
                                    form{"\xFF\xFE"sv, "text in UTF-16; convert it: iconv -f UTF-16 -t UTF-8 "},
                                    form{"\xFE\xFF"sv, "text in UTF-16; convert it: iconv -f UTF-16 -t UTF-8 "},
                                    form{"version https://git-lfs"sv, "a pointer of Git LFS; fetch it: git lfs pull"},
                                    form{"<!DOCTYPE"sv, "a web page; download the file itself"},
                                    form{"<html"sv, "a web page; download the file itself"}};
  for (auto const& each : forms)
    if (text.starts_with(each.begins)) return std::string{each.is} + (each.is.ends_with(' ') ? name : "");
  auto const head = text.substr(0, 4096);
  auto const is_text = [](char c) { return static_cast<unsigned char>(c) >= ' ' || "\t\n\v\f\r\b\x1B"sv.find(c) < 7; };
  return std::all_of(head.begin(), head.end(), is_text) ? "" : "binary; export it as text";
}

/// All of a file, or of a pipe, without a byte order mark. @throws std::runtime_error if it cannot be read, or is no
/// text.
[[nodiscard]] inline std::string read_text(std::filesystem::path const& path) {
  auto const name = "'" + path.string() + "'";
  std::ifstream file{path, std::ios::binary};
  if (!file || std::filesystem::is_directory(path)) throw std::runtime_error("cannot read " + name);
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  if (auto const why = why_no_text(text, name); !why.empty()) throw std::runtime_error(name + " is " + why);
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  return text;
}

/// Whether a text begins as an object of JSON or a list of objects does; what launchers say may begin with "[node1".
[[nodiscard]] inline bool begins_as_json(std::string_view text) {
  auto const first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '[')
    return first != std::string_view::npos && text[first] == '{';
  auto const second = text.find_first_not_of(" \t\r\n", first + 1);
  return second != std::string_view::npos && text[second] == '{';
}

}  // namespace example
