"""pip's backend: setuptools', which asks for CMake from PyPI where this machine has none that is new enough."""

import re
import shutil
import subprocess

from setuptools.build_meta import *  # noqa: F403
from setuptools.build_meta import build_wheel  # noqa: F401

LEAST_CMAKE = (3, 25)


def _cmake_is_there():
    cmake = shutil.which("cmake")
    said = subprocess.run([cmake, "--version"], capture_output=True, text=True).stdout if cmake else ""
    found = re.search(r"version (\d+)\.(\d+)", said)
    return bool(found) and tuple(map(int, found.groups())) >= LEAST_CMAKE


def get_requires_for_build_wheel(config_settings=None):
    return [] if _cmake_is_there() else ["cmake>=3.25,<4"]


get_requires_for_build_editable = get_requires_for_build_wheel
