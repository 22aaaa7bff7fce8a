# The API reference, by doxygen. Target docs writes it to <build folder>/docs; test docs does the same, and fails for an
# undocumented public entity, a broken reference or an unknown @param.

find_package(Doxygen QUIET)
find_program(GRADSIEVE_AWK awk)
mark_as_advanced(GRADSIEVE_AWK)
if(TARGET Doxygen::doxygen AND GRADSIEVE_AWK)
  # Debian's package doxygen-awesome-css; without it doxygen's own style.
  find_file(GRADSIEVE_DOXYGEN_THEME doxygen-awesome.css PATHS /usr/share /usr/local/share
            PATH_SUFFIXES doxygen-awesome-css NO_DEFAULT_PATH)
  mark_as_advanced(GRADSIEVE_DOXYGEN_THEME)
  if(NOT GRADSIEVE_DOXYGEN_THEME)
    set(GRADSIEVE_DOXYGEN_THEME "")
  endif()
  set(GRADSIEVE_CHAPTERS "\"${PROJECT_SOURCE_DIR}/README.md\"")
  set(GRADSIEVE_PICTURES "")
  foreach(folder IN ITEMS bench examples tests)
    file(GLOB_RECURSE chapters CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/README.md"
         "${PROJECT_SOURCE_DIR}/${folder}/TRAINING.md" "${PROJECT_SOURCE_DIR}/${folder}/TRANSFORMERS.md")
    foreach(chapter IN LISTS chapters)
      if(NOT chapter MATCHES "/tests/static/")  # wrong on purpose
        string(APPEND GRADSIEVE_CHAPTERS " \"${chapter}\"")
      endif()
    endforeach()
    file(GLOB_RECURSE pictures CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*.png")
    foreach(picture IN LISTS pictures)
      string(APPEND GRADSIEVE_PICTURES " \"${picture}\"")
    endforeach()
  endforeach()
  set(GRADSIEVE_DOCS_DIR "${PROJECT_BINARY_DIR}/docs")
  file(MAKE_DIRECTORY "${GRADSIEVE_DOCS_DIR}")
  configure_file("${CMAKE_CURRENT_LIST_DIR}/docs/Doxyfile.in" "${PROJECT_BINARY_DIR}/Doxyfile" @ONLY)
  set(GRADSIEVE_DOCS_COMMAND Doxygen::doxygen "${PROJECT_BINARY_DIR}/Doxyfile")
  add_custom_target(docs COMMAND ${GRADSIEVE_DOCS_COMMAND} COMMENT "API reference: ${GRADSIEVE_DOCS_DIR}/index.html"
                    VERBATIM)
endif()
