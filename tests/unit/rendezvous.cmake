# SPDX-License-Identifier: Apache-2.0
regroup_test(rendezvous_core_test unit
    SOURCES
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_admission_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_aside_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_budget_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_drain_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_failure_detector_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_forming_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_hang_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_job_drain_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_judge_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_ledger_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_links_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_losses_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_messages_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_planned_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_ranks_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_return_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_routine_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_silence_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/rendezvous_stopping_test.cc
    LINK regroup::rendezvous_core regroup::rendezvous_text)
