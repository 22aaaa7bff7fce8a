# cmake "-DLAUNCHER=<command>" -DPROGRAM=<step_traffic> -P check_traffic.cmake
# Runs warm and cold steps through a launcher that says on every kernel, if GRADSIEVE_DEVICE_STATISTICS (VARIABLE=value)
# (STATISTICS) is set: "<kernel>: launches N, cooperative N, early N, loading N, threads N, grid barriers N, global loads
# N B (N distinct), stores N B (N distinct), most stores of a thread N, ...", and barriers.
# Fails where a step launches more kernels or moves more bytes an element than it should, launches one that needs the
# whole device or is not loaded yet, or one that cannot start while the one before it ends; a step's first must not, nor
# in an exchange the one behind the communicator's call.
cmake_minimum_required(VERSION 3.25)

separate_arguments(LAUNCHER UNIX_COMMAND "${LAUNCHER}")
set(bits 20)
math(EXPR elements "1 << ${bits}")

# Launches, those of them that are cooperative, bytes, and launches that may start early, of so many steps.
function(count_of steps density what)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E env ${STATISTICS} ${LAUNCHER} "${PROGRAM}" ${bits} ${density} ${steps} ${what}
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${PROGRAM} failed:\n${output}")
  endif()
  set(number "([0-9]+)")
  string(REGEX MATCHALL "launches [0-9]+, [^\n]*" lines "${output}")
  set(launches 0)
  set(cooperative 0)
  set(early 0)
  set(loading 0)
  set(bytes 0)
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "launches ${number}, cooperative ${number}, early ${number}, loading ${number},.*loads [0-9]+ B \\(${number} distinct\\), stores [0-9]+ B \\(${number} distinct\\)")
      message(FATAL_ERROR "the launcher's words are not understood: ${line}")
    endif()
    math(EXPR launches "${launches} + ${CMAKE_MATCH_1}")
    math(EXPR cooperative "${cooperative} + ${CMAKE_MATCH_2}")
    math(EXPR early "${early} + ${CMAKE_MATCH_3}")
    math(EXPR loading "${loading} + ${CMAKE_MATCH_4}")
    math(EXPR bytes "${bytes} + ${CMAKE_MATCH_5} + ${CMAKE_MATCH_6}")
  endforeach()
  if(launches EQUAL 0)
    message(FATAL_ERROR "the launcher counted no kernel:\n${output}")
  endif()
  if(loading GREATER 0)
    message(SEND_ERROR "${loading} kernels were not loaded before a step:\n${output}")
  endif()
  set(counted ${launches} ${cooperative} ${bytes} ${early} PARENT_SCOPE)
endfunction()

# check(<text> <density> <what> <first step> <last step> <most launches a step> <most bytes an element, x 1000>)
function(check text density what first last most_launches most_bytes)
  set(before 0 0 0 0)
  if(first GREATER 1)
    math(EXPR before_first "${first} - 1")
    count_of(${before_first} ${density} ${what})
    set(before ${counted})
  endif()
  count_of(${last} ${density} ${what})
  math(EXPR steps "${last} - ${first} + 1")
  set(values "")
  foreach(part IN ITEMS 0 1 2 3)
    list(GET before ${part} from)
    list(GET counted ${part} to)
    math(EXPR value "${to} - ${from}")
    list(APPEND values ${value})
  endforeach()
  list(GET values 0 launches)
  list(GET values 1 cooperative)
  list(GET values 2 bytes)
  list(GET values 3 early)
  set(late ${steps})
  if(NOT what STREQUAL "compress")
    math(EXPR late "2 * ${steps}")
  endif()
  math(EXPR wanted "${launches} - ${late}")
  if(first GREATER 1 AND NOT early EQUAL wanted)
    message(SEND_ERROR "${text}: ${early} of ${launches} launches may start early, instead of ${wanted}")
  endif()
  math(EXPR launches "(${launches} + ${steps} - 1) / ${steps}")
  math(EXPR bytes "${bytes} * 1000 / (${steps} * ${elements})")
  set(line "${text}: ${launches} launches, ${cooperative} cooperative, ${bytes} bytes per 1000 elements")
  message(STATUS "${line}")
  if(launches GREATER most_launches OR cooperative GREATER 0 OR bytes GREATER most_bytes)
    message(SEND_ERROR "${line}; at most ${most_launches}, 0, ${most_bytes}")
  endif()
endfunction()

check("compress, 0.1 %, warm" 0.001 compress 4 8 3 12100)
check("compress, 1 %, warm" 0.01 compress 4 8 3 12700)
check("compress, 10 %, warm" 0.1 compress 4 8 3 16600)
check("compress, 0.1 %, cold" 0.001 compress 1 1 5 12700)
check("exchange of coo, one rank, 1 %, warm" 0.01 coo 4 8 6 17000)
check("exchange of elias_fano and fp16, one rank, 1 %, warm" 0.01 elias_fano 4 8 10 17500)

# A message of weight deltas from a copy, and applied: bfloat16, of which two reads are 4 bytes.
check("weight delta, 1 %" 0.01 delta 1 2 8 4700)
check("weight delta, 8 %" 0.08 delta 1 2 8 6100)

# What one kernel did in an average of so many senders' messages: threads and barriers of its blocks.
function(count_of_kernel name senders)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E env ${STATISTICS} ${LAUNCHER} "${PROGRAM}" 16 0.01 ${senders} average
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0 OR NOT output MATCHES
                           "${name}[^\n]*: launches 1,[^\n]* threads ([0-9]+),[^\n]* block barriers ([0-9]+)")
    message(FATAL_ERROR "${PROGRAM} failed, or has no ${name}:\n${output}")
  endif()
  set(threads ${CMAKE_MATCH_1} PARENT_SCOPE)
  set(block_barriers ${CMAKE_MATCH_2} PARENT_SCOPE)
endfunction()

# Senders are read side by side: more of them have more threads, and no block has more barriers. In apply_updates no warp
# waits for another.
foreach(kernel IN ITEMS apply_updates receive_coo end_exchange)
  count_of_kernel(${kernel} 8)
  set(few ${threads})
  set(few_barriers ${block_barriers})
  count_of_kernel(${kernel} 64)
  message(STATUS "${kernel}, 8 and 64 senders: ${few} and ${threads} threads, "
                 "${few_barriers} and ${block_barriers} barriers of blocks")
  math(EXPR bound "${few_barriers} * ${threads} / ${few}")
  if(block_barriers GREATER bound OR (kernel STREQUAL "apply_updates" AND block_barriers GREATER 0)
     OR (NOT kernel STREQUAL "apply_updates" AND NOT threads GREATER few))
    message(SEND_ERROR "${kernel}: 64 senders wait for each other")
  endif()
endforeach()

# Where all entries lie in one cell, no thread writes what the directory has of the others alone.
execute_process(COMMAND "${CMAKE_COMMAND}" -E env ${STATISTICS} ${LAUNCHER} "${PROGRAM}" 18 0.01 2 crowded
                OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT output MATCHES "end_exchange[^\n]*, most stores of a thread ([0-9]+),")
  message(FATAL_ERROR "${PROGRAM} failed, or has no end_exchange:\n${output}")
endif()
message(STATUS "end_exchange, crowded entries: a thread stores ${CMAKE_MATCH_1} times")
if(CMAKE_MATCH_1 GREATER 4)
  message(SEND_ERROR "end_exchange: a thread stores ${CMAKE_MATCH_1} times, 4 at most")
endif()

# The model of a step, bench/device_model.py, counts the kernels and memsets that a graph of one has.
find_program(PYTHON3 python3)
if(PYTHON3)
  execute_process(COMMAND ${PYTHON3} "${CMAKE_CURRENT_LIST_DIR}/../bench/device_model.py" --counts
                  OUTPUT_VARIABLE model COMMAND_ERROR_IS_FATAL ANY)
  foreach(density IN ITEMS 0.001 0.01 0.1)
    execute_process(COMMAND ${LAUNCHER} "${PROGRAM}" ${bits} ${density} 8 compress_nodes
                    OUTPUT_VARIABLE nodes COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCH "[0-9]+ kernels, [0-9]+ memsets" counted "${nodes}")
    message(STATUS "a graph of compress, density ${density}: ${nodes}")
    if(NOT model MATCHES "(^|\n)${density}: ${counted}\n" OR NOT nodes MATCHES " 0 others")
      message(SEND_ERROR "density ${density}: a graph has ${nodes}, the model of a step:\n${model}")
    endif()
  endforeach()
endif()

# A graph of a warm exchange of one rank, whose message is copied once: a failure is heard without a copy.
execute_process(COMMAND ${LAUNCHER} "${PROGRAM}" ${bits} 0.01 8 coo_nodes
                OUTPUT_VARIABLE nodes COMMAND_ERROR_IS_FATAL ANY)
message(STATUS "a graph of an exchange, density 0.01: ${nodes}")
if(NOT nodes MATCHES "^6 kernels, 0 memsets, 1 others")
  message(SEND_ERROR "a graph of an exchange has ${nodes} instead of 6 kernels and 1 copy")
endif()

# A small gradient's step is one kernel and nothing else.
foreach(density IN ITEMS 0.001 0.04)
  execute_process(COMMAND ${LAUNCHER} "${PROGRAM}" 18 ${density} 8 compress_nodes
                  OUTPUT_VARIABLE nodes COMMAND_ERROR_IS_FATAL ANY)
  message(STATUS "a graph of compress, 2^18 elements, density ${density}: ${nodes}")
  if(NOT nodes MATCHES "^1 kernels, 0 memsets, 0 others")
    message(SEND_ERROR "a graph of a small compress has ${nodes} instead of one kernel")
  endif()
endforeach()
