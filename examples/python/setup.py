"""Builds the library with CMake and packs it beside the Python files: one wheel for every Python 3.9 or newer, and every
torch or none. What else there is to say is in pyproject.toml.

GRADSIEVE_LIBRARY: a libgradsieve_python.so that is there already, which is packed instead.
GRADSIEVE_CUDA=1: for GPUs too, with nvcc, which takes minutes; CUDAARCHS names the architectures [80].
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
PACKED = HERE / "repository"  # in an sdist: what the build needs of the repository
ROOT = PACKED if PACKED.is_dir() else HERE.parents[1]
NEEDED = ("CMakeLists.txt", "LICENSE", "cmake", "include", "examples/command_line.hpp", "examples/recipes.hpp",
          "examples/simulate/published_networks.hpp", "examples/advise", "examples/c", "examples/python/CMakeLists.txt",
          "examples/python/native")
CUDA = os.environ.get("GRADSIEVE_CUDA", "") not in ("", "0")


def version():
    try:
        found = re.search(r"project\(gradsieve VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
        return found + "+cuda" if CUDA else found
    except (OSError, AttributeError):
        sys.exit(f"gradsieve: the library is not above {HERE}: install from a clone or from an sdist, with pip 21.3 or "
                 "newer, as older ones copy this folder alone")


class WithLibrary(build_py):
    editable_mode = False

    def run(self):
        super().run()
        package = (HERE if self.editable_mode else pathlib.Path(self.build_lib)) / "gradsieve"
        shutil.copy(os.environ.get("GRADSIEVE_LIBRARY") or self.build(), package / "libgradsieve_python.so")

    def build(self):
        cmake = shutil.which("cmake") or sys.exit("gradsieve needs CMake 3.25 or newer to be built")
        folder = pathlib.Path(self.get_finalized_command("build").build_temp).resolve()
        options = [f"-DGRADSIEVE_BUILD_{part}=OFF" for part in ("TESTS", "BENCH", "EXAMPLES")]
        if CUDA:
            options += ["-DGRADSIEVE_BUILD_CUDA=ON"]
            options += [] if os.environ.get("CUDAARCHS") else ["-DCMAKE_CUDA_ARCHITECTURES=80"]
        for arguments in (["-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release",
                           "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG", "-DBUILD_SHARED_LIBS=ON",
                           "-DGRADSIEVE_BUILD_C=ON", *options],
                          ["--build", folder, "--target", "gradsieve_python", "--parallel", os.cpu_count() or 1]):
            if subprocess.run([cmake, *map(str, arguments)]).returncode:
                sys.exit(f"gradsieve: {cmake} failed; its words are above (pip shows them with -v)")
        return folder / "examples/c/python/libgradsieve_python.so"


class RepositorySdist(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for name in NEEDED:
            to = pathlib.Path(base_dir) / "repository" / name
            to.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, to)
            else:
                shutil.copy(ROOT / name, to)


class AnyPython(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class Binary(Distribution):
    def has_ext_modules(self):
        return True


setup(version=version(), cmdclass={"build_py": WithLibrary, "bdist_wheel": AnyPython, "sdist": RepositorySdist},
      distclass=Binary)
