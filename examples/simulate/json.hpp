// Reads JSON into a tree: enough for traces, without another library.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace simulation {

/// One value of JSON. Lists have items; objects have items and, for each, its key.
struct json {
  enum class type : std::uint8_t { null, boolean, number, text, list, object };

  type is = type::null;
  double value = 0;  ///< of a number, or 1 for true
  std::string text;  ///< of a text; of a number its digits
  std::vector<json> items;
  std::vector<std::string> keys;

  /// The first item of an object with this key; nullptr if there is none, or this is no object.
  [[nodiscard]] json const* find(std::string_view key) const {
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (keys[i] == key) return &items[i];
    return nullptr;
  }
};

/// @throws std::runtime_error, with the place, if the text is no JSON.
class json_reader {
 public:
  [[nodiscard]] static json read(std::string_view text) {
    auto reader = json_reader{text};
    auto whole = reader.value(0);
    if (reader.next() != '\0' || reader.at_ != text.size()) reader.fail("more text behind the end");
    return whole;
  }

 private:
  static constexpr int deepest = 100;  // bounds the stack, whatever the file holds

  explicit json_reader(std::string_view text) : text_{text} {}

  [[noreturn]] void fail(std::string const& what) const {
    throw std::runtime_error("not JSON: " + what + " at byte " + std::to_string(at_));
  }

  /// Skips blanks; the next character stays. 0 at the end.
  char next() {
    while (at_ < text_.size() && std::string_view{" \t\r\n"}.find(text_[at_]) != std::string_view::npos) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  void expect(char wanted) {
    if (next() != wanted) fail(std::string{"no '"} + wanted + "'");
    ++at_;
  }

  json value(int depth) {
    if (depth > deepest) fail("nested deeper than " + std::to_string(deepest));
    json made;
    char const first = next();
    if (first == '"') {
      made.is = json::type::text;
      made.text = string();
    } else if (first == '[' || first == '{') {
      ++at_;
      made.is = first == '[' ? json::type::list : json::type::object;
      char const last = first == '[' ? ']' : '}';
      for (bool more = next() != last; more;) {
        if (first == '{') {
          if (next() != '"') fail("no key");
          made.keys.push_back(string());
          expect(':');
        }
        made.items.push_back(value(depth + 1));
        more = next() == ',';
        if (more) ++at_;
      }
      expect(last);
    } else if (word("null")) {
      made.is = json::type::null;
    } else if (bool const yes = word("true"); yes || word("false")) {
      made.is = json::type::boolean;
      made.value = yes ? 1 : 0;
    } else {
      made.is = json::type::number;
      auto const* const begin = text_.data() + at_;
      auto const [end, problem] = std::from_chars(begin, text_.data() + text_.size(), made.value);
      bool const digits = first == '-' || (first >= '0' && first <= '9');  // not the "inf" that from_chars reads
      if (!digits || problem == std::errc::invalid_argument) fail("no value");
      if (problem != std::errc{}) fail("a number out of range");
      made.text.assign(begin, end);
      at_ += made.text.size();
    }
    return made;
  }

  bool word(std::string_view wanted) {
    if (text_.substr(at_, wanted.size()) != wanted) return false;
    at_ += wanted.size();
    return true;
  }

  std::string string() {
    std::string made;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] != '\\') {
        made += text_[at_];
        continue;
      }
      if (++at_ == text_.size()) break;
      constexpr std::string_view escapes = "bfnrt";
      constexpr std::string_view meanings = "\b\f\n\r\t";
      auto const which = escapes.find(text_[at_]);
      if (text_[at_] == 'u')
        unicode(made);
      else
        made += which == std::string_view::npos ? text_[at_] : meanings[which];
    }
    if (at_ == text_.size()) fail("a text without its end");
    ++at_;
    return made;
  }

  /// Four hexadecimal digits as UTF-8. Halves of pairs are kept as they are: names only.
  void unicode(std::string& to) {
    std::uint32_t code = 0;
    auto const* const begin = text_.data() + at_ + 1;
    if (text_.size() - at_ < 5 || std::from_chars(begin, begin + 4, code, 16).ptr != begin + 4)
      fail("a damaged escape");
    at_ += 4;
    auto const put = [&](std::uint32_t byte) { to += static_cast<char>(byte); };
    if (code < 0x80) return put(code);
    if (code < 0x800) {
      put(0xC0 | code >> 6);
    } else {
      put(0xE0 | code >> 12);
      put(0x80 | (code >> 6 & 0x3F));
    }
    put(0x80 | (code & 0x3F));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace simulation
