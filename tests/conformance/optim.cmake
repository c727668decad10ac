# SPDX-License-Identifier: Apache-2.0
regroup_test(optim_agreement_test conformance
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/optim_agreement_test.cc
    LINK regroup::worker_sdk regroup::store_core)
