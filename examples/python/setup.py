"""Builds the C library with CMake and packs it beside the Python files: one wheel for every Python 3.9 or newer.
GRADSIEVE_LIBRARY: a libgradsieve_c.so that is there already. What else there is to say is in pyproject.toml."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def version():
    try:
        return re.search(r"project\(gradsieve VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    except (OSError, AttributeError):
        sys.exit(f"gradsieve: the library is not above {HERE}: install from a clone, with pip 21.3 or newer, as older "
                 "ones copy this folder alone")


class WithLibrary(build_py):
    def run(self):
        super().run()
        library = os.environ.get("GRADSIEVE_LIBRARY") or self.build()
        shutil.copy(library, pathlib.Path(self.build_lib) / "gradsieve" / "libgradsieve_c.so")

    def build(self):
        cmake = shutil.which("cmake") or sys.exit("gradsieve needs CMake 3.25 or newer to be built")
        folder = pathlib.Path(self.get_finalized_command("build").build_temp).resolve()
        off = [f"-DGRADSIEVE_BUILD_{part}=OFF" for part in ("TESTS", "BENCH", "EXAMPLES")]
        for arguments in (["-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release",
                           "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG", "-DBUILD_SHARED_LIBS=ON",
                           "-DGRADSIEVE_BUILD_C=ON", *off],
                          ["--build", folder, "--target", "gradsieve_c", "--parallel", os.cpu_count() or 1]):
            if subprocess.run([cmake, *map(str, arguments)]).returncode:
                sys.exit(f"gradsieve: {cmake} failed; its words are above (pip shows them with -v)")
        return folder / "examples/c/libgradsieve_c.so"


class AnyPython(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class Binary(Distribution):
    def has_ext_modules(self):
        return True


setup(version=version(), cmdclass={"build_py": WithLibrary, "bdist_wheel": AnyPython}, distclass=Binary)
