// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <sys/types.h>

#include "agent/process/kernel_log.h"

namespace regroup::agent {

/// Looks for evidence that the kernel's out-of-memory killer ended one of our processes: the exit
/// status shows only SIGKILL. Reads the kernel log if permitted, then the counter of the memory
/// cgroup of this process (v2 or v1), or without a cgroup the counter of the machine.
///
/// Construct one when the first workers are started: earlier events do not count.
class OomWatch {
   public:
    /// `root`: the folder with proc, dev and all mount points. Remembers the counter and the end of
    /// the log. If neither can be read, there is never any evidence.
    explicit OomWatch(std::filesystem::path root = "/");

    OomWatch(const OomWatch&) = delete;
    OomWatch& operator=(const OomWatch&) = delete;

    /// Events before this call do not count any more. Much cheaper than a new object.
    void begin_again();

    /// One sentence, or "" without evidence. `pid` has ended. The sentence is about `pid` if the
    /// log names it, else about some process of the cgroup. The log is not used in a container with
    /// its own pids, because it has those of the machine. Reads a few small files and at most
    /// kLogRecordsMax records.
    [[nodiscard]] std::string evidence(pid_t pid);

   private:
    static constexpr int kLogRecordsMax = 10000;
    static constexpr std::size_t kVictimsMax = 256;

    /// A line of a file with the number of killed processes.
    struct Counter {
        std::filesystem::path file;
        std::string shown;  ///< Its path for messages.
        std::string whose;  ///< The cgroup or machine whose processes it counts.
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
    std::optional<KernelLog> log_;
    std::deque<Victim> victims_;  ///< The last kVictimsMax processes that the log named.
};

}  // namespace regroup::agent
