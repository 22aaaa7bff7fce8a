// What operator<< prints.
#pragma once

#include <sstream>
#include <string>

template <class T>
std::string printed(T const& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}
