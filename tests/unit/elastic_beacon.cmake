# SPDX-License-Identifier: Apache-2.0
regroup_test(elastic_beacon_test unit
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/elastic_beacon_test.cc
    LINK regroup::worker_sdk)
