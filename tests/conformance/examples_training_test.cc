// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <string>

#include "tests/conformance/examples_harness.h"
#include "tests/support/matchers.h"

namespace regroup {
namespace {

using testing::Outcome;
using testing::Program;
using testing::Words;

class TrainingExamples : public testing::Examples {
   protected:
    [[nodiscard]] std::string content(const std::string& name) const {
        return testing::read_file(folder() + "/" + name);
    }
};

TEST_F(TrainingExamples, TrainerPrintsTheTutorialsLines) {
    struct Case {
        std::uint32_t rank_count;
        std::string steps;
    };
    for (const auto& [rank_count, steps] : {Case{2, "32"}, Case{4, "16"}}) {
        const Outcome outcome =
            launch(rank_count, "training trainer", {"--max_epochs", "3", "--batch_size", "32"});
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
            for (const char* const epoch : {"0", "1", "2"}) {
                const std::string line = "[GPU: " + std::to_string(rank) + "] Epoch: " + epoch +
                                         " | Batchsize: 32 | Steps: " + steps;
                EXPECT_THAT(outcome.lines_of_rank.at(rank), Contains(line));
            }
        }
        EXPECT_LT(outcome.number_after(0, "mean loss over the data set: "), 0.3);
    }
}

TEST_F(TrainingExamples, TrainerTakesItsNumbersWithoutFlagsToo) {
    const Outcome outcome = run_alone("training trainer", {"3", "2", "--batch_size=100"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.lines_of_rank.at(0),
                Contains("[GPU: 0] Epoch: 2 | Batchsize: 100 | Steps: 21"));
    EXPECT_THAT(outcome.output, HasSubstr("Epoch 0 | Training checkpoint saved at "));
    EXPECT_THAT(outcome.output, HasSubstr("Epoch 2 | Training checkpoint saved at "));
    EXPECT_FALSE(content("checkpoint.regroup").empty());
    EXPECT_EQ(run_alone("training trainer", {"three"}).output,
              "training trainer: --max-epochs takes a number from 0 to 1000000, not 'three'\n");
}

TEST_F(TrainingExamples, TrainerEndsOnAllRanksIfRankZeroCannotSave) {
    const Outcome outcome =
        launch(2, "training trainer", {"2", "1", "--checkpoint", "no/such/folder/checkpoint"});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.output, HasSubstr("no/such/folder"));
    EXPECT_THAT(outcome.output, ::testing::Not(HasSubstr("closed the connection")));
}

TEST_F(TrainingExamples, PartitionedTrainingLearnsOnEveryRank) {
    for (const std::uint32_t rank_count : {1U, 2U, 4U}) {
        const Outcome outcome = launch(rank_count, "training partitioner", {"--epochs", "10"});
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
            const std::string start = "Rank " + std::to_string(rank) + ", epoch ";
            EXPECT_GT(outcome.number_after(rank, start + "0: "), 0.5);
            EXPECT_LT(outcome.number_after(rank, start + "9: "), 0.005);
        }
    }
    EXPECT_THAT(launch(2, "training partitioner", {"--global-batch", "1"}).output,
                HasSubstr("a global batch of 1 leaves no sample for some of 2 ranks"));
}

TEST_F(TrainingExamples, EvaluationGivesTheSameDigitsForEveryNumberOfRanks) {
    const Outcome alone = run_alone("scoring evaluate");
    const std::string loss = alone.after(0, "mean loss ");
    const std::string accuracy = alone.after(0, "accuracy ");
    EXPECT_EQ(alone.after(0, "samples "), "1003");
    for (const std::uint32_t rank_count : {2U, 3U, 4U}) {
        const Outcome outcome = launch(rank_count, "scoring evaluate");
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        EXPECT_EQ(outcome.after(0, "samples "), "1003");
        EXPECT_EQ(outcome.after(0, "mean loss "), loss);
        EXPECT_EQ(outcome.after(0, "accuracy "), accuracy);
        EXPECT_NE(outcome.after(0, "the mean of the ranks' means would be "), loss);
    }
    const Outcome few = launch(4, "scoring evaluate", {"--samples", "3"});
    EXPECT_EQ(few.after(0, "mean loss "),
              run_alone("scoring evaluate", {"--samples", "3"}).after(0, "mean loss "));
}

TEST_F(TrainingExamples, InferenceWritesTheSameFileForEveryNumberOfRanks) {
    EXPECT_EQ(run_alone("scoring predict", {"--output", "alone"}).exit_code, 0);
    EXPECT_EQ(testing::lines_of(content("alone")).size(), 1003U);
    for (const std::uint32_t rank_count : {2U, 3U, 4U}) {
        const Outcome outcome = launch(rank_count, "scoring predict", {"--output", "together"});
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        EXPECT_EQ(content("together"), content("alone")) << rank_count;
    }
    const Outcome refused = launch(2, "scoring predict", {"--output", "no/such/folder/file"});
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.output, HasSubstr("cannot write no/such/folder/file"));
}

TEST_F(TrainingExamples, WarmRestartsGoOnWhereTheyWereToTheLastDigit) {
    const auto train = [this](const std::string& epochs, const std::string& checkpoint) {
        const Outcome outcome =
            launch(2, "training trainer",
                   {epochs, "1", "--t-0=2", "--learning-rate=0.1", "--checkpoint", checkpoint});
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        return outcome;
    };
    const Outcome whole = train("14", "whole");
    EXPECT_THAT(whole.after(0, "epoch  2: "), HasSubstr("lr 0.100000 to "));
    EXPECT_THAT(whole.after(0, "epoch  6: "), HasSubstr("lr 0.100000 to "));
    const Outcome begun = train("5", "parts");
    const Outcome ended = train("14", "parts");
    EXPECT_EQ(ended.lines_of_rank.at(0).front(), "resuming at epoch 5");
    for (const std::string number : {" 0", " 4", " 5", "13"}) {
        const std::string start = "epoch " + number + ": ";
        EXPECT_EQ((number < " 5" ? begun : ended).after(0, start), whole.after(0, start));
    }
}

TEST_F(TrainingExamples, GradientsAreAveragedByHandAndByDistributedDataParallel) {
    const Outcome check = launch(2, "gradients linear_check");
    EXPECT_EQ(check.exit_code, 0) << check.output;
    EXPECT_EQ(check.after(0, "replicas equal at the start: "),
              "yes; losses differ: yes; parameters moved: yes; bit-identical after the step: yes");
    const Outcome average = launch(2, "gradients average", {"--steps=20"});
    EXPECT_EQ(average.exit_code, 0) << average.output;
    EXPECT_THAT(average.output, HasSubstr("largest difference of a parameter: 0\n"));
}

TEST_F(TrainingExamples, CheckpointedJobSurvivesKillsAtAnyInstantUnderEveryWorldSize) {
    const Words arguments{"--steps", "400", "--save-every", "1"};
    // The whole job is killed in the middle of its saving, again and again.
    for (const std::uint32_t rank_count : {1U, 3U, 2U, 4U}) {
        Program job = start(rank_count, "training checkpoint", arguments);
        EXPECT_TRUE(job.prints(", on " + std::to_string(rank_count) + " ranks")) << job.output();
        EXPECT_TRUE(job.prints(": saved")) << job.output();
        job.signal(SIGKILL);
        EXPECT_EQ(job.wait(), 128 + SIGKILL);
    }
    const Outcome rest = launch(2, "training checkpoint", arguments);
    EXPECT_EQ(rest.exit_code, 0) << rest.output;
    EXPECT_GE(rest.number_after(0, "starting at step "), 4.0);

    const Outcome undisturbed =
        run_alone("training checkpoint",
                  {"--steps", "400", "--save-every", "400", "--checkpoint", "undisturbed"});
    const double expected = undisturbed.number_after(0, "final loss ");
    EXPECT_NEAR(rest.number_after(0, "final loss "), expected, 1e-5 * expected);
}

TEST_F(TrainingExamples, CheckpointedJobIsRestartedByTheLauncher) {
    const Outcome outcome =
        launch(3, "training checkpoint", {"--kill-at", "35"}, {"--max-restarts=1"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.lines_of_rank.at(0), Contains("starting at step 0 of 100, on 3 ranks"));
    EXPECT_THAT(outcome.lines_of_rank.at(0), Contains("starting at step 30 of 100, on 3 ranks"));
    EXPECT_LT(outcome.number_after(0, "final loss "), 0.01);
    EXPECT_THAT(run_alone("training checkpoint", {"--global-batch", "32"}).output,
                HasSubstr("job.regroup is of a job with --global-batch 64"));
    EXPECT_THAT(run_alone("training checkpoint").output,
                StartsWith("job.regroup is complete: step 100 of 100; remove it to train anew"));
}

TEST_F(TrainingExamples, PipelineOfTwoRanksIsTheUnsplitModelToTheBit) {
    const Outcome alone = run_alone("pipeline");
    const Outcome split = launch(2, "pipeline");
    EXPECT_EQ(split.exit_code, 0) << split.output;
    EXPECT_EQ(split.after(0, "largest difference from the unsplit model: "), "0");
    EXPECT_EQ(split.lines_of_rank.at(1), alone.lines_of_rank.at(0));
    EXPECT_LT(alone.number_after(0, "step 200: loss "), 0.02);
    EXPECT_EQ(launch(3, "pipeline").exit_code, 2);
    EXPECT_EQ(run_alone("pipeline", {"--micro-batches", "5"}).exit_code, 2);
}

TEST_F(TrainingExamples, ElasticEndsTheSameWhetherARankIsKilledOrNot) {
    const Outcome disturbed =
        launch(3, "elastic", {"--steps=200", "--fail-at=50"}, {"--max-restarts=1"});
    EXPECT_EQ(disturbed.exit_code, 0) << disturbed.output;
    EXPECT_THAT(disturbed.output, HasSubstr("round 2: rank 1 of 3"));
    const Outcome alone = run_alone("elastic", {"--steps=200"});
    EXPECT_EQ(disturbed.after(0, "finished: "), alone.after(0, "finished: "));
}

}  // namespace
}  // namespace regroup
