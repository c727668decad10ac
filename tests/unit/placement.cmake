# SPDX-License-Identifier: Apache-2.0
regroup_test(placement_test unit
    SOURCES
        ${CMAKE_CURRENT_LIST_DIR}/placement_cores_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/placement_gpu_shares_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/placement_gpus_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/placement_numa_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/placement_topology_test.cc
    LINK regroup::placement)
