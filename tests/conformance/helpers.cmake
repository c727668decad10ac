# SPDX-License-Identifier: Apache-2.0
regroup_test(training_spawn_test conformance
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/training_spawn_test.cc
    LINK regroup::worker_sdk regroup_test_support)
