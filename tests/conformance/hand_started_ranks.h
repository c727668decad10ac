// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>
#include <regroup/process_group.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/patience.h"
#include "tests/support/program.h"

namespace regroup::testing {

/// Starts one process per rank, with the variables of a hand-started job. Each ends with status 0
/// if `body` returns true.
inline std::vector<pid_t> start_ranks(std::uint32_t world_size, const std::function<bool()>& body) {
    const std::string port = std::to_string(unused_port());
    const pid_t parent = ::getpid();
    std::vector<pid_t> pids;
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
        std::fflush(nullptr);
        const pid_t pid = ::fork();
        if (pid == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (::getppid() != parent) {
                ::_exit(1);
            }
            ::setenv("RANK", std::to_string(rank).c_str(), 1);
            ::setenv("WORLD_SIZE", std::to_string(world_size).c_str(), 1);
            ::setenv("MASTER_ADDR", "127.0.0.1", 1);
            ::setenv("MASTER_PORT", port.c_str(), 1);
            bool passed = false;
            try {
                passed = body();
            } catch (const std::exception& error) {
                std::fprintf(stderr, "rank %u: %s\n", rank, error.what());
            }
            ::_exit(passed ? 0 : 1);
        }
        pids.push_back(pid);
    }
    return pids;
}

inline int status_of(pid_t pid) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return status;
}

inline std::unique_ptr<ProcessGroup> join(const Context& context) {
    return ProcessGroup::create("cpu", context, {.timeout = kPatience});
}

}  // namespace regroup::testing
