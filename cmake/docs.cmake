# SPDX-License-Identifier: Apache-2.0
# The reference of the public headers, by Doxygen: `make docs`, or the target regroup_docs.
find_program(REGROUP_DOXYGEN doxygen)
mark_as_advanced(REGROUP_DOXYGEN)

# regroup_copy_guides(FOLDER LINKS [WITHOUT_ANCHORS]): docs/*.md there, without links that lead
# nowhere from there; those to `../LINKS` stay. Doxygen before 1.9.8 knows no anchors of headings.
function(regroup_copy_guides folder links)
    file(GLOB guides CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.md)
    set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${guides})
    foreach(guide ${guides})
        file(READ ${guide} text)
        string(REGEX REPLACE "\\]\\(\\.\\./(${links})([^)]*)\\)" "](\\1\\2\n)" text "${text}")
        string(REGEX REPLACE "\\[([^]\n]*)\\]\\(\\.\\./[^)]*\\)" "\\1" text "${text}")
        string(REGEX REPLACE "\\]\\((${links})([^)\n]*)\n\\)" "](../\\1\\2)" text "${text}")
        if(ARGN STREQUAL "WITHOUT_ANCHORS")
            string(REGEX REPLACE "\\[([^]]*)\\]\\(#[^)]*\\)" "\\1" text "${text}")
            string(REGEX REPLACE "\\.md#[^)]*\\)" ".md)" text "${text}")
        endif()
        get_filename_component(name ${guide} NAME)
        file(CONFIGURE OUTPUT ${folder}/${name} CONTENT "${text}" @ONLY)
    endforeach()
endfunction()

if(REGROUP_DOXYGEN)
    regroup_copy_guides(${PROJECT_BINARY_DIR}/guides/reference "none" WITHOUT_ANCHORS)
    set(REGROUP_DOCS_FOLDER ${PROJECT_BINARY_DIR}/docs)
    configure_file(cmake/Doxyfile.in ${PROJECT_BINARY_DIR}/Doxyfile @ONLY)
    add_custom_target(regroup_docs
        COMMAND ${CMAKE_COMMAND} -E make_directory ${REGROUP_DOCS_FOLDER}
        COMMAND ${REGROUP_DOXYGEN} ${PROJECT_BINARY_DIR}/Doxyfile
        COMMENT "Reference: ${REGROUP_DOCS_FOLDER}/html/index.html"
        VERBATIM)
endif()
