# SPDX-License-Identifier: Apache-2.0
if(TARGET mnist)
    regroup_test(mnist_processes_test conformance
        SOURCES
            ${CMAKE_CURRENT_LIST_DIR}/mnist_processes_test.cc
            ${PROJECT_SOURCE_DIR}/tests/support/program.cc
        LINK regroup::process)
    target_compile_definitions(mnist_processes_test PRIVATE MNIST_PROGRAM="$<TARGET_FILE:mnist>")
    add_dependencies(mnist_processes_test mnist)
endif()
