#!/usr/bin/env bash
# Sets this machine up, builds, and runs every test it can run; says what it skipped and why.
#   tests/run.sh [--quick | --all]    --quick: the release build only; --all: everything
# Each preset is tested when it is built; the last lines say what each took, and how many tests passed.
# Where nvcc and no GPU is found, device tests run on the CPU: tests/ptxcpu. Environment: GRADSIEVE_DEVICE_LAUNCHER is
# another command that runs a device test on a machine without a GPU; GRADSIEVE_DEVICE_MODES, GRADSIEVE_DEVICE_RACES and
# GRADSIEVE_DEVICE_STATISTICS, as tests/CMakeLists.txt has them, make it run them in several ways and count what a step
# does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

quick=no
all=no
ci=no
case "${1-}" in
  "") ;;
  --quick) quick=yes ;;
  --all) all=yes ;;
  --ci) ci=yes ;; # as without, and as much of the rest as there is time for
  *)
    echo "usage: tests/run.sh [--quick | --all]" >&2
    exit 2
    ;;
esac

source cmake/setup.sh
need doctest-dev header doctest/doctest.h
want libeigen3-dev header eigen3/Eigen/Core
want zlib1g-dev header zlib.h
want libbenchmark-dev header benchmark/benchmark.h
want libopenmpi-dev command -v mpicxx
want openmpi-bin command -v mpirun
want nlohmann-json3-dev header nlohmann/json.hpp
want doxygen command -v doxygen
want doxygen-awesome-css test -e /usr/share/doxygen-awesome-css/doxygen-awesome.css
want g++-aarch64-linux-gnu command -v aarch64-linux-gnu-g++
want g++-11 command -v g++-11
want qemu-user command -v qemu-aarch64
want codespell command -v codespell
[ "${1-}" = --quick ] || want_torch

skipped=()
# unless_skipped <what would be missing> <check command...>
unless_skipped() {
  local what=$1
  shift
  quietly "$@" || { skipped+=("$what (this failed: $*)"); return 1; }
}

presets=(release)
unless_skipped "all tests on MPI ranks" eval 'command -v mpicxx && command -v mpirun' || true
unless_skipped "example train" eval 'header eigen3/Eigen/Core && header zlib.h' || true
unless_skipped "training over network namespaces" eval '[ "$(id -u)" = 0 ] && command -v ip && command -v tc' || true
unless_skipped "the benchmarks" header benchmark/benchmark.h || true
unless_skipped "reading JSON that the library writes, and traces as JSON" header nlohmann/json.hpp || true
unless_skipped "the API reference" command -v doxygen || true
unless_skipped "AArch64's kernels, by a cross compiler and an emulator" eval 'command -v aarch64-linux-gnu-g++ && command -v qemu-aarch64' || true
unless_skipped "spelling" command -v codespell || true
unless_skipped "GoogLeNet as MG-WFBP's authors measured it (GRADSIEVE_MGWFBP_LOG names their tmp8comm.log)" test -e "${GRADSIEVE_MGWFBP_LOG-}" || true

pytorch=OFF
debug_compiler=clang++-19
if [ $quick = yes ]; then
  skipped+=("the hook for PyTorch (--quick)")
elif unless_skipped "the hook for PyTorch, a Python with torch and its headers" torch_python; then
  python=$(torch_python)
  pytorch=ON
fi

if [ $quick = yes ]; then
  skipped+=("presets debug, tsan, clang and cuda (--quick)")
else
  presets+=(debug)
  tsan_links() { echo 'int main() {}' | clang++-19 -fsanitize=thread -o /dev/null -x c++ -; }
  archer=/usr/lib/llvm-19/lib/libarcher.so
  want clang-19 command -v clang++-19
  want libclang-rt-19-dev tsan_links
  want libomp-19-dev test -e $archer
  unless_skipped "clang in preset debug, which g++ builds" tsan_links || debug_compiler=g++
  unless_skipped "preset tsan" tsan_links && presets+=(tsan)
  unless_skipped "OpenMP in presets clang and tsan" test -e $archer || true
  if [ $all = yes ]; then
    unless_skipped "presets clang and clang-fast-math" command -v clang++-19 && presets+=(clang clang-fast-math)
  else
    skipped+=("presets clang and clang-fast-math, its optimised builds (--all); in presets debug and tsan clang compiles all but the benchmarks")
  fi

  [ $all = yes ] || skipped+=("without a GPU, device tests with --use_fast_math, of in_bfloat16 and of published selectors, and example train on a device; other orders of threads and streams but for six device tests (--all)")

  # Device tests run on a GPU, or through a launcher that stands in for one. Where neither is there they are compiled,
  # and each is skipped: exit status 77.
  launcher=${GRADSIEVE_DEVICE_LAUNCHER-}
  modes=${GRADSIEVE_DEVICE_MODES-}
  races=${GRADSIEVE_DEVICE_RACES-}
  statistics=${GRADSIEVE_DEVICE_STATISTICS-}
  if unless_skipped "preset cuda" env PATH="$PATH:/usr/local/cuda/bin" nvcc --version; then
    presets+=(cuda)
    want python3 command -v python3
    if [ -z "$launcher" ] && ! quietly nvidia-smi -L; then
      want libzstd1 eval 'test -e "$(g++ -print-file-name=libzstd.so.1)"'
      launcher=$(printf %q "$PWD/tests/ptxcpu/run.sh")
      modes="seed:PTXCPU_SEED=1,GRADSIEVE_TEST_BLOCKS=3;lazy:PTXCPU_ASYNC=lazy"
      [ $all = no ] || modes+=";one:PTXCPU_WORKERS=1;preempt:PTXCPU_SEED=2,PTXCPU_PREEMPT=30"
      races=PTXCPU_RACE=1,GRADSIEVE_TEST_BLOCKS=3
      statistics=PTXCPU_STATS=1
    fi
    if [ -z "$launcher" ]; then
      echo "setup: device tests run on the GPU"
    elif unless_skipped "running device tests, which are only compiled" eval "$launcher true"; then
      echo "setup: device tests run through $launcher"
    else
      launcher='sh -c "exit 77"' modes='' races='' statistics=''
    fi
  fi
fi

# Compilations of an earlier run are taken from a compiler cache, where ccache is installed.
cache=()
if quietly command -v ccache; then
  cache=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
  export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS-pch_defines,time_macros}
fi
[ $all = yes ] || skipped+=("each header alone, the benchmarks, and tests that say little which others do not (--all)")
for reason in "${skipped[@]}"; do
  echo "skipped: $reason"
done

passed=0
failed=0
left_out=0
times=()
# run_preset <preset> [options of CMake...]: builds all of it, then runs its tests. With TESTS, only those of such names,
# and in a tree that was configured before: the preset would set its flags back, and all would be compiled again.
run_preset() {
  local preset=$1 started=$SECONDS built counts
  shift
  echo "== building $preset"
  if [ -n "${TESTS-}" ]; then
    PATH=$PATH:/usr/local/cuda/bin cmake -B "build/$preset" "$@"
  else
    cmake --preset "$preset" "${cache[@]}" "$@"
  fi
  cmake --build --preset "$preset" -j"$(nproc)"
  built=$SECONDS
  echo "== testing $preset"
  ctest --preset "$preset" -j"$(nproc)" --no-tests=error --output-junit results.xml ${TESTS:+-R "$TESTS"} || status=1
  # tests, failures and skipped of the report's head
  counts=$(tr '\n' ' ' <"build/$preset/results.xml" |
    sed -n 's/.*<testsuite [^>]*tests="\([0-9]*\)"[^>]*failures="\([0-9]*\)"[^>]*skipped="\([0-9]*\)".*/\1 \2 \3/p')
  read -r all_tests failures skips <<<"$counts"
  passed=$((passed + all_tests - failures - skips)) failed=$((failed + failures)) left_out=$((left_out + skips))
  times+=("$preset: built in $((built - started)) s, $all_tests tests in $((SECONDS - built)) s, $failures failed, $skips skipped")
}

status=0
slow=$([ $all = yes ] && echo ON || echo OFF)
for preset in "${presets[@]}"; do
  options=("-DGRADSIEVE_TEST_SLOW=$slow" "-DGRADSIEVE_TEST_HEADERS=$slow")
  if [ "$preset" = release ]; then
    options+=("-DGRADSIEVE_BUILD_BENCH=$slow" "-DGRADSIEVE_BUILD_PYTORCH=$pytorch" "-DPython3_EXECUTABLE=${python-}")
    # -O1 takes a third less time than -O3. Test same_bits_for_any_flags has -O3 too.
    [ $all = yes ] || options+=("-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG")
  elif [ "$preset" = debug ]; then
    options+=("-DCMAKE_CXX_COMPILER=$debug_compiler")
  elif [ "$preset" = cuda ]; then
    options+=("-DGRADSIEVE_BUILD_BENCH=$slow"
              "-DGRADSIEVE_DEVICE_LAUNCHER=$launcher" "-DGRADSIEVE_DEVICE_MODES=$modes"
              "-DGRADSIEVE_DEVICE_RACES=$races" "-DGRADSIEVE_DEVICE_STATISTICS=$statistics")
    # Without a GPU nothing runs what ptxas makes; test spills has it compile every kernel. The host's part computes
    # little; at -O1 g++ 12 warns of CUB.
    [ -z "$launcher" ] || options+=(-DCMAKE_CUDA_ARCHITECTURES=90-virtual
      "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -Wno-maybe-uninitialized"
      "-DCMAKE_CUDA_FLAGS_RELEASE=-O1 -Xcompiler=-Wno-maybe-uninitialized")
  fi
  run_preset "$preset" "${options[@]}"
done

# CI has 90 minutes: what it has time for of the rest.
if [ $ci = yes ]; then
  for preset in release cuda; do
    if [[ " ${presets[*]} " != *" $preset "* ]] || [ $SECONDS -gt 3900 ]; then
      echo "skipped: in $preset each header alone and the benchmarks, after $SECONDS s"
    else
      TESTS='bench|gpu_dry_run' run_preset "$preset" -DGRADSIEVE_TEST_HEADERS=ON -DGRADSIEVE_BUILD_BENCH=ON
    fi
  done
fi

printf '%s\n' "${times[@]}" "all: $SECONDS s"
echo "tests: $passed passed, $failed failed, $left_out skipped"
exit $status
