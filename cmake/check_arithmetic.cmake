# cmake -DROOT=<include folder> -P check_arithmetic.cmake
# Results must not depend on -ffast-math: NaN and infinity are tested by their bits (is_finite(), magnitude_key()), and
# what all ranks decide in common is made of whole numbers and of gradsieve::exact. What is thrown is a gradsieve::error.
# Code only; comments may say anything.
cmake_minimum_required(VERSION 3.25)

# Folded by -ffinite-math-only.
set(classification "(std::|[^A-Za-z_:])(isnan|isfinite|isinf|isnormal|fpclassify|isunordered|isless|isgreater)[ ]*\\(")
set(constants "(quiet_NaN|signaling_NaN|::infinity[ ]*\\(|[^A-Za-z_]NAN[^A-Za-z_]|[^A-Za-z_]INFINITY[^A-Za-z_]|HUGE_VAL|__builtin_(nan|inf))")
# Whose last bits depend on the library, the processor and the flags.
set(functions "std::(fma|pow|exp|exp2|expm1|log|log2|log10|log1p|sqrt|cbrt|hypot|lround|llround|round|rint|nearbyint)[ ]*\\(")
set(decisions "^(partitioner/(cyclic|deft|layerwise|micro|segmentation|selection_cost|whole)|core/(density|selection))[.]hpp$")

file(GLOB_RECURSE headers RELATIVE "${ROOT}/gradsieve" "${ROOT}/gradsieve/*.hpp" "${ROOT}/gradsieve/*.cuh")
set(found "")
foreach(header IN LISTS headers)
  file(READ "${ROOT}/gradsieve/${header}" text)
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")
  set(forbidden classification constants)
  if(header MATCHES "${decisions}")
    list(APPEND forbidden functions)
  endif()
  foreach(kind IN LISTS forbidden)
    if(text MATCHES "${${kind}}")
      string(STRIP "${CMAKE_MATCH_0}" what)
      string(APPEND found "${header} has ${what}: see gradsieve/core/arithmetic.hpp\n")
    endif()
  endforeach()
  if(text MATCHES "(throw|make_exception_ptr[(]) *std::[a-z_]+")
    string(APPEND found "${header} has ${CMAKE_MATCH_0}: throw an exception of gradsieve/core/error.hpp\n")
  endif()
endforeach()
if(NOT headers)
  message(FATAL_ERROR "there are no headers in ${ROOT}")
endif()
if(found)
  message(FATAL_ERROR "${found}")
endif()
list(LENGTH headers count)
message(STATUS "${count} headers")
