# gradsieve_header_tests(<target> <cpp|cu> <headers...>): one translation unit per header that includes nothing
# else, twice, under macros that other people's headers are known to define. With `cpp` for the .hpp files, all linked
# into one program, so that a function without `inline` is found; with `cu` for the .cuh files, compiled to PTX only, in
# a quarter of the time: the test two_units links all of them. (CMake's own VERIFY_INTERFACE_HEADER_SETS skips .cuh.)

set(GRADSIEVE_HEADER_TEST [[
#define I hostile macro
#define B0 hostile macro
#define small hostile macro
#define major(x) hostile macro
#define minor(x) hostile macro
#include <@header@>
#include <@header@>
#if @opens@ && !defined(GRADSIEVE_ABI)
#error "a header that opens namespace gradsieve includes gradsieve/core/config.hpp, or one that does"
#endif
]])

function(gradsieve_header_tests target extension)
  set(sources "")
  set(libraries gradsieve_own Threads::Threads)
  set(headers ${ARGN})
  if(extension STREQUAL "cu")
    list(FILTER headers INCLUDE REGEX "\\.cuh$")
    list(APPEND libraries gradsieve_cuda)
  else()
    list(FILTER headers INCLUDE REGEX "\\.hpp$")
  endif()
  foreach(header IN LISTS headers)
    if(header MATCHES "comm/mpi")
      if(NOT TARGET MPI::MPI_CXX)
        continue()
      endif()
      list(APPEND libraries gradsieve_mpi)
    elseif(header MATCHES "comm/nccl")
      if(NOT TARGET NCCL::nccl)
        continue()
      endif()
      list(APPEND libraries gradsieve_nccl)
    endif()
    string(MAKE_C_IDENTIFIER "${header}" name)
    file(STRINGS "${PROJECT_SOURCE_DIR}/include/${header}" opened REGEX "^namespace gradsieve")
    string(COMPARE NOTEQUAL "${opened}" "" opens)
    set(source "${CMAKE_CURRENT_BINARY_DIR}/${target}.units/${name}.${extension}")
    file(CONFIGURE OUTPUT "${source}" CONTENT "${GRADSIEVE_HEADER_TEST}" @ONLY)
    list(APPEND sources "${source}")
  endforeach()
  if(extension STREQUAL "cu")
    add_library(${target} OBJECT ${sources})
    set_target_properties(${target} PROPERTIES CUDA_PTX_COMPILATION ON)
  else()
    set(main "${CMAKE_CURRENT_BINARY_DIR}/${target}.units/main.cpp")
    file(CONFIGURE OUTPUT "${main}" CONTENT "int main() {}\n")
    add_executable(${target} ${main} ${sources})
  endif()
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  target_link_libraries(${target} PRIVATE ${libraries})
endfunction()
