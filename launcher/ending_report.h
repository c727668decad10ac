// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/core/agent_core.h"
#include "agent/process/output_relay.h"
#include "launcher/run_plan.h"
#include "rendezvous/core/messages.h"

namespace regroup::launcher {

/// Tells people, and the parent of this process, how the job of a node has ended.
class EndingReport {
   public:
    /// The facts that the node has seen of its job.
    struct Seen {
        bool has_run = false;
        bool was_standby = false;
        rendezvous::Goodput goodput;
        std::string endpoint_note;  ///< Which endpoints it tried, as the rest of a sentence.
    };

    /// All references outlive it. `collects`: lines that are the same on all nodes of the job are
    /// kept for take_common_lines() instead of being printed.
    EndingReport(const RunPlan& plan, agent::OutputRelay& output, bool collects)
        : plan_(plan), output_(output), collects_(collects) {}

    void tell(const agent::Quit& quit, const Seen& seen);
    [[nodiscard]] std::vector<std::string> take_common_lines() { return std::move(common_); }

   private:
    void tell_all(std::vector<std::string> lines);
    void sum_up(const agent::Quit& quit, const Seen& seen);
    void tell_failure(const rendezvous::Verdict& verdict);
    void tell_parent(std::optional<rendezvous::WorkerFailure> failure, const std::string& reason);

    const RunPlan& plan_;
    agent::OutputRelay& output_;
    const bool collects_;
    std::vector<std::string> common_;
};

}  // namespace regroup::launcher
