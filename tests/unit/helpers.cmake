# SPDX-License-Identifier: Apache-2.0
regroup_test(training_helpers_test unit
    SOURCES
        ${CMAKE_CURRENT_LIST_DIR}/training_evaluation_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/training_exact_sum_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/training_main_process_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/training_partitioner_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/training_schedule_test.cc
    LINK regroup::worker_sdk regroup::store_core)
