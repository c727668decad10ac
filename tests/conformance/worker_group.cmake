# SPDX-License-Identifier: Apache-2.0
if(NOT TARGET regroup_worker_sdk)
    return()
endif()
add_executable(link_helper ${CMAKE_CURRENT_LIST_DIR}/link_helpers/link_helper.cc)
target_link_libraries(link_helper PRIVATE regroup_options regroup::worker_sdk)

regroup_test(worker_group_test conformance
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/worker_group_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/link_server_test.cc
            ${PROJECT_SOURCE_DIR}/tests/support/program.cc
    LINK regroup::agent regroup::protocol)
target_compile_definitions(worker_group_test PRIVATE LINK_HELPER="$<TARGET_FILE:link_helper>")
add_dependencies(worker_group_test link_helper)
