#!/usr/bin/env bash
# How much a step's time depends on a user's compiler and flags: builds bench/flags.cpp with each of them and runs the
# programs in turn. Prints a table, and the slowest over the fastest of the optimised ones.
#   bench/flags.sh [ELEMENTS [DENSITY [THREADS]]]    defaults: 33554432 0.001 2
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
elements=${1-33554432}
density=${2-0.001}
threads=${3-2}
rounds=5
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

builds=("g++ -O2" "g++ -O3" "g++ -O3 -march=native" "g++ -O3 -march=native -ffast-math" "g++ -O0")
if command -v clang++-19 >/dev/null; then
  builds+=("clang++-19 -O2" "clang++-19 -O3" "clang++-19 -O3 -march=native")
else
  echo "skipped: clang, there is no clang++-19"
fi
for i in "${!builds[@]}"; do
  read -ra command <<<"${builds[$i]}"
  "${command[@]}" -std=c++20 -fopenmp -Iinclude bench/flags.cpp -o "$folder/$i"
done
export OMP_PROC_BIND=${OMP_PROC_BIND-true}
for ((round = 0; round < rounds; ++round)); do
  for i in "${!builds[@]}"; do
    "$folder/$i" "$elements" "$density" "$threads" 15 >>"$folder/$i.txt"
  done
done
for i in "${!builds[@]}"; do
  echo "$(sort -n "$folder/$i.txt" | sed -n $((rounds / 2 + 1))p) ${builds[$i]}"
done | awk -v n="$elements" '
  { flags = $0; sub(/^[^ ]+ [^ ]+ /, "", flags); printf "%10.3f ms (least %.3f)  %s\n", $1, $2, flags
    if (flags ~ /-O0/) { none = $1 } else { if (!low || $1 < low) low = $1; if ($1 > high) high = $1 }
    if (flags == "g++ -O2") base = $1 }
  END { printf "%s elements: slowest over fastest %.2f, without optimisation over -O2 %.1f\n", n, high / low, none / base }'
