# What is installed: the headers, a package for CMake and one for pkg-config, and the compiled library, if it is built.
# examples/c adds its library.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_DATADIR}/cmake/gradsieve")

install(TARGETS gradsieve gradsieve_plan gradsieve_published gradsieve_run_time gradsieve_mpi gradsieve_cuda gradsieve_nccl
        EXPORT gradsieveTargets FILE_SET HEADERS)
install(EXPORT gradsieveTargets NAMESPACE gradsieve:: DESTINATION "${package_dir}")
configure_package_config_file(cmake/gradsieveConfig.cmake.in "${PROJECT_BINARY_DIR}/gradsieveConfig.cmake"
                              INSTALL_DESTINATION "${package_dir}")
# Below 1.0 a minor version may change what a program sees.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/gradsieveConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/gradsieveConfig.cmake" "${PROJECT_BINARY_DIR}/gradsieveConfigVersion.cmake"
              cmake/gradsieveNccl.cmake DESTINATION "${package_dir}")

# gradsieve_install_pc(<package> <folder>): a package for pkg-config. The prefix is counted from where the file lies, so
# that `cmake --install --prefix` and moved trees keep it true. Folders may be absolute paths, as some distributions give
# them.
function(gradsieve_install_pc package folder)
  cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}" OUTPUT_VARIABLE full)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY "${full}" OUTPUT_VARIABLE pkgconfig_to_prefix)
  foreach(kind IN ITEMS INCLUDEDIR LIBDIR)
    set(pkgconfig_${kind} "\${prefix}")
    cmake_path(APPEND pkgconfig_${kind} "${CMAKE_INSTALL_${kind}}")
  endforeach()
  configure_file("${PROJECT_SOURCE_DIR}/cmake/${package}.pc.in" "${PROJECT_BINARY_DIR}/${package}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/${package}.pc" DESTINATION "${folder}")
endfunction()
gradsieve_install_pc(gradsieve "${CMAKE_INSTALL_DATADIR}/pkgconfig")
if(GRADSIEVE_BUILD_COMPILED)
  install(TARGETS gradsieve_compiled EXPORT gradsieveTargets)
  gradsieve_install_pc(gradsieve_compiled "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endif()
