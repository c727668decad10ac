// SPDX-License-Identifier: Apache-2.0
//
// The example mnist as real processes.
#include <cmath>
#include <csignal>
#include <filesystem>
#include <string>

#include "tests/conformance/examples_harness.h"

namespace regroup::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Mnist = Examples;

// 6000 images in batches of 60, which do not divide evenly among 7 ranks.
Words arguments(Words more = {}) {
    more.insert(more.begin(), {"--epochs", "2", "--global-batch", "60", "--learning-rate", "0.03"});
    return more;
}

TEST_F(Mnist, LossFallsAndEqualsThatOfOneProcess) {
    const Outcome alone = run_alone("mnist", arguments());
    EXPECT_EQ(alone.exit_code, 0) << alone.output;
    EXPECT_GT(alone.number_after(0, "Rank 0, epoch 0: "), 0.8);
    EXPECT_LT(alone.number_after(0, "Rank 0, epoch 1: "), 0.3);
    const double loss = alone.number_after(0, "Test set: mean loss ");
    EXPECT_LT(loss, 0.2);

    const Outcome pair = launch(2, "mnist", arguments());
    EXPECT_EQ(pair.exit_code, 0) << pair.output;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
        const std::string name = "Rank " + std::to_string(rank) + ", epoch ";
        EXPECT_LT(pair.number_after(rank, name + "1: "), pair.number_after(rank, name + "0: "));
    }
    EXPECT_NEAR(pair.number_after(0, "Test set: mean loss "), loss, 1e-3 * loss);
}

// Few and small steps: with units left out, training soon magnifies the last bits of a sum.
TEST_F(Mnist, DropoutDoesNotDependOnTheNumberOfRanks) {
    const auto test_loss = [this](std::uint32_t rank_count, const char* dropout) {
        return launch(rank_count, "mnist",
                      {"--epochs", "1", "--learning-rate", "0.003", "--dropout", dropout})
            .number_after(0, "Test set: mean loss ");
    };
    const double loss = test_loss(1, "0.5");
    EXPECT_NEAR(test_loss(3, "0.5"), loss, 1e-4 * loss);
    EXPECT_GT(std::abs(test_loss(1, "0") - loss), 1e-3 * loss);
}

TEST_F(Mnist, KilledRankCostsNoMoreThanItsEpoch) {
    Program job =
        start(2, "mnist", {"--epochs", "40", "--learning-rate", "0.03", "--checkpoint", "state"},
              {"--max-restarts=1"});
    ASSERT_TRUE(job.prints("Rank 0, epoch 1: ")) << job.output();
    for (const pid_t pid : pids_with_variable("LOCAL_RANK", "1")) {
        const std::vector<pid_t> family = job.family();
        if (std::ranges::find(family, pid) != family.end()) {
            ::kill(pid, SIGKILL);
        }
    }
    ASSERT_TRUE(job.prints("resuming at epoch ")) << job.output();
    const std::string output = job.output();
    EXPECT_GE(std::atoi(output.c_str() + output.find("resuming at epoch ") + 18), 1);
}

TEST_F(Mnist, CheckpointIsResumedOnAnotherNumberOfRanks) {
    EXPECT_EQ(run_alone("mnist", {"--epochs", "1", "--checkpoint", "state"}).exit_code, 0);
    const Outcome resumed = launch(2, "mnist", {"--epochs", "2", "--checkpoint", "state"});
    EXPECT_THAT(resumed.output, HasSubstr("2 ranks on cpu; resuming at epoch 1"));
    const double loss =
        run_alone("mnist", {"--epochs", "2"}).number_after(0, "Test set: mean loss ");
    EXPECT_NEAR(resumed.number_after(0, "Test set: mean loss "), loss, 1e-3 * loss);
}

TEST_F(Mnist, DataIsWrittenAndReadAgainOrRefused) {
    EXPECT_EQ(run_alone("mnist", {"--make-data", "digits"}).exit_code, 0);
    const std::string labels = folder() + "/digits/train-labels-idx1-ubyte";
    EXPECT_EQ(std::filesystem::file_size(labels), 8U + 6000U);
    EXPECT_THAT(run_alone("mnist", {"--data", "digits", "--epochs", "1"}).output,
                StartsWith("6000 images to learn from, 1000 to be tested on; "));

    std::filesystem::resize_file(labels, 100);
    const Outcome refused = run_alone("mnist", {"--data", "digits"});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_EQ(refused.output,
              "mnist: digits/train-labels-idx1-ubyte holds 92 bytes after its header, which "
              "announces 6000\n");
}

TEST_F(Mnist, WrongCommandLineEndsWithTwoAndOneLine) {
    const auto complaint = [this](const Words& words) {
        const Outcome outcome = run_alone("mnist", words);
        EXPECT_EQ(outcome.exit_code, 2);
        return outcome.output;
    };
    EXPECT_EQ(complaint({"--epoch", "3"}), "mnist: unknown flag --epoch; did you mean --epochs?\n");
    EXPECT_EQ(complaint({"--dropout=1"}), "mnist: --dropout takes a number from 0 to 0.9\n");
    EXPECT_EQ(complaint({"--device", "tpu"}), "mnist: --device takes cpu or cuda, not 'tpu'\n");
    EXPECT_THAT(complaint({"--data", "nowhere"}), EndsWith("No such file or directory\n"));
}

}  // namespace
}  // namespace regroup::testing
