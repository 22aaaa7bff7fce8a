#!/usr/bin/env bash
# Instructions of an element's step on AArch64 (NEON), and over those of the floor `r[i] += g[i]`: counted in an
# emulator, so they say nothing of memory or of the cycles that an instruction takes. Prints a table.
#   bench/aarch64.sh [ELEMENTS...]    default: 4096 65536 1048576
# Needs g++-aarch64-linux-gnu and qemu-user 4.2 to 8.2. Takes a minute.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for tool in aarch64-linux-gnu-g++ qemu-aarch64 g++; do
  command -v "$tool" >/dev/null || { echo "skipped: there is no $tool"; exit 77; }
done
[ $# -gt 0 ] || set -- 4096 65536 1048576
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
aarch64-linux-gnu-g++ -std=c++20 -O2 -static -Iinclude bench/instructions.cpp -o "$folder/steps"
g++ -std=c++20 -O2 -shared -fPIC -fvisibility=hidden bench/instructions_plugin.cpp -o "$folder/count.so"

# Instructions of JOB ELEMENTS DENSITY in 24 warm steps: of 32 steps less of 8
warm_steps() {
  local steps
  for steps in 8 32; do
    qemu-aarch64 -plugin "$folder/count.so" -d plugin -D "$folder/$steps" "$folder/steps" "$@" "$steps"
  done
  echo $(($(<"$folder/32") - $(<"$folder/8")))
}

echo "# Instructions on AArch64"
echo
echo "By \`bench/aarch64.sh $*\`, $(date -u +%F), commit $(git describe --always --dirty --exclude '*' 2>/dev/null || echo none)," \
  "$(aarch64-linux-gnu-g++ --version | head -n 1), -O2; one thread, warm steps."
echo
echo "| job | elements | density | instructions per element | over the floor's |"
echo "|---|--:|--:|--:|--:|"
for elements in "$@"; do
  floor=$(warm_steps floor "$elements" 0)
  for job in floor:- radix:0.001 radix:0.01 radix:0.1 radix-fp16:0.001 laplacian:0.001 laplacian:0.01 \
    hierarchical:0.01 chunked:0.01 adacomp:0.02 adacomp:0.002; do
    name=${job%:*}
    density=${job#*:}
    count=$floor
    [ "$name" = floor ] || count=$(warm_steps "$name" "$elements" "$density")
    awk -v name="$name" -v n="$elements" -v d="$density" -v c="$count" -v f="$floor" 'BEGIN {
      if (name == "adacomp") { name = name ", bins of " 1 / d; d = "-" } else if (d != "-") d = 100 * d " %"
      printf "| %s | %d | %s | %.2f | %.2f |\n", name, n, d, c / 24 / n, c / f }'
  done
done
