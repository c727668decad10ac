# SPDX-License-Identifier: Apache-2.0
regroup_library(agent_core
    SOURCES core/agent_core.cc core/agent_leaving.cc core/agent_reports.cc core/agent_rounds.cc
            core/agent_workers.cc core/workers.cc
    PUBLIC regroup::rendezvous_core)
