# Which tests tests/run.sh leaves to --all: their ctest has the label "later". With GRADSIEVE_TEST_FIRST their programs
# are not compiled. What stays are some tests of each part that a machine, a compiler or a library can get wrong.

option(GRADSIEVE_TEST_FIRST "Only the test programs that tests/run.sh runs without --all" OFF)
option(GRADSIEVE_TEST_ONCE "Without the later programs that preset debug has too, as CI" OFF)

# Programs with the policies, checks and failures of others in more combinations.
set(later_programs
    allocation_failure any_compressor averager balance_cyclic balance_deft balance_layerwise balance_whole binned contract
    exchange_codecs exchange_conformance excluded_layers faulty_policy filtered float_environment fork leader
    measure measure_cost overlap_cancel parameter_balance plain_output policy_conformance power reduce_scatter
    schedule_costs schedule_fast_math schedule_simulate selector_conformance shared_choice two_level)
# Of device tests those stay that have the kernels of most recipes.
list(APPEND later_programs cuda_any_compressor cuda_averager cuda_bfloat16 cuda_bins cuda_fast_math cuda_leader
     cuda_overlap cuda_parameters cuda_pieces cuda_published_selectors cuda_recipes cuda_reduce_scatter cuda_skipped
     cuda_small cuda_two_level cuda_value_sum nccl nccl_calls staged)
list(JOIN later_programs "|" later_programs)
set(GRADSIEVE_LATER_PROGRAMS "^(${later_programs})_test$")

# Tests without a program of their own.
set(later_tests
    "kernels_aarch64" "same_.*_for_any_flags" "rejects_.*" ".*_rejects.*" "compiles_.*" "strict_clang" "single_header"
    "compile_work" "two_modes" "archetypes" "consumer_(fetch|subdirectory|mpi_subdirectory|pkg_config.*|without_mpi|c)"
    "install_apart" "network" "example_study" "example_train_(parts|adamw|adamw_refuses|refuses|overlap|mpi.*)"
    "python_wheel" "pytorch_(hook|register|balance|sharded|train|names)" "example_libtorch_step"
    "cuda_.*[.](order|seed|lazy|one|preempt|races)" "spills" "step_traffic" "ptxcpu" "no_kernels" "device_fast_math"
    "bench_.*" "gpu_dry_run" "decode_fuzz[.].*")
list(JOIN later_tests "|" later_tests)
set(GRADSIEVE_LATER_TESTS "^(${later_tests})$")

# gradsieve_is_later(<variable> <name of a test or a test program>)
function(gradsieve_is_later variable name)
  set(is_later OFF)
  string(REGEX REPLACE "([.][0-9]+|_serial)$" "" program "${name}")  # on ranks; without OpenMP
  if(program MATCHES "${GRADSIEVE_LATER_PROGRAMS}" OR name MATCHES "${GRADSIEVE_LATER_TESTS}")
    set(is_later ON)
  endif()
  set(${variable} ${is_later} PARENT_SCOPE)
endfunction()

# gradsieve_remove_later(<list of files>): without the programs that GRADSIEVE_TEST_FIRST or GRADSIEVE_TEST_ONCE leaves out.
function(gradsieve_remove_later list_of_files)
  set(kept ${${list_of_files}})
  foreach(file IN LISTS kept)
    cmake_path(GET file STEM name)
    gradsieve_is_later(later ${name})
    string(REGEX MATCH "^(balance|parameter_balance)_" takes_too_long_sanitized "${name}")
    if(later AND (GRADSIEVE_TEST_FIRST OR (GRADSIEVE_TEST_ONCE AND NOT takes_too_long_sanitized)))
      list(REMOVE_ITEM kept "${file}")
    endif()
  endforeach()
  set(${list_of_files} ${kept} PARENT_SCOPE)
endfunction()
