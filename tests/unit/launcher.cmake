# SPDX-License-Identifier: Apache-2.0
regroup_test(launcher_test unit
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/launcher_host_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/launcher_options_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/launcher_plan_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/launcher_report_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/launcher_recovery_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/launcher_status_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/output_layout_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/worker_environment_test.cc
    LINK regroup::launcher regroup::agent)
