# SPDX-License-Identifier: Apache-2.0
add_executable(elastic_step_worker ${CMAKE_CURRENT_LIST_DIR}/elastic_step_worker.cc)
target_link_libraries(elastic_step_worker PRIVATE regroup::worker_sdk regroup_options)

regroup_benchmark(elastic_bench)
add_test(NAME bench.elastic
    COMMAND elastic_bench $<TARGET_FILE:regroup> $<TARGET_FILE:elastic_step_worker> --quick)
set_tests_properties(bench.elastic PROPERTIES LABELS bench TIMEOUT 240 RUN_SERIAL ON)
