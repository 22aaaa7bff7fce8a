#!/bin/sh
# pkg_config.sh <pkg-config> <prefix> <compiler> <program>: builds main.cpp as a user without CMake does, and runs it.
set -eu
PKG_CONFIG_PATH=$(dirname "$(find "$2" -name gradsieve.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046  # several words are meant
"$3" -std=c++20 -O0 "-DEXPECTED_VERSION=\"$("$1" --modversion gradsieve)\"" $("$1" --cflags gradsieve) \
  "$(dirname "$0")/main.cpp" $("$1" --libs gradsieve) -o "$4"
"$4"
