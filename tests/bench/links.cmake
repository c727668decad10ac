# SPDX-License-Identifier: Apache-2.0
# Naive and ring all-reduce on rate-limited links between network namespaces.
regroup_benchmark(links_bench)
target_sources(links_bench PRIVATE link_network.cc plot.cc
    ../support/network_namespace.cc)
add_executable(links_rank links_rank.cc)
target_link_libraries(links_rank PRIVATE regroup_options regroup::worker)
add_test(NAME bench.links COMMAND links_bench $<TARGET_FILE:links_rank> --quick)
set_tests_properties(bench.links PROPERTIES LABELS bench TIMEOUT 120 RUN_SERIAL ON
    SKIP_REGULAR_EXPRESSION "links: left out")
