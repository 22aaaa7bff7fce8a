// Networks as they were measured: CSV, and what the OSU micro-benchmarks and nccl-tests print.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gradsieve/plan.hpp>

#include "../text_file.hpp"
#include "options.hpp"

namespace simulation {

/// Reads one file of measured times.
class network_reader {
 public:
  /// @throws std::runtime_error that names the file and the line
  [[nodiscard]] static priced_network read(std::filesystem::path const& path) {
    auto const text = example::read_text(path);
    if (example::begins_as_json(text))
      throw std::runtime_error("'" + path.string() + "' is JSON; a network is a CSV of bytes and seconds, or what " +
                               "osu_allreduce or nccl-tests print");
    std::istringstream file{text};
    network_reader reader{path};
    if (path.extension() == ".csv" && file.peek() != '#')
      reader.read_csv(file);
    else
      reader.read_output(file);
    return reader.finished();
  }

 private:
  explicit network_reader(std::filesystem::path const& path)
      : path_{path.string()}, made_{path.stem().string(), {}, {}, {}} {}

  [[noreturn]] void fail(std::size_t line, std::string const& why) const {
    throw std::runtime_error("line " + std::to_string(line) + " of '" + path_ + "' " + why);
  }

  void read_csv(std::istream& file) {
    std::vector<std::string> columns;
    std::vector<std::string> fields;
    std::size_t line = 1;
    gs::detail::skip_byte_order_mark(file);
    gs::detail::read_csv_record(file, line, columns);
    auto const place = [&](char const* wanted) {
      return static_cast<std::size_t>(std::find(columns.begin(), columns.end(), wanted) - columns.begin());
    };
    std::size_t const bytes = place("bytes"), seconds = place("seconds"), workers = place("workers");
    if (bytes == columns.size() || seconds == columns.size() || columns.size() != (workers < columns.size() ? 3U : 2U))
      fail(1, "names the columns '" + example::joined(columns, ",").substr(0, 60) +
                  "', expected bytes, seconds and perhaps workers, or what osu_allreduce or nccl-tests print");
    for (std::size_t begin = line; gs::detail::read_csv_record(file, line, fields); begin = line) {
      if (fields.size() == 1 && fields[0].empty()) continue;
      gs::table::point each;
      int of = 0;
      if (fields.size() != columns.size() || !gs::detail::parse_number(fields[bytes], each.bytes) ||
          !gs::detail::parse_number(fields[seconds], each.seconds) ||
          (workers < columns.size() && (!gs::detail::parse_number(fields[workers], of) || of < 1)))
        fail(begin, "is not '" + example::joined(columns, ",") + "'");
      made_.measured[of].points.push_back(each);
    }
    if (made_.measured.empty()) fail(1, "is followed by no row");
  }

  /// Lines of '#' name columns (and, with nccl-tests, ranks); lines that begin with a number are rows; others are what
  /// a launcher has said.
  void read_output(std::istream& file) {
    std::size_t number = 0;
    int ranks = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      auto words = words_of(line);
      if (words.empty()) continue;
      if (words[0].starts_with('#')) {
        words[0].erase(0, 1);
        if (words[0].empty()) words.erase(words.begin());
        if (!words.empty()) read_comment(line, words, ranks);
      } else if (std::string_view{"0123456789"}.find(words[0][0]) != std::string_view::npos) {
        read_row(number, words, ranks);
      }
    }
    if (made_.measured.empty())
      fail(number,
           "is its last, and there was no row: expected a CSV of bytes and seconds, or what osu_allreduce or "
           "nccl-tests print");
  }

  void read_comment(std::string const& line, std::vector<std::string> const& words, int& ranks) {
    if (words[0] == "Rank") {
      ++ranks;
    } else if (words[0] == "Size") {  // OSU's: Size, Avg Latency(us), and with -f the least, the largest, the calls
      columns_ = line.find("Avg Latency(us)") == std::string::npos ? 0 : words.size();
      time_ = in_place_ = 1;
      named_ = true;
    } else if (words[0] == "size") {  // nccl-tests': out of place, then in place
      auto const first = std::find(words.begin(), words.end(), "time");
      auto const second = first == words.end() ? first : std::find(first + 1, words.end(), "time");
      columns_ = first == words.end() ? 0 : words.size();
      time_ = static_cast<std::size_t>(first - words.begin());
      in_place_ = second == words.end() ? time_ : static_cast<std::size_t>(second - words.begin());
      named_ = true;
    }
  }

  void read_row(std::size_t number, std::vector<std::string> const& words, int ranks) {
    if (!named_ || columns_ == 0)
      fail(number, named_ ? "follows columns without an average time in us: osu_allreduce's and nccl-tests' are read"
                          : "stands before the line that names the columns: '# Size Avg Latency(us)' of osu_allreduce, "
                            "or nccl-tests' '# size count type redop root time ...'");
    // A size, or workers,size.
    int of = ranks;
    auto size = words[0];
    bool fits = true;
    if (auto const comma = size.find(','); comma != std::string::npos) {
      fits = gs::detail::parse_number(std::string_view{size}.substr(0, comma), of) && of >= 1;
      size.erase(0, comma + 1);
    }
    gs::table::point each;
    fits = fits && gs::detail::parse_number(size, each.bytes) && words.size() > time_;
    // Gradients are reduced in place.
    double microseconds = 0;
    fits = fits && ((words.size() > in_place_ && gs::detail::parse_number(words[in_place_], microseconds)) ||
                    gs::detail::parse_number(words[time_], microseconds));
    if (!fits || !(microseconds >= 0)) fail(number, "has no size and time where its columns say so");
    each.seconds = 1e-6 * microseconds;
    auto& points = made_.measured[of].points;
    if (!points.empty() && points.back().bytes == each.bytes)  // small sizes, rounded to whole elements a rank
      points.back().seconds = std::max(points.back().seconds, each.seconds);
    else
      points.push_back(each);
  }

  [[nodiscard]] static std::vector<std::string> words_of(std::string const& line) {
    constexpr std::string_view blanks = " \t\r";
    std::vector<std::string> words;
    for (std::size_t end = 0, begin = 0; (begin = line.find_first_not_of(blanks, end)) != std::string::npos;) {
      end = std::min(line.find_first_of(blanks, begin), line.size());
      words.push_back(line.substr(begin, end - begin));
    }
    return words;
  }

  /// Noise: a time that falls as sizes rise. @throws gs::invalid_argument for what no table can be.
  [[nodiscard]] priced_network finished() {
    for (auto& [of, all] : made_.measured) {
      auto rising = all.rising();
      for (std::size_t i = 0; i < all.points.size(); ++i)
        if (!(all.points[i].seconds >= 0) || std::isinf(rising.points[i].seconds) != std::isinf(all.points[i].seconds))
          rising = all;  // no noise: let it be refused
      rising.check();
      std::size_t raised = 0;
      double most = 0;
      for (std::size_t i = 0; i < all.points.size(); ++i)
        if (double const was = all.points[i].seconds, is = rising.points[i].seconds; was < is) {
          ++raised;
          most = std::max(most, 1 - was / is);
        }
      if (raised > 0) {
        auto text = gs::plain_text();
        text << made_.name << (of > 0 ? ", " + std::to_string(of) + " workers" : "") << ": " << raised << " of "
             << all.points.size() << " times are below that of a smaller size, by up to "
             << std::round(1000 * most) / 10
             << " %; the running maximum is taken, and above the largest size the slope of a line fitted to the larger "
                "ones\n";
        made_.note += text.str();
        extend(rising.points);
      }
      all = std::move(rising);
    }
    return std::move(made_);
  }

  /// Adds a point far away, so that no noise in the last two decides what larger sizes take.
  static void extend(std::vector<gs::table::point>& points) {
    auto upper = points;
    if (upper.size() >= 8) upper.erase(upper.begin(), upper.begin() + static_cast<std::ptrdiff_t>(upper.size() / 2));
    std::erase_if(upper, [](auto const& each) { return each.bytes == 0 || !(each.seconds > 0 && each.seconds < 1e9); });
    auto const last = points.back();
    if (upper.empty() || std::isinf(last.seconds) || last.bytes >= gs::trace::limit) return;
    double const slope = gs::fit_affine(std::move(upper)).cost.b;
    points.push_back({gs::trace::limit, last.seconds + slope * static_cast<double>(gs::trace::limit - last.bytes)});
  }

  std::string path_;
  priced_network made_;
  bool named_ = false;        // there was a line of columns
  std::size_t columns_ = 0;   // of it; 0: without a time
  std::size_t time_ = 0;      // column of the time
  std::size_t in_place_ = 0;  // likewise, in place
};

/// Whether a network is the name of a file.
inline bool is_measured(std::string const& network) {
  std::filesystem::path const path{network};
  auto const named = [&](tools::network const& each) { return each.name == network; };
  if (std::any_of(tools::networks().begin(), tools::networks().end(), named)) return false;
  return path.extension() == ".csv" || std::filesystem::is_regular_file(path);
}

inline std::vector<priced_network> load_networks(settings const& chosen) {
  std::vector<priced_network> all;
  for (auto const& each : chosen.networks) {
    if (!is_measured(each)) {
      all.push_back({each, tools::network_named(each), {}, {}});
      continue;
    }
    if (chosen.exchange_given)
      throw usage_error("--exchange '" + chosen.exchange + "': the times of '" + each +
                        "' are those of its own exchange");
    all.push_back(network_reader::read(each));
    auto const& measured = all.back().measured;
    if (measured.contains(0) && (chosen.workers.size() != 1 || !chosen.workers_given))
      throw usage_error("--network '" + each +
                        "': does not say of how many workers, so that --workers names one number");
    for (int const workers : workers_on(chosen, all.back()))
      if (workers > 1 && !measured.contains(0) && !measured.contains(workers))
        throw usage_error("--network '" + each + "': has no times of " + std::to_string(workers) + " workers");
  }
  return all;
}

}  // namespace simulation
