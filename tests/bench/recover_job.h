// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "tests/bench/live_steps.h"
#include "tests/chaos/dial.h"
#include "tests/chaos/network.h"
#include "tests/support/program.h"

namespace regroup::bench {

using Command = std::vector<std::string>;

/// A job that is measured while parts of it are killed. The destructor ends all its processes.
class RecoverJob {
   public:
    using Time = LiveSteps::Time;

    /// `network`: the network of the agents, each on its own host; null: all on this machine.
    explicit RecoverJob(const chaos::Network* network = nullptr);

    /// The worker's arguments after its path, for a job with `step_us` of additional time in each
    /// step.
    [[nodiscard]] Command worker_arguments(int step_us) const;
    /// Starts a program that is not an agent, such as a daemon: on host 0, if there are hosts.
    testing::Program& start_service(const Command& command);
    /// Starts an agent on host `number` + 1: a new one, or one that was started before.
    void start_agent(std::size_t number, const Command& command);

    [[nodiscard]] LiveSteps& steps() { return steps_; }
    /// The process that `start_agent` started.
    [[nodiscard]] testing::Program& agent(std::size_t number) { return *agents_.at(number); }
    [[nodiscard]] pid_t worker(std::size_t number, std::size_t worker) const;
    /// The last output of the first agent, for error messages.
    [[nodiscard]] std::string last_words() const;
    [[nodiscard]] const std::string& folder() const { return folder_.path(); }

   private:
    void start(std::unique_ptr<testing::Program>& slot, std::size_t host, const Command& command);

    testing::TemporaryDirectory folder_;
    const chaos::Network* network_;
    LiveSteps steps_;
    std::unique_ptr<testing::Program> service_;
    std::vector<std::unique_ptr<testing::Program>> agents_;
};

}  // namespace regroup::bench
