#!/usr/bin/env bash
# Sets this machine up, builds the library, installs the package by pip into an environment, tests it, and trains a small
# transformer on two ranks for a minute or two: with dense gradients, torch's own hooks and gradsieve's. Writes
# out/pytorch.csv and draws out/pytorch.png.
# More options go to train.py: examples/pytorch/run.sh --steps 500.
# PYTHON=... takes another Python with torch than the first that is found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

source cmake/setup.sh
need doctest-dev header doctest/doctest.h  # the build tree is also that of the tests
want libopenmpi-dev command -v mpicxx
want openmpi-bin command -v mpirun
want_torch
want python3-venv /usr/bin/python3 -c "import ensurepip"
want python3-matplotlib plotting_python
python=$(torch_python) || {
  echo "examples/pytorch/run.sh: there is no Python with torch; nothing to run" >&2
  exit 1
}

echo "examples/pytorch/run.sh: torch $("$python" -c 'import torch; print(torch.__version__)') of $python"

headers=OFF
if torch_headers "$python"; then headers=ON; fi
cmake --preset release -DGRADSIEVE_BUILD_PYTORCH=$headers "-DPython3_EXECUTABLE=$python"
targets=(gradsieve_python)
[ $headers = OFF ] || ! quietly command -v mpicxx || targets+=(gradsieve_example_libtorch_step)
cmake --build --preset release -j"$(nproc)" --target "${targets[@]}"
ctest --test-dir build/release -R 'pytorch|libtorch' --output-on-failure --no-tests=error
"$python" -m venv --clear --system-site-packages build/pytorch
pip=(build/pytorch/bin/python -m pip --disable-pip-version-check -q)
GRADSIEVE_LIBRARY=$PWD/build/release/examples/c/python/libgradsieve_python.so "${pip[@]}" wheel --no-deps -w dist ./examples/python
"${pip[@]}" install --no-deps --force-reinstall dist/gradsieve-*.whl

mkdir -p out
options=(--ranks 2 --steps 100 --hook none,fp16,powersgd,gradsieve:laplacian+momentum --csv out/pytorch.csv)
if quietly "$python" -c 'import matplotlib'; then
  options+=(--plot out/pytorch.png)
else
  echo "examples/pytorch/run.sh: no plot, $python has no matplotlib"
fi
build/pytorch/bin/python examples/study/pytorch/train.py "${options[@]}" "$@"
echo "gradsieve is installed in build/pytorch; its wheel is $(ls dist/gradsieve-*.whl)"
