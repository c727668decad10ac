# SPDX-License-Identifier: Apache-2.0
if(TARGET mnist)
    regroup_test(mnist_test unit
        SOURCES
            ${CMAKE_CURRENT_LIST_DIR}/mnist_test.cc
            ${PROJECT_SOURCE_DIR}/examples/mnist/cpu_network.cc
            ${PROJECT_SOURCE_DIR}/examples/mnist/idx.cc
        LINK regroup::worker_sdk Eigen3::Eigen)
    target_compile_options(mnist_test PRIVATE $<$<CONFIG:Debug>:-O2>)
endif()
