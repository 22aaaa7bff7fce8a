#!/usr/bin/env bash
# Sets this machine up, builds, and runs the main job: trains a small network with every recipe, writes the
# comparison to out/train.csv and draws it; then simulates how ResNet-50 scales, plan by plan, and says from which
# bandwidth on compressing its gradients pays.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source cmake/setup.sh
need libeigen3-dev header eigen3/Eigen/Core
need zlib1g-dev header zlib.h
need doctest-dev header doctest/doctest.h  # the build tree is also that of the tests
want libopenmpi-dev command -v mpicxx
want nlohmann-json3-dev header nlohmann/json.hpp  # tests read with it what the library writes
want python3-matplotlib plotting_python

cmake --preset release
cmake --build --preset release -j"$(nproc)" --target gradsieve_example_train gradsieve_example_simulate \
  gradsieve_example_advise gradsieve_train_in_c

mkdir -p out
build/release/examples/train --compare all --csv out/train.csv --curves out/curves.csv
build/release/examples/simulate --trace resnet50 --network v100-10gbe --csv out/schedule.csv
timelines=()
for plan in wfbp single fixed_bucket optimal; do
  timelines+=("out/$plan.json")
  build/release/examples/simulate --trace resnet50 --network v100-10gbe --workers 32 --planners "$plan" --chrome "out/$plan.json"
done
build/release/examples/advise --trace resnet50 --workers 16 --bandwidth 10gbit --csv out/advise.csv
build/release/examples/c/train_in_c examples/data/digits.csv

if python=$(plotting_python); then
  "$python" examples/plot.py out/train.csv out/curves.csv
  "$python" examples/plot_schedule.py out/schedule.csv
  "$python" examples/plot_schedule.py --timeline "${timelines[@]}" -o out/timeline.png \
    --title "ResNet-50 on 32 workers, 10 Gbit/s (simulated): one iteration of four plans"
  "$python" examples/plot_advise.py out/advise.csv --note "ResNet-50 on 16 workers, predicted"
else
  echo "examples/run.sh: no plot, there is no Python with matplotlib"
fi
