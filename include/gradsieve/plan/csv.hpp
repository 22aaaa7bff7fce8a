// Traces as text: reads and writes CSV, and writes JSON.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/core/text.hpp>
#include <gradsieve/plan/trace.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

/// Writes a text as a JSON string. Bytes outside ASCII are treated as UTF-8.
inline void write_json_text(std::ostream& out, std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  out << '"';
  for (char const c : text) {
    auto const code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out << '\\' << c;
    else if (code < 0x20)
      out << "\\u00" << digits[code >> 4] << digits[code & 15];
    else
      out << c;
  }
  out << '"';
}

inline void write_csv_text(std::ostream& out, std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
    out << text;
    return;
  }
  out << '"';
  for (char const c : text) out << c << (c == '"' ? "\"" : "");
  out << '"';
}

/// Skips a UTF-8 byte order mark.
inline void skip_byte_order_mark(std::istream& in) {
  if (in.peek() != 0xEF) return;
  std::array<char, 3> mark{};
  if (!in.read(mark.data(), 3) || std::string_view{mark.data(), 3} != "\xEF\xBB\xBF")
    throw invalid_argument("gradsieve: a CSV begins with bytes that are no text in UTF-8");
}

/// Reads the fields of the next record, which may span several lines within quotes. False at the end of the text.
/// @throws invalid_argument if a quote is not closed.
inline bool read_csv_record(std::istream& in, std::size_t& line, std::vector<std::string>& fields) {
  fields.assign(1, "");
  bool quoted = false;
  bool any = false;
  for (char c = 0; in.get(c);) {
    any = true;
    if (c == '\n') ++line;
    if (quoted) {
      if (c != '"')
        fields.back() += c;
      else if (in.peek() == '"')
        fields.back() += static_cast<char>(in.get());
      else
        quoted = false;
    } else if (c == '"' && fields.back().empty()) {
      quoted = true;
    } else if (c == ',') {
      fields.emplace_back();
    } else if (c == '\n') {
      return true;
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  if (quoted) throw invalid_argument("gradsieve: a trace ends within a quoted name");
  return any;
}

template <class T>
[[nodiscard]] bool parse_number(std::string_view text, T& value) noexcept {
  auto const [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc{} && end == text.data() + text.size();
}

}  // namespace detail

/// The columns of a trace as CSV: one row per layer, in ready order; sizes in bytes, times in seconds.
inline constexpr std::string_view trace_columns = "name,bytes,backward,forward,dtype,element_bytes";

namespace detail {

/// The bytes of an element if a file does not have them; see read_csv(). The simulator's numbers for float16, bfloat16
/// and double are 2, 3 and 8.
inline void guess_element_bytes(std::vector<traced_layer>& layers) {
  std::vector<std::pair<std::uint32_t, std::uint64_t>> low_bits;  // of all bytes of a dtype, by OR
  auto const of = [&](std::uint32_t dtype) -> std::uint64_t& {
    for (auto& each : low_bits)
      if (each.first == dtype) return each.second;
    return low_bits.emplace_back(dtype, 0).second;
  };
  for (auto const& each : layers) of(each.dtype) |= each.bytes % 8;
  for (auto& each : layers) {
    auto const bits = of(each.dtype);
    bool const half = each.dtype == 2 || each.dtype == 3 || bits % 4 == 2;
    each.element_bytes = half ? 2 : each.dtype == 8 && bits == 0 ? 8 : 4;
  }
}

}  // namespace detail

/// Writes a trace as CSV: the columns of `trace_columns`, numbers with the fewest digits that read back as the same.
inline void write_csv(std::ostream& out, trace const& of) {
  plain_output const plain{out};
  out << trace_columns << '\n';
  for (auto const& each : of) {
    detail::write_csv_text(out, each.name);
    out << ',' << shortest{each.bytes} << ',' << shortest{each.backward} << ',' << shortest{each.forward} << ','
        << shortest{each.dtype} << ',' << shortest{each.element_bytes} << '\n';
  }
}

/// Reads a trace from CSV. Columns come in any order; without `name`, `forward` or `dtype` these are empty, 0 and 0.
/// Without `element_bytes` they are 2 for the dtypes 2 and 3, 8 for 8 if it divides the bytes of all layers of that
/// dtype, and otherwise 4, or 2 if only 2 divides these bytes. @throws invalid_argument, naming the line, unless the
/// first line names columns of `trace_columns`, including bytes and backward, none twice, and all other lines are such
/// rows.
[[nodiscard]] inline trace read_csv(std::istream& in, std::string name = {}) {
  constexpr std::array<std::string_view, 6> known{"name", "bytes", "backward", "forward", "dtype", "element_bytes"};
  std::vector<traced_layer> layers;
  std::vector<std::string> fields;
  std::size_t line = 1;
  std::string header;
  std::array<std::size_t, 6> place{};  // of each known column, counted from 1; 0: left out
  bool fits = true;
  if (!in) throw invalid_argument("gradsieve: the stream of a trace cannot be read");
  detail::skip_byte_order_mark(in);
  if (detail::read_csv_record(in, line, fields))
    for (std::size_t i = 0; i < fields.size(); ++i) {
      header += (header.empty() ? "" : ",") + fields[i];
      auto const at = static_cast<std::size_t>(std::find(known.begin(), known.end(), fields[i]) - known.begin());
      fits = fits && at < known.size() && place[at] == 0;
      if (fits) place[at] = i + 1;
    }
  if (!fits || place[1] == 0 || place[2] == 0)
    throw invalid_argument("gradsieve: a trace begins with '" + header.substr(0, 60) + "', expected '" +
                           std::string{trace_columns} + "' in any order, of which bytes and backward are needed");
  std::size_t const columns = fields.size();
  for (std::size_t begin = line; detail::read_csv_record(in, line, fields); begin = line) {
    if (fields.size() == 1 && fields[0].empty()) continue;
    traced_layer each;
    auto const read = [&](std::size_t column, auto& value) {
      return place[column] == 0 || detail::parse_number(fields[place[column] - 1], value);
    };
    if (fields.size() != columns || !read(1, each.bytes) || !read(2, each.backward) || !read(3, each.forward) ||
        !read(4, each.dtype) || !read(5, each.element_bytes))
      throw invalid_argument("gradsieve: line " + std::to_string(begin) + " of a trace is not '" + header + "'");
    if (place[0] != 0) each.name = std::move(fields[place[0] - 1]);
    layers.push_back(std::move(each));
  }
  if (place[5] == 0) detail::guess_element_bytes(layers);
  return trace{std::move(layers), std::move(name)};
}

/// Writes a trace as JSON: `{"name": ..., "layers": [{"name": ..., "bytes": ..., "backward": ..., "forward": ...,
/// "dtype": ..., "element_bytes": ...}, ...]}`.
inline void write_json(std::ostream& out, trace const& of) {
  plain_output const plain{out};
  out << "{\"name\": ";
  detail::write_json_text(out, of.name());
  out << ", \"layers\": [";
  std::string_view separator = "\n";
  for (auto const& each : of) {
    out << separator << "{\"name\": ";
    detail::write_json_text(out, each.name);
    out << ", \"bytes\": " << shortest{each.bytes} << ", \"backward\": " << shortest{each.backward}
        << ", \"forward\": " << shortest{each.forward} << ", \"dtype\": " << shortest{each.dtype}
        << ", \"element_bytes\": " << shortest{each.element_bytes} << '}';
    separator = ",\n";
  }
  out << "\n]}\n";
}

/// Reads a log of layer times as published by the authors of MG-WFBP: lines with [parameter, elements, backward
/// microseconds, microseconds of its communication, of a merged one], parameters in the order of the network. A weight
/// and its bias, neighbours with the same time, become one layer; 4 bytes per element. The logs have no forward times:
/// half of the backward times are used, as published. @throws invalid_argument if no line fits, or one is out of order.
[[nodiscard]] inline trace read_mgwfbp_log(std::istream& in, std::string name = {}) {
  struct row {
    std::uint64_t elements = 0;
    double microseconds = 0;
  };
  std::vector<row> rows;
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    auto const open = line.rfind('[');
    auto const close = line.rfind(']');
    if (open == std::string::npos || close == std::string::npos || close < open) continue;
    std::vector<std::string> fields(1);
    for (char const c : line.substr(open + 1, close - open - 1)) {
      if (c == ',')
        fields.emplace_back();
      else if (c != ' ')
        fields.back() += c;
    }
    row each;
    std::uint64_t parameter = 0;
    if (fields.size() != 5 || !detail::parse_number(fields[0], parameter) ||
        !detail::parse_number(fields[1], each.elements) ||
        !detail::parse_number(fields[2], each.microseconds))
      continue;
    if (parameter == 0 && !rows.empty()) break;  // the same parameters in a later report
    if (parameter != rows.size())
      throw invalid_argument("gradsieve: line " + std::to_string(number) + " of a log is about parameter " +
                             std::to_string(parameter) + ", expected " + std::to_string(rows.size()));
    if (each.elements >= trace::limit / 4)
      throw invalid_argument("gradsieve: line " + std::to_string(number) + " of a log has " +
                             std::to_string(each.elements) + " elements");
    rows.push_back(each);
  }
  if (rows.empty()) throw invalid_argument("gradsieve: a log without a line of 5 numbers in brackets");
  std::vector<traced_layer> layers;
  for (std::size_t i = rows.size(); i > 0;) {
    row const& last = rows[--i];
    bool const pair = i > 0 && rows[i - 1].microseconds == last.microseconds;
    std::uint64_t elements = last.elements;
    if (pair) elements += rows[--i].elements;
    layers.push_back(
        {"param" + std::to_string(i), 4 * elements, last.microseconds * 1e-6, last.microseconds * 0.5e-6, 0});
  }
  return trace{std::move(layers), std::move(name)};
}

}  // namespace gradsieve
