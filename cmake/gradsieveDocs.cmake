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
  file(GLOB chapters CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/*/README.md")
  list(TRANSFORM chapters REPLACE "(.+)" "\"\\1\"")
  list(JOIN chapters " " GRADSIEVE_CHAPTERS)
  set(GRADSIEVE_DOCS_DIR "${PROJECT_BINARY_DIR}/docs")
  file(MAKE_DIRECTORY "${GRADSIEVE_DOCS_DIR}")
  configure_file("${CMAKE_CURRENT_LIST_DIR}/Doxyfile.in" "${PROJECT_BINARY_DIR}/Doxyfile" @ONLY)
  set(GRADSIEVE_DOCS_COMMAND Doxygen::doxygen "${PROJECT_BINARY_DIR}/Doxyfile")
  add_custom_target(docs COMMAND ${GRADSIEVE_DOCS_COMMAND} COMMENT "API reference: ${GRADSIEVE_DOCS_DIR}/index.html"
                    VERBATIM)
endif()
