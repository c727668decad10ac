// SPDX-License-Identifier: Apache-2.0
//
// The example mnist as real processes.
#include <cmath>
#include <csignal>
#include <filesystem>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "tests/conformance/examples_harness.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

using Mnist = Examples;

// 6000 images in batches of 60, which do not divide evenly among 7 ranks.
Words arguments(Words more = {}) {
    more.insert(more.begin(), {"--epochs", "2", "--global-batch", "60", "--learning-rate", "0.03"});
    return more;
}

// The norm of the gradients is limited. They travel as float16, and the loss is scaled.
TEST_F(Mnist, KilledWorkerIsReplacedAndTheResultIsTheSame) {
    const Outcome undisturbed = launch(2, "mnist", arguments());
    EXPECT_EQ(undisturbed.exit_code, 0) << undisturbed.output;
    const std::string parameters = undisturbed.after(0, "finished: parameters ");
    EXPECT_EQ(undisturbed.after(1, "finished: parameters "), parameters);
    EXPECT_LT(undisturbed.number_after(0, "epoch 2: test loss "),
              undisturbed.number_after(0, "epoch 1: test loss "));
    std::smatch right;
    ASSERT_TRUE(std::regex_search(undisturbed.output, right,
                                  std::regex("epoch 2: test loss .* ([0-9]+) of 1000 right")));
    EXPECT_GE(std::atoi(right[1].str().c_str()), 970);

    Program job = start(2, "mnist", arguments(), {"--max-restarts=1"});
    ASSERT_TRUE(job.prints("epoch 1: test loss ")) << job.output();
    for (const pid_t pid : pids_with_variable("LOCAL_RANK", "1")) {
        const std::vector<pid_t> family = job.family();
        if (std::ranges::find(family, pid) != family.end()) {
            ::kill(pid, SIGKILL);
        }
    }
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(job.output(), saying("round 2: ", "finished: parameters " + parameters));
}

/// Two nodes on one machine with two ranks each, whose messages go over TCP. There the place of a
/// gradient in its bucket and the order of the ranks decide how a sum is rounded.
class MnistOnNodes : public Examples {
   protected:
    /// Saves its state in `checkpoint` after each epoch.
    void start_nodes(const std::string& checkpoint) {
        const std::string endpoint = "127.0.0.1:" + std::to_string(unused_port());
        nodes_.clear();
        for (const char* const address : {"127.0.0.1", "127.0.0.2"}) {
            Words command{REGROUP_PROGRAM,      "run",
                          "--nnodes=2",         "--rdzv-backend=c10d",
                          "--rdzv-id=job",      "--rdzv-endpoint=" + endpoint,
                          "--nproc-per-node=2", std::string("--local-addr=") + address,
                          "--max-restarts=2",   example_program("mnist")};
            const Words more = words(checkpoint);
            command.insert(command.end(), more.begin(), more.end());
            nodes_.push_back(std::make_unique<Program>(
                ProgramSpec{command, {"REGROUP_CPU_TRANSPORT=tcp"}, folder()}));
        }
    }
    static Words words(const std::string& checkpoint) {
        return arguments({"--images", "3000", "--epochs", "4", "--checkpoint", checkpoint});
    }

    [[nodiscard]] std::string output() const {
        return nodes_.front()->output() + nodes_.back()->output();
    }
    void await(const std::string& text) const {
        ASSERT_TRUE(eventually([&] { return output().find(text) != std::string::npos; }))
            << output();
    }
    /// Of the process that has the rank now.
    [[nodiscard]] pid_t pid_of(std::uint32_t rank) const {
        const std::string text = output();
        const std::regex line("rank " + std::to_string(rank) + " of 4, pid ([0-9]+), from step ");
        pid_t pid = -1;
        for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at) {
            const auto found = static_cast<pid_t>(std::stol((*at)[1]));
            pid = is_alive(found) ? found : pid;
        }
        return pid;
    }
    void kill(std::uint32_t rank) const {
        const pid_t pid = pid_of(rank);
        ASSERT_GT(pid, 0) << output();
        EXPECT_EQ(::kill(pid, SIGKILL), 0);
    }
    /// The hash of the parameters of each rank.
    [[nodiscard]] Words finished() {
        for (const auto& node : nodes_) {
            EXPECT_EQ(node->wait(), 0) << output();
        }
        const std::string text = output();
        const std::regex line("finished: parameters ([0-9a-f]+)");
        Words hashes;
        for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at) {
            hashes.push_back((*at)[1]);
        }
        return hashes;
    }

   private:
    std::vector<std::unique_ptr<Program>> nodes_;
};

TEST_F(MnistOnNodes, TwoKillsChangeNoBitOfTheResultNorOfTheCheckpoint) {
    start_nodes("undisturbed");
    const Words expected = finished();
    ASSERT_THAT(expected, SizeIs(4));
    EXPECT_THAT(expected, Each(expected.front()));

    start_nodes("disturbed");
    await("epoch 1: test loss ");
    kill(1);
    await("round 2: ");
    await("epoch 2: test loss ");
    kill(2);
    EXPECT_THAT(finished(), AllOf(SizeIs(4), Each(expected.front())));
    EXPECT_THAT(output(), HasSubstr("round 3: "));

    // Nothing is left to do but to read what was saved.
    const Outcome resumed = run_alone("mnist", words("disturbed"));
    EXPECT_THAT(resumed.after(0, "rank 0 of 1, "), EndsWith("from step 200"));
    EXPECT_EQ(resumed.after(0, "finished: parameters "), expected.front());
}

// Few and small steps: with units left out, training soon magnifies the last bits of a sum.
TEST_F(Mnist, DropoutDoesNotDependOnTheNumberOfRanks) {
    const auto test_loss = [this](std::uint32_t rank_count, const char* dropout) {
        return launch(rank_count, "mnist",
                      {"--images", "1500", "--epochs", "1", "--learning-rate", "0.01", "--wire",
                       "float32", "--dropout", dropout})
            .number_after(0, "epoch 1: test loss ");
    };
    const double loss = test_loss(1, "0.5");
    EXPECT_NEAR(test_loss(3, "0.5"), loss, 1e-4 * loss);
    EXPECT_GT(std::abs(test_loss(1, "0") - loss), 3e-4 * loss);
}

TEST_F(Mnist, CheckpointIsResumedOnAnotherNumberOfRanks) {
    const auto words = [](const char* epochs, const char* checkpoint) {
        return Words{"--images", "1500",    "--epochs",     epochs,
                     "--wire",   "float32", "--checkpoint", checkpoint};
    };
    EXPECT_EQ(run_alone("mnist", words("1", "state")).exit_code, 0);
    const Outcome resumed = launch(2, "mnist", words("2", "state"));
    EXPECT_THAT(resumed.after(1, "rank 1 of 2, "), EndsWith("from step 24"));
    const double loss =
        run_alone("mnist", words("2", "other")).number_after(0, "epoch 2: test loss ");
    EXPECT_NEAR(resumed.number_after(0, "epoch 2: test loss "), loss, 1e-3 * loss);
}

TEST_F(Mnist, DataIsWrittenAndReadAgainOrRefused) {
    EXPECT_EQ(run_alone("mnist", {"--make-data", "digits"}).exit_code, 0);
    const std::string labels = folder() + "/digits/train-labels-idx1-ubyte";
    EXPECT_EQ(std::filesystem::file_size(labels), 8U + 6000U);
    EXPECT_THAT(run_alone("mnist", {"--data", "digits", "--epochs", "1"}).output,
                StartsWith("6000 images to learn from, 1000 to be tested on\n"));

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
    EXPECT_EQ(complaint({"--wire", "int8"}),
              "mnist: --wire takes float32, float16 or bfloat16, not 'int8'\n");
    EXPECT_EQ(complaint({"--device", "tpu"}), "mnist: --device takes cpu or cuda, not 'tpu'\n");
    EXPECT_THAT(complaint({"--data", "nowhere"}), EndsWith("No such file or directory\n"));
}

}  // namespace
}  // namespace regroup::testing
