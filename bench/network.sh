#!/usr/bin/env bash
# Trains over a real, slow network on one Linux machine: every rank in a network namespace of its own, joined by a
# bridge, its link limited in both directions by token buckets, Open MPI over TCP between them. Prints iteration time,
# bytes and speed-up of recipes, exchanged after and during the backward pass. `bench/network.sh --help` lists the
# options. Needs root and iproute2; exits with 77, and says why, where that cannot be had.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$here"

ranks=4
each=1
rates=1gbit,100mbit
steps=30
dense=8
batch=16
hidden=1024,1024,1024,1024,1024,1024
recipes=dense,radix,radix+deft
densities=0.01,0.001
schedules=none,single,optimal
codec=fp16
limit=900
compute=0
measure=15
csv=
program=build/release/examples/train
install=yes

usage() {
  cat <<TEXT
usage: bench/network.sh [option value]... [-- program argument...]

  --ranks N          namespaces, 2 to 8 [$ranks]
  --each N           ranks in each namespace, which is a node then, with a program after -- [$each]
  --rates R,R        of every link, each way: 100mbit, 1gbit, 10gbit, ... [$rates]
  --steps N          optimiser steps of each run [$steps]
  --dense-steps N    the same, for dense [$dense]
  --batch N          samples a step, all ranks together [$batch]
  --hidden N,N       widths of the network's hidden layers [$hidden]
  --recipes A,B      as train --compare; dense is the measure of all [$recipes]
  --codec NAME       of recipes with radix alone [$codec]
  --densities X,X    [$densities]
  --schedules A,B    as train --overlap; none: one exchange after the backward pass [$schedules]
  --compute-ms X     forward and backward pass take at least so long, most of it asleep, as if a device computed [$compute]
  --measure-seconds  time that train takes to measure what exchanges take, each [$measure]
  --limit S          seconds after which a run is ended [$limit]
  --csv FILE         writes one row a run
  --program FILE     the training example [$program]
  --no-install       without iproute2: skips, and does not install it

With a program after --, runs that once at each rate instead, under mpirun, and prints how many bytes each namespace has
sent over its link, those with which mpirun starts the program included.
TEXT
}

while [ $# -gt 0 ]; do
  case $1 in
    --help) usage && exit 0 ;;
    --) shift && break ;;
    --no-install) install=no && shift ;;
    --ranks | --each | --rates | --steps | --dense-steps | --batch | --hidden | --recipes | --codec | --densities | --schedules | --limit | --csv | --measure-seconds | --compute-ms | --program)
      [ $# -ge 2 ] || { echo "network.sh: $1 needs a value" >&2; exit 2; }
      name=${1#--}
      printf -v "${name%%-*}" '%s' "$2"
      shift 2
      ;;
    *) echo "network.sh: unknown option '$1'; --help lists all" >&2; exit 2 ;;
  esac
done
[[ $ranks =~ ^[2-8]$ ]] || { echo "network.sh: --ranks '$ranks': choose 2 to 8" >&2; exit 2; }
for number in "$each" "$steps" "$dense" "$batch" "$limit"; do
  [[ $number =~ ^[1-9][0-9]*$ ]] || { echo "network.sh: '$number' is not a whole number above 0" >&2; exit 2; }
done

[ "$each" = 1 ] || [ $# -gt 0 ] || { echo "network.sh: --each is for a program after --" >&2; exit 2; }

# ---- What this needs -----------------------------------------------------------------------------------------

# shellcheck source=bench/network_links.sh
source bench/network_links.sh
need_network_tools
command -v mpirun >/dev/null || skip "there is no mpirun"
mpirun --version 2>/dev/null | grep -q "Open MPI\|OpenRTE" || skip "mpirun is not Open MPI's, whose launch agent this uses"
if [ $# -eq 0 ] && [ ! -x "$program" ]; then
  skip "there is no $program: cmake --preset release && cmake --build --preset release --target gradsieve_example_train"
fi

# ---- The network ---------------------------------------------------------------------------------------------

make_network "$ranks"

# Open MPI's way to start a process on another host: enters the namespace of that address, with a host name of its own.
cat >"$scratch/agent" <<TEXT
#!/bin/sh
name=$tag-\${1##*.}
shift
exec ip netns exec "\$name" unshare --uts sh -c "hostname \$name; \$*"
TEXT
chmod +x "$scratch/agent"

transports=tcp,self
[ "$each" = 1 ] || transports=vader,tcp,self # vader: shared memory, within a namespace

# Dense all-reduces by rings, blocking or not, and no handshake before messages below 256 kB: of what Open MPI has, the
# fastest here for millions of parameters, dense or not.
on_ranks() {
  OMP_NUM_THREADS=1 timeout --kill-after=10 "$limit" mpirun --allow-run-as-root -np $((ranks * each)) --host "${hosts//,/:$each,}:$each" \
    --mca plm_rsh_agent "$scratch/agent" --mca btl "$transports" --mca btl_tcp_if_include "$subnet.0/24" \
    --mca oob_tcp_if_include "$subnet.0/24" --mca hwloc_base_binding_policy none --mca mpi_yield_when_idle 1 \
    --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 4 \
    --mca coll_libnbc_iallreduce_algorithm 1 --mca btl_tcp_eager_limit 262144 \
    --mca orte_tmpdir_base "$scratch" --wdir "$here" "$@"
}

sent_bytes() {
  local r
  for ((r = 1; r <= ranks; ++r)); do ip netns exec "$tag-$r" cat /sys/class/net/eth0/statistics/tx_bytes; done
}

# ---- The runs --------------------------------------------------------------------------------------------------

IFS=, read -ra rate_list <<<"$rates"
if [ $# -gt 0 ]; then
  for rate in "${rate_list[@]}"; do
    limit_links "$rate"
    echo "== $rate, $ranks namespaces of $each ranks: $*"
    before=($(sent_bytes))
    on_ranks "$@"
    after=($(sent_bytes))
    for ((r = 0; r < ranks; ++r)); do echo "namespace $((r + 1)) sent $((after[r] - before[r])) bytes over its link"; done
  done
  exit 0
fi

IFS=, read -ra recipe_list <<<"$recipes"
IFS=, read -ra density_list <<<"$densities"
IFS=, read -ra schedule_list <<<"$schedules"
shared=()
[ "$(nproc)" -ge $((2 * ranks)) ] || [ "$compute" != 0 ] || shared=(--shared-cores)
echo "$ranks ranks on $(nproc) cores, $steps steps of $batch samples, hidden layers $hidden, computing at least $compute ms" \
  "${shared:+(cores are shared: computing and selecting are slower than on a machine for each rank)}"

rows=$scratch/rows.csv
echo "rate,recipe,density,overlap,groups,median_step_ms,predicted_ms,compute_ms,sent,received" >"$rows"
run() { # rate recipe density schedule
  local out=$scratch/out.csv own=() count=$steps
  [ "$2" != dense ] || count=$dense
  [ "$2" != radix ] || own=(--codec "$codec")
  if ! on_ranks "$program" --compare "$2" --density "$3" --overlap "$4" --hidden "$hidden" --batch "$batch" \
    --steps "$count" --pause 50 --compute-ms "$compute" "${shared[@]}" --measure-seconds "$measure" "${own[@]}" --csv "$out" \
    >"$scratch/log" 2>&1; then
    echo "network.sh: $2 at density $3, overlap $4, $1 failed or took more than $limit seconds:" >&2
    tail -n 20 "$scratch/log" >&2
    exit 1
  fi
  grep -A1 " on this link: " "$scratch/log" | sed "s|^|  $1 |" || true
  awk -F, -v OFS=, -v rate="$1" -v density="$3" 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i }
    NR == 2 { print rate, $at["recipe"], density, $at["overlap"], $at["groups"], $at["median_step_ms"], $at["predicted_ms"],
              $at["compute_ms"], $at["bytes_per_step"], $at["received_per_step"] }' "$out" | tee -a "$rows" >"$scratch/last"
}

for rate in "${rate_list[@]}"; do
  limit_links "$rate"
  for recipe in "${recipe_list[@]}"; do
    for density in "${density_list[@]}"; do
      [ "$recipe" != dense ] || density=1
      for schedule in "${schedule_list[@]}"; do run "$rate" "$recipe" "$density" "$schedule"; done
      [ "$recipe" != dense ] || break
    done
  done
done

[ -z "$csv" ] || cp "$rows" "$csv"
echo
awk -F, 'NR > 1 {
    if ($2 == "dense" && (!($1 in dense) || $6 < dense[$1])) dense[$1] = $6
    row[NR] = $0
  }
  END {
    printf "%-8s %-24s %7s %-8s %6s %12s %13s %8s %10s %11s %9s\n", "rate", "recipe", "density", "overlap", "groups",
           "iteration ms", "predicted ms", "error %", "sent kB", "received kB", "speed-up"
    for (i = 2; i <= NR; ++i) {
      split(row[i], c, ",")
      known = c[7] + 0 > 0
      printf "%-8s %-24s %7s %-8s %6s %12.1f %13s %8s %10.1f %11.1f %9s\n", c[1], c[2], c[3], c[4], known ? c[5] : "-",
             c[6], known ? sprintf("%.1f", c[7]) : "-", known ? sprintf("%+.1f", 100 * (c[7] / c[6] - 1)) : "-",
             c[9] / 1e3, c[10] / 1e3, (c[1] in dense) ? sprintf("%.2f", dense[c[1]] / c[6]) : "-"
    }
  }' "$rows"
echo "speed-up: over the fastest dense iteration at this rate; bytes: of a rank and iteration, as handed to and taken from MPI"
