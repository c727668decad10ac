// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/recover_job.h"

#include <algorithm>
#include <filesystem>

namespace regroup::bench {
namespace {

constexpr const char* kSteps = "/steps";

/// The processes below `root` that run the program of that name.
void find_workers(pid_t root, const std::string& name, std::vector<pid_t>& result) {
    for (const pid_t pid : testing::children_of(root)) {
        const std::string comm = testing::read_file("/proc/" + std::to_string(pid) + "/comm");
        if (comm == name + "\n" && testing::is_alive(pid)) {
            result.push_back(pid);
        }
        find_workers(pid, name, result);
    }
}

}  // namespace

RecoverJob::RecoverJob(const chaos::Network* network)
    : network_(network), steps_(folder_.path() + kSteps) {
    std::filesystem::create_directories(folder_.path() + kSteps);
}

Command RecoverJob::worker_arguments(int step_us) const {
    return {"--records=" + folder_.path() + kSteps, "--end=" + folder_.path() + "/end",
            "--step-us=" + std::to_string(step_us), "--checkpoint=" + folder_.path() + "/saved"};
}

void RecoverJob::start(std::unique_ptr<testing::Program>& slot, std::size_t host,
                       const Command& command) {
    const auto action = [&] {
        slot = std::make_unique<testing::Program>(
            testing::ProgramSpec{command, {"OMP_NUM_THREADS=1"}, folder_.path()});
    };
    if (network_ != nullptr) {
        network_->within(host, "host" + std::to_string(host), action);
    } else {
        action();
    }
}

testing::Program& RecoverJob::start_service(const Command& command) {
    start(service_, 0, command);
    return *service_;
}

void RecoverJob::start_agent(std::size_t number, const Command& command) {
    if (agents_.size() <= number) {
        agents_.resize(number + 1);
    }
    start(agents_[number], number + 1, command);
}

pid_t RecoverJob::worker(std::size_t number, std::size_t worker) const {
    std::vector<pid_t> workers;
    find_workers(agents_.at(number)->pid(), "chaos_worker", workers);
    return workers.empty() ? 0 : workers.at(worker % workers.size());
}

std::string RecoverJob::last_words() const {
    constexpr std::size_t kLines = 15;
    std::string result = "; it printed at last:";
    const auto lines = testing::lines_of(agents_.front() ? agents_.front()->output() : "");
    for (std::size_t i = lines.size() - std::min(lines.size(), kLines); i < lines.size(); ++i) {
        result += "\n    " + lines[i];
    }
    return result;
}

}  // namespace regroup::bench
