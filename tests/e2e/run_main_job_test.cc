// SPDX-License-Identifier: Apache-2.0
//
// The main job: the example trains on two nodes, loses a worker, resumes from its checkpoint, and
// ends where one undisturbed process ends.
#include <array>
#include <csignal>
#include <fstream>
#include <random>
#include <regex>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

constexpr double kTolerance = 1e-4;

class RunMainJob : public EndToEnd {
   protected:
    RunMainJob() {
        // Sentences of few words, so that there is something to learn.
        std::mt19937 random(1);
        std::ofstream text(folder() + "/text");
        const std::array<const char*, 6> words{"the ", "rank ",   "sends ",
                                               "and ", "waits. ", "all "};
        for (int i = 0; i < 4000; ++i) {
            text << words[random() % words.size()];
        }
    }
    [[nodiscard]] Words training() const {
        return {byte_lm_program(), "--data", folder() + "/text", "--steps", "200",
                "--log-every",     "10",     "--hidden",         "64"};
    }
};

// The number after `label`, or -1.
double number_after(const std::string& label, const std::string& output) {
    const std::size_t at = output.find(label);
    return at == std::string::npos ? -1 : std::atof(output.c_str() + at + label.size());
}

TEST_F(RunMainJob, LossAfterAKilledWorkerIsThatOfAnUndisturbedRun) {
    const Rendezvous rendezvous;
    const Words flags{"--nproc-per-node=2", "--max-restarts=3", "--shutdown-timeout=5"};
    const Words command =
        training() + Words{"--checkpoint", folder() + "/checkpoint", "--checkpoint-every",
                           "20",           "--step-delay-ms",        "30"};
    Program first = run(node(1, "2", rendezvous.endpoint()) + flags + command);
    Program second = run(node(2, "2", rendezvous.endpoint()) + flags + command);
    ASSERT_TRUE(first.prints(":0] step 60/200")) << first.output() << second.output();
    std::smatch match;
    const std::string output = second.output();
    ASSERT_TRUE(std::regex_search(output, match, std::regex("rank 3 of 4 .*\\(pid (\\d+)\\)")))
        << output;
    ::kill(std::stoi(match[1]), SIGKILL);

    EXPECT_EQ(first.wait(), 0) << first.output();
    EXPECT_THAT(ended(second), exits(0, "rank 3 on 127.0.0.3 was ended by SIGKILL"));
    EXPECT_THAT(first.output(), saying("restart 1, ", "resuming at step "));

    Program alone({training(), {}, folder()});
    ASSERT_EQ(alone.wait(), 0) << alone.output();
    const double expected = number_after("evaluation loss ", alone.output());
    ASSERT_GT(expected, 0) << alone.output();
    EXPECT_NEAR(number_after("evaluation loss ", first.output()), expected, kTolerance * expected)
        << first.output();
}

}  // namespace
}  // namespace regroup::testing
