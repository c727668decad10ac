# SPDX-License-Identifier: Apache-2.0
regroup_test(training_test unit
    SOURCES
        ${CMAKE_CURRENT_LIST_DIR}/training_checkpoint_fence_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/training_checkpoint_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/training_sampler_test.cc
        ${PROJECT_SOURCE_DIR}/tests/support/fake_agent.cc
    LINK regroup::worker_sdk regroup::worker_link regroup::store_core)

if(TARGET byte_lm)
    find_package(Eigen3 3.3 REQUIRED NO_MODULE)
    regroup_test(training_byte_lm_test unit
        SOURCES
            ${CMAKE_CURRENT_LIST_DIR}/training_byte_lm_test.cc
            ${PROJECT_SOURCE_DIR}/examples/byte_lm/options.cc
        LINK regroup::worker_sdk Eigen3::Eigen)
    target_compile_options(training_byte_lm_test PRIVATE $<$<CONFIG:Debug>:-O2>)
endif()
