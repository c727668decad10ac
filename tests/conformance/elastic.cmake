# SPDX-License-Identifier: Apache-2.0
# The loop that survives, in real processes that are really killed, under an agent that does what
# the test says.
regroup_test(elastic_processes_test conformance
    SOURCES
        ${CMAKE_CURRENT_LIST_DIR}/elastic_processes_test.cc
        ${PROJECT_SOURCE_DIR}/tests/support/fake_agent.cc
    LINK regroup::worker_sdk regroup::worker_link regroup::store_core regroup_test_support
    TIMEOUT 300)
target_compile_definitions(elastic_processes_test PRIVATE
    ELASTIC_PROGRAM="$<TARGET_FILE:elastic>")
add_dependencies(elastic_processes_test elastic)
