# cmake -DROOT=<include folder> -P check_layers.cmake
# Includes run strictly downwards. A layer is one line, lowest first; its names are headers or folders. Headers
# of one folder may include each other, and the header of a folder's name all of them; folders of one layer may not. A new header that is in no layer is refused.
cmake_minimum_required(VERSION 3.25)

set(layers
    "config"
    "fingerprint float_environment process types"
    "error random text view"
    "arguments fields layout selection"
    "bins concepts dense_layers density report search"
    "segmentation space"
    "codec residual partitioner selector"
    "exchange measure"
    "checkpoint recipe"
    "averager step"
    "compressor layer_states"
    "schedule"
    "gradsieve"
    "cuda")

# A transport may know the contract and nothing else of the library, not even another transport. Its headers begin
# with its name: threads.hpp, threads_check.hpp.
set(transport_may_include config error process types concepts)
# Foreign headers and the only place that each may be included from. Device code may use the CUDA toolkit.
set(foreign "mpi.h=comm/mpi_session.hpp" "nccl.h=comm/nccl.cuh" "omp.h=space/host_team.hpp" "immintrin.h=space/host_simd.hpp"
    "sys/mman.h=space/host_buffer.hpp" "unistd.h=process.hpp")
set(cuda_toolkit "^(cuda.*|cub/.*|thrust/.*|cooperative_groups.*|nv/.*)$")

# The layer's number, or -1.
function(rank_of family result)
  set(${result} -1 PARENT_SCOPE)
  set(rank 0)
  foreach(layer IN LISTS layers)
    if(" ${layer} " MATCHES " ${family} ")
      set(${result} ${rank} PARENT_SCOPE)
    endif()
    math(EXPR rank "${rank} + 1")
  endforeach()
endfunction()

# "selector/radix.hpp" -> "selector", "types.hpp" -> "types"
function(family_of header result)
  string(REGEX REPLACE "[/.].*" "" family "${header}")
  set(${result} "${family}" PARENT_SCOPE)
endfunction()

cmake_path(ABSOLUTE_PATH ROOT)
set(problems "")
macro(refuse text)
  string(APPEND problems "\n  ${text}")
endmacro()

file(GLOB_RECURSE headers RELATIVE "${ROOT}/gradsieve" "${ROOT}/gradsieve/*.hpp" "${ROOT}/gradsieve/*.cuh")
if(NOT headers)
  message(FATAL_ERROR "no headers below ${ROOT}/gradsieve")
endif()
foreach(header IN LISTS headers)
  family_of("${header}" family)
  rank_of("${family}" rank)
  if(rank EQUAL -1 AND NOT family STREQUAL "comm")
    refuse("${header} is in no layer: add it to cmake/check_layers.cmake")
    continue()
  endif()
  file(STRINGS "${ROOT}/gradsieve/${header}" lines REGEX "^[ \t]*#[ \t]*include")
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "<([^>]+)>")
      refuse("${header} has '${line}': write <gradsieve/...>")
      continue()
    endif()
    set(included "${CMAKE_MATCH_1}")

    if(included MATCHES "^gradsieve/(.*)$")
      set(target "${CMAKE_MATCH_1}")
      family_of("${target}" target_family)
      rank_of("${target_family}" target_rank)
      if(header MATCHES "hpp$" AND target MATCHES "cuh$")
        refuse("${header} includes ${included}: a .hpp is for any compiler, a .cuh is not")
      elseif(family STREQUAL "comm")
        string(REGEX MATCH "^comm/[a-z]+" own "${header}")
        if(NOT target_family IN_LIST transport_may_include AND NOT target MATCHES "^${own}[_.]")
          refuse("${header} includes ${included}: a transport stands alone on concepts, error, process and types")
        endif()
      elseif(target_family STREQUAL "comm")
        refuse("${header} includes ${included}: transports are opt-in, the user includes them")
      elseif(NOT target_rank LESS rank AND NOT (family STREQUAL target_family AND target MATCHES "/"))
        refuse("${header} includes ${included}: includes run downwards")
      endif()
    elseif(included MATCHES "^[a-z_]+$" OR (header MATCHES "cuh$" AND included MATCHES "${cuda_toolkit}"))
      continue()  # the standard library; the CUDA toolkit
    else()
      set(place "")
      foreach(pair IN LISTS foreign)
        if(pair MATCHES "^(.*)=(.*)$" AND CMAKE_MATCH_1 STREQUAL included)
          set(place "${CMAKE_MATCH_2}")
        endif()
      endforeach()
      if(NOT place)
        refuse("${header} includes ${included}: the core needs the standard library only")
      elseif(NOT header STREQUAL place)
        refuse("${header} includes ${included}: only ${place} may")
      endif()
    endif()
  endforeach()
endforeach()

list(LENGTH headers count)
if(problems)
  message(FATAL_ERROR "${problems}")
endif()
message(STATUS "${count} headers include downwards only")
