# SPDX-License-Identifier: Apache-2.0
regroup_test(data_parallel_group_test conformance
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/data_parallel_test.cc
    LINK regroup::worker_sdk regroup::store_core)
