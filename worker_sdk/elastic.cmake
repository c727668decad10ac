# SPDX-License-Identifier: Apache-2.0
# The line to the agent, and the loop that survives.
target_sources(regroup_worker_sdk PRIVATE
    src/elastic/beacon.cc
    src/elastic/dissent.cc
    src/elastic/elastic_loop.cc
    src/elastic/kept_state.cc
    src/elastic/loop.cc
    src/elastic/loop_finish.cc
    src/elastic/loop_pace.cc
    src/elastic/loop_state.cc
    src/elastic/standing.cc
    src/elastic/straggler_detector.cc
    src/elastic/vote.cc
    src/link/agent_link.cc
    src/link/process_link.cc
    src/link/report_fatal.cc
    src/link/robust_hold.cc
    src/link/sigterm.cc)
