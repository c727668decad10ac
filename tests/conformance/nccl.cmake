# SPDX-License-Identifier: Apache-2.0
if(REGROUP_HAVE_CUDA)
    set(stand_in ${PROJECT_SOURCE_DIR}/tests/support/stand_in_nccl)
    add_library(stand_in_nccl SHARED
        ${stand_in}/communicator.cc
        ${stand_in}/hub.cc
        ${stand_in}/journal.cc
        ${stand_in}/stand_in_nccl.cc
        ${stand_in}/values.cc)
    target_link_libraries(stand_in_nccl PRIVATE regroup_options regroup_cuda Threads::Threads)
    target_include_directories(stand_in_nccl PRIVATE ${PROJECT_SOURCE_DIR}/worker_sdk/include)
    # Its thread-local variables lie with the thread's stack. Else the C library allocates them at
    # their first use, and frees those of a detached thread in whichever thread makes or joins the
    # next one: in an order that the kernel warrants and the thread sanitizer cannot see.
    target_compile_options(stand_in_nccl PRIVATE -ftls-model=initial-exec)

    foreach(part results operations failures forming processes)
        regroup_test(nccl_${part}_test conformance
            SOURCES ${CMAKE_CURRENT_LIST_DIR}/nccl_${part}_test.cc ${stand_in}/host_runtime.cc
            LINK regroup::worker_sdk regroup_cuda regroup_test_support)
        target_compile_definitions(nccl_${part}_test PRIVATE
            STAND_IN_NCCL="$<TARGET_FILE:stand_in_nccl>")
        add_dependencies(nccl_${part}_test stand_in_nccl)
    endforeach()
endif()
