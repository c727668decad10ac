# SPDX-License-Identifier: Apache-2.0
if(TARGET mnist)
    regroup_test(mnist_processes_test conformance
        SOURCES ${CMAKE_CURRENT_LIST_DIR}/mnist_processes_test.cc
        LINK regroup_test_support
        TIMEOUT 600)
    target_compile_definitions(mnist_processes_test PRIVATE
        EXAMPLES_FOLDER="${PROJECT_BINARY_DIR}/examples"
        REGROUP_PROGRAM="$<TARGET_FILE:regroup>")
    add_dependencies(mnist_processes_test regroup mnist)
endif()
