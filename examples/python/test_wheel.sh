#!/bin/sh
# test_wheel.sh FOLDER: packs a wheel of the library that GRADSIEVE_LIBRARY names, installs it there, and runs the tests
# with it under each Python of this machine from 3.9 on, and a test of gradsieve.torch under each that has torch. 77: there
# is no pip that can.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$1" && mkdir -p "$1"
cp -r "$here/../../CMakeLists.txt" "$1"
mkdir -p "$1/examples" && cp -r "$here" "$1/examples/python" # setuptools writes beside its sources
rm -rf "$1/examples/python/build" # of an installation
for python in python3 /usr/bin/python3; do
  if $python -c "import setuptools, wheel.bdist_wheel, pip" 2>/dev/null; then break; fi
  python=
done
if [ -z "$python" ]; then
  echo "skipped: no Python with setuptools, wheel and pip"
  exit 77
fi
$python -m pip wheel --quiet --no-build-isolation --no-deps --disable-pip-version-check -w "$1" "$1/examples/python"
$python -m pip install --quiet --no-deps --no-index --disable-pip-version-check --target "$1/site" "$1"/gradsieve-*-py3-none-*.whl
unset GRADSIEVE_LIBRARY
cp "$here/test_gradsieve.py" "$here/delta_files.py" "$here/delta_sockets.py" "$1/site"
cd "$1/site"
for python in python3 /usr/bin/python3 python3.9 python3.10 python3.11 python3.12 python3.13 python3.14 \
  "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python; do
  $python -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || continue
  said=$(PYTHONPATH=$1/site $python -m unittest test_gradsieve 2>&1) || { echo "$python: $said"; exit 1; }
  echo "$python: $(echo "$said" | tail -n 1)"
  torch=$($python -c 'import torch.distributed; print("torch", torch.__version__)' 2>/dev/null) || continue
  said=$(PYTHONPATH=$1/site $python "$here/../pytorch/test_names.py" 2>&1) || { echo "$python: $said"; exit 1; }
  echo "$python: $torch: ok"
done
