# What our own programs are built with, and no user's: warnings as errors, sanitizers, OpenMP.
# GRADSIEVE_RUN_ENVIRONMENT is what their tests run with.

include("${CMAKE_CURRENT_LIST_DIR}/gradsieveTiers.cmake")
add_library(gradsieve_own INTERFACE)
target_link_libraries(gradsieve_own INTERFACE gradsieve)
target_compile_options(gradsieve_own
  INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Wshadow>
            $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wconversion,-Wshadow>)
if(GRADSIEVE_WARNINGS_AS_ERRORS)
  target_compile_options(gradsieve_own
    INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror> $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings -Xcompiler=-Werror>)
endif()
if(GRADSIEVE_SANITIZE)
  set(sanitize -fsanitize=${GRADSIEVE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(gradsieve_own INTERFACE ${sanitize})
  target_link_options(gradsieve_own INTERFACE ${sanitize})
endif()

# Three threads: shares of unequal size, on small machines too. Passive: more threads than cores must not spin.
set(GRADSIEVE_RUN_ENVIRONMENT OMP_NUM_THREADS=3 OMP_WAIT_POLICY=passive)

# gradsieve_own_openmp: the same with OpenMP where that is wanted and found.
add_library(gradsieve_own_openmp INTERFACE)
target_link_libraries(gradsieve_own_openmp INTERFACE gradsieve_own)
if(GRADSIEVE_OPENMP)
  find_package(OpenMP COMPONENTS CXX)
endif()
if(GRADSIEVE_SANITIZE MATCHES "thread")
  # ThreadSanitizer does not see the barriers of an OpenMP runtime that was built without it and calls every
  # second loop a race. LLVM's Archer, which lies beside libomp, tells it about them.
  cmake_path(GET OpenMP_omp_LIBRARY PARENT_PATH libomp_dir)
  find_library(GRADSIEVE_ARCHER archer HINTS "${libomp_dir}")
  mark_as_advanced(GRADSIEVE_ARCHER)
  list(APPEND GRADSIEVE_RUN_ENVIRONMENT TSAN_OPTIONS=ignore_noninstrumented_modules=1:allow_addr2line=1)
  if(GRADSIEVE_ARCHER)
    list(APPEND GRADSIEVE_RUN_ENVIRONMENT OMP_TOOL_LIBRARIES=${GRADSIEVE_ARCHER})
  else()
    message(STATUS "gradsieve: no libarcher beside OpenMP; ThreadSanitizer runs without OpenMP")
  endif()
endif()
if(GRADSIEVE_SANITIZE MATCHES "address")  # LLVM's OpenMP leaves a little behind when it ends
  list(APPEND GRADSIEVE_RUN_ENVIRONMENT LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/leaks.txt:print_suppressions=0)
endif()
if(TARGET OpenMP::OpenMP_CXX AND (GRADSIEVE_ARCHER OR NOT GRADSIEVE_SANITIZE MATCHES "thread"))
  target_link_libraries(gradsieve_own_openmp INTERFACE OpenMP::OpenMP_CXX)
endif()

# Under mpirun: root and more ranks than cores are fine in a test, no ssh is needed, and no process may read
# another's memory in a container. Open MPI itself leaks a little.
set(GRADSIEVE_MPI_ENVIRONMENT ${GRADSIEVE_RUN_ENVIRONMENT}
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_hwloc_base_binding_policy=none
    OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1 ASAN_OPTIONS=detect_leaks=0)

# gradsieve_add_test(<name> <command> [arguments...]) or, with RANKS <n> after the name, under mpirun.
function(gradsieve_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "RANKS" "")
  set(test "${GRADSIEVE_TEST_PREFIX}${name}")
  if(arg_RANKS)
    set(launcher ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${arg_RANKS})
    add_test(NAME ${test} COMMAND ${launcher} ${arg_UNPARSED_ARGUMENTS})
    set_tests_properties(${test} PROPERTIES PROCESSORS ${arg_RANKS} ENVIRONMENT "${GRADSIEVE_MPI_ENVIRONMENT}")
  else()
    add_test(NAME ${test} COMMAND ${arg_UNPARSED_ARGUMENTS})
    set_tests_properties(${test} PROPERTIES ENVIRONMENT "${GRADSIEVE_RUN_ENVIRONMENT}")
  endif()
  set_tests_properties(${test} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77)
  gradsieve_is_later(later "${name}")
  if(later)
    set_property(TEST ${test} PROPERTY LABELS later)
  endif()
endfunction()

# gradsieve_skips(<what is missing> <names...>): tests that say so and do nothing, so that ctest lists them.
function(gradsieve_skips missing)
  foreach(name IN LISTS ARGN)
    gradsieve_add_test(${name} sh -c "echo 'skipped: ${missing}'; exit 77")
  endforeach()
endfunction()

# gradsieve_python(<variable> <module>): a Python with this module, the first on the path or Debian's own, or nothing.
function(gradsieve_python variable module)
  set(${variable} "" PARENT_SCOPE)
  foreach(python IN ITEMS python3 /usr/bin/python3)
    execute_process(COMMAND ${python} -c "import ${module}" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed STREQUAL "0")
      set(${variable} ${python} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()
find_program(GRADSIEVE_PYTHON3 python3)
mark_as_advanced(GRADSIEVE_PYTHON3)

# gradsieve_fails(<name> <regex> <command> [arguments...]): the command must fail, and say what the regex says.
function(gradsieve_fails name regex)
  gradsieve_add_test(${name} ${CMAKE_COMMAND} "-DEXPECTED=${regex}" "-DCOMMAND=${ARGN}"
                     -P "${PROJECT_SOURCE_DIR}/cmake/expect_failure.cmake")
endfunction()

# gradsieve_exports_test(<name> <target> <prefix>): on Linux a shared library exports functions of this prefix only.
function(gradsieve_exports_test name target prefix)
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_NM)
    gradsieve_add_test(${name} sh -c "'${CMAKE_NM}' -D --defined-only '$<TARGET_FILE:${target}>' >${name}.txt && \
grep -q ' T ${prefix}' ${name}.txt && ! grep -v ' T ${prefix}' ${name}.txt")
  endif()
endfunction()
