# cmake -DROOT=<include folder> -P check_layers.cmake
# Includes run strictly downwards, between folders and inside of them. Below, one line is one layer, lowest first. A
# name is a header (core/types, without its extension) or a folder (codec/index/): what is in the folder and in no
# longer name. Headers of one folder's layer may include each other, but not in a circle; other headers of one layer
# may not. A header that is in no layer is refused. layout.hpp includes its bodies, layout_bodies.hpp, at its end; they may
# include what is in their layer, core/ say, and in lower ones.
cmake_minimum_required(VERSION 3.25)

set(layers
    "core/config"
    "core/arithmetic"
    "core/fingerprint core/float_environment core/plain_output core/power core/process core/random core/types core/view"
    "core/text"
    "core/error core/layer_names"
    "core/arguments core/density core/fields core/layout core/selection"
    "core/"
    "concepts/policy"
    "concepts/"
    "concepts"
    "codec/limit codec/message"
    "codec/bits codec/byte_breakdown codec/layer_scale"
    "codec/index/ codec/value/"
    "codec/"
    "residual/ selector/prediction"
    "selector/"
    "exchange/decoded_messages exchange/preflight"
    "exchange/round"
    "exchange/value_sum"
    "exchange/"
    "partitioner/"
    "step/checkpoint step/parts step/recipe"
    "step/runner step/stages"
    "step/compressor_class"
    "host/openmp host/stopwatch host/tuning"
    "host/buffer host/simd/ host/space host/team"
    "host/passes/"
    "host/workspace"
    "host/memory"
    "host/passthrough"
    "host/"
    "host/step"
    "averager compressor layer_states mean_factor"
    "gradsieve"
    "cuda/tuning"
    "cuda/device"
    "cuda/launch"
    "cuda/stream_work"
    "cuda/passes/"
    "cuda/small_step cuda/step_memory"
    "cuda/workspace"
    "cuda/faults cuda/pieces"
    "cuda/codec/"
    "cuda/memory cuda/assignment"
    "cuda/passthrough cuda/report cuda/staged"
    "cuda/exchange/"
    "cuda/selection_stage"
    "cuda/step"
    "cuda/"
    "cuda/averager"
    "cuda"
    "two_level"
    "parameters/agreement parameters/parameter_state"
    "parameters/"
    "parameters"
    "delta/format"
    "delta/sections"
    "delta/"
    "delta"
    "plan/cost plan/trace"
    "plan/"
    "plan/planners/"
    "plan/make_plan plan/removed"
    "plan"
    "overlap/"
    "overlap"
    "published/mean_to_largest"
    "published/"
    "published"
    "run_time/any_policy"
    "run_time/recipe_text"
    "run_time/any_codec run_time/any_communicator run_time/any_policies"
    "run_time/any_step run_time/device_codec run_time/device_exchange"
    "run_time/menu"
    "run_time/any_recipe"
    "run_time/make_step run_time/step_owner"
    "run_time/any_compressor"
    "run_time/step_of_recipe"
    "run_time/device_steps run_time/host_steps"
    "run_time/compiled_recipe"
    "run_time"
    "light"
    "any_compressor schedule")

# A transport may know the contract and nothing else of the library, not even another transport. Its headers begin
# with its name: mpi.hpp, mpi_nodes.hpp.
set(transport_may_include core/arithmetic core/config core/error core/process core/types concepts concepts/communicator)
# What device code may use of the host's space: its workspace, for what runs there, the choice of the ranges that pass
# through, and how a gradient is split into tiles.
set(device_may_include host/space host/workspace host/passthrough host/passes/tiles)
# Foreign headers and the only place that each may be included from. Device code may use the CUDA toolkit.
set(foreign "mpi.h=comm/mpi_session.hpp" "nccl.h=comm/nccl.cuh" "omp.h=host/openmp.hpp" "immintrin.h=host/simd/marks.hpp" "arm_neon.h=host/simd/marks.hpp"
    "sys/mman.h=host/buffer.hpp" "unistd.h=core/process.hpp" "cpuid.h=core/simd.hpp")
set(cuda_toolkit "^(cuda.*|cub/.*|thrust/.*|cooperative_groups.*|nv/.*)$")

# The longest name in `layers` that a header without its extension belongs to, and its layer's number; or "" and -1.
function(place_of header name_result rank_result)
  set(name "")
  set(found -1)
  set(rank 0)
  foreach(layer IN LISTS layers)
    string(REPLACE " " ";" names "${layer}")
    foreach(each IN LISTS names)
      if(each MATCHES "/$")
        string(FIND "${header}" "${each}" at)
      elseif(each STREQUAL header)
        set(at 0)
      else()
        set(at -1)
      endif()
      string(LENGTH "${each}" length)
      string(LENGTH "${name}" known)
      if(at EQUAL 0 AND length GREATER known)
        set(name "${each}")
        set(found ${rank})
      endif()
    endforeach()
    math(EXPR rank "${rank} + 1")
  endforeach()
  set(${name_result} "${name}" PARENT_SCOPE)
  set(${rank_result} ${found} PARENT_SCOPE)
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
list(SORT headers)
foreach(name IN LISTS layers)
  string(REPLACE " " ";" names "${name}")
  foreach(each IN LISTS names)
    string(REGEX REPLACE "([^/])$" "\\1." begin "${each}")
    string(REPLACE "." "[.]" begin "${begin}")
    if(NOT "${headers}" MATCHES "(^|;)${begin}")
      refuse("layer ${each} has no header: take it out of cmake/check_layers.cmake")
    endif()
  endforeach()
endforeach()
foreach(header IN LISTS headers)
  string(REGEX REPLACE "[.](hpp|cuh)$" "" stem "${header}")
  string(REGEX REPLACE "_bodies$" "" of_bodies "${stem}")
  place_of("${stem}" place rank)
  set(is_transport FALSE)
  if(header MATCHES "^comm/")
    set(is_transport TRUE)
  elseif(rank EQUAL -1)
    refuse("${header} is in no layer: add it to cmake/check_layers.cmake")
    continue()
  endif()
  file(STRINGS "${ROOT}/gradsieve/${header}" opened REGEX "^namespace gradsieve(::[a-z_:]+)? {")
  if(opened)
    refuse("${header} has '${opened}': write namespace gradsieve::inline GRADSIEVE_ABI")
  endif()
  set(beside_${header} "")  # headers of the same folder's layer that it includes
  file(STRINGS "${ROOT}/gradsieve/${header}" lines REGEX "^[ \t]*#[ \t]*include")
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "<([^>]+)>")
      refuse("${header} has '${line}': write <gradsieve/...>")
      continue()
    endif()
    set(included "${CMAKE_MATCH_1}")

    if(included MATCHES "^gradsieve/(.*)[.](hpp|cuh)$")
      set(target "${CMAKE_MATCH_1}")
      set(kind "${CMAKE_MATCH_2}")
      if(target STREQUAL "${stem}_bodies" OR (target STREQUAL of_bodies AND NOT of_bodies STREQUAL stem))
        continue()  # a header and its bodies are one
      endif()
      place_of("${target}" target_place target_rank)
      if(header MATCHES "hpp$" AND kind STREQUAL "cuh")
        refuse("${header} includes ${included}: a .hpp is for any compiler, a .cuh is not")
      elseif(is_transport)
        string(REGEX MATCH "^comm/[a-z]+" own "${header}")
        if(NOT target IN_LIST transport_may_include AND NOT target MATCHES "^${own}(_|$)")
          refuse("${header} includes ${included}: a transport stands alone on concepts, error, process and types")
        endif()
      elseif(target MATCHES "^comm/")
        refuse("${header} includes ${included}: transports are opt-in, the user includes them")
      elseif(header MATCHES "^plan[/.]" AND NOT target MATCHES "^(core|plan)/")
        refuse("${header} includes ${included}: plans need core/ and the standard library only")
      elseif(header MATCHES "^(published|run_time)[/.]" AND target MATCHES "^(plan|overlap)")
        refuse("${header} includes ${included}: this module needs no plans")
      elseif(header MATCHES "cuh$" AND target MATCHES "^host/" AND NOT target IN_LIST device_may_include)
        refuse("${header} includes ${included}: a device part may include of host/ only ${device_may_include}")
      elseif(place MATCHES "/$" AND place STREQUAL target_place)
        list(APPEND beside_${header} "${target}.${kind}")
      elseif(target STREQUAL stem AND header MATCHES "cuh$" AND kind STREQUAL "hpp")
        continue()  # overlap.cuh: overlap.hpp and its device parts
      elseif(NOT target_rank LESS rank)
        refuse("${header} includes ${included}: includes run downwards")
      endif()
    elseif(included MATCHES "^[a-z_]+$" OR (header MATCHES "cuh$" AND included MATCHES "${cuda_toolkit}"))
      continue()  # the standard library; the CUDA toolkit
    else()
      set(only "")
      foreach(pair IN LISTS foreign)
        if(pair MATCHES "^(.*)=(.*)$" AND CMAKE_MATCH_1 STREQUAL included)
          set(only "${CMAKE_MATCH_2}")
        endif()
      endforeach()
      if(NOT only)
        refuse("${header} includes ${included}: the core needs the standard library only")
      elseif(NOT header STREQUAL only)
        refuse("${header} includes ${included}: only ${only} may")
      endif()
    endif()
  endforeach()
endforeach()

# What is left when headers without neighbours to wait for are taken away, again and again, goes in circles.
set(left "")
foreach(header IN LISTS headers)
  if(beside_${header})
    list(APPEND left "${header}")
  endif()
endforeach()
set(before -1)
list(LENGTH left count)
while(NOT count EQUAL before)
  set(before ${count})
  set(next "")
  foreach(header IN LISTS left)
    foreach(each IN LISTS beside_${header})
      if(each IN_LIST left)
        list(APPEND next "${header}")
        break()
      endif()
    endforeach()
  endforeach()
  set(left "${next}")
  list(LENGTH left count)
endwhile()
if(left)
  list(JOIN left " " circle)
  refuse("these include each other in a circle: ${circle}")
endif()

list(LENGTH headers count)
if(problems)
  message(FATAL_ERROR "${problems}")
endif()
message(STATUS "${count} headers include downwards only")
