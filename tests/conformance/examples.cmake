# SPDX-License-Identifier: Apache-2.0
# Every example really run, alone and under the launcher.
set(examples hand_started spawn point_to_point collectives sub_groups parameter_server trainer
    partitioner evaluation inference warm_restarts checkpoint pipeline linear_check elastic)
# Those that need Eigen or libtorch.
foreach(example average_gradients mnist mixed_precision byte_lm torch_ddp)
    if(TARGET ${example})
        list(APPEND examples ${example})
    endif()
endforeach()
list(JOIN examples "\",\"" names)
foreach(part communication training)
    regroup_test(examples_${part}_test conformance
        SOURCES ${CMAKE_CURRENT_LIST_DIR}/examples_${part}_test.cc
        LINK regroup_test_support
        TIMEOUT 300)
    target_compile_definitions(examples_${part}_test PRIVATE
        EXAMPLES_FOLDER="${PROJECT_BINARY_DIR}/examples"
        EXAMPLE_NAMES="${names}"
        REGROUP_PROGRAM="$<TARGET_FILE:regroup>")
    add_dependencies(examples_${part}_test regroup ${examples})
endforeach()
