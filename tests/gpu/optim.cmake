# SPDX-License-Identifier: Apache-2.0
if(REGROUP_HAVE_CUDA)
    regroup_test(optim_gpu_test gpu
        SOURCES ${CMAKE_CURRENT_LIST_DIR}/optim_gpu_test.cc
        LINK regroup::worker_sdk regroup_cuda)

    # By hand, where a GPU is: prints one table. optim_torch.py is its peer.
    add_executable(optim_gpu_bench ${CMAKE_CURRENT_LIST_DIR}/optim_gpu_bench.cc)
    target_link_libraries(optim_gpu_bench PRIVATE
        regroup_options regroup::worker_sdk regroup_cuda)
endif()
