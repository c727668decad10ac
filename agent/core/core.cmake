# SPDX-License-Identifier: Apache-2.0
regroup_library(agent_core
    SOURCES core/agent_core.cc core/agent_leaving.cc core/agent_reports.cc core/agent_rounds.cc
    PUBLIC regroup::rendezvous_core)
