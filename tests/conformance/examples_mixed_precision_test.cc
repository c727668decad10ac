// SPDX-License-Identifier: Apache-2.0
//
// The example mixed_precision as real processes.
#include <string>

#include "tests/conformance/examples_harness.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

using MixedPrecision = Examples;

constexpr const char* kProgram = "mixed_precision";

// The text after `label` on its line, on any line of the rank.
std::string after_anywhere(const Outcome& outcome, std::uint32_t rank, const std::string& label) {
    for (const std::string& line : outcome.lines_of_rank.at(rank)) {
        if (const std::size_t at = line.find(label); at != std::string::npos) {
            return line.substr(at + label.size());
        }
    }
    ADD_FAILURE() << "rank " << rank << " printed no '" << label << "' in:\n" << outcome.output;
    return "";
}

TEST_F(MixedPrecision, EveryLevelLearnsWhatFloat32Learns) {
    const auto loss = [this](const char* level, const char* dtype) {
        const Outcome outcome = run_alone(kProgram, {"--opt-level", level, "--dtype", dtype,
                                                     "--steps", "300", "--log-every", "300"});
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        return outcome.number_after(0, "step 300  loss ");
    };
    const double full = loss("O0", "float16");
    EXPECT_LT(full, 1.0);
    for (const char* level : {"O1", "O2", "O3"}) {
        EXPECT_NEAR(loss(level, "float16"), full, 0.002 * full) << level;
        EXPECT_NEAR(loss(level, "bfloat16"), full, 0.02 * full) << level;
    }
}

TEST_F(MixedPrecision, LowPrecisionHalvesTheBytes) {
    const auto bytes = [this](const char* level) {
        const Outcome outcome = run_alone(kProgram, {"--opt-level", level, "--steps", "1"});
        return std::stoi(after_anywhere(
            outcome, 0, "gradients in float" + std::string(level[1] < '2' ? "32: " : "16: ")));
    };
    EXPECT_EQ(bytes("O0"), 22056);
    EXPECT_EQ(bytes("O1"), 22056);
    EXPECT_EQ(bytes("O2"), 11028);
    EXPECT_EQ(bytes("O3"), 11028);
}

TEST_F(MixedPrecision, AllRanksSkipTheStepInWhichOneOverflows) {
    const Outcome job = launch(2, kProgram, {"--steps", "60", "--overflow-at", "20"});
    EXPECT_EQ(job.exit_code, 0) << job.output;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
        const std::string name = "rank " + std::to_string(rank) + ": ";
        EXPECT_EQ(job.after(rank, name + "step 20 "),
                  "overflowed with scale 65536, and is skipped");
        EXPECT_THAT(after_anywhere(job, rank, name + "59 steps"), StartsWith(" taken, 1 skipped"));
    }
    EXPECT_THAT(job.after(0, "step 60  "), HasSubstr("scale 32768  skipped 1"));
    EXPECT_EQ(after_anywhere(job, 0, "weights "), after_anywhere(job, 1, "weights "));
}

TEST_F(MixedPrecision, WithoutScalingAnOverflowRuinsTheModel) {
    const Outcome job = run_alone(kProgram, {"--opt-level", "O0", "--steps", "60", "--log-every",
                                             "20", "--overflow-at", "30"});
    EXPECT_THAT(job.after(0, "step 20  loss "), Not(HasSubstr("nan")));
    EXPECT_THAT(job.after(0, "step 60  loss "), HasSubstr("nan"));
}

TEST_F(MixedPrecision, ScaleGrowsUntilItIsTooLargeAndThenSteps) {
    const Outcome job =
        launch(2, kProgram, {"--steps", "200", "--log-every", "200", "--growth-interval", "10"});
    EXPECT_EQ(job.exit_code, 0) << job.output;
    EXPECT_GE(std::stoi(after_anywhere(job, 0, "skipped ")), 1);
    EXPECT_GT(std::stod(after_anywhere(job, 0, "  scale ")), 65536.0);
    EXPECT_EQ(after_anywhere(job, 0, "weights "), after_anywhere(job, 1, "weights "));
}

TEST_F(MixedPrecision, LossEqualsThatOfOneProcess) {
    const Words words{"--opt-level", "O1", "--steps", "100", "--log-every", "100"};
    const double alone = run_alone(kProgram, words).number_after(0, "step 100  loss ");
    EXPECT_NEAR(launch(3, kProgram, words).number_after(0, "step 100  loss "), alone, 1e-3 * alone);
}

TEST_F(MixedPrecision, RankWithoutSamplesTakesPart) {
    const Words words{"--global-batch", "2", "--steps", "20", "--log-every", "20"};
    const double alone = run_alone(kProgram, words).number_after(0, "step 20  loss ");
    EXPECT_NEAR(launch(3, kProgram, words).number_after(0, "step 20  loss "), alone, 1e-2 * alone);
}

TEST_F(MixedPrecision, WrongCommandLineEndsWithTwoAndOneLine) {
    const auto complaint = [this](const Words& words) {
        const Outcome outcome = run_alone(kProgram, words);
        EXPECT_EQ(outcome.exit_code, 2);
        return outcome.output;
    };
    EXPECT_EQ(complaint({"--opt-level", "O4"}),
              "mixed_precision: --opt-level takes O0, O1, O2 or O3, not 'O4'\n");
    EXPECT_EQ(complaint({"--dtype", "float8"}),
              "mixed_precision: --dtype takes float16 or bfloat16, not 'float8'\n");
    EXPECT_EQ(complaint({"--stps", "4"}),
              "mixed_precision: unknown flag --stps; did you mean --steps?\n");
}

}  // namespace
}  // namespace regroup::testing
