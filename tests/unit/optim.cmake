# SPDX-License-Identifier: Apache-2.0
regroup_test(optim_test unit
    SOURCES
        ${CMAKE_CURRENT_LIST_DIR}/optim_fused_optimizer_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/optim_grad_scaler_test.cc
    LINK regroup::worker_sdk)
