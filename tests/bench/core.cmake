# SPDX-License-Identifier: Apache-2.0
regroup_benchmark(core_bench regroup::rendezvous_core)
add_test(NAME bench.core COMMAND core_bench 10 1000)
set_tests_properties(bench.core PROPERTIES LABELS bench TIMEOUT 240 RUN_SERIAL ON)
