// SPDX-License-Identifier: Apache-2.0
// The elastic loop of the C interface in one process: a world of one rank, and refused calls.
#include <regroup/c_api_elastic.h>
#include <regroup/c_api_training.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

#define EXPECT_OK(call) EXPECT_EQ(call, REGROUP_OK) << regroup_last_error()
#define EXPECT_REFUSED(call, text)             \
    EXPECT_EQ(call, REGROUP_INVALID_ARGUMENT); \
    EXPECT_THAT(regroup_last_error(), HasSubstr(text))

/// A loop whose callbacks are functions of the test.
class CApiElastic : public testing::Test {
   public:
    ~CApiElastic() override { regroup_elastic_free(loop); }

   protected:
    std::function<regroup_errc(const regroup_round_info*)> on_round =
        [](const auto*) -> regroup_errc { return REGROUP_OK; };
    std::function<regroup_errc(regroup_step*)> on_step;
    regroup_elastic* loop = nullptr;
    regroup_ending ending = -1;

    void SetUp() override { ASSERT_EQ(regroup_elastic_create(nullptr, &loop), REGROUP_OK); }

    regroup_errc run() {
        regroup_elastic_callbacks callbacks{};
        callbacks.struct_bytes = sizeof callbacks;
        callbacks.user = this;
        callbacks.on_round = [](void* user, const regroup_round_info* round) {
            return static_cast<CApiElastic*>(user)->on_round(round);
        };
        callbacks.on_step = [](void* user, regroup_step* step) {
            return static_cast<CApiElastic*>(user)->on_step(step);
        };
        return regroup_elastic_run(loop, &callbacks, &ending);
    }
};

TEST_F(CApiElastic, StepsAreCommittedUntilTheyFinish) {
    std::vector<float> weights{1, 2};
    EXPECT_OK(regroup_elastic_register_tensor(
        loop, "weights", {weights.data(), weights.size(), REGROUP_FLOAT32, REGROUP_CPU, 0}));
    EXPECT_OK(regroup_elastic_resume_at(loop, 7, 70));
    std::vector<std::uint64_t> firsts;
    std::uint64_t begun_at = 0;
    on_round = [&](const regroup_round_info* round) -> regroup_errc {
        begun_at = round->step;
        EXPECT_EQ(round->first, 1);
        EXPECT_EQ(round->world_size, 1U);
        return REGROUP_OK;
    };
    on_step = [&](regroup_step* step) -> regroup_errc {
        regroup_step_info now{};
        EXPECT_OK(regroup_step_get(step, &now));
        EXPECT_EQ(now.world_size, 1U);
        if (now.number == 9) {
            EXPECT_EQ(now.samples_begin, 90U);
            return regroup_step_finish(step);
        }
        std::uint64_t first = 0;
        EXPECT_OK(regroup_step_take(step, 10, &first));
        firsts.push_back(first);
        EXPECT_OK(regroup_step_section_begin(step, "forward"));
        EXPECT_REFUSED(regroup_step_section_begin(step, "backward"), "cannot be nested");
        EXPECT_OK(regroup_step_section_end(step));
        EXPECT_REFUSED(regroup_step_section_end(step), "no section has begun");
        EXPECT_OK(regroup_step_report(step, "loss", 0.5));
        EXPECT_REFUSED(regroup_step_report(step, "Loss", 0.5), "a to z");
        EXPECT_REFUSED(regroup_step_report(step, nullptr, 0.5), "name");
        EXPECT_OK(regroup_barrier(now.group, nullptr));
        return regroup_step_commit(
            step,
            [](void* user) -> regroup_errc {
                static_cast<float*>(user)[0] += 1;
                return REGROUP_OK;
            },
            weights.data());
    };
    EXPECT_OK(run());
    EXPECT_EQ(ending, REGROUP_FINISHED);
    EXPECT_EQ(begun_at, 7U);
    EXPECT_THAT(firsts, ElementsAre(70, 80));
    EXPECT_THAT(weights, ElementsAre(3, 2));
}

TEST_F(CApiElastic, BufferGoesBackToItsLastCommittedValue) {
    std::vector<double> means{0.5};
    EXPECT_OK(regroup_elastic_register_buffer(
        loop, "means", {means.data(), means.size(), REGROUP_FLOAT64, REGROUP_CPU, 0}));
    on_step = [&](regroup_step* step) -> regroup_errc {
        regroup_step_info now{};
        EXPECT_OK(regroup_step_get(step, &now));
        means[0] += 1;
        return now.number == 2 ? regroup_step_finish(step)
                               : regroup_step_commit(step, nullptr, nullptr);
    };
    EXPECT_OK(run());
    EXPECT_THAT(means, ElementsAre(2.5));
}

TEST_F(CApiElastic, CallbacksFailWithTheirOwnSentence) {
    on_step = [](auto*) { return regroup_fail(REGROUP_SYSTEM, "the shard cannot be read"); };
    EXPECT_EQ(run(), REGROUP_SYSTEM);
    EXPECT_STREQ(regroup_last_error(), "the shard cannot be read");
    EXPECT_EQ(ending, -1);
}

TEST_F(CApiElastic, CallbackThatOnlyReturnsACodeIsNamed) {
    EXPECT_EQ(regroup_fail(REGROUP_SYSTEM, "an earlier failure"), REGROUP_SYSTEM);
    on_step = [](auto*) -> regroup_errc { return REGROUP_SYSTEM; };
    EXPECT_EQ(run(), REGROUP_SYSTEM);
    EXPECT_STREQ(regroup_last_error(), "the callback on_step returned system");
}

TEST_F(CApiElastic, CallbackThatReturnsNoCodeIsRefused) {
    on_round = [](auto*) -> regroup_errc { return 42; };
    on_step = [](auto*) -> regroup_errc { return REGROUP_OK; };
    EXPECT_REFUSED(run(), "on_round returned 42");
}

TEST_F(CApiElastic, StepWithoutCommitIsRefused) {
    on_step = [](auto*) -> regroup_errc { return REGROUP_OK; };
    EXPECT_REFUSED(run(), "without commit() or finish()");
}

TEST_F(CApiElastic, FailureOfCommitIsNotLostIfTheCallbackIgnoresIt) {
    on_step = [](regroup_step* step) -> regroup_errc {
        const auto apply = [](void*) { return regroup_fail(REGROUP_OVERLOADED, "no room"); };
        EXPECT_EQ(regroup_step_commit(step, apply, nullptr), REGROUP_OVERLOADED);
        return REGROUP_OK;
    };
    EXPECT_EQ(run(), REGROUP_OVERLOADED);
    EXPECT_STREQ(regroup_last_error(), "no room");
}

TEST_F(CApiElastic, ObjectsOfARoundMayBeFreedAfterTheLoop) {
    std::vector<float> value{1};
    std::vector<float> gradient{0};
    regroup_ddp* ddp = nullptr;
    on_round = [&](const regroup_round_info* round) {
        const regroup_parameter parameter{{value.data(), 1, REGROUP_FLOAT32, REGROUP_CPU, 0},
                                          {gradient.data(), 1, REGROUP_FLOAT32, REGROUP_CPU, 0}};
        return regroup_ddp_create(round->group, &parameter, 1, nullptr, 0, nullptr, &ddp);
    };
    on_step = [](regroup_step* step) { return regroup_step_finish(step); };
    EXPECT_OK(run());
    regroup_elastic_free(loop);
    loop = nullptr;
    EXPECT_OK(regroup_ddp_reduce_gradients(ddp));
    regroup_ddp_free(ddp);
}

TEST_F(CApiElastic, EventsLeadThroughTheSameTraining) {
    std::vector<float> weights{1, 2};
    EXPECT_OK(regroup_elastic_register_tensor(
        loop, "weights", {weights.data(), weights.size(), REGROUP_FLOAT32, REGROUP_CPU, 0}));
    std::vector<regroup_elastic_event> events;
    regroup_elastic_event event = -1;
    do {
        ASSERT_EQ(regroup_elastic_next(loop, &event), REGROUP_OK) << regroup_last_error();
        events.push_back(event);
        regroup_step* step = nullptr;
        if (event == REGROUP_EVENT_ROUND) {
            regroup_round_info round{};
            EXPECT_OK(regroup_elastic_round(loop, &round));
            EXPECT_EQ(round.world_size, 1U);
            EXPECT_REFUSED(regroup_elastic_step(loop, &step), "no step is open");
        } else if (event == REGROUP_EVENT_STEP) {
            EXPECT_OK(regroup_elastic_step(loop, &step));
            regroup_step_info now{};
            EXPECT_OK(regroup_step_get(step, &now));
            if (now.number == 2) {
                EXPECT_OK(regroup_step_finish(step));
                continue;
            }
            EXPECT_OK(regroup_step_commit_begin(step));
            weights[0] += 1;
            EXPECT_OK(regroup_step_commit_end(step));
        }
    } while (event != REGROUP_EVENT_FINISHED);
    EXPECT_THAT(events, ElementsAre(REGROUP_EVENT_ROUND, REGROUP_EVENT_STEP, REGROUP_EVENT_STEP,
                                    REGROUP_EVENT_STEP, REGROUP_EVENT_FINISHED));
    EXPECT_THAT(weights, ElementsAre(3, 2));
    EXPECT_REFUSED(regroup_elastic_next(loop, &event), "is over");
}

TEST_F(CApiElastic, EventThatFailedEndsTheTraining) {
    regroup_elastic_event event = -1;
    EXPECT_REFUSED(regroup_elastic_failed(loop, REGROUP_OK, "text"), "code is 0");
    EXPECT_OK(regroup_elastic_next(loop, &event));
    EXPECT_EQ(regroup_elastic_failed(loop, REGROUP_SYSTEM, "the shard cannot be read"),
              REGROUP_SYSTEM);
    EXPECT_STREQ(regroup_last_error(), "the shard cannot be read");
    EXPECT_REFUSED(regroup_elastic_next(loop, &event), "is over");
}

TEST_F(CApiElastic, PartsOfACommitInAnotherOrderEndTheTraining) {
    regroup_elastic_event event = -1;
    regroup_step* step = nullptr;
    EXPECT_OK(regroup_elastic_next(loop, &event));
    EXPECT_OK(regroup_elastic_next(loop, &event));
    EXPECT_OK(regroup_elastic_step(loop, &step));
    EXPECT_REFUSED(regroup_step_commit_end(step), "without begin_commit");
    EXPECT_OK(regroup_step_commit_begin(step));
    EXPECT_REFUSED(regroup_step_commit_begin(step), "is being committed");
    EXPECT_REFUSED(regroup_elastic_next(loop, &event), "is being committed");
}

TEST_F(CApiElastic, StepThatEndsWithoutCommitEndsTheTraining) {
    regroup_elastic_event event = -1;
    EXPECT_OK(regroup_elastic_next(loop, &event));
    EXPECT_OK(regroup_elastic_next(loop, &event));
    EXPECT_EQ(event, REGROUP_EVENT_STEP);
    EXPECT_REFUSED(regroup_elastic_next(loop, &event), "without commit() or finish()");
}

TEST_F(CApiElastic, RequestsOutsideOfTheirEventsAreRefused) {
    regroup_elastic_event event = -1;
    regroup_round_info round{};
    regroup_leave_info leave{};
    EXPECT_REFUSED(regroup_elastic_round(loop, &round), "no round has begun");
    EXPECT_REFUSED(regroup_elastic_round(loop, nullptr), "round is NULL");
    EXPECT_REFUSED(regroup_elastic_next(nullptr, &event), "loop is NULL");
    EXPECT_REFUSED(regroup_elastic_next(loop, nullptr), "event is NULL");
    EXPECT_REFUSED(regroup_elastic_leave(loop, nullptr), "leave is NULL");
    EXPECT_OK(regroup_elastic_leave(loop, &leave));
}

TEST_F(CApiElastic, WrongCallsAreRefused) {
    regroup_elastic_callbacks callbacks{};
    EXPECT_REFUSED(regroup_elastic_run(loop, &callbacks, nullptr), "struct_bytes is 0");
    callbacks.struct_bytes = sizeof callbacks;
    EXPECT_REFUSED(regroup_elastic_run(loop, &callbacks, nullptr), "on_step is NULL");
    EXPECT_REFUSED(regroup_elastic_run(nullptr, &callbacks, nullptr), "loop is NULL");
    const regroup_tensor tensor{nullptr, 3, REGROUP_FLOAT32, REGROUP_CPU, 0};
    EXPECT_REFUSED(regroup_elastic_register_tensor(loop, "weights", tensor), "data is NULL");
    EXPECT_REFUSED(regroup_elastic_register_buffer(loop, "means", tensor), "data is NULL");
    EXPECT_REFUSED(regroup_elastic_register_value(loop, "journal", nullptr, nullptr, nullptr),
                   "save is NULL");
    EXPECT_REFUSED(regroup_step_commit(nullptr, nullptr, nullptr), "step is NULL");
    EXPECT_REFUSED(regroup_report_fatal(3, "text"), "kind is 3");
    EXPECT_REFUSED(regroup_fail(REGROUP_OK, "text"), "regroup_fail: 0");

    regroup_elastic* other = nullptr;
    regroup_elastic_options options{};
    options.struct_bytes = 1;
    EXPECT_REFUSED(regroup_elastic_create(&options, &other), "struct_bytes is 1");
    EXPECT_EQ(other, nullptr);
}

TEST(CApiTraining, ShardGivesThePartOfThisRank) {
    regroup_sampler* sampler = nullptr;
    ASSERT_EQ(regroup_sampler_create(100, 1, 3, 0, 0, 0, &sampler), REGROUP_OK);
    std::array<std::uint64_t, 2> indices{};
    std::size_t count = 0;
    EXPECT_OK(regroup_sampler_shard(sampler, 10, 18, indices.data(), indices.size(), &count));
    EXPECT_EQ(count, 3U);
    EXPECT_THAT(indices, ElementsAre(11, 14));
    EXPECT_REFUSED(regroup_sampler_shard(sampler, 10, 101, indices.data(), indices.size(), &count),
                   "101");
    regroup_sampler_free(sampler);
}

TEST(CApiTraining, SaveOfAnEarlierRoundDoesNotReplaceThatOfALaterOne) {
    regroup_checkpoint* checkpoint = nullptr;
    ASSERT_EQ(regroup_checkpoint_create(&checkpoint), REGROUP_OK);
    const std::string path = testing::TempDir() + "/regroup_c_api_elastic_test.ckpt";
    EXPECT_OK(regroup_checkpoint_save_fenced(checkpoint, path.c_str(), 0, 5));
    EXPECT_EQ(regroup_checkpoint_save_fenced(checkpoint, path.c_str(), 0, 4), REGROUP_FENCED)
        << regroup_last_error();
    regroup_checkpoint_free(checkpoint);
    for (const char* const end : {"", ".lock"}) {
        std::remove((path + end).c_str());
    }
}

}  // namespace
