# cmake -DCOMMAND=<list> -DEXPECTED=<regex> -P expect_failure.cmake
# A command that fails for another reason than the expected one has not shown what its test is for.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND ${COMMAND} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
# CMake wraps its messages: compare with single spaces.
string(REGEX REPLACE "[ \n]+" " " line "${output}")
if(result EQUAL 0)
  message(FATAL_ERROR "succeeded, but must fail: ${COMMAND}\n${output}")
elseif(NOT line MATCHES "${EXPECTED}")
  message(FATAL_ERROR "failed without saying '${EXPECTED}': ${COMMAND}\n${output}")
endif()
