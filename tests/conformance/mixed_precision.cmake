# SPDX-License-Identifier: Apache-2.0
if(TARGET mixed_precision)
    regroup_test(mixed_precision_processes_test conformance
        SOURCES ${CMAKE_CURRENT_LIST_DIR}/mixed_precision_processes_test.cc
        LINK regroup_test_support
        TIMEOUT 300)
    target_compile_definitions(mixed_precision_processes_test PRIVATE
        EXAMPLES_FOLDER="${PROJECT_BINARY_DIR}/examples"
        REGROUP_PROGRAM="$<TARGET_FILE:regroup>")
    add_dependencies(mixed_precision_processes_test regroup mixed_precision)
endif()
