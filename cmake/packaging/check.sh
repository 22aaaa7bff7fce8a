#!/usr/bin/env bash
# check.sh [folder]: makes each package whose tools are here and builds a consumer of it; says what it skipped. Works in the folder,
# or in a new one, and installs nothing. CONAN, VCPKG and SPACK name the programs, where they are not on the path.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=${1-$(mktemp -d)}
mkdir -p "$work"
work=$(cd "$work" && pwd)
skipped=()
has() { command -v "$1" >/dev/null 2>&1 || { skipped+=("$2: no $1"); return 1; }; }
consumer() { # <name> <CMake options...>
  local build=$work/consumer_$1
  shift
  cmake -S "$root/cmake/packaging/conan/test_package" -B "$build" -DCMAKE_BUILD_TYPE=Debug "$@" >/dev/null
  cmake --build "$build" >/dev/null
  "$build/consumer"
}

conan=${CONAN-conan}
if has "$conan" Conan; then
  export CONAN_HOME=$work/conan
  "$conan" profile detect --force >/dev/null 2>&1
  "$conan" create "$root/cmake/packaging/conan" -s compiler.cppstd=20 -s build_type=Debug >"$work/conan.log" 2>&1 ||
    { tail -30 "$work/conan.log"; exit 1; }
  echo "Conan: built and consumed"
fi

if has dpkg-buildpackage Debian && has dh Debian; then
  rm -rf "$work/debian"
  mkdir -p "$work/debian/gradsieve"
  (cd "$root" && tar -c --exclude=build --exclude=.git CMakeLists.txt LICENSE cmake include) | tar -x -C "$work/debian/gradsieve"
  cp -r "$root/cmake/packaging/debian" "$work/debian/gradsieve/debian"
  # -d: a compiler or CMake from elsewhere will do.
  (cd "$work/debian/gradsieve" && dpkg-buildpackage -b -uc -us -d) >"$work/debian.log" 2>&1 || { tail -30 "$work/debian.log"; exit 1; }
  dpkg-deb -x "$work"/debian/libgradsieve-dev_*.deb "$work/debian/root"
  consumer debian "-DCMAKE_PREFIX_PATH=$work/debian/root/usr"
  echo "Debian: built and consumed"
fi

vcpkg=${VCPKG-vcpkg}
if has "$vcpkg" vcpkg; then
  "$vcpkg" install gradsieve "--overlay-ports=$root/cmake/packaging/vcpkg" "--x-install-root=$work/vcpkg" >"$work/vcpkg.log" 2>&1 ||
    { tail -30 "$work/vcpkg.log"; exit 1; }
  consumer vcpkg "-DCMAKE_PREFIX_PATH=$(dirname "$(find "$work/vcpkg" -path '*/share/gradsieve' -type d)")"
  echo "vcpkg: built and consumed"
fi

spack=${SPACK-spack}
if has "$spack" Spack; then
  export SPACK_USER_CONFIG_PATH=$work/spack
  "$spack" repo add "$root/cmake/packaging/spack" >/dev/null 2>&1
  (cd "$root" && "$spack" dev-build gradsieve@0.2.0) >"$work/spack.log" 2>&1 || { tail -30 "$work/spack.log"; exit 1; }
  consumer spack "-DCMAKE_PREFIX_PATH=$("$spack" location -i gradsieve)"
  echo "Spack: built and consumed"
fi

for reason in "${skipped[@]}"; do echo "skipped: $reason"; done
