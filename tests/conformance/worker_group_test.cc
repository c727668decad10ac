// SPDX-License-Identifier: Apache-2.0
//
// Workers as processes, with and without the SDK: the events of the group, and their times.
#include "agent/workers/worker_group.h"

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "agent/process/proc_files.h"
#include "agent/process/process_tree.h"
#include "rendezvous/protocol/codec.h"
#include "tests/support/matchers.h"
#include "tests/support/program.h"
#include "tests/support/words.h"

extern char** environ;

namespace regroup::agent {

namespace {

using std::chrono::seconds;

// The news of a death passes two threads before it is told. On a busy machine the kernel may have
// freed the memory before both had their turn, but not each time.
constexpr int kDeaths = 10;

/// Whether the kernel has told the parent that `pid` has ended; without reaping it.
bool is_waitable(pid_t pid) {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid;
}

class WorkerGroupTest : public ::testing::Test {
   protected:
    WorkerGroupTest() : output_(io_, clock_, {}) {}

    void start(const std::vector<std::string>& steps, std::uint32_t workers = 1) {
        AgentConfig config;
        config.job = "test";
        config.offer.name = "a";
        config.offer.workers = workers;
        WorkerGroupOptions options;
        options.output = output_options_;
        options.gpus = gpus_;
        options.command.executable = LINK_HELPER;
        options.command.arguments = {LINK_HELPER};
        options.command.arguments.insert(options.command.arguments.end(), steps.begin(),
                                         steps.end());
        for (char** entry = environ; *entry != nullptr; ++entry) {
            options.command.environment.emplace_back(*entry);
        }
        group_.emplace(io_, clock_, launcher_, output_, config, std::move(options),
                       [this](const AgentEvent& event) { hear(event); });
        ASSERT_TRUE(group_->open());
        assignment_.round = RoundId{1};
        assignment_.world_size = workers;
        assignment_.master_addr = "127.0.0.1";
        assignment_.master_port = 1;
        std::vector<std::uint32_t> all(workers);
        for (std::uint32_t i = 0; i < workers; ++i) {
            all[i] = i;
        }
        group_->launch({assignment_, all}, "");
        for (const LiveWorker& worker : group_->live()) {
            pids_.push_back(worker.pid);
        }
    }

    void hear(const AgentEvent& event) {
        if (const auto* exited = std::get_if<WorkerExited>(&event)) {
            exits_.push_back(*exited);
            told_early_ = !is_waitable(pids_.at(exited->local_rank));
            if (on_exit_) {
                on_exit_();
            }
        } else if (std::holds_alternative<WorkerAttached>(event)) {
            ++attached_;
        }
    }

    /// Kills a worker that has done `steps` and is ready, and another, until a death was told
    /// early.
    void kill_until_told_early(const std::vector<std::string>& steps) {
        for (int i = 0; i < kDeaths && !told_early_; ++i) {
            group_.reset();
            pids_.clear();
            exits_.clear();
            attached_ = 0;
            start(steps);
            ASSERT_TRUE(has_said("ready"));
            EXPECT_TRUE(exits_.empty());
            ASSERT_EQ(group_->live().size(), 1U);
            EXPECT_TRUE(group_->live()[0].attached);
            ::kill(pids_[0], SIGKILL);
            ASSERT_TRUE(has_exited());
            EXPECT_EQ(ending(), ExitStatus::signalled(SIGKILL, false));
        }
        EXPECT_TRUE(told_early_);
    }

    /// Of GPUs: the process that watches it does not answer.
    void memory_is_never_free() {
        gpus_ = {.wanted = true, .places = {"/", "hold"}, .program = LINK_HELPER};
        gpus_.limit = seconds(1000);
    }
    /// The process of the step "session".
    [[nodiscard]] pid_t session_of(std::uint32_t local_rank) const {
        constexpr std::string_view kWord = "session ";
        const std::string text = output_.last_output(local_rank);
        const std::size_t at = text.find(kWord);
        return at == text.npos ? 0 : std::stoi(text.substr(at + kWord.size()));
    }
    bool runs_until(const std::function<bool()>& condition) {
        const Instant deadline = after(clock_.now(), seconds(60));
        while (!condition() && clock_.now() < deadline) {
            io_.run_for(std::chrono::milliseconds(20));
        }
        return condition();
    }
    bool has_said(const std::string& line) {
        return runs_until([&] { return output_.last_output(0).find(line) != std::string::npos; });
    }
    bool has_exited(std::size_t count = 1) {
        return runs_until([&] { return exits_.size() >= count; });
    }
    /// How the only worker ended.
    [[nodiscard]] ExitStatus ending() const {
        const std::optional<WorkerFailure>& failure = exits_.at(0).failure;
        if (!failure) {
            return ExitStatus::exited(0);
        }
        return failure->signal != 0 ? ExitStatus::signalled(failure->signal, false)
                                    : ExitStatus::exited(failure->exit_code);
    }

    SteadyClock clock_;
    boost::asio::io_context io_{1};
    LinuxLauncher launcher_{io_};
    OutputRelay output_;
    OutputOptions output_options_;
    GpuReleaseOptions gpus_;
    std::optional<WorkerGroup> group_;
    Assignment assignment_;
    std::vector<pid_t> pids_;
    std::vector<WorkerExited> exits_;
    std::function<void()> on_exit_;
    bool told_early_ = false;  ///< The last exit, before the kernel told it.
    int attached_ = 0;
};

TEST_F(WorkerGroupTest, DeathIsReportedBeforeTheMemoryIsFreed) {
    ASSERT_NO_FATAL_FAILURE(kill_until_told_early({"attach", "memory=512", "ready", "hold"}));
    EXPECT_TRUE(group_->live().empty());
    // Its place can be taken while the kernel still works.
    group_->launch({assignment_, {0}}, "");
    ASSERT_EQ(group_->live().size(), 1U);
    pids_[0] = group_->live()[0].pid;
    EXPECT_TRUE(runs_until([&] { return attached_ == 2; }));
    EXPECT_EQ(exits_.size(), 1U);
}

// Its parent may still free memory then.
TEST_F(WorkerGroupTest, ChildInAnotherSessionIsEndedBeforeASuccessorGetsItsPlace) {
    become_subreaper();
    for (const bool is_started_ahead : {false, true}) {
        pid_t child = 0;
        bool outlives = true;
        on_exit_ = [&] {
            child = session_of(0);
            if (is_started_ahead) {
                group_->prestart({{0}}, "");
                group_->assign(assignment_, {0});
            } else {
                group_->launch({assignment_, {0}}, "");
            }
            outlives = testing::is_alive(child);
        };
        told_early_ = false;
        ASSERT_NO_FATAL_FAILURE(
            kill_until_told_early({"attach", "memory=512", "session", "ready", "hold"}));
        EXPECT_GT(child, 0);
        EXPECT_FALSE(outlives);
        EXPECT_EQ(group_->live().size(), 1U);
    }
}

TEST_F(WorkerGroupTest, WorkerWhoseStartWaitsForGpuMemoryCanBeEnded) {
    memory_is_never_free();
    start({"ready", "hold"});
    ::kill(pids_[0], SIGKILL);
    ASSERT_TRUE(has_exited());
    group_->launch({assignment_, {0}}, "");
    EXPECT_THAT(group_->live(), IsEmpty());
    group_->end_by(SIGTERM, {0});
    ASSERT_EQ(exits_.size(), 2U);
    EXPECT_EQ(exits_[1].failure->signal, SIGTERM);
}

TEST_F(WorkerGroupTest, WorkerThatIsStartedAheadWaitsForGpuMemoryUntilItsRoundEnds) {
    memory_is_never_free();
    start({"attach", "ready", "hold"});
    ASSERT_TRUE(has_said("ready"));
    ::kill(pids_[0], SIGKILL);
    ASSERT_TRUE(has_exited());
    group_->prestart({{0}}, "");
    ASSERT_TRUE(runs_until([&] { return attached_ == 2; }));
    assignment_.round = RoundId{2};
    group_->assign(assignment_, {0});
    io_.run_for(std::chrono::milliseconds(50));
    EXPECT_EQ(output_.last_output(0).find("ready"), std::string::npos);
    group_->end_round({RoundId{2}, {0}, {}});
    EXPECT_TRUE(has_said("ready"));
}

TEST_F(WorkerGroupTest, EveryEndingIsReported) {
    struct Case {
        const char* step = "";
        ExitStatus expected;
    };
    for (const Case& one :
         {Case{"return=0", ExitStatus::exited(0)}, Case{"return=4", ExitStatus::exited(4)},
          Case{"exit=3", ExitStatus::exited(3)}, Case{"_exit=0", ExitStatus::exited(0)},
          Case{"_exit=5", ExitStatus::exited(5)},
          Case{"raise=15", ExitStatus::signalled(SIGTERM, false)},
          Case{"raise=11", ExitStatus::signalled(SIGSEGV, false)}}) {
        for (const bool attaches : {true, false}) {
            SCOPED_TRACE(std::string(one.step) + (attaches ? " with" : " without") + " a link");
            exits_.clear();
            pids_.clear();
            start({attaches ? "attach" : "ready", "memory=64", one.step});
            ASSERT_TRUE(has_exited());
            EXPECT_EQ(ending(), one.expected);
            io_.run_for(std::chrono::milliseconds(1));
            EXPECT_EQ(exits_.size(), 1U);
            group_.reset();
        }
    }
}

// The agent compares the daemon's cause with its own text.
TEST_F(WorkerGroupTest, ReasonOfAFailureReachesTheDaemonUnchanged) {
    const testing::TemporaryDirectory folder;
    output_options_.folder = folder.path();
    start({"attach", "fatal"});
    ASSERT_TRUE(has_exited());
    const WorkerFailure& failure = exits_[0].failure.value();
    EXPECT_TRUE(failure.announced);
    EXPECT_THAT(failure.error_message, StartsWith("the caf\xef\xbf\xbd is closed\nxxx"));
    EXPECT_THAT(failure.error_message, HasSubstr("x\nee"));
    EXPECT_THAT(failure.error_message, EndsWith("ee at its end"));
    rendezvous::Report report;
    report.report.failure = failure;
    const auto heard = protocol::decode_from_agent(protocol::encode(report));
    ASSERT_TRUE(heard) << heard.error().detail;
    const WorkerFailure& known = std::get<rendezvous::Report>(*heard).report.failure.value();
    EXPECT_EQ(known.error_message, failure.error_message);
    EXPECT_EQ(describe(known), describe(failure));
}

TEST_F(WorkerGroupTest, ExecOfAnotherProgramIsNoDeath) {
    start({"attach", "exec", "attach", "memory=64", "ready", "_exit=7"});
    ASSERT_TRUE(has_exited());
    EXPECT_EQ(ending(), ExitStatus::exited(7));
    EXPECT_EQ(attached_, 2);
}

TEST_F(WorkerGroupTest, ExecOfAProgramWithoutTheSdkIsNoDeath) {
    start({"attach", "exec", "ready", "_exit=7"});
    ASSERT_TRUE(has_exited());
    EXPECT_EQ(ending(), ExitStatus::exited(7));
    EXPECT_EQ(exits_.size(), 1U);
}

TEST_F(WorkerGroupTest, DeathOfAChildIsNotTheDeathOfTheWorker) {
    // A child that exits in order does not end the worker either.
    ASSERT_NO_FATAL_FAILURE(kill_until_told_early(
        {"attach", "fork", "fork_exit", "system", "again", "memory=512", "ready", "hold"}));
}

TEST_F(WorkerGroupTest, ConnectionWithInvalidMessagesIsDroppedAndTheWorkerIsNot) {
    start({"attach", "garble", "garble", "ready", "hold"});
    ASSERT_TRUE(has_said("ready"));
    EXPECT_TRUE(group_->live().at(0).attached);
}

TEST_F(WorkerGroupTest, EndOfAWorkerWithoutALinkIsReportedBeforeItsMemoryIsFreed) {
    start({"memory=512", "ready", "hold"});
    ASSERT_TRUE(has_said("ready"));
    group_->end_by(SIGTERM, {0});
    ASSERT_TRUE(has_exited());
    EXPECT_EQ(ending(), ExitStatus::signalled(SIGTERM, false));
}

TEST_F(WorkerGroupTest, StoppedWorkerIsNotTakenForDead) {
    start({"attach", "ready", "hold"});
    ASSERT_TRUE(has_said("ready"));
    ::kill(pids_[0], SIGSTOP);
    ::waitpid(pids_[0], nullptr, WUNTRACED);
    EXPECT_EQ(read_exit(pids_[0]), std::nullopt);
    ::kill(pids_[0], SIGCONT);
    EXPECT_TRUE(exits_.empty());
}

}  // namespace

}  // namespace regroup::agent
