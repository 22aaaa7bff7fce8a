"""Builds gradsieve_ddp with CMake against the torch of the Python that it is installed for, which pip's isolated
environment hides. What else there is to say is in pyproject.toml.

GRADSIEVE_DDP_BUILD: a build tree of the repository with GRADSIEVE_BUILD_PYTORCH, whose module is packed instead.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
PACKED = HERE / "repository"  # in an sdist: what the build needs of the repository
ROOT = PACKED if PACKED.is_dir() else HERE.parents[1]
NEEDED = ("CMakeLists.txt", "LICENSE", "cmake", "include", "examples/command_line.hpp", "examples/recipes.hpp",
          "examples/simulate/published_networks.hpp", "examples/pytorch/CMakeLists.txt", "examples/pytorch/extension",
          "examples/pytorch/python")


def version():
    """The library's own."""
    try:
        text = (ROOT / "CMakeLists.txt").read_text()
        return re.search(r"project\(gradsieve VERSION ([\d.]+)", text).group(1)
    except (OSError, AttributeError):
        sys.exit(f"gradsieve_ddp: the library is not above {HERE}: install from a clone of the repository or from an "
                 "sdist, with pip 21.3 or newer, as older ones copy this folder alone")


def torch_flags():
    """What extension/torch_flags.py says of the torch that is there."""
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONNOUSERSITE")}
    for environment in (os.environ, outside):
        said = subprocess.run([sys.executable, str(ROOT / "examples/pytorch/extension/torch_flags.py")],
                              env=environment, capture_output=True, text=True)
        if said.returncode == 0:
            return said.stdout
    why = (said.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    sys.exit(f"gradsieve_ddp is built against the torch that is installed; {sys.executable} says: {why}")


class CMakeBuild(build_ext):
    def build_extension(self, extension):
        ready = os.environ.get("GRADSIEVE_DDP_BUILD")
        if ready:
            folder = pathlib.Path(ready)
            made = folder / "examples/pytorch/python/gradsieve_ddp"
        else:
            folder = pathlib.Path(self.build_temp).resolve()
            made = folder / "python/gradsieve_ddp"
            folder.mkdir(parents=True, exist_ok=True)
            flags = folder / "torch_flags.txt"
            text = torch_flags()
            if not flags.exists() or flags.read_text() != text:  # another torch: from the start
                shutil.rmtree(folder)
                folder.mkdir()
                flags.write_text(text)
            self.run_cmake("-S", ROOT / "examples/pytorch", "-B", folder, f"-DGRADSIEVE_TORCH_FLAGS={flags}",
                           f"-DPython3_EXECUTABLE={sys.executable}")
        self.run_cmake("--build", folder, "--target", "gradsieve_ddp", "--parallel", self.parallel or os.cpu_count())
        target = pathlib.Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(made / target.name, target)
        if f'VERSION = "{version()}"' not in (made / "_built.py").read_text():
            sys.exit(f"gradsieve_ddp: {made} was built from another version than {version()}")
        shutil.copy(made / "_built.py", target.parent)

    def run_cmake(self, *arguments):
        cmake = shutil.which("cmake") or sys.exit("gradsieve_ddp needs CMake 3.25 or newer to be built")
        failed = subprocess.run([cmake, *map(str, arguments)]).returncode
        if failed:
            sys.exit(f"gradsieve_ddp: {cmake} failed; its words are above (pip shows them with -v)")


class RepositorySdist(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        leave = shutil.ignore_patterns("__pycache__", "_native*", "_built.py", "*.egg-info")
        for name in NEEDED:
            to = pathlib.Path(base_dir) / "repository" / name
            to.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, to, ignore=leave)
            else:
                shutil.copy(ROOT / name, to)


setup(version=version(), ext_modules=[Extension("gradsieve_ddp._native", sources=[])],
      cmdclass={"build_ext": CMakeBuild, "sdist": RepositorySdist})
