# SPDX-License-Identifier: Apache-2.0
regroup_benchmark(journal_bench regroup::journal regroup::rendezvous_server)
add_test(NAME bench.journal COMMAND journal_bench 16 2000)
set_tests_properties(bench.journal PROPERTIES LABELS bench TIMEOUT 240 RUN_SERIAL ON)
