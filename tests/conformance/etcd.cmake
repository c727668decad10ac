# SPDX-License-Identifier: Apache-2.0
regroup_test(etcd_faults_test conformance
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/etcd_faults_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/daemon_harness.cc
    LINK regroup::journal regroup::rendezvous_server regroup::protocol)
target_include_directories(etcd_faults_test PRIVATE ${PROJECT_SOURCE_DIR}/tests/unit)
target_link_libraries(etcd_faults_test PRIVATE nlohmann_json::nlohmann_json)

find_program(REGROUP_ETCD NAMES etcd PATHS ${PROJECT_SOURCE_DIR}/build/tools/usr/bin)
if(REGROUP_ETCD)
    regroup_test(etcd_journal_test conformance
        SOURCES ${CMAKE_CURRENT_LIST_DIR}/etcd_journal_test.cc
                ${CMAKE_CURRENT_LIST_DIR}/daemon_harness.cc
                ${PROJECT_SOURCE_DIR}/tests/support/program.cc
        LINK regroup::journal regroup::rendezvous_server regroup::protocol)
    target_compile_definitions(etcd_journal_test PRIVATE REGROUP_ETCD="${REGROUP_ETCD}")
    target_include_directories(etcd_journal_test PRIVATE ${PROJECT_SOURCE_DIR}/tests/unit)
    target_link_libraries(etcd_journal_test PRIVATE nlohmann_json::nlohmann_json)
endif()
