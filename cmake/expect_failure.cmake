# cmake -DCOMMAND=<list> -DEXPECTED=<list of regexes> -P expect_failure.cmake
# A command that fails for another reason than the expected one has not shown what its test is for.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND ${COMMAND} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
# CMake wraps its messages: compare with single spaces.
string(REGEX REPLACE "[ \n]+" " " line "${output}")
if(result EQUAL 0)
  message(FATAL_ERROR "succeeded, but must fail: ${COMMAND}\n${output}")
endif()
foreach(regex IN LISTS EXPECTED)
  if(NOT line MATCHES "${regex}")
    message(FATAL_ERROR "failed without saying '${regex}': ${COMMAND}\n${output}")
  endif()
endforeach()
