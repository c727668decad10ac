// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/error.h>
#include <regroup/spawn.h>

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "rendezvous/files/unique_fd.h"

namespace regroup::spawning {

/// The exception that left a spawned function.
struct Thrown {
    std::optional<Errc> code;  // of an Error
    std::string sentence;
};

/// How a process ended.
struct ProcessEnd {
    static constexpr int kUnknown = -1;

    int exit_code = 0;
    int signal = 0;
    std::optional<Thrown> thrown;
};

/// One fork of this process: its pid, and a socket on which it receives the store's port and
/// reports its exception at the end. Call reap() before it is destroyed.
class SpawnedProcess {
   public:
    /// `earlier` are the processes before this one, whose descriptors the child closes. Throws
    /// Error `system`.
    SpawnedProcess(std::uint32_t index, const SpawnFunction& function, std::uint32_t process_count,
                   bool sets_environment, std::vector<SpawnedProcess>& earlier);

    [[nodiscard]] pid_t pid() const noexcept { return pid_; }
    /// Readable when it has ended.
    [[nodiscard]] int pidfd() const noexcept { return pidfd_.get(); }

    /// Lets the function begin, if it sets the environment.
    void tell_port(std::uint16_t port) const noexcept;
    void signal(int number) const noexcept;
    /// Whether its function is over: it has reported, or is gone.
    [[nodiscard]] bool has_reported() const noexcept;
    /// How it ended. Once, after pidfd() has become readable. Works also if the exit status was
    /// reaped elsewhere.
    [[nodiscard]] ProcessEnd reap();

   private:
    pid_t pid_ = -1;
    UniqueFd pidfd_;
    UniqueFd socket_;
};

}  // namespace regroup::spawning
