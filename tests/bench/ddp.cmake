# SPDX-License-Identifier: Apache-2.0
foreach(worker ddp_step_worker ddp_perceptron_worker)
    if(worker STREQUAL ddp_perceptron_worker AND NOT TARGET Eigen3::Eigen)
        find_package(Eigen3 3.3 QUIET NO_MODULE)
        if(NOT TARGET Eigen3::Eigen)
            continue()
        endif()
    endif()
    add_executable(${worker} ${CMAKE_CURRENT_LIST_DIR}/${worker}.cc)
    target_link_libraries(${worker} PRIVATE regroup::worker_sdk regroup_options)
endforeach()
if(TARGET ddp_perceptron_worker)
    # PyTorch chooses its instructions when it runs; Eigen when it is compiled.
    target_link_libraries(ddp_perceptron_worker PRIVATE Eigen3::Eigen)
    target_compile_options(ddp_perceptron_worker PRIVATE -O3 -march=native)
    # Of processors that are younger than the compiler it does not know which features go together.
    target_compile_options(ddp_perceptron_worker
        PRIVATE $<$<CXX_COMPILER_ID:Clang>:-Wno-invalid-feature-combination>)
endif()

regroup_benchmark(ddp_bench)
add_test(NAME bench.ddp
    COMMAND ddp_bench $<TARGET_FILE:regroup> $<TARGET_FILE:ddp_step_worker>
            ${CMAKE_CURRENT_BINARY_DIR}/ddp_perceptron_worker
            ${CMAKE_CURRENT_LIST_DIR}/ddp_torch.py --quick)
set_tests_properties(bench.ddp PROPERTIES LABELS bench TIMEOUT 240 RUN_SERIAL ON)
