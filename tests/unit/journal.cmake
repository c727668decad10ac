# SPDX-License-Identifier: Apache-2.0
regroup_test(journal_test unit
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/journal_entries_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/journal_records_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/journal_replay_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/journal_sqlite_test.cc
    LINK regroup::journal)
