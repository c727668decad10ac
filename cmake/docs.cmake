# SPDX-License-Identifier: Apache-2.0
# The reference of the public headers, by Doxygen: `make docs`, or the target regroup_docs.
find_program(REGROUP_DOXYGEN doxygen)
mark_as_advanced(REGROUP_DOXYGEN)
if(REGROUP_DOXYGEN)
    set(REGROUP_DOCS_FOLDER ${PROJECT_BINARY_DIR}/docs)
    configure_file(cmake/Doxyfile.in ${PROJECT_BINARY_DIR}/Doxyfile @ONLY)
    add_custom_target(regroup_docs
        COMMAND ${CMAKE_COMMAND} -E make_directory ${REGROUP_DOCS_FOLDER}
        COMMAND ${REGROUP_DOXYGEN} ${PROJECT_BINARY_DIR}/Doxyfile
        COMMENT "Reference: ${REGROUP_DOCS_FOLDER}/html/index.html"
        VERBATIM)
endif()
