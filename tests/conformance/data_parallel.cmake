# SPDX-License-Identifier: Apache-2.0
regroup_test(data_parallel_group_test conformance
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/data_parallel_test.cc
    LINK regroup::worker_sdk regroup::store_core)

# Examples that check themselves, as their user starts them.
foreach(example linear_check average_gradients torch_ddp)
    if(TARGET ${example})
        add_test(NAME conformance.${example}
            COMMAND regroup run --standalone --nproc-per-node=2 --log-dir=/dev/null
                    $<TARGET_FILE:${example}>)
        set_tests_properties(conformance.${example} PROPERTIES LABELS conformance TIMEOUT 120)
    endif()
endforeach()

if(TARGET torch_ddp)
    find_package(Torch QUIET)
    regroup_test(torch_adapter_test conformance
        SOURCES ${CMAKE_CURRENT_LIST_DIR}/torch_adapter_test.cc
        LINK regroup::worker_sdk torch)
    separate_arguments(torch_flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
    target_compile_options(torch_adapter_test PRIVATE ${torch_flags})
endif()
