// SPDX-License-Identifier: Apache-2.0
//
// The steps of an ElasticLoop, in the page of its agent.
#include <chrono>
#include <cmath>
#include <string>

#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "tests/unit/sdk_elastic_ranks.h"

namespace regroup::testing {
namespace {

using worker_link::TelemetryBlock;

class ElasticTelemetry : public ElasticLoopTest {
   protected:
    const TelemetryBlock& telemetry(const std::string& name) { return agent_.page(name).telemetry; }
    double value(const std::string& rank, const std::string& name) {
        const TelemetryBlock& block = telemetry(rank);
        for (std::uint32_t i = 0; i < block.values_count; ++i) {
            if (name == block.values[i].name.data()) {
                return block.values[i].value;
            }
        }
        return std::nan("");
    }
    static std::string refusal(ElasticStep& step, const std::string& name) {
        const auto error = error_of([&] { step.report(name, 1); });
        EXPECT_TRUE(!error || error->code() == Errc::invalid_argument);
        return error ? error->what() : "";
    }
};

void work(std::chrono::microseconds time = std::chrono::microseconds(50)) {
    const auto began = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - began < time) {
    }
}

TEST_F(ElasticTelemetry, StepsSamplesTimesAndValuesAreInThePage) {
    Script script;
    script.before_reduction = [](Rank&, ElasticStep& step) {
        const auto section = step.section("data");
        work();
    };
    script.before_commit = [](Rank&, ElasticStep& step) {
        const auto section = step.section("other");
        work();
        step.report("loss", 100.0 - static_cast<double>(step.number()));
    };
    assign({"a", "b"}, script);
    expect_complete({"a", "b"});
    const TelemetryBlock& block = telemetry("a");
    EXPECT_EQ(block.steps, kSteps);
    EXPECT_EQ(block.samples, kSteps * kBatch);
    EXPECT_GE(block.data, static_cast<std::int64_t>(kSteps * 50'000));
    EXPECT_GE(block.compute, static_cast<std::int64_t>(kSteps * 50'000));
    EXPECT_GT(block.communication + block.waiting, 0);
    EXPECT_EQ(value("a", "loss"), 100.0 - static_cast<double>(kSteps - 1));
    EXPECT_EQ(telemetry("b").steps, 0U) << "rank 0 counts the steps of all";
}

TEST_F(ElasticTelemetry, SurvivorThatGetsRankZeroCountsFromThereOn) {
    assign({"a", "b"}, dies("a", &Script::before_commit, 5));
    finished("a");
    rounds_.end({"b"});
    assign({"b", "c"});
    expect_complete({"b", "c"});
    EXPECT_EQ(telemetry("a").steps + telemetry("b").steps, kSteps);
    EXPECT_GT(telemetry("b").steps, 0U);
}

TEST_F(ElasticTelemetry, LostStepIsCountedOnce) {
    assign({"a", "b"}, dies("b", &Script::before_commit, 5));
    finished("b");
    rounds_.end({"a"});
    assign({"a", "c"});
    expect_complete({"a", "c"});
    EXPECT_EQ(telemetry("a").steps, kSteps);
    EXPECT_EQ(telemetry("a").samples, kSteps * kBatch);
}

TEST_F(ElasticTelemetry, NamesThatDoNotFitAreRefusedWithTheRule) {
    Script script;
    script.before_commit = [&](Rank&, ElasticStep& step) {
        for (const std::string& name : {std::string(), std::string("Loss"), std::string("2nd"),
                                        std::string("a b"), std::string(33, 'x')}) {
            EXPECT_THAT(refusal(step, name), saying("report(\"" + name + "\")", "a to z"));
        }
        for (int i = 0; i < 8; ++i) {
            EXPECT_EQ(refusal(step, "value_" + std::to_string(i)), "");
        }
        EXPECT_THAT(refusal(step, "ninth"), HasSubstr("8 values already"));
        EXPECT_EQ(refusal(step, "value_0"), "");
    };
    assign({"a"}, script);
    expect_complete({"a"});
}

}  // namespace
}  // namespace regroup::testing
