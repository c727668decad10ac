# SPDX-License-Identifier: Apache-2.0
regroup_test(agent_stacks_test conformance
    SOURCES
        ${CMAKE_CURRENT_LIST_DIR}/agent_stacks_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/process_helpers/process_harness.cc
    LINK regroup::stack_saver)
target_compile_definitions(agent_stacks_test PRIVATE
    PROCESS_HELPER="$<TARGET_FILE:process_helper>")
add_dependencies(agent_stacks_test process_helper)

regroup_test(agent_hang_watch_test conformance
    SOURCES
        ${CMAKE_CURRENT_LIST_DIR}/agent_hang_watch_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/process_helpers/process_harness.cc
    LINK regroup::hang_watch regroup::process)
target_compile_definitions(agent_hang_watch_test PRIVATE
    PROCESS_HELPER="$<TARGET_FILE:process_helper>")
