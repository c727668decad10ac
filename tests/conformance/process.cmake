# SPDX-License-Identifier: Apache-2.0
add_executable(process_helper ${CMAKE_CURRENT_LIST_DIR}/process_helpers/process_helper.cc)
target_link_libraries(process_helper PRIVATE regroup_options regroup::process)

foreach(part launcher tree warden output binding oom)
    regroup_test(process_${part}_test conformance
        SOURCES
            ${CMAKE_CURRENT_LIST_DIR}/process_${part}_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/process_helpers/process_harness.cc
        LINK regroup::process)
    target_compile_definitions(process_${part}_test PRIVATE
        PROCESS_HELPER="$<TARGET_FILE:process_helper>")
    add_dependencies(process_${part}_test process_helper)
endforeach()

regroup_test(process_resolve_test conformance
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/process_resolve_test.cc
    LINK regroup::process)
