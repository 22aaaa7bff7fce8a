# What a header costs each translation unit that includes it, as lines after the preprocessor, which no load of the
# machine changes: cmake -DCOMPILER=... -DROOT=include -DWORK=folder -DBUDGETS=header=lines,header=lines -P
# check_preprocessed.cmake
string(REPLACE "," ";" budgets "${BUDGETS}")
foreach(budget IN LISTS budgets)
  if(NOT budget MATCHES "^(.+)=([0-9]+)$")
    message(FATAL_ERROR "'${budget}' is not header=lines")
  endif()
  set(header "${CMAKE_MATCH_1}")
  set(most "${CMAKE_MATCH_2}")
  file(WRITE "${WORK}/preprocessed.cpp" "#include <${header}>\n")
  execute_process(COMMAND "${COMPILER}" -std=c++20 "-I${ROOT}" -E -P "${WORK}/preprocessed.cpp"
                  OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "\n" ends "${text}")
  list(LENGTH ends lines)
  message(STATUS "${header}: ${lines} of ${most} lines")
  if(lines GREATER most)
    message(SEND_ERROR "${header} has ${lines} lines after the preprocessor, its budget is ${most}: include less, or "
                       "raise the budget in tests/static/CMakeLists.txt and say why")
  endif()
endforeach()
