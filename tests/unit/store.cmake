# SPDX-License-Identifier: Apache-2.0
regroup_test(store_unit_test unit
    SOURCES store_core_test.cc store_waits_test.cc store_wire_test.cc
    LINK regroup::store_core)

regroup_test(store_fuzz_test unit
    SOURCES store_fuzz_test.cc
    LINK regroup::store_core)

regroup_test(store_listen_test unit
    SOURCES store_listen_test.cc
    LINK regroup::net regroup_test_support)

regroup_test(store_first_bytes_test unit
    SOURCES store_first_bytes_test.cc
    LINK regroup::rendezvous_server regroup::protocol)
