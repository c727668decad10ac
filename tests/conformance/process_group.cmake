# SPDX-License-Identifier: Apache-2.0
foreach(part collectives results messages failures processes subgroups)
    regroup_test(process_group_${part}_test conformance
        SOURCES ${CMAKE_CURRENT_LIST_DIR}/process_group_${part}_test.cc
        LINK regroup::worker_sdk regroup::store_core)
endforeach()
