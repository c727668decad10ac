# SPDX-License-Identifier: Apache-2.0
regroup_benchmark(all_reduce_bench regroup::worker_sdk regroup::store_core)
add_test(NAME bench.all_reduce
    COMMAND all_reduce_bench ${CMAKE_CURRENT_SOURCE_DIR}/all_reduce_peer.py --quick)
set_tests_properties(bench.all_reduce PROPERTIES LABELS bench TIMEOUT 240 RUN_SERIAL ON)
