# SPDX-License-Identifier: Apache-2.0
regroup_test(agent_core_test unit
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/agent_cause_text_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/agent_core_end_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/agent_core_leaving_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/agent_core_resident_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/agent_core_hang_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/agent_core_signal_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/agent_core_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/agent_core_unfinished_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/agent_core_waiting_test.cc
    LINK regroup::agent_core regroup::cause_text)
