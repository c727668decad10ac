# SPDX-License-Identifier: Apache-2.0
regroup_test(agent_progress_watch_test unit
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/agent_progress_watch_test.cc
    LINK regroup::progress_watch)

regroup_test(agent_ledger_test unit
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/agent_ledger_test.cc
    LINK regroup::ledger)
