# SPDX-License-Identifier: Apache-2.0
regroup_test(daemon_wire_test conformance
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/daemon_wire_test.cc
    LINK regroup::protocol nlohmann_json::nlohmann_json)
target_compile_definitions(daemon_wire_test PRIVATE REGROUP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")

regroup_test(daemon_test conformance
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/daemon_client_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/daemon_harness.cc
            ${CMAKE_CURRENT_LIST_DIR}/daemon_jobs_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/daemon_journal_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/daemon_lives_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/daemon_store_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/daemon_strangers_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/daemon_traffic_test.cc
    LINK regroup::rendezvous_server regroup::rendezvous_client regroup::protocol regroup::net
        regroup_test_support)
target_include_directories(daemon_test PRIVATE ${PROJECT_SOURCE_DIR}/tests/unit)
