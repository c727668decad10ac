// SPDX-License-Identifier: Apache-2.0
#include <regroup/context.h>
#include <regroup/process_group.h>
#include <regroup/spawn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "tests/support/program.h"

namespace regroup {
namespace {

/// Waits for a signal, far longer than any test takes.
void linger() {
    ::alarm(120);
    ::pause();
}

std::optional<SpawnError> error_of(const SpawnFunction& function, std::uint32_t nprocs,
                                   const SpawnOptions& options = {}) {
    try {
        spawn(function, nprocs, options);
        return std::nullopt;
    } catch (const SpawnError& error) {
        return error;
    }
}

/// A pipe of which the test reads all that its processes write.
class Pipe {
   public:
    Pipe() { EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0); }
    ~Pipe() {
        ::close(ends_[0]);
        close_writing_end();
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;

    void write(const std::string& text) const {
        EXPECT_EQ(::write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    }
    void close_writing_end() {
        if (ends_[1] >= 0) {
            ::close(ends_[1]);
        }
        ends_[1] = -1;
    }
    /// Until every process that can write is gone.
    std::string read_all() {
        close_writing_end();
        std::string text;
        std::array<char, 256> buffer{};
        for (ssize_t count = 1; count > 0;) {
            count = ::read(ends_[0], buffer.data(), buffer.size());
            text.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
        }
        return text;
    }
    char read_one() const {
        char byte = '\0';
        EXPECT_EQ(::read(ends_[0], &byte, 1), 1);
        return byte;
    }

   private:
    std::array<int, 2> ends_{-1, -1};
};

TEST(Spawn, ForkedChildOfTheProgramEndsNoneOfItsProcesses) {
    SpawnedProcesses processes = start_processes([](std::uint32_t) { linger(); }, 1);
    const pid_t child = ::fork();
    if (child == 0) {
        {
            const SpawnedProcesses copy = std::move(processes);
        }
        ::_exit(0);
    }
    EXPECT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_FALSE(processes.join_for(std::chrono::milliseconds(50)));
}

TEST(Spawn, EachProcessGetsItsIndexAndTheArguments) {
    Pipe pipe;
    const auto function = [&](std::uint32_t index, int number, const std::string& word) {
        pipe.write(std::to_string(index * 100 + static_cast<unsigned>(number)) + word + "\n");
    };
    spawn(function, std::tuple(7, std::string("!")), 3);
    std::vector<std::string> lines = testing::lines_of(pipe.read_all());
    std::ranges::sort(lines);
    EXPECT_THAT(lines, ::testing::ElementsAre("107!", "207!", "7!"));
}

TEST(Spawn, ProcessesAreAWorldWithoutALauncher) {
    Pipe pipe;
    spawn(
        [&](std::uint32_t index) {
            const Context context = Context::from_environment();
            const auto group = ProcessGroup::create("cpu", context);
            std::array<std::int64_t, 1> sum{index + 1};
            group->all_reduce(std::span<std::int64_t>(sum), ReduceOp::sum).wait();
            if (context.rank != index || context.local_rank != index || context.world_size != 3 ||
                sum[0] != 6) {
                throw std::runtime_error("sum " + std::to_string(sum[0]));
            }
            pipe.write("x");
        },
        3);
    EXPECT_EQ(pipe.read_all(), "xxx");
}

TEST(Spawn, OptionLeavesTheEnvironmentUnchanged) {
    ::setenv("WORLD_SIZE", "47", 1);
    spawn(
        [](std::uint32_t) {
            if (std::string(std::getenv("WORLD_SIZE")) != "47") {
                throw std::runtime_error("it was touched");
            }
        },
        1, {.set_environment = false});
    ::unsetenv("WORLD_SIZE");
}

TEST(Spawn, ExceptionOfAProcessIsThrownWithItsCode) {
    const auto error = error_of(
        [](std::uint32_t index) {
            if (index == 1) {
                throw Error(Errc::overloaded, "the cache is full");
            }
            linger();
        },
        3);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::overloaded);
    EXPECT_THAT(error->what(),
                MatchesRegex("spawned process 1 \\(pid [0-9]+\\) threw: the cache is full"));
    EXPECT_EQ(error->process().index, 1U);
    EXPECT_EQ(error->process().exit_code, 1);
    EXPECT_EQ(error->process().signal, 0);
}

TEST(Spawn, OtherExceptionsAndExitCodesAndSignalsAreNamed) {
    const auto thrown = error_of([](std::uint32_t) { throw std::out_of_range("no row 5"); }, 1);
    EXPECT_EQ(thrown->code(), Errc::closed);
    EXPECT_THAT(thrown->what(), HasSubstr("threw: no row 5"));
    const auto exited = error_of([](std::uint32_t) { ::_exit(3); }, 1);
    EXPECT_EQ(exited->process().exit_code, 3);
    EXPECT_THAT(exited->what(), HasSubstr("exited with code 3"));
    const auto killed = error_of([](std::uint32_t) { ::raise(SIGKILL); }, 1);
    EXPECT_EQ(killed->process().signal, SIGKILL);
    EXPECT_THAT(killed->what(), HasSubstr("was ended by SIGKILL"));
}

TEST(Spawn, LongSentenceIsCutNotLost) {
    const auto error =
        error_of([](std::uint32_t) { throw std::runtime_error(std::string(1 << 20U, 'x')); }, 1);
    EXPECT_THAT(error->what(), HasSubstr(std::string(10'000, 'x')));
}

TEST(Spawn, RankThatLostItsPeerIsNotBlamedForThePeersDeath) {
    const auto error = error_of(
        [](std::uint32_t index) {
            const auto group = ProcessGroup::create("cpu", Context::from_environment());
            group->barrier().wait();
            if (index == 2) {
                ::raise(SIGKILL);
            }
            group->barrier().wait();
        },
        4);
    EXPECT_EQ(error->process().index, 2U);
    EXPECT_THAT(error->what(), HasSubstr("was ended by SIGKILL"));
}

/// Destroyed by an exception: the peer learns that this process is gone before the parent knows
/// why.
class LeavesItsPeerFirst {
   public:
    LeavesItsPeerFirst(Pipe& left, Pipe& release) : left_(left), release_(release) {}
    LeavesItsPeerFirst(const LeavesItsPeerFirst&) = delete;
    LeavesItsPeerFirst& operator=(const LeavesItsPeerFirst&) = delete;
    ~LeavesItsPeerFirst() {
        left_.write("x");
        (void)release_.read_one();
    }

   private:
    Pipe& left_;
    Pipe& release_;
};

TEST(Spawn, CauseIsReportedAlsoIfItsConsequenceComesFirst) {
    Pipe left;
    Pipe release;
    SpawnedProcesses processes = start_processes(
        [&](std::uint32_t index) {
            if (index == 0) {
                EXPECT_EQ(left.read_one(), 'x');
                throw Error(Errc::disconnected, "rank 1 has left");
            }
            const LeavesItsPeerFirst group(left, release);
            throw std::runtime_error("no such layer");
        },
        2, {.cause_wait = std::chrono::minutes(5)});
    // Exists until the parent has taken its end.
    while (::kill(processes.pids()[0], 0) == 0) {
        EXPECT_FALSE(processes.join_for(std::chrono::milliseconds(1)));
    }
    release.write("x");
    try {
        processes.join();
        ADD_FAILURE() << "nobody is blamed";
    } catch (const SpawnError& error) {
        EXPECT_EQ(error.process().index, 1U);
        EXPECT_THAT(error.what(), HasSubstr("threw: no such layer"));
    }
}

TEST(Spawn, ConsequenceWithoutACauseIsReportedAfterAWhile) {
    const auto error = error_of(
        [](std::uint32_t index) {
            if (index == 0) {
                throw Error(Errc::deadline_exceeded, "barrier: 5 s are over");
            }
            linger();
        },
        2, {.cause_wait = std::chrono::milliseconds(10)});
    ASSERT_TRUE(error);
    EXPECT_EQ(error->process().index, 0U);
    EXPECT_EQ(error->code(), Errc::deadline_exceeded);
}

TEST(Spawn, ProcessThatIgnoresSigtermIsKilledAfterTheGrace) {
    Pipe deaf;
    const auto error = error_of(
        [&](std::uint32_t index) {
            if (index == 0) {
                ::signal(SIGTERM, SIG_IGN);
                deaf.write("x");
                linger();
            }
            EXPECT_EQ(deaf.read_one(), 'x');
            throw Error(Errc::system, "first");
        },
        2, {.grace = std::chrono::milliseconds(50)});
    EXPECT_THAT(error->what(), HasSubstr("threw: first"));
}

TEST(Spawn, OutputIsNeitherLostNorDoubled) {
    testing::TemporaryDirectory folder;
    const std::string path = folder.path() + "/output";
    std::FILE* const file = std::fopen(path.c_str(), "w");
    std::fputs("before\n", file);
    spawn([&](std::uint32_t index) { std::fprintf(file, "in %u\n", index); }, 1);
    std::fclose(file);
    EXPECT_EQ(testing::read_file(path), "before\nin 0\n");
}

TEST(Spawn, ProgramThatIgnoresSigchldLearnsOfFailures) {
    ::signal(SIGCHLD, SIG_IGN);
    EXPECT_FALSE(error_of([](std::uint32_t) {}, 2));
    EXPECT_THAT(error_of([](std::uint32_t) { throw std::runtime_error("lost"); }, 1)->what(),
                HasSubstr("threw: lost"));
    EXPECT_THAT(error_of([](std::uint32_t) { ::raise(SIGKILL); }, 1)->what(),
                HasSubstr("ended early, with a status that this program ignores"));
    ::signal(SIGCHLD, SIG_DFL);
}

TEST(StartProcesses, HandleWaitsForOrEndsItsProcesses) {
    std::vector<int> pids;
    {
        SpawnedProcesses processes = start_processes([](std::uint32_t) { linger(); }, 2);
        pids = processes.pids();
        EXPECT_EQ(pids.size(), 2U);
        EXPECT_FALSE(processes.join_for(std::chrono::milliseconds(1)));
        EXPECT_TRUE(testing::is_alive(pids[0]) && testing::is_alive(pids[1]));
    }
    EXPECT_FALSE(testing::is_alive(pids[0]) || testing::is_alive(pids[1]));
    SpawnedProcesses brief = start_processes([](std::uint32_t) {}, 2);
    brief.join();
    brief.join();
    EXPECT_TRUE(brief.join_for(std::chrono::seconds(0)));
}

TEST(StartProcesses, ProcessesDieWithTheirParent) {
    Pipe alive;
    // A process whose own processes outlive it by not a moment.
    SpawnedProcesses parent = start_processes(
        [&](std::uint32_t) {
            const SpawnedProcesses children = start_processes(
                [&](std::uint32_t) {
                    alive.write("x");
                    linger();
                },
                2);
            alive.close_writing_end();
            linger();
        },
        1, {.set_environment = false});
    EXPECT_EQ(alive.read_one(), 'x');
    EXPECT_EQ(alive.read_one(), 'x');
    ::kill(parent.pids()[0], SIGKILL);
    EXPECT_THROW(parent.join(), SpawnError);
    // Ends only when no process holds the pipe's other end any more.
    EXPECT_EQ(alive.read_all(), "");
}

TEST(StartProcesses, SeveralThreadsOrNoProcessesAreRefused) {
    EXPECT_THROW(spawn([](std::uint32_t) {}, 0), Error);
    Pipe release;
    std::thread other([&] { (void)release.read_one(); });
    try {
        spawn([](std::uint32_t) {}, 1);
        ADD_FAILURE() << "it forked";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument);
        EXPECT_THAT(error.what(), HasSubstr("spawn before forming a process group"));
    }
    release.write("x");
    other.join();
    spawn([](std::uint32_t) {}, 1);
}

/// Requires that no driver was loaded before.
void expect_refused_after_cuda(std::uint32_t /*index*/) {
    void* const driver = ::dlopen(STAND_IN_DRIVER, RTLD_NOW);
    auto* const initialise = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
    spawn([](std::uint32_t) {}, 1);
    (void)initialise(0);
    try {
        spawn([](std::uint32_t) {}, 1);
    } catch (const Error& error) {
        if (std::string(error.what()).find("has initialised CUDA") != std::string::npos) {
            return;
        }
        throw;
    }
    throw std::runtime_error("it forked");
}

TEST(StartProcesses, ProcessThatHasInitialisedCudaIsRefused) {
    // In a process of its own, since a driver stays initialised.
    EXPECT_FALSE(error_of(expect_refused_after_cuda, 1, {.set_environment = false}));
}

}  // namespace
}  // namespace regroup
