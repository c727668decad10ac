# SPDX-License-Identifier: Apache-2.0
regroup_test(gpu_choice_test unit
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/gpu_choice_test.cc
    LINK regroup::worker_sdk)

# What a build without CUDA says, whatever this build has.
regroup_test(gpu_absent_test unit
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/gpu_absent_test.cc
            ${PROJECT_SOURCE_DIR}/worker_sdk/src/cuda/absent.cc
            ${PROJECT_SOURCE_DIR}/worker_sdk/src/optim/absent_kernels.cc
    LINK regroup::worker_sdk)

regroup_test(gpu_memory_test unit
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/gpu_copy_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/gpu_memory_test.cc
            ${PROJECT_SOURCE_DIR}/tests/support/stand_in_nccl/host_runtime.cc
    LINK regroup::worker_sdk)
