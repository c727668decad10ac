// SPDX-License-Identifier: Apache-2.0
//
// The example mnist as real processes.
#include <cmath>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/example_job.h"

namespace regroup {
namespace {

using ::testing::EndsWith;
using testing::ExampleJob;
using ::testing::HasSubstr;
using testing::number_after;
using ::testing::StartsWith;
using testing::TemporaryDirectory;
using Arguments = std::vector<std::string>;

// 6000 images in batches of 60: 100 steps, whose batches divide evenly among neither 7 nor 8 ranks.
Arguments arguments(Arguments more = {}) {
    more.insert(more.begin(), {"--epochs", "2", "--global-batch", "60", "--learning-rate", "0.03"});
    return more;
}

TEST(MnistProcesses, LossFallsAndIsThatOfOneProcess) {
    ExampleJob alone(MNIST_PROGRAM, 1, arguments());
    alone.expect_success();
    const std::string output = alone.rank(0).output();
    EXPECT_GT(number_after(output, "Rank 0, epoch 0: "), 0.8);
    EXPECT_LT(number_after(output, "Rank 0, epoch 1: "), 0.3);
    const double loss = number_after(output, "Test set: mean loss ");
    EXPECT_LT(loss, 0.2);

    ExampleJob pair(MNIST_PROGRAM, 2, arguments());
    pair.expect_success();
    for (std::size_t rank = 0; rank < 2; ++rank) {
        const std::string name = "Rank " + std::to_string(rank) + ", epoch ";
        const std::string said = pair.rank(rank).output();
        EXPECT_LT(number_after(said, name + "1: "), number_after(said, name + "0: "));
    }
    EXPECT_NEAR(number_after(pair.rank(0).output(), "Test set: mean loss "), loss, 1e-3 * loss);
}

// Few and small steps: with units left out, training soon magnifies the last bits of a sum.
TEST(MnistProcesses, DropoutDoesNotDependOnTheNumberOfRanks) {
    const auto test_loss = [](std::uint32_t world_size, const char* dropout) {
        ExampleJob job(MNIST_PROGRAM, world_size,
                       {"--epochs", "1", "--learning-rate", "0.003", "--dropout", dropout});
        job.expect_success();
        return number_after(job.rank(0).output(), "Test set: mean loss ");
    };
    const double loss = test_loss(1, "0.5");
    EXPECT_NEAR(test_loss(3, "0.5"), loss, 1e-4 * loss);
    EXPECT_GT(std::abs(test_loss(1, "0") - loss), 1e-3 * loss);
}

TEST(MnistProcesses, KilledRankEndsTheOthersAndTheJobResumesFromItsCheckpoint) {
    const TemporaryDirectory directory;
    const Arguments with_checkpoint = arguments({"--checkpoint", directory.path() + "/state"});
    Arguments longer = with_checkpoint;
    longer.insert(longer.end(), {"--epochs", "50"});
    ExampleJob job(MNIST_PROGRAM, 2, longer);
    ASSERT_TRUE(job.rank(0).prints("Rank 0, epoch 1: ")) << job.rank(0).output();
    job.rank(1).signal(SIGKILL);
    EXPECT_EQ(job.rank(0).wait(), 1);
    EXPECT_THAT(job.rank(0).output(), HasSubstr("\nrank 0: "));

    ExampleJob resumed(MNIST_PROGRAM, 3, with_checkpoint);
    resumed.expect_success();
    EXPECT_THAT(resumed.rank(0).output(), HasSubstr("3 ranks on cpu; resuming at epoch "));
    EXPECT_LT(number_after(resumed.rank(0).output(), "Test set: mean loss "), 0.3);
}

std::string complaint(const Arguments& more) {
    ExampleJob job(MNIST_PROGRAM, 1, more);
    EXPECT_EQ(job.rank(0).wait(), 2);
    return job.rank(0).output();
}

TEST(MnistProcesses, DataIsWrittenAndReadAgainOrRefused) {
    const TemporaryDirectory directory;
    ExampleJob make(MNIST_PROGRAM, 1, {"--make-data", directory.path()});
    make.expect_success();
    const std::string labels = directory.path() + "/train-labels-idx1-ubyte";
    EXPECT_EQ(std::filesystem::file_size(labels), 8U + 6000U);
    ExampleJob read(MNIST_PROGRAM, 1, {"--data", directory.path(), "--epochs", "1"});
    read.expect_success();
    EXPECT_THAT(read.rank(0).output(), StartsWith("6000 images to learn from, 1000 to be tested"));

    std::filesystem::resize_file(labels, 100);
    EXPECT_EQ(complaint({"--data", directory.path()}),
              "mnist: " + labels + " holds 92 bytes after its header, which announces 6000\n");
}

TEST(MnistProcesses, WrongCommandLineEndsWithTwoAndOneLine) {
    EXPECT_EQ(complaint({"--epoch", "3"}), "mnist: unknown flag --epoch; did you mean --epochs?\n");
    EXPECT_EQ(complaint({"--dropout=1"}),
              "mnist: --dropout takes a number from 0 to 0.9, not '1'\n");
    EXPECT_EQ(complaint({"--device", "tpu"}), "mnist: --device takes cpu|cuda, not 'tpu'\n");
    EXPECT_THAT(complaint({"--data", "/nowhere"}), EndsWith("No such file or directory\n"));
}

}  // namespace
}  // namespace regroup
