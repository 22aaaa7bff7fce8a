#!/bin/sh
# pkg_config.sh <pkg-config> <prefix> <package> <compiler> <program>: builds main.cpp, for gradsieve_compiled
# compiled.cpp, for gradsieve_c main.c, as a user without CMake does, and runs it.
set -eu
PKG_CONFIG_PATH=$(dirname "$(find "$2" -name "$3.pc")")
export PKG_CONFIG_PATH
if [ "$3" = gradsieve ]; then
  source=main.cpp
  options="-std=c++20 -O0 -DEXPECTED_VERSION=\"$("$1" --modversion gradsieve)\""
elif [ "$3" = gradsieve_compiled ]; then
  source=compiled.cpp
  options="-std=c++20 -O0"
else
  source=main.c
  options="-std=c11 -Wl,-rpath,$("$1" --variable=libdir "$3")"
fi
# shellcheck disable=SC2046,SC2086  # several words are meant
"$4" $options $("$1" --cflags "$3") "$(dirname "$0")/$source" $("$1" --libs "$3") -o "$5"
"$5"
