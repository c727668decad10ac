// SPDX-License-Identifier: Apache-2.0
//
// byte_lm as real processes, started by hand: the torchrun variables set, no launcher.
#include <regroup/checkpoint.h>

#include <array>
#include <csignal>
#include <fstream>
#include <memory>
#include <random>

#include "tests/conformance/examples_harness.h"
#include "tests/support/matchers.h"

namespace regroup {
namespace {

using testing::Outcome;
using testing::Program;
using testing::Words;

using Job = std::vector<std::unique_ptr<Program>>;

/// The number that follows `label` in the output.
double number_after(Program& process, const std::string& label) {
    const std::string output = process.output();
    const std::size_t at = output.find(label);
    EXPECT_NE(at, std::string::npos) << label << " is not in: " << output;
    return at == std::string::npos ? -1.0 : std::atof(output.c_str() + at + label.size());
}

class ByteLmProcesses : public testing::Examples {
   protected:
    ByteLmProcesses() {
        // Sentences of few words, so that there is something to learn.
        std::mt19937 random(1);
        std::ofstream text(file("text"));
        const std::array<const char*, 6> words{"the ", "rank ",   "sends ",
                                               "and ", "waits. ", "all "};
        for (int i = 0; i < 2000; ++i) {
            text << words[random() % words.size()];
        }
    }
    [[nodiscard]] std::string file(const std::string& name) const { return folder() + "/" + name; }

    [[nodiscard]] Job start(std::uint32_t world_size, const Words& more) const {
        Words command{testing::example_program("byte_lm"),
                      "--data",
                      file("text"),
                      "--steps=60",
                      "--hidden=32",
                      "--context=4",
                      "--embedding=8",
                      "--log-every=10",
                      "--global-batch=26"};
        command.insert(command.end(), more.begin(), more.end());
        Job job;
        const std::string port = std::to_string(testing::unused_port());
        for (std::uint32_t rank = 0; rank < world_size; ++rank) {
            Words variables;
            if (world_size > 1) {
                variables = {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port,
                             "RANK=" + std::to_string(rank),
                             "WORLD_SIZE=" + std::to_string(world_size)};
            }
            job.push_back(
                std::make_unique<Program>(testing::ProgramSpec{command, variables, folder()}));
        }
        return job;
    }

    // Runs a job to its end, which must be a good one, and returns it.
    [[nodiscard]] Job run(std::uint32_t world_size, const Words& more) const {
        Job job = start(world_size, more);
        for (const auto& process : job) {
            EXPECT_EQ(process->wait(), 0) << process->output();
        }
        return job;
    }

    [[nodiscard]] std::string content(const std::string& name) const {
        return testing::read_file(file(name));
    }
};

// 26 samples per step divide evenly among neither 3 nor 4 ranks.
TEST_F(ByteLmProcesses, LossIsThatOfASingleProcessForEveryWorldSize) {
    const Job alone = run(1, {});
    const double final_loss = number_after(*alone[0], "final loss ");
    const double evaluation_loss = number_after(*alone[0], "evaluation loss ");
    EXPECT_LT(evaluation_loss, 3.0);
    EXPECT_GT(number_after(*alone[0], "step 1/60  loss "), 5.0);
    for (const std::uint32_t world_size : {2U, 3U, 4U}) {
        const Job job = run(world_size, {});
        EXPECT_NEAR(number_after(*job[0], "final loss "), final_loss, 1e-4 * final_loss);
        EXPECT_NEAR(number_after(*job[0], "evaluation loss "), evaluation_loss,
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
    const Words with_checkpoint{"--checkpoint", file("state"), "--checkpoint-every", "10"};
    Words slowly = with_checkpoint;
    slowly.insert(slowly.end(), {"--step-delay-ms", "100"});
    const Job job = start(3, slowly);
    ASSERT_TRUE(job[0]->prints("step 30/60")) << job[0]->output();
    job[1]->signal(SIGKILL);
    EXPECT_EQ(job[1]->wait(), 128 + SIGKILL);
    for (const std::size_t rank : {0U, 2U}) {
        EXPECT_EQ(job[rank]->wait(), 1) << job[rank]->output();
        EXPECT_THAT(job[rank]->output(), HasSubstr("\nrank " + std::to_string(rank) + ": "));
    }

    const std::int64_t step = Checkpoint::load(file("state")).integer("step");
    EXPECT_GE(step, 20);
    EXPECT_LT(step, 60);
    const Job resumed = run(2, with_checkpoint);
    EXPECT_THAT(resumed[1]->output(), HasSubstr("resuming at step " + std::to_string(step) + "\n"));

    const Job undisturbed = run(1, {});
    for (const char* label : {"final loss ", "evaluation loss "}) {
        const double expected = number_after(*undisturbed[0], label);
        EXPECT_NEAR(number_after(*resumed[0], label), expected, 1e-4 * expected);
    }
}

TEST_F(ByteLmProcesses, CheckpointOfAnotherJobIsRefused) {
    (void)run(1, {"--checkpoint", file("state")});
    const Job other = start(1, {"--checkpoint", file("state"), "--seed", "2"});
    EXPECT_EQ(other[0]->wait(), 1);
    EXPECT_THAT(other[0]->output(), HasSubstr("is of another job: seed 1, not 2"));
    const Job wider = start(1, {"--checkpoint", file("state"), "--hidden", "33"});
    EXPECT_EQ(wider[0]->wait(), 1);
    EXPECT_THAT(wider[0]->output(), HasSubstr("has 'hidden.weight' with 1024 elements, not 1056"));
}

TEST_F(ByteLmProcesses, WrongCommandLineEndsWithTwoAndOneLine) {
    const auto complaint = [this](const Words& arguments) {
        const Outcome outcome = run_alone("byte_lm", arguments);
        EXPECT_EQ(outcome.exit_code, 2);
        return outcome.output;
    };
    EXPECT_EQ(complaint({"--data", file("text"), "--stps", "5"}),
              "byte_lm: unknown flag --stps; did you mean --steps?\n");
    EXPECT_EQ(complaint({"--data", file("text"), file("absent")}),
              "byte_lm: --data: cannot read " + file("absent") + "\n");
    EXPECT_THAT(complaint({}), HasSubstr("--data FILE.. is missing"));
}

}  // namespace
}  // namespace regroup
