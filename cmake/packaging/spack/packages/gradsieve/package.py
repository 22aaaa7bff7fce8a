from spack.package import *

try:
    from spack_repo.builtin.build_systems.cmake import CMakePackage
except ImportError:  # Spack below 1.0 has it in spack.package
    pass


class Gradsieve(CMakePackage):
    """Gradient compression for data-parallel training, headers only.

    As a development package: spack repo add cmake/packaging/spack; spack dev-build gradsieve@0.2.0"""

    license("Apache-2.0")
    has_code = False  # a release adds url and sha256 to the version, and removes this

    version("0.2.0")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    conflicts("%gcc@:10", msg="gradsieve needs g++ 11 or newer")
    conflicts("%clang@:17", msg="gradsieve needs clang 18 or newer")

    def cmake_args(self):
        return [self.define("GRADSIEVE_INSTALL", True)] + [
            self.define(f"GRADSIEVE_BUILD_{part}", False) for part in ("TESTS", "BENCH", "EXAMPLES")
        ]
