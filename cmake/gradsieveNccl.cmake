# NCCL ships no CMake package: defines NCCL::nccl if its header and library are found.
find_path(GRADSIEVE_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(GRADSIEVE_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
mark_as_advanced(GRADSIEVE_NCCL_INCLUDE_DIR GRADSIEVE_NCCL_LIBRARY)

if(GRADSIEVE_NCCL_INCLUDE_DIR AND GRADSIEVE_NCCL_LIBRARY AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl UNKNOWN IMPORTED GLOBAL)
  set_target_properties(NCCL::nccl PROPERTIES IMPORTED_LOCATION "${GRADSIEVE_NCCL_LIBRARY}"
                                              INTERFACE_INCLUDE_DIRECTORIES "${GRADSIEVE_NCCL_INCLUDE_DIR}")
endif()
