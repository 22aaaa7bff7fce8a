# Builds and runs tests/consumer as a user would. MPI and CUDA are hidden from those who did not ask for them.

set(prefix "${CMAKE_CURRENT_BINARY_DIR}/prefix")
gradsieve_add_test(install ${CMAKE_COMMAND} --install "${PROJECT_BINARY_DIR}" --prefix "${prefix}")
set_tests_properties(${GRADSIEVE_TEST_PREFIX}install
                     PROPERTIES FIXTURES_SETUP ${GRADSIEVE_TEST_PREFIX}installed)

set(consumer "${CMAKE_CURRENT_SOURCE_DIR}/consumer")
set(user "-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}" "-DCMAKE_PREFIX_PATH=${prefix}"
         "-DGRADSIEVE_SOURCE=${PROJECT_SOURCE_DIR}")
set(nothing_else -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)

# gradsieve_consumer(<name> <CMake options...>)
function(gradsieve_consumer name)
  set(build "${CMAKE_CURRENT_BINARY_DIR}/consumer_${name}")
  gradsieve_add_test(consumer_${name} ${CMAKE_CTEST_COMMAND} --build-and-test "${consumer}" "${build}"
    --build-generator ${CMAKE_GENERATOR} --build-options ${user} ${ARGN} --test-command "${build}/consumer")
endfunction()
gradsieve_consumer(package ${nothing_else} -DGRADSIEVE_FROM=package)
gradsieve_consumer(subdirectory ${nothing_else} -DGRADSIEVE_FROM=subdirectory)
gradsieve_consumer(fetch ${nothing_else} -DGRADSIEVE_FROM=fetch)
gradsieve_fails(consumer_without_mpi "gradsieve: component mpi needs MPI::MPI_CXX"
  ${CMAKE_COMMAND} -S "${consumer}" -B "${CMAKE_CURRENT_BINARY_DIR}/consumer_without_mpi" ${user} ${nothing_else}
  -DGRADSIEVE_FROM=package -DGRADSIEVE_COMPONENTS=mpi)
set(users_of_the_package package without_mpi c)
if(NOT GRADSIEVE_BUILD_C OR NOT BUILD_SHARED_LIBS)
  gradsieve_fails(consumer_c "gradsieve: component c needs (a library that was installed|the language CXX)" ${CMAKE_COMMAND}
    -S "${consumer}" -B "${CMAKE_CURRENT_BINARY_DIR}/consumer_c" ${user} -DGRADSIEVE_COMPONENTS=c)
else()
  gradsieve_consumer(c -DGRADSIEVE_COMPONENTS=c)
endif()

if(GRADSIEVE_BUILD_COMPILED)
  gradsieve_consumer(compiled -DGRADSIEVE_COMPONENTS=compiled)
  list(APPEND users_of_the_package compiled)
endif()

# Without CMake, by pkg-config.
find_program(GRADSIEVE_PKG_CONFIG NAMES pkg-config pkgconf)
mark_as_advanced(GRADSIEVE_PKG_CONFIG)
if(GRADSIEVE_PKG_CONFIG)
  gradsieve_add_test(consumer_pkg_config sh "${consumer}/pkg_config.sh" "${GRADSIEVE_PKG_CONFIG}" "${prefix}"
                     gradsieve "${CMAKE_CXX_COMPILER}" "${CMAKE_CURRENT_BINARY_DIR}/consumer_pkg_config")
  list(APPEND users_of_the_package pkg_config)
  if(GRADSIEVE_BUILD_COMPILED)
    gradsieve_add_test(consumer_pkg_config_compiled sh "${consumer}/pkg_config.sh" "${GRADSIEVE_PKG_CONFIG}" "${prefix}"
                       gradsieve_compiled "${CMAKE_CXX_COMPILER}"
                       "${CMAKE_CURRENT_BINARY_DIR}/consumer_pkg_config_compiled")
    list(APPEND users_of_the_package pkg_config_compiled)
  endif()
  if(GRADSIEVE_BUILD_C)
    gradsieve_add_test(consumer_pkg_config_c sh "${consumer}/pkg_config.sh" "${GRADSIEVE_PKG_CONFIG}" "${prefix}"
                       gradsieve_c "${CMAKE_C_COMPILER}" "${CMAKE_CURRENT_BINARY_DIR}/consumer_pkg_config_c")
    list(APPEND users_of_the_package pkg_config_c)
  endif()
else()
  gradsieve_skips("there is no pkg-config" consumer_pkg_config)
endif()

# Where the folders of the installation are absolute paths.
set(apart "${CMAKE_CURRENT_BINARY_DIR}/apart")
gradsieve_add_test(install_apart sh -c "'${CMAKE_COMMAND}' -S '${PROJECT_SOURCE_DIR}' -B '${apart}' \
-DCMAKE_CXX_COMPILER='${CMAKE_CXX_COMPILER}' -DGRADSIEVE_BUILD_TESTS=OFF -DGRADSIEVE_BUILD_BENCH=OFF \
-DGRADSIEVE_BUILD_EXAMPLES=OFF -DCMAKE_INSTALL_PREFIX=/a/b -DCMAKE_INSTALL_INCLUDEDIR=/c/include \
-DCMAKE_INSTALL_DATADIR=/a/d -DCMAKE_INSTALL_LIBDIR=lib/x -DGRADSIEVE_BUILD_C=ON -DGRADSIEVE_BUILD_COMPILED=ON >'${apart}.log' && \
cat '${apart}/gradsieve.pc' '${apart}/gradsieve_compiled.pc' '${apart}/gradsieve_c.pc'")
set_tests_properties(${GRADSIEVE_TEST_PREFIX}install_apart PROPERTIES PASS_REGULAR_EXPRESSION
                     "prefix=.{pcfiledir}/../../b\nincludedir=/c/include\n.*prefix=.{pcfiledir}/../../..\nincludedir=/c/include\n\
libdir=.{prefix}/lib/x\n.*-DGRADSIEVE_COMPILED\n.*-lgradsieve_compiled\n.*-lgradsieve_c -lstdc..")

if(TARGET MPI::MPI_CXX)
  gradsieve_consumer(mpi_package -DGRADSIEVE_FROM=package -DGRADSIEVE_COMPONENTS=mpi)
  gradsieve_consumer(mpi_subdirectory -DGRADSIEVE_FROM=subdirectory -DGRADSIEVE_COMPONENTS=mpi)
  list(APPEND users_of_the_package mpi_package)
endif()

foreach(name IN LISTS users_of_the_package)
  set_tests_properties(${GRADSIEVE_TEST_PREFIX}consumer_${name}
                       PROPERTIES FIXTURES_REQUIRED ${GRADSIEVE_TEST_PREFIX}installed)
endforeach()
