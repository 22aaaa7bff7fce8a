// Text for machines: the same characters for any locale and settings of a stream.
#pragma once

#include <ios>  // and std::locale, without all of <locale>
#include <ostream>
#include <sstream>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// While it exists, a stream writes numbers in decimal, without grouping, with a decimal point, six digits and no
/// padding, whatever its locale and settings; its destructor restores them, except the width. All operator<< of this
/// library, and everything that writes a file, use one.
class plain_output {
 public:
  /// Saves the stream's settings, which the destructor restores.
  explicit plain_output(std::ostream& out)
      : out_{out},
        locale_{out.getloc()},
        flags_{out.flags(std::ios_base::dec | std::ios_base::skipws | (out.flags() & std::ios_base::unitbuf))},
        precision_{out.precision(6)},
        fill_{out.fill(' ')} {
    out.width(0);
    if (locale_ != std::locale::classic()) out.imbue(std::locale::classic());  // imbue makes a file write its buffer
  }
  ~plain_output() {
    out_.fill(fill_);
    out_.precision(precision_);
    out_.flags(flags_);
    if (locale_ != std::locale::classic()) out_.imbue(locale_);
  }
  plain_output(plain_output const&) = delete;
  plain_output& operator=(plain_output const&) = delete;

 private:
  std::ostream& out_;
  std::locale locale_;
  std::ios_base::fmtflags flags_;
  std::streamsize precision_;
  char fill_;
};

/// A std::ostringstream with these settings from the start, whatever the program's locale is.
[[nodiscard]] inline std::ostringstream plain_text() {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  return out;
}

}  // namespace gradsieve
