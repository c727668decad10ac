# SPDX-License-Identifier: Apache-2.0
regroup_test(process_unit_test unit
    SOURCES
        ${CMAKE_CURRENT_LIST_DIR}/process_exit_status_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/process_line_splitter_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/process_oom_evidence_test.cc
    LINK regroup::process)
