# SPDX-License-Identifier: Apache-2.0
# Recovery with processes kept, beside restarts.
if(NOT TARGET chaos_worker)
    return()
endif()
regroup_benchmark(recover_bench regroup_chaos)
target_sources(recover_bench PRIVATE live_steps.cc recover_job.cc)
add_test(NAME bench.recover
    COMMAND recover_bench $<TARGET_FILE:regroup> $<TARGET_FILE:chaos_worker> 1 1)
set_tests_properties(bench.recover PROPERTIES LABELS bench TIMEOUT 400 RUN_SERIAL ON)
