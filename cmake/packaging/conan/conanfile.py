"""Conan 2: `conan create cmake/packaging/conan` in a checkout makes the package and builds its consumer."""
import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy, load


class Gradsieve(ConanFile):
    name = "gradsieve"
    description = "Gradient compression for data-parallel training, headers only"
    license = "Apache-2.0"
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    def _root(self):
        return os.path.join(self.recipe_folder, "..", "..", "..")

    def set_version(self):
        text = load(self, os.path.join(self._root(), "CMakeLists.txt"))
        self.version = re.search(r"project\(gradsieve VERSION ([\d.]+)", text).group(1)

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*.cmake", "cmake/*.in", "cmake/compiled/*", "include/*"):
            copy(self, pattern, self._root(), self.export_sources_folder)

    def validate(self):
        check_min_cppstd(self, 20)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["GRADSIEVE_INSTALL"] = True
        for part in ("TESTS", "BENCH", "EXAMPLES"):
            toolchain.cache_variables[f"GRADSIEVE_BUILD_{part}"] = False
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_id(self):
        self.info.clear()

    def package_info(self):
        # The project's own package files serve, with their targets for MPI, CUDA and NCCL.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "gradsieve")]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
