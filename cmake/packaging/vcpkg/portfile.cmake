# An overlay port of the tree it lies in: vcpkg install gradsieve --overlay-ports=cmake/packaging/vcpkg
# For a registry, replace the next line by vcpkg_from_github with the tag's hash.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(VCPKG_BUILD_TYPE release)  # headers only

vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS -DGRADSIEVE_INSTALL=ON -DGRADSIEVE_BUILD_TESTS=OFF
                      -DGRADSIEVE_BUILD_BENCH=OFF -DGRADSIEVE_BUILD_EXAMPLES=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/gradsieve)
vcpkg_fixup_pkgconfig()
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
