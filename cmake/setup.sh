# shellcheck shell=bash
# Sourced by the run scripts: installs the Debian or Ubuntu packages whose command, header or module is missing, so
# a second run needs no network. `need` must succeed; `want` may fail, and what depends on it is then skipped.

quietly() { "$@" >/dev/null 2>&1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  else
    sudo -n true 2>/dev/null || echo "setup: sudo may ask for your password"
    sudo "$@"
  fi
}

apt_updated=no
apt_install() {
  quietly command -v apt-get || return 1
  if [ $apt_updated = no ]; then
    as_root apt-get update -qq || return 1
    apt_updated=yes
  fi
  echo "setup: installing $*"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# need <package> <check command...>
need() {
  local package=$1
  shift
  quietly "$@" || apt_install "$package" || {
    echo "setup: cannot install $package; without it nothing can be built" >&2
    exit 1
  }
}

# want <package> <check command...>
want() {
  local package=$1
  shift
  quietly "$@" || apt_install "$package" || echo "setup: cannot install $package; going on without it"
}

# The compiler finds this header.
header() { echo "#include <$1>" | g++ -x c++ -fsyntax-only -; }

# A Python with matplotlib; Debian's own may have it where another comes first on the path.
plotting_python() {
  local python
  for python in python3 /usr/bin/python3; do
    if quietly "$python" -c 'import matplotlib'; then
      echo "$python"
      return 0
    fi
  done
  return 1
}

# A Python with torch and NumPy: $PYTHON where that is set.
torch_python() {
  local python
  for python in ${PYTHON-python3 /usr/bin/python3}; do
    if quietly "$python" -c 'import numpy, torch.distributed; assert torch.distributed.is_available()'; then
      command -v "$python"
      return 0
    fi
  done
  return 1
}
# Whether its torch has what C++ is compiled against.
torch_headers() {
  quietly "$1" -c 'import os; from torch.utils import cpp_extension as torch
assert any(os.path.exists(os.path.join(each, "torch/torch.h")) for each in torch.include_paths())'
}
# Where there is none, Debian's; with OpenBLAS, as the plain BLAS that it takes else is twenty times slower.
want_torch() {
  quietly torch_python && return
  if [ -n "${PYTHON-}" ]; then
    echo "setup: $PYTHON has no torch, or NumPy is missing; nothing is installed for it"
    return
  fi
  apt_install python3-torch libtorch-dev libopenblas0-pthread python3-numpy python3-pip python3-setuptools python3-wheel ||
    echo "setup: cannot install PyTorch; going on without it"
}

need g++ command -v g++
need make command -v make
need cmake command -v cmake
