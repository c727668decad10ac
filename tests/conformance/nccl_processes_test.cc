// SPDX-License-Identifier: Apache-2.0
// Ranks as real processes over the stand-in: one that is killed is named by the others.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/nccl_ranks.h"
#include "tests/support/program.h"

namespace regroup {
namespace {

using testing::view;

using Body = std::function<bool(const Context&, ProcessGroup&)>;

/// One rank: ends with status 0 if `body` returns true.
[[noreturn]] void be_rank(std::uint32_t rank, std::uint32_t world_size, std::uint16_t port,
                          const Body& body) {
    bool passed = false;
    try {
        testing::NcclWorld world(world_size);
        Context context;
        context.rank = rank;
        context.world_size = world_size;
        context.master_addr = "127.0.0.1";
        context.master_port = port;
        const auto group = world.join(context);
        passed = body(context, *group) && world.stand_in.events("VIOLATION").empty();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %u: %s\n", rank, error.what());
    }
    ::_exit(passed ? 0 : 1);
}

std::vector<int> run_processes(std::uint32_t world_size, const Body& body) {
    const std::uint16_t port = testing::unused_port();
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
            be_rank(rank, world_size, port, body);
        }
        pids.push_back(pid);
    }
    std::vector<int> statuses;
    for (const pid_t pid : pids) {
        int status = 0;
        EXPECT_EQ(::waitpid(pid, &status, 0), pid);
        statuses.push_back(status);
    }
    return statuses;
}

/// True if `error` is the expected error of the others after rank 3's death.
bool names_rank_3(const Error& error) {
    const std::string text = error.what();
    std::fprintf(stderr, "%s\n", text.c_str());
    return error.code() == Errc::disconnected &&
           text.find("rank 3 (127.0.0.1:") != std::string::npos &&
           text.find("is gone") != std::string::npos &&
           text.find("all_reduce #") != std::string::npos;
}

TEST(NcclProcesses, ProcessesAgreeOnAResult) {
    for (const int status : run_processes(3, [](const Context& context, ProcessGroup& group) {
             std::vector<double> values(1000, context.rank + 1.0);
             group.all_reduce(view(values, group), ReduceOp::sum).wait();
             group.barrier().wait();
             return values.back() == 6.0;
         })) {
        EXPECT_EQ(status, 0);
    }
}

TEST(NcclProcesses, KilledProcessIsNamedByAllOthersAtOnce) {
    const std::vector<int> statuses =
        run_processes(6, [](const Context& context, ProcessGroup& group) {
            // The stream may write into it after wait() has thrown. cudaFree would wait for that.
            static std::vector<float> values(1000, 1);
            try {
                for (int step = 1;; ++step) {
                    if (context.rank == 3 && step == 10) {
                        ::raise(SIGKILL);
                    }
                    group.all_reduce(view(values, group), ReduceOp::max).wait();
                }
            } catch (const Error& error) {
                return names_rank_3(error);
            }
        });
    for (std::size_t rank = 0; rank < statuses.size(); ++rank) {
        if (rank == 3) {
            EXPECT_TRUE(WIFSIGNALED(statuses[rank]) && WTERMSIG(statuses[rank]) == SIGKILL);
        } else {
            EXPECT_EQ(statuses[rank], 0) << "rank " << rank;
        }
    }
}

/// True if `error` says that rank 1 has died while the ranks split the group.
bool names_rank_1(const Error& error) {
    const std::string text = error.what();
    std::fprintf(stderr, "%s\n", text.c_str());
    return error.code() == Errc::disconnected &&
           text.find("new_group \"pair\"") != std::string::npos &&
           text.find("rank 1 (127.0.0.1:") != std::string::npos &&
           text.find("is gone") != std::string::npos;
}

TEST(NcclProcesses, DeathDuringASplitEndsMembersAndOthersWithItsName) {
    const std::vector<int> statuses =
        run_processes(4, [](const Context& context, ProcessGroup& group) {
            group.barrier().wait();
            if (context.rank == 1) {
                // The news of a death may overtake the end of the barrier.
                context.store()->wait({"ready/0", "ready/2", "ready/3"}, kPatience);
                ::raise(SIGKILL);
            }
            context.store()->set("ready/" + std::to_string(context.rank), "1");
            try {
                (void)group.new_group({0, 1}, "pair");
            } catch (const Error& error) {
                return names_rank_1(error);
            }
            return false;
        });
    EXPECT_TRUE(WIFSIGNALED(statuses[1]) && WTERMSIG(statuses[1]) == SIGKILL);
    for (const std::size_t rank : {0U, 2U, 3U}) {
        EXPECT_EQ(statuses[rank], 0) << "rank " << rank;
    }
}

}  // namespace
}  // namespace regroup
