#!/usr/bin/env bash
# Claims of the papers that the library stands on, held against runs: study.sh [NAME...] [--quick]
# Each cell is one command, which is printed and leaves its CSV in out/study (out/study-quick); what is there is not
# run again. GRADSIEVE_STUDY_OUT names another folder. Afterwards study.py makes tables and pictures of what there is. In full about NAME's minutes on two
# cores that others use as well:
#   density 1, selection 3, laws 1, memories 1, bins 3, unpleasant 6, schedules 1
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=(density selection laws memories bins unpleasant schedules)
wanted=()
quick=
for argument in "$@"; do
  case $argument in
    --quick) quick=1 ;;
    --help)
      sed -n '2,6s/^# //p' "$0"
      exit ;;
    *)
      [[ " ${all[*]} " == *" $argument "* ]] || { echo "study.sh: '$argument': choose from ${all[*]}, --quick" >&2; exit 2; }
      wanted+=("$argument") ;;
  esac
done
((${#wanted[@]})) || wanted=("${all[@]}")

build=${GRADSIEVE_BUILD:-build/release}
train=$build/examples/train
simulate=$build/examples/simulate
mnist=${GRADSIEVE_MNIST:-/work/shared/data/mnist}
for program in "$train" "$simulate"; do
  [[ -x $program ]] || { echo "study.sh: no $program: cmake --build --preset release --target gradsieve_example_train gradsieve_example_simulate" >&2; exit 1; }
done

out=out/study
seeds=(1 2 3)
steps=400
if [[ $quick ]]; then
  out=out/study-quick
  seeds=(1)
  steps=20
fi
out=${GRADSIEVE_STUDY_OUT:-$out}
mkdir -p "$out"

# cell NAME PROGRAM ARGUMENTS...: each argument @KIND becomes that cell's file; nothing is left of a run that is cut off.
cell() {
  local name=$1 done=$out/$1.done begin=$SECONDS
  shift
  [[ -e $done ]] && return
  local command=("${@//@/$out/$name.}")
  echo "${command[*]}" | tee "$out/$name.command"
  nice "${command[@]}" >"$out/$name.txt" 2>"$out/$name.log" || { tail -3 "$out/$name.log" >&2; return 1; }
  echo "$((SECONDS - begin)) s" >"$done"
}

density() { # entries of the update, step by step
  local seed
  for seed in "${seeds[@]}"; do
    cell "density-$seed" "$train" --compare dense,radix,radix+cyclic,trimmed,laplacian,radix+deft --workers 8 --density 0.01 \
      --steps "$steps" --seed "$seed" --csv @csv --trace @steps
  done
}
selection() { # seconds of the selection by workers; accuracy with both ways of sharing k
  local seed sharing
  local workers=1,2,4,8,16
  [[ $quick ]] && workers=1,4
  for seed in "${seeds[@]}"; do
    for sharing in by_layer by_fragment; do
      cell "selection-$sharing-$seed" "$train" --compare radix,radix+deft --workers $workers --density 0.01 --sharing $sharing \
        --hidden 512,256 --steps "$((steps / 2))" --seed "$seed" --csv @csv --trace @steps
    done
  done
}
laws() { # Laplace or Gauss
  local seed
  for seed in "${seeds[@]}"; do
    cell "laws-$seed" "$train" --compare radix --workers 4 --density 0.01 --steps "$steps" --seed "$seed" --csv @csv \
      --accumulators @accumulators --accumulators-every 10
  done
}
memories() { # how alike the ranks' residuals are, and what it is worth
  local seed workers batch
  for seed in "${seeds[@]}"; do
    for batch in 128 1024; do
      cell "memories-$batch-$seed" "$train" --compare dense,radix,radix+cyclic,radix+cyclic+filtered --workers 8 --density 0.01 \
        --batch $batch --learning-rate "$([[ $batch == 128 ]] && echo 0.03 || echo 0.1)" --steps "$((steps / 2))" \
        --seed "$seed" --csv @csv --accumulators @accumulators --accumulators-every 10
    done
  done
  workers=2,4,8,16
  [[ $quick ]] && workers=2,4
  cell memories-bytes "$train" --compare radix,radix+cyclic --workers $workers --density 0.01 --steps 20 --csv @csv
}
bins() { # AdaComp's rate by length of bins, learners and optimiser
  local seed optimiser workers bins
  for seed in "${seeds[@]}"; do
    for optimiser in sgd adam novograd; do
      for workers in 2 8; do
        [[ $quick && $workers == 8 ]] && continue
        for bins in 50 500; do
          cell "bins-$optimiser-$workers-$bins-$seed" "$train" --compare dense,adacomp --workers $workers --bins $bins \
            --optimiser $optimiser --steps "$steps" --seed "$seed" --csv @csv
        done
      done
    done
  done
}
unpleasant() { # where compression fails
  local seed workers density
  if [[ ! -e $mnist/t10k-images-idx3-ubyte.gz ]]; then
    echo "study.sh: unpleasant is SKIPPED: no MNIST files in $mnist (GRADSIEVE_MNIST names the folder)"
    return
  fi
  for seed in "${seeds[@]}"; do
    for density in 0.01 0.001; do
      for workers in 4 8; do
        [[ $quick && $workers-$density != 4-0.001 ]] && continue
        cell "unpleasant-$density-$workers-$seed" "$train" --data "$mnist" --steps "$steps" --density $density --workers $workers \
          --compare dense,radix,radix+deft,laplacian+deft,radix+momentum,radix+deft+momentum --seed "$seed" --csv @csv
      done
    done
  done
}
schedules() { # MG-WFBP against its peers
  local workers=4,8,16,32,64,128,256,512,1024,2048
  cell schedules "$simulate" --trace all --network v100-10gbe --network v100-56gib --workers $workers --planners all --csv @csv
}

for each in "${wanted[@]}"; do
  begin=$SECONDS
  "$each"
  echo "study.sh: $each took $((SECONDS - begin)) s"
done

source .ci/setup.sh
if python=$(plotting_python); then
  "$python" examples/study.py "$out"
else
  echo "study.sh: no tables and pictures, there is no Python with matplotlib"
fi
