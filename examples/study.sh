#!/usr/bin/env bash
# Claims of the papers that the library stands on, held against runs: study.sh [NAME...] [--quick]
# Each cell is one command, which is printed and leaves its files in out/study (--quick: out/study-quick); a cell that
# is there is not run again. GRADSIEVE_STUDY_OUT names another folder, GRADSIEVE_BUILD another build than build/release.
# Afterwards study.py makes tables, pictures and commands.txt of all that is there.
#   GRADSIEVE_MNIST    folder with MNIST's files, for unpleasant, forms, networks and more [../shared/data/mnist if there]
#   GRADSIEVE_TEXT     text for networks and times [../shared/data/text/tinyshakespeare.txt if there, else README.md]
#   GRADSIEVE_RATINGS  ratings for networks' NCF: user, item, rating, set apart by tabs, as in MovieLens's u.data or in
#                      recbole/dataset_example/ml-100k/ml-100k.inter of the package recbole
#   GRADSIEVE_MGWFBP_LOG  tmp8comm.log of MG-WFBP's authors, for schedules [that of ../shared/data/traces if there]
# What is not there (a file, PyTorch's hook, root for network namespaces) is skipped, and said so.
# Minutes of each part on two cores that other work uses too:
#   density 1, selection 5, laws 7, estimates 2, selectors 10, memories 3, learners 20, bins 5, novograd 19,
#   unpleasant 10, forms 36, equal 5, sizes 5, schedules 1, links 15, hook 2, networks 36, times 36, codec 1
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=(density selection laws estimates selectors memories learners bins novograd unpleasant forms equal sizes schedules links
  hook networks times codec)
wanted=()
quick=
for argument in "$@"; do
  case $argument in
    --quick) quick=1 ;;
    --help)
      sed -n '2,/^set /s/^# //p' "$0"
      exit ;;
    *)
      if [[ " ${all[*]} " != *" $argument "* ]]; then
        echo "study.sh: '$argument': choose from ${all[*]}, --quick" >&2
        exit 2
      fi
      wanted+=("$argument") ;;
  esac
done
((${#wanted[@]})) || wanted=("${all[@]}")

build=${GRADSIEVE_BUILD:-build/release}
train=$build/examples/train
simulate=$build/examples/simulate
for program in "$train" "$simulate"; do
  [[ -x $program ]] && continue
  echo "study.sh: no $program: cmake --build --preset release --target gradsieve_example_{train,simulate}" >&2
  exit 1
done
or_nothing() { if [[ -e $1 ]]; then echo "$1"; fi; }
mnist=${GRADSIEVE_MNIST:-$(or_nothing ../shared/data/mnist)}
text=${GRADSIEVE_TEXT:-$(or_nothing ../shared/data/text/tinyshakespeare.txt)}
ratings=${GRADSIEVE_RATINGS-}
log=${GRADSIEVE_MGWFBP_LOG:-$(or_nothing ../shared/data/traces/tmp8comm.log)}
[[ -z $log ]] || export GRADSIEVE_MGWFBP_LOG=$log

out=out/study
seeds=(1 2 3)
five=(1 2 3 4 5) # where a verdict hangs on the spread
steps=400
if [[ $quick ]]; then
  out=out/study-quick
  seeds=(1)
  five=(1)
  steps=20
fi
out=${GRADSIEVE_STUDY_OUT:-$out}
mkdir -p "$out"
git rev-parse --short HEAD >"$out/commit" 2>/dev/null || true

skipped() { echo "study.sh: $1 is SKIPPED: $2"; }

# cell NAME PROGRAM ARGUMENTS...: each argument @KIND becomes that cell's file; nothing is left of a run that is cut off.
# What it needs and cannot have it says by exit code 77.
cell() {
  local name=$1 done=$out/$1.done begin=$SECONDS code=0
  shift
  [[ -e $done ]] && return
  local command=("${@//@/$out/$name.}") line
  line="${command[*]@Q}"
  line=$(sed -E "s/'([^' |*;()&<>$]+)'/\1/g" <<<"$line")
  [[ -z $mnist ]] || line=${line//"$mnist"/'$GRADSIEVE_MNIST'}
  [[ -z $text ]] || line=${line//"$text"/'$GRADSIEVE_TEXT'}
  [[ -z $ratings ]] || line=${line//"$ratings"/'$GRADSIEVE_RATINGS'}
  echo "$line" | tee "$out/$name.command"
  "${command[@]}" >"$out/$name.txt" 2>"$out/$name.log" || code=$?
  case $code in
    0) echo "$((SECONDS - begin)) s" >"$done" ;;
    77) skipped "$name" "$(tail -n 1 "$out/$name.txt")" ;;
    *) tail -n 3 "$out/$name.log" >&2; return 1 ;;
  esac
}

density() { # entries of the update, step by step
  local seed
  for seed in "${seeds[@]}"; do
    cell "density-$seed" "$train" --compare dense,radix,radix+cyclic,trimmed,laplacian,radix+deft,fixed_threshold \
      --threshold 0.02 --most 100 --workers 8 --density 0.01 --steps "$steps" --seed "$seed" --csv @csv --trace @steps
  done
}
selection() { # seconds of the selection by workers; accuracy with both ways of sharing k
  local seed sharing workers=1,2,4,8,16
  [[ $quick ]] && workers=1,4
  for seed in "${seeds[@]}"; do
    for sharing in by_layer by_fragment; do
      cell "selection-$sharing-$seed" "$train" --compare radix,radix+deft --workers $workers --density 0.01 \
        --sharing $sharing --hidden 512,256 --steps "$((steps / 2))" --seed "$seed" --csv @csv --trace @steps
    done
  done
  [[ $quick ]] && return
  for sharing in by_layer by_fragment; do # of so many threads on few cores the selection's time alone
    cell "selection-$sharing-many" "$train" --compare radix,radix+deft --workers 32,64 --density 0.01 \
      --sharing $sharing --hidden 512,256 --steps 20 --csv @csv --trace @steps
  done
}
laws() { # Laplace or Gauss
  local seed
  for seed in "${seeds[@]}"; do
    cell "laws-$seed" "$train" --compare radix --workers 4 --density 0.01 --steps "$steps" --seed "$seed" --csv @csv \
      --accumulators @accumulators --accumulators-every 10
  done
  [[ $quick || -z $mnist ]] && return
  for seed in "${seeds[@]}"; do # the same of other networks
    laws_of mnist-256-128 256,128 "$seed"
    laws_of mnist-1024 1024 "$seed"
    laws_of mnist-deep 64,64,64,64,64,64 "$seed"
  done
}
laws_of() { # name, widths, seed
  cell "kinds-$1-$3" "$train" --data "$mnist" --hidden "$2" --compare radix --workers 4 --density 0.01 --steps "$steps" \
    --seed "$3" --csv @csv --accumulators @accumulators --accumulators-every 20
}
estimates() { # selectors that estimate thresholds: entries against k, accuracy
  local seed density
  for seed in "${seeds[@]}"; do
    for density in 0.01 0.001; do
      [[ $quick && $density == 0.001 ]] && continue
      cell "estimates-$density-$seed" "$train" \
        --compare dense,radix,hierarchical,trimmed,threshold_search,ldte,sidco,laplacian --workers 4 --density $density --steps "$steps" --seed "$seed" --csv @csv --trace @steps
    done
  done
}
selectors() { # their accuracy on a task that tells them apart
  local seed
  [[ $mnist ]] || { skipped selectors "no MNIST files: GRADSIEVE_MNIST names their folder"; return; }
  for seed in "${five[@]}"; do
    cell "selectors-0.001-$seed" "$train" --data "$mnist" --compare dense,radix,hierarchical,trimmed,ldte,laplacian --workers 4 \
      --density 0.001 --steps "$steps" --seed "$seed" --csv @csv
  done
}
memories() { # how alike the ranks' residuals are, and what it is worth
  local seed workers batch beta rate
  for batch in 128 1024; do
    rate=$([[ $batch == 128 ]] && echo 0.03 || echo 0.1)
    for seed in "${seeds[@]}"; do
      cell "memories-$batch-$seed" "$train" --compare dense,radix,radix+cyclic --workers 8 --density 0.01 --batch $batch \
        --learning-rate "$rate" --steps "$((steps / 2))" --seed "$seed" --csv @csv --accumulators @accumulators \
        --accumulators-every 10
      for beta in 0.1 0.3 0.5 0.8; do
        [[ $quick && $beta-$batch != 0.3-128 ]] && continue
        cell "memories-$batch-$beta-$seed" "$train" --compare radix+cyclic+filtered --beta $beta --workers 8 --density 0.01 \
          --batch $batch --learning-rate "$rate" --steps "$((steps / 2))" --seed "$seed" --csv @csv \
          --accumulators @accumulators --accumulators-every 10
      done
    done
  done
  workers=2,4,8,16,32,64
  [[ $quick ]] && workers=2,4
  cell memories-bytes "$train" --compare radix,radix+cyclic --workers $workers --density 0.01 --steps 20 --csv @csv
}
learners() { # ScaleCom on MNIST: few and many learners, and its low densities
  local seed beta density
  [[ $mnist ]] || { skipped learners "no MNIST files: GRADSIEVE_MNIST names their folder"; return; }
  for seed in "${five[@]}"; do
    learners_of 8 "$seed" dense,radix,radix+cyclic
    for beta in 0.1 0.3; do
      [[ $quick && $beta != 0.3 ]] && continue
      learners_of 8 "$beta-$seed" radix+cyclic+filtered --beta $beta
    done
    [[ $quick ]] && continue
    cell "low-dense-$seed" "$train" --data "$mnist" --compare dense --workers 8 --steps "$steps" --seed "$seed" --csv @csv
    for density in 0.01 0.0075 0.0032 0.0016; do
      cell "low-$density-$seed" "$train" --data "$mnist" --compare radix+cyclic --workers 8 --density $density \
        --steps "$steps" --seed "$seed" --csv @csv
      [[ $density != 0.0075 ]] || continue
      cell "filtered-$density-$seed" "$train" --data "$mnist" --compare radix+cyclic+filtered --beta 0.1 --workers 8 \
        --density $density --steps "$steps" --seed "$seed" --csv @csv
    done
  done
  [[ $quick ]] && return
  for seed in "${seeds[@]}"; do
    learners_of 64 "$seed" "dense,$([[ $seed != 1 ]] || echo radix,)radix+cyclic"
    learners_of 64 "0.1-$seed" radix+cyclic+filtered --beta 0.1
  done
}
learners_of() { # learners, the cell's end, recipes, options
  local workers=$1 name=$2 recipes=$3
  shift 3
  cell "learners-$workers-$name" "$train" --data "$mnist" --compare "$recipes" "$@" --workers "$workers" --density 0.01 --batch 1024 \
    --learning-rate 0.1 --steps "$((steps / 2))" --seed "${name##*-}" --csv @csv --accumulators @accumulators \
    --accumulators-every 20
}
bins() { # AdaComp's rate by length of bins, learners, optimiser, and batch
  local seed optimiser workers bins batch
  for seed in "${seeds[@]}"; do
    for optimiser in sgd adam novograd; do
      for workers in 2 8; do
        [[ $quick && $workers == 8 ]] && continue
        for bins in 50 500; do
          cell "bins-$optimiser-$workers-$bins-128-$seed" "$train" --compare dense,adacomp --workers $workers --bins $bins \
            --optimiser $optimiser --steps "$steps" --seed "$seed" --csv @csv --trace @steps
        done
      done
    done
    [[ $quick ]] && continue
    for batch in 32 512; do
      cell "bins-sgd-8-500-$batch-$seed" "$train" --compare dense,adacomp --workers 8 --bins 500 --batch $batch \
        --steps "$steps" --seed "$seed" --csv @csv --trace @steps
    done
    cell "bins-sgd-32-500-128-$seed" "$train" --compare dense,adacomp --workers 32 --bins 500 --steps "$steps" \
      --seed "$seed" --csv @csv --trace @steps
  done
  [[ $quick ]] || cell "bins-sgd-128-500-128-1" "$train" --compare dense,adacomp --workers 128 --bins 500 \
    --steps "$((steps / 2))" --csv @csv --trace @steps
}
novograd() { # NovoGrad beside SGD and Adam: learning rate and batch, with equal samples, and the scale of the first weights
  local seed optimiser batch rates=0.0001,0.0003,0.001,0.003,0.01,0.03,0.1,0.3,1 scales=0.1,0.3,1,3,10
  [[ $mnist ]] || { skipped novograd "no MNIST files: GRADSIEVE_MNIST names their folder"; return; }
  [[ $quick ]] && rates=0.01 scales=1
  for seed in "${five[@]}"; do
    for optimiser in sgd adam novograd; do
      for batch in 128 2048; do
        [[ $quick && $batch != 128 ]] && continue
        cell "novograd-$optimiser-$batch-$seed" examples/study/grid.sh --learning-rate $rates @csv "$train" --data "$mnist" \
          --compare dense --workers 1 --optimiser $optimiser --batch $batch --steps "$((steps * 128 / batch))" --seed "$seed"
      done
      cell "initial-$optimiser-$seed" examples/study/grid.sh --init-scale $scales @csv "$train" --data "$mnist" \
        --compare dense --workers 1 --optimiser $optimiser --steps "$steps" --seed "$seed"
    done
  done
}
unpleasant() { # where compression fails
  local seed workers density
  [[ $mnist ]] || { skipped unpleasant "no MNIST files: GRADSIEVE_MNIST names their folder"; return; }
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
forms() { # DEFT by default and as published, beside top-k that gathers entries and top-k that sums at the union
  local seed workers density
  [[ $mnist ]] || { skipped forms "no MNIST files: GRADSIEVE_MNIST names their folder"; return; }
  local of
  for workers in 4 8 16 32; do # what takes least comes first
    for density in 0.001 0.01 0.1; do
      [[ $quick && $workers-$density != 4-0.001 ]] && continue
      of=("${seeds[@]}")
      [[ $density-$workers == 0.1-@(4|16) || $density-$workers == 0.01-@(4|8) ]] && of=("${five[@]}")
      for seed in "${of[@]}"; do
        cell "forms-default-$density-$workers-$seed" "$train" --data "$mnist" --steps "$steps" --density $density \
          --workers $workers --compare dense,radix,radix+index_union,radix+deft --seed "$seed" --csv @csv
        cell "forms-published-$density-$workers-$seed" "$train" --data "$mnist" --steps "$steps" --density $density \
          --workers $workers --compare radix+deft --sharing by_fragment --rotate-every 1 --seed "$seed" --csv @csv
      done
    done
  done
}
equal() { # the densities with which recipes send and receive as much as radix does
  local seed
  equal_measure digits
  [[ $mnist ]] || skipped "equal on MNIST" "GRADSIEVE_MNIST names no folder"
  [[ $quick || -z $mnist ]] || equal_measure mnist --data "$mnist"
  for seed in "${seeds[@]}"; do
    equal_runs digits 0.01 "$seed"
    [[ $quick ]] || equal_runs digits 0.001 "$seed"
    [[ $quick || -z $mnist ]] || equal_runs mnist 0.001 "$seed" --data "$mnist"
  done
}
equal_recipes=(radix radix+cyclic radix+deft radix+micro laplacian laplacian+deft)
equal_measure() { # data, options: a few steps at one density
  local data=$1
  shift
  cell "equal-$data-measure" "$train" "$@" --compare "$(IFS=, && echo "${equal_recipes[*]}")" --workers 8 --density 0.01 --steps 20 \
    --csv @csv
}
equal_runs() { # data, density of radix, seed, options
  local data=$1 target=$2 seed=$3 recipe density
  shift 3
  cell "equal-$data-dense-$seed" "$train" "$@" --compare dense --workers 8 --steps "$steps" --seed "$seed" --csv @csv
  for recipe in "${equal_recipes[@]}"; do
    density=$(awk -F, -v recipe="$recipe" -v target="$target" 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
      { bytes[$at["recipe"]] = $at["bytes_per_step"] + $at["received_per_step"] }
      END { printf "%.5f", target * bytes["radix"] / bytes[recipe] }' "$out/equal-$data-measure.csv")
    cell "equal-$data-$target-$recipe-$seed" "$train" "$@" --compare "$recipe" --workers 8 --density "$density" --steps "$steps" \
      --seed "$seed" --csv @csv
  done
}
sizes() { # selection alone, and the published ways of it
  local bench=$build/bench/gradsieve_bench repeat
  local n=2^12,2^14,2^16,2^18,2^20,2^22,2^24,2^25 seconds=0.1
  [[ $quick ]] && n=2^12,2^14 seconds=0.01
  [[ -x $bench ]] || { skipped sizes "no $bench"; return; }
  for repeat in "${seeds[@]}"; do # the least of several medians counts, as other work disturbs some
    cell "sizes-$repeat" "$bench" --n=$n --density=0.001 --threads=1 --selector=all --peers --seconds=$seconds \
      '--benchmark_filter=select/|peer/published' --benchmark_out=@json --benchmark_out_format=json
  done
}
schedules() { # MG-WFBP against its peers
  local workers=4,8,16,32,64,128,256,512,1024,2048
  cell schedules "$simulate" --trace all --network v100-10gbe --network v100-56gib --workers $workers --planners all --csv @csv
  local published=$build/tests/schedule_simulate_test # prints the authors' measurements beside what is simulated
  if [[ -x $published ]]; then cell schedules-published "$published"; else skipped schedules-published "no $published"; fi
}
links() { # MG-WFBP on limited links, with plans of layers and exchanges that were measured
  local repeat ranks
  [[ $quick ]] && return # the test `network` runs that script
  for repeat in 1 2 3; do # the same with more ranks
    for ranks in 2 4 8; do
      cell "ranks-$ranks-$repeat" bench/network.sh --no-install --program "$train" --ranks $ranks --rates 1gbit --recipes dense \
        --schedules single,wfbp,mgwfbp,optimal --hidden 512,512,512,512,512,512,512,512 --dense-steps 12 \
        --measure-seconds 3 --compute-ms 100 --csv @csv
    done
  done
  for repeat in 1 2 3; do
    cell "links-$repeat" bench/network.sh --no-install --program "$train" --ranks 2 --rates 1gbit,200mbit --recipes dense \
      --schedules single,wfbp,mgwfbp,optimal --hidden 512,512,512,512,512,512,512,512 --dense-steps 12 \
      --measure-seconds 3 --compute-ms 100 --csv @csv
    # Layers that take as long as they take, on a core for each rank.
    cell "layers-$repeat" bench/network.sh --no-install --program "$train" --ranks 2 --rates 1gbit,200mbit \
      --recipes dense --schedules single,wfbp,mgwfbp,optimal --hidden 512,512,512,512,512,512,512,512 --dense-steps 12 --batch 1024 \
      --measure-seconds 3 --csv @csv
  done
}
hook() { # the same through PyTorch's hook, all elements sent
  local planner repeat
  [[ $quick ]] && return
  find_hook || { skipped hook "no Python with torch and gradsieve.torch of $build (GRADSIEVE_BUILD_C, BUILD_SHARED_LIBS)"; return; }
  for repeat in 1 2 3; do
    for planner in wfbp single mgwfbp optimal; do
      cell "hook-$planner-$repeat" bench/pytorch_network.sh --no-install --python "$python" --ranks 2 --rates 1gbit \
        --hooks gradsieve:radix --density 1 --width 256 --steps 15 --csv @csv -- --plan $planner --warmup 0 --passthrough ''
    done
  done
}
networks() { # CNN, LSTM and NCF over PyTorch's hook
  local seed optimiser hooks model kind passed
  find_hook || { skipped networks "no Python with torch and gradsieve.torch of $build (GRADSIEVE_BUILD_C, BUILD_SHARED_LIBS)"; return; }
  local program=("$python" examples/study/pytorch/train.py --ranks 2)
  local lstm=(--model lstm --context 32 --steps 150) models=(lstm)
  [[ -z $text ]] || lstm+=(--text "$text")
  local cnn=(--model cnn --data "$mnist" --width 64 --steps 120)
  # shellcheck disable=SC2034 # one of three that $model names
  local ncf=(--model ncf --ratings "$ratings" --steps 400)
  if [[ $mnist ]]; then models+=(cnn); else skipped "networks' CNN" "GRADSIEVE_MNIST names no folder"; fi
  if [[ $ratings ]]; then models+=(ncf); else skipped "networks' NCF" "GRADSIEVE_RATINGS names no file"; fi
  if [[ $quick ]]; then
    cell networks-lstm-sgd-1 "${program[@]}" "${lstm[@]}" --steps 10 --hook none,gradsieve:adacomp --table @csv
    return
  fi
  for seed in "${seeds[@]}"; do
    for model in "${models[@]}"; do
      local -n options=$model
      for optimiser in sgd adam novograd; do
        [[ $model-$optimiser == ncf-sgd ]] && continue # within so few steps it learns nothing, dense or not
        hooks=none,gradsieve:adacomp
        [[ $optimiser == sgd && $model != ncf || $optimiser == adam && $model == ncf ]] && hooks+=,gradsieve:radix,gradsieve:laplacian+deft
        cell "networks-$model-$optimiser-$seed" "${program[@]}" "${options[@]}" --optimizer $optimiser --hook $hooks \
          --seed "$seed" --table @csv
      done
    done
    for optimiser in sgd adam; do # whether AdaComp catches up
      cell "longer-lstm-$optimiser-$seed" "${program[@]}" "${lstm[@]}" --steps 600 --optimizer $optimiser --hook none,gradsieve:adacomp \
        --seed "$seed" --table @csv
    done
    [[ -z $mnist ]] || cell "longer-cnn-adam-$seed" "${program[@]}" "${cnn[@]}" --steps 480 --optimizer adam \
      --hook none,gradsieve:adacomp --seed "$seed" --table @csv
    for kind in conv fc lstm embedding; do # all other layers pass through
      case $kind in
        conv | fc) model=cnn ;;
        lstm) model=lstm ;;
        embedding) model=ncf ;;
      esac
      optimiser=$([[ $model == ncf ]] && echo adam || echo sgd)
      case $kind in
        conv) passed='fc*,*bias' ;;
        fc) passed='conv*,*bias' ;;
        lstm) passed='token*,head*,*bias*' ;;
        embedding) passed='fc*,head*' ;;
      esac
      [[ " ${models[*]} " == *" $model "* ]] || continue
      local -n options=$model
      cell "rates-$kind-$seed" "${program[@]}" "${options[@]}" --optimizer "$optimiser" --hook gradsieve:adacomp \
        --passthrough "$passed" --seed "$seed" --table @csv --csv @steps
    done
  done
}
times() { # LDTE-BS on a CNN, an LSTM and a transformer: distances to two laws, accuracy, and time to the same loss
  local seed model hooks=none
  find_hook || { skipped times "no Python with torch and gradsieve.torch of $build (GRADSIEVE_BUILD_C, BUILD_SHARED_LIBS)"; return; }
  local program=("$python" examples/study/pytorch/train.py --ranks 2) models=(lstm transformer)
  # shellcheck disable=SC2034 # one of three that $model names
  local cnn=(--model cnn --data "$mnist" --width 1024 --steps 300)
  local lstm=(--model lstm --context 32 --width 256 --steps 400)
  local transformer=(--model transformer --context 32 --steps 500)
  [[ -z $text ]] || { lstm+=(--text "$text"); transformer+=(--text "$text"); }
  if [[ $mnist ]]; then models+=(cnn); else skipped "times' CNN" "GRADSIEVE_MNIST names no folder"; fi
  for model in radix hierarchical trimmed ldte laplacian; do hooks+=,gradsieve:$model; done
  if [[ $quick ]]; then
    cell times-lstm-1 "${program[@]}" "${lstm[@]}" --width 32 --steps 10 --interleave \
      --hook none,gradsieve:radix,gradsieve:ldte --table @csv --csv @steps --trace @trace --accumulators @shapes \
      --accumulators-every 3
    return
  fi
  local bench=$build/bench/gradsieve_bench
  [[ -x $bench ]] || skipped peers "no $bench"
  for seed in "${seeds[@]}"; do # selection of as many elements, and as it is published
    [[ ! -x $bench ]] || cell "peers-$seed" "$bench" --n=557568,610560,1620624 --density=0.01 --threads=1 --selector=all \
      --peers --seconds=0.2 '--benchmark_filter=(select/(ldte|trimmed)/|peer/published).*/law:ef' --benchmark_out=@json \
      --benchmark_out_format=json
  done
  for seed in "${five[@]}"; do
    for model in "${models[@]}"; do
      local -n options=$model
      cell "times-$model-$seed" "${program[@]}" "${options[@]}" --interleave --hook "$hooks" --seed "$seed" \
        --table @csv --csv @steps --trace @trace
      [[ " ${seeds[*]} " == *" $seed "* ]] || continue
      cell "shapes-$model-$seed" "${program[@]}" "${options[@]}" --hook gradsieve:radix --seed "$seed" \
        --accumulators @shapes --accumulators-every 10
    done
  done
}
find_hook() { # a Python with torch, and this build's library
  export PYTHONPATH=$PWD/examples/python TQDM_DISABLE=1
  GRADSIEVE_LIBRARY=$(realpath "$build")/examples/c/python/libgradsieve_python.so
  export GRADSIEVE_LIBRARY
  for python in ${PYTHON-python3 /usr/bin/python3}; do
    if "$python" -c 'import torch, gradsieve.torch' 2>/dev/null; then return; fi
  done
  return 1
}
codec() { # a learned value codec
  local learned=$build/examples/learned_codec
  [[ -x $learned ]] || { skipped codec "no $learned"; return; }
  cell codec "$learned" examples/data/digits.csv
}

for each in "${wanted[@]}"; do
  begin=$SECONDS
  "$each"
  echo "study.sh: $each took $((SECONDS - begin)) s"
done

source cmake/setup.sh
if python=$(plotting_python); then
  "$python" examples/study.py "$out"
else
  echo "study.sh: no tables and pictures, there is no Python with matplotlib"
fi
