# SPDX-License-Identifier: Apache-2.0
regroup_test(endpoint_turn_test unit
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/endpoint_turn_test.cc
    LINK regroup::rendezvous_client)
