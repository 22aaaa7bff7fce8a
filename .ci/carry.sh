# shellcheck shell=bash
# Sourced by tests/gpu.sh and bench/gpu.sh: CMake for a machine without network whose own is older than 3.25. It travels
# as Python's wheel in build/carry.

# On a connected machine: puts the wheel there.
carry_cmake() {
  quietly ls build/carry/cmake/*.whl || python3 -m pip download -q --no-deps --only-binary=:all: -d build/carry/cmake \
    'cmake>=3.25,<4' || echo "no CMake to carry; the machine without network has to have 3.25 or newer"
}

# Unpacks it into folder $1, unless the machine's own is new enough. Fails where there is neither.
use_cmake() {
  local version wheel
  version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p')
  [ "$(printf '%s\n3.25\n' "${version:-0}" | sort -V | head -n 1)" != 3.25 ] || return 0
  for wheel in build/carry/cmake/*.whl; do
    [ -e "$wheel" ] || continue
    python3 -m zipfile -e "$wheel" "$1" || return 1
    chmod +x "$1"/cmake/data/bin/*
    PATH=$(realpath "$1/cmake/data/bin"):$PATH
    return 0
  done
  echo "CMake 3.25 or newer is needed, here is ${version:-none}; --prepare on a connected machine carries one" >&2
  return 1
}

quietly() { "$@" >/dev/null 2>&1; }
