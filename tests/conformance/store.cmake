# SPDX-License-Identifier: Apache-2.0
regroup_test(store_test conformance
    SOURCES store_test.cc
    LINK regroup::store_server regroup::net)

regroup_test(store_server_test conformance
    SOURCES store_server_test.cc
    LINK regroup::store_server regroup::net)

regroup_test(store_client_test conformance
    SOURCES store_client_test.cc
    LINK regroup::store_server regroup::net regroup_test_support)
