# SPDX-License-Identifier: Apache-2.0
# A death's way to the agent; recovery with processes kept, beside restarts.
if(NOT TARGET chaos_worker)
    return()
endif()
regroup_benchmark(recover_bench regroup_chaos)
target_sources(recover_bench PRIVATE live_steps.cc recover_job.cc)
add_test(NAME bench.recover
    COMMAND recover_bench $<TARGET_FILE:regroup> $<TARGET_FILE:chaos_worker> 1 1)
set_tests_properties(bench.recover PROPERTIES LABELS bench TIMEOUT 400 RUN_SERIAL ON)

regroup_benchmark(death_bench regroup::agent_link regroup::worker_link)
add_executable(death_victim death_victim.cc)
target_link_libraries(death_victim PRIVATE regroup_options regroup::worker)
add_test(NAME bench.death COMMAND death_bench $<TARGET_FILE:death_victim> 1)
set_tests_properties(bench.death PROPERTIES LABELS bench TIMEOUT 120 RUN_SERIAL ON)
