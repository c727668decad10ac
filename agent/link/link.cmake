# SPDX-License-Identifier: Apache-2.0
regroup_library(agent_link
    SOURCES link/death_watch.cc link/link_server.cc link/shared_page.cc
    PUBLIC regroup::process regroup::worker_link)
