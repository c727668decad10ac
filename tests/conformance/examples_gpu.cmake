# SPDX-License-Identifier: Apache-2.0
# Examples with --backend nccl on a machine without GPUs: the same sources over a stand-in for
# libnccl.so.2 and GPUs that are host memory. Those with DistributedDataParallel need real ones.
if(REGROUP_HAVE_CUDA)
    set(stand_in ${PROJECT_SOURCE_DIR}/tests/support/stand_in_nccl)
    set(folder ${CMAKE_CURRENT_BINARY_DIR}/examples_on_stand_in)
    file(MAKE_DIRECTORY ${folder})
    regroup_test(examples_gpu_test conformance
        SOURCES ${CMAKE_CURRENT_LIST_DIR}/examples_gpu_test.cc
        LINK regroup_test_support
        TIMEOUT 300)
    target_compile_definitions(examples_gpu_test PRIVATE
        EXAMPLES_FOLDER="${folder}"
        REGROUP_PROGRAM="$<TARGET_FILE:regroup>")
    add_dependencies(examples_gpu_test regroup stand_in_nccl)
    foreach(example collectives point_to_point sub_groups parameter_server partitioner pipeline)
        set(target ${example}_on_stand_in)
        add_executable(${target} ${PROJECT_SOURCE_DIR}/examples/${example}/${example}.cc
            ${stand_in}/host_runtime.cc ${stand_in}/host_gpus.cc)
        target_link_libraries(${target} PRIVATE regroup::worker_sdk regroup_options)
        target_include_directories(${target} PRIVATE
            ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/examples/common)
        # Where it finds libnccl.so.2.
        set_target_properties(${target} PROPERTIES
            OUTPUT_NAME ${example} RUNTIME_OUTPUT_DIRECTORY ${folder}/${example}
            BUILD_RPATH ${folder})
        add_dependencies(examples_gpu_test ${target})
    endforeach()
    add_custom_command(TARGET examples_gpu_test POST_BUILD COMMAND ${CMAKE_COMMAND} -E create_symlink
        $<TARGET_FILE:stand_in_nccl> ${folder}/libnccl.so.2)
endif()
