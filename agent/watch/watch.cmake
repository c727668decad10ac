# SPDX-License-Identifier: Apache-2.0
regroup_library(progress_watch
    SOURCES watch/progress_watch.cc
    PUBLIC regroup::rendezvous_core)

regroup_library(hang_watch
    SOURCES watch/hang_watch.cc
    PUBLIC regroup::progress_watch regroup::asio)

regroup_library(stack_saver
    SOURCES watch/kernel_view.cc watch/stack_saver.cc
    PUBLIC regroup::process)

regroup_library(ledger
    SOURCES ledger.cc
    PUBLIC regroup::rendezvous_core
    PRIVATE regroup::process regroup::rendezvous_text nlohmann_json::nlohmann_json)

regroup_library(node_watch
    SOURCES watch/node_watch.cc
    PUBLIC regroup::agent_core regroup::agent_link regroup::hang_watch regroup::ledger regroup::stack_saver
    PRIVATE regroup::rendezvous_text)
