// SPDX-License-Identifier: Apache-2.0
//
// The example program as real processes, started by hand: the torchrun variables set, no launcher.
#include <regroup/checkpoint.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <poll.h>
#include <random>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/program.h"

namespace regroup {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

constexpr std::chrono::seconds kLimit(60);

// Where a job of `world_size` ranks is to meet; nothing is set for one that is alone.
struct Place {
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    std::uint16_t port = 0;
};

/// One byte_lm process, whose output is gathered. Killed if it still runs at the end.
class Process {
   public:
    Process(const Place& place, const Arguments& arguments) {
        std::vector<std::string> words{BYTE_LM_PROGRAM};
        words.insert(words.end(), arguments.begin(), arguments.end());
        std::vector<std::string> variables{"PATH=/usr/bin:/bin"};
        if (place.world_size > 1) {
            variables.push_back("MASTER_ADDR=127.0.0.1");
            variables.push_back("MASTER_PORT=" + std::to_string(place.port));
            variables.push_back("RANK=" + std::to_string(place.rank));
            variables.push_back("WORLD_SIZE=" + std::to_string(place.world_size));
        }
        std::vector<char*> argv = pointers(words);
        std::vector<char*> envp = pointers(variables);
        std::array<int, 2> pipe_ends{};
        EXPECT_EQ(::pipe2(pipe_ends.data(), O_CLOEXEC), 0);
        pid_ = ::fork();
        if (pid_ == 0) {
            ::dup2(pipe_ends[1], STDOUT_FILENO);
            ::dup2(pipe_ends[1], STDERR_FILENO);
            ::execve(argv[0], argv.data(), envp.data());
            ::_exit(127);
        }
        ::close(pipe_ends[1]);
        output_fd_ = pipe_ends[0];
    }
    ~Process() {
        if (pid_ > 0) {
            kill();
            ::waitpid(pid_, nullptr, 0);
        }
        ::close(output_fd_);
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    void kill() const { ::kill(pid_, SIGKILL); }

    // Reads output until `text` has come. False if it ends, or kLimit passes, without.
    bool wait_for_output(const std::string& text) {
        const auto deadline = std::chrono::steady_clock::now() + kLimit;
        while (output_.find(text) == std::string::npos) {
            if (!read_some(deadline)) {
                return false;
            }
        }
        return true;
    }

    // Reads output to its end. Returns the exit code, 128 + signal if killed.
    int finish() {
        const auto deadline = std::chrono::steady_clock::now() + kLimit;
        while (read_some(deadline)) {
        }
        if (std::chrono::steady_clock::now() >= deadline) {
            ADD_FAILURE() << "no end within the limit; so far: " << output_;
            kill();
        }
        int status = 0;
        EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
        pid_ = -1;
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }

    [[nodiscard]] const std::string& output() const { return output_; }

    // The number that follows `label` in the output.
    [[nodiscard]] double number_after(const std::string& label) const {
        const std::size_t at = output_.find(label);
        EXPECT_NE(at, std::string::npos) << label << " is not in: " << output_;
        return at == std::string::npos ? -1.0 : std::atof(output_.c_str() + at + label.size());
    }

   private:
    static std::vector<char*> pointers(std::vector<std::string>& strings) {
        std::vector<char*> list;
        for (std::string& string : strings) {
            list.push_back(string.data());
        }
        list.push_back(nullptr);
        return list;
    }

    bool read_some(std::chrono::steady_clock::time_point deadline) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        pollfd readable{output_fd_, POLLIN, 0};
        if (left.count() <= 0 || ::poll(&readable, 1, static_cast<int>(left.count())) <= 0) {
            return false;
        }
        std::array<char, 4096> buffer{};
        const ssize_t count = ::read(output_fd_, buffer.data(), buffer.size());
        if (count <= 0) {
            return false;
        }
        output_.append(buffer.data(), static_cast<std::size_t>(count));
        return true;
    }

    pid_t pid_ = -1;
    int output_fd_ = -1;
    std::string output_;
};

using Job = std::vector<std::unique_ptr<Process>>;

class ByteLmProcesses : public ::testing::Test {
   public:
    ~ByteLmProcesses() override { fs::remove_all(directory_); }

   protected:
    ByteLmProcesses() {
        std::string pattern = (fs::temp_directory_path() / "regroup-byte-lm-XXXXXX").string();
        directory_ = ::mkdtemp(pattern.data());
        // Sentences of few words, so that there is something to learn.
        std::mt19937 random(1);
        std::ofstream text(file("text"));
        const std::array<const char*, 6> words{"the ", "rank ",   "sends ",
                                               "and ", "waits. ", "all "};
        for (int i = 0; i < 2000; ++i) {
            text << words[random() % words.size()];
        }
    }
    [[nodiscard]] std::string file(const std::string& name) const { return directory_ / name; }

    [[nodiscard]] Job start(std::uint32_t world_size, const Arguments& more) const {
        Arguments arguments{"--data",         file("text"), "--steps",     "60",
                            "--hidden",       "32",         "--context",   "4",
                            "--embedding",    "8",          "--log-every", "10",
                            "--global-batch", "26"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        Job job;
        const std::uint16_t port = testing::unused_port();
        for (std::uint32_t rank = 0; rank < world_size; ++rank) {
            job.push_back(std::make_unique<Process>(Place{rank, world_size, port}, arguments));
        }
        return job;
    }

    // Runs a job to its end, which must be a good one, and returns it.
    [[nodiscard]] Job run(std::uint32_t world_size, const Arguments& more) const {
        Job job = start(world_size, more);
        for (const auto& process : job) {
            EXPECT_EQ(process->finish(), 0) << process->output();
        }
        return job;
    }

    [[nodiscard]] std::string content(const std::string& name) const {
        std::ifstream stream(file(name), std::ios::binary);
        return {std::istreambuf_iterator<char>(stream), {}};
    }

   private:
    fs::path directory_;
};

// 26 samples per step divide evenly among neither 3 nor 4 ranks.
TEST_F(ByteLmProcesses, LossIsThatOfASingleProcessForEveryWorldSize) {
    const Job alone = run(1, {});
    const double final_loss = alone[0]->number_after("final loss ");
    const double evaluation_loss = alone[0]->number_after("evaluation loss ");
    EXPECT_LT(evaluation_loss, 3.0);
    EXPECT_GT(alone[0]->number_after("step 1/60  loss "), 5.0);
    for (const std::uint32_t world_size : {2U, 3U, 4U}) {
        const Job job = run(world_size, {});
        EXPECT_NEAR(job[0]->number_after("final loss "), final_loss, 1e-4 * final_loss);
        EXPECT_NEAR(job[0]->number_after("evaluation loss "), evaluation_loss,
                    1e-4 * evaluation_loss);
        for (std::uint32_t rank = 0; rank < world_size; ++rank) {
            EXPECT_THAT(job[rank]->output(), StartsWith("rank " + std::to_string(rank) + " of " +
                                                        std::to_string(world_size) + " on node "));
        }
    }
}

TEST_F(ByteLmProcesses, SameSeedGivesTheSameParametersToTheBit) {
    (void)run(2, {"--save-parameters", file("first")});
    (void)run(2, {"--save-parameters", file("second")});
    (void)run(2, {"--save-parameters", file("other"), "--seed", "2"});
    EXPECT_FALSE(content("first").empty());
    EXPECT_EQ(content("first"), content("second"));
    EXPECT_NE(content("first"), content("other"));
}

TEST_F(ByteLmProcesses, SurvivorsOfAKilledRankEndAndTheJobResumesOnFewerRanks) {
    const Arguments with_checkpoint{"--checkpoint", file("state"), "--checkpoint-every", "10"};
    Arguments slowly = with_checkpoint;
    slowly.insert(slowly.end(), {"--step-delay-ms", "100"});
    const Job job = start(3, slowly);
    ASSERT_TRUE(job[0]->wait_for_output("step 30/60")) << job[0]->output();
    job[1]->kill();
    EXPECT_EQ(job[1]->finish(), 128 + SIGKILL);
    for (const std::size_t rank : {0U, 2U}) {
        EXPECT_EQ(job[rank]->finish(), 1) << job[rank]->output();
        EXPECT_THAT(job[rank]->output(), HasSubstr("\nrank " + std::to_string(rank) + ": "));
    }

    const std::int64_t step = Checkpoint::load(file("state")).integer("step");
    EXPECT_GE(step, 20);
    EXPECT_LT(step, 60);
    const Job resumed = run(2, with_checkpoint);
    EXPECT_THAT(resumed[1]->output(), HasSubstr("resuming at step " + std::to_string(step) + "\n"));

    const Job undisturbed = run(1, {});
    for (const char* label : {"final loss ", "evaluation loss "}) {
        const double expected = undisturbed[0]->number_after(label);
        EXPECT_NEAR(resumed[0]->number_after(label), expected, 1e-4 * expected);
    }
}

TEST_F(ByteLmProcesses, CheckpointOfAnotherJobIsRefused) {
    (void)run(1, {"--checkpoint", file("state")});
    const Job other = start(1, {"--checkpoint", file("state"), "--seed", "2"});
    EXPECT_EQ(other[0]->finish(), 1);
    EXPECT_THAT(other[0]->output(), HasSubstr("is of another job: seed 1, not 2"));
    const Job wider = start(1, {"--checkpoint", file("state"), "--hidden", "33"});
    EXPECT_EQ(wider[0]->finish(), 1);
    EXPECT_THAT(wider[0]->output(), HasSubstr("has 'hidden.weight' with 1024 elements, not 1056"));
}

TEST_F(ByteLmProcesses, WrongCommandLineEndsWithTwoAndOneLine) {
    Process unknown({}, {"--data", file("text"), "--stps", "5"});
    EXPECT_EQ(unknown.finish(), 2);
    EXPECT_EQ(unknown.output(), "byte_lm: unknown flag --stps; did you mean --steps?\n");
    Process absent({}, {"--data", file("absent")});
    EXPECT_EQ(absent.finish(), 2);
    EXPECT_EQ(absent.output(), "byte_lm: --data: cannot read " + file("absent") + "\n");
    Process help({}, {"--help"});
    EXPECT_EQ(help.finish(), 0);
    EXPECT_THAT(help.output(), HasSubstr("--global-batch N"));
}

}  // namespace
}  // namespace regroup
