// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <sys/types.h>

#include "agent/process/unique_fd.h"

namespace regroup::agent {

/// Looks for evidence that the kernel's out-of-memory killer ended a process of ours: a process
/// that it killed shows no more than SIGKILL. Asks the kernel's log where we may read it, then the
/// counter of this process's memory cgroup (v2 or v1), or the machine's where there is no such
/// cgroup.
///
/// Construct one when the first workers are started: what happened before is not counted.
class OomWatch {
   public:
    /// `root`: below it lie proc, dev and all mount points. Notes the counter and the end of the
    /// log; where neither can be read, there is never any evidence.
    explicit OomWatch(std::filesystem::path root = "/");

    OomWatch(const OomWatch&) = delete;
    OomWatch& operator=(const OomWatch&) = delete;

    /// From here on, what has happened so far is not counted either. Costs far less than another
    /// one of these.
    void begin_again();

    /// One sentence, or "" when nothing points to the killer. For `pid`, which has ended, when the
    /// log names it; else for some process of the cgroup. In a container with pids of its own the
    /// log is not asked: it has the machine's. Reads a few small files, and at most kLogRecordsMax
    /// records of the log.
    [[nodiscard]] std::string evidence(pid_t pid);

   private:
    static constexpr int kLogRecordsMax = 10000;
    static constexpr std::size_t kVictimsMax = 256;

    /// A line of a file with the number of killed processes.
    struct Counter {
        std::filesystem::path file;
        std::string shown;  ///< How a person knows it.
        std::string whose;  ///< Whose processes it counts.
    };
    struct Victim {
        pid_t pid = 0;
        std::string record;
    };

    void choose_counter();
    void read_log();

    std::filesystem::path root_;
    Counter counter_;  ///< Without a file: none.
    std::uint64_t count_before_ = 0;
    UniqueFd log_;
    std::deque<Victim> victims_;  ///< Whom the log named since construction; the last kVictimsMax.
};

}  // namespace regroup::agent
