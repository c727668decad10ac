// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/step_log.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

#include "rendezvous/base/ensure.h"
#include "tests/support/program.h"

namespace regroup::chaos {
namespace {

std::int64_t monotonic_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

StepLog::StepLog(const std::string& directory) {
    // Pids are reused in a long run.
    const std::string path = directory + "/" + std::to_string(monotonic_ns()) + "-" +
                             std::to_string(::getpid()) + ".steps";
    fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    ENSURE(fd_ >= 0);
}

StepLog::~StepLog() {
    ::close(fd_);
}

void StepLog::write(Record record) {
    record.at = monotonic_ns();
    ENSURE(::write(fd_, &record, sizeof record) == sizeof record);
}

std::vector<ProcessLog> read_step_logs(const std::string& directory) {
    std::vector<ProcessLog> result;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
        if (entry.path().extension() != ".steps") {
            continue;
        }
        const std::string bytes = testing::read_file(entry.path());
        ProcessLog log{entry.path().stem(), {}};
        log.records.resize(bytes.size() / sizeof(Record));
        if (!log.records.empty()) {  // Empty if the process was killed before it wrote a record.
            std::memcpy(log.records.data(), bytes.data(), log.records.size() * sizeof(Record));
        }
        result.push_back(std::move(log));
    }
    std::sort(result.begin(), result.end(),
              [](const ProcessLog& a, const ProcessLog& b) { return a.name < b.name; });
    return result;
}

}  // namespace regroup::chaos
