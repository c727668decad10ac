# SPDX-License-Identifier: Apache-2.0
regroup_test(worker_link_test unit
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/worker_link_messages_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/worker_link_packet_test.cc
    LINK regroup::worker_link)
