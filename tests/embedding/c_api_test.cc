// SPDX-License-Identifier: Apache-2.0
// The C interface in one process: two ranks as threads, and refused arguments.
#include <regroup/c_api.h>
#include <regroup/c_api_training.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kPatienceMs = 60'000;

#define EXPECT_OK(call) EXPECT_EQ(call, REGROUP_OK) << regroup_last_error()
#define EXPECT_REFUSED(call, text)             \
    EXPECT_EQ(call, REGROUP_INVALID_ARGUMENT); \
    EXPECT_THAT(regroup_last_error(), HasSubstr(text))

template <class T>
regroup_tensor tensor(std::vector<T>& values, regroup_dtype dtype) {
    return {values.data(), values.size(), dtype, REGROUP_CPU, 0};
}

regroup_tensor floats(std::vector<float>& values) {
    return tensor(values, REGROUP_FLOAT32);
}

/// Runs `body` with the groups of two ranks, each in its own thread.
void run_two_ranks(const std::function<void(regroup_group*, std::uint32_t)>& body) {
    regroup_store* store = nullptr;
    ASSERT_EQ(regroup_store_local(kPatienceMs, &store), REGROUP_OK);
    {
        std::vector<std::jthread> ranks;
        for (std::uint32_t rank = 0; rank < 2; ++rank) {
            ranks.emplace_back([&body, store, rank] {
                regroup_context* context = nullptr;
                regroup_group* group = nullptr;
                EXPECT_OK(regroup_context_create(rank, 2, "127.0.0.1", 0, &context));
                EXPECT_OK(regroup_context_use_store(context, store));
                EXPECT_OK(regroup_group_create(context, "cpu", nullptr, kPatienceMs,
                                               REGROUP_ANY_DEVICE, &group));
                body(group, rank);
                regroup_group_free(group);
                regroup_context_free(context);
            });
        }
    }
    regroup_store_free(store);
}

TEST(CApi, NamesItsReleaseAndItsErrors) {
    EXPECT_STREQ(regroup_version(), REGROUP_VERSION);
    EXPECT_STREQ(regroup_errc_name(REGROUP_OK), "ok");
    EXPECT_STREQ(regroup_errc_name(REGROUP_INVALID_ARGUMENT), "invalid_argument");
    EXPECT_STREQ(regroup_errc_name(REGROUP_SYSTEM), "system");
    EXPECT_STREQ(regroup_errc_name(8), "unknown");
    EXPECT_STREQ(regroup_errc_name(-1), "unknown");
}

TEST(CApi, EveryThreadHasItsOwnLastError) {
    EXPECT_REFUSED(regroup_context_from_environment(nullptr), "context is NULL");
    std::string other = "not asked";
    std::jthread([&other] { other = regroup_last_error(); }).join();
    EXPECT_EQ(other, "");
    EXPECT_THAT(regroup_last_error(), HasSubstr("regroup_context_from_environment"));
}

TEST(CApi, ContextReportsRankAndWorldSize) {
    regroup_context* context = nullptr;
    ASSERT_EQ(regroup_context_create(3, 4, "host0", 29500, &context), REGROUP_OK);
    regroup_context_info info{};
    EXPECT_OK(regroup_context_get(context, &info));
    EXPECT_EQ(info.rank, 3U);
    EXPECT_EQ(info.world_size, 4U);
    EXPECT_STREQ(info.master_addr, "host0");
    EXPECT_EQ(info.master_port, 29500);
    EXPECT_REFUSED(regroup_context_get(context, nullptr), "info is NULL");
    regroup_context_free(context);

    EXPECT_REFUSED(regroup_context_create(4, 4, "host0", 29500, &context), "rank 4 is not below");
    EXPECT_EQ(context, nullptr);
}

TEST(CApi, MembersAloneFormAGroupOfSomeRanks) {
    regroup_store* store = nullptr;
    ASSERT_EQ(regroup_store_local(kPatienceMs, &store), REGROUP_OK);
    {
        std::vector<std::jthread> ranks;
        for (const std::uint32_t rank : {0U, 2U}) {
            ranks.emplace_back([store, rank] {
                regroup_context* world = nullptr;
                regroup_context* members = nullptr;
                regroup_group* group = nullptr;
                EXPECT_OK(regroup_context_create(rank, 3, "127.0.0.1", 0, &world));
                EXPECT_OK(regroup_context_use_store(world, store));
                const std::array<std::uint32_t, 2> chosen{2, 0};
                EXPECT_OK(regroup_context_of_ranks(world, chosen.data(), 2, &members));
                EXPECT_OK(regroup_group_create(members, "cpu", "some", kPatienceMs,
                                               REGROUP_ANY_DEVICE, &group));
                std::vector<float> value{static_cast<float>(rank)};
                EXPECT_OK(regroup_broadcast(group, floats(value), 0, nullptr));
                EXPECT_THAT(value, ElementsAre(2));
                regroup_group_free(group);
                regroup_context_free(members);
                regroup_context_free(world);
            });
        }
    }
    regroup_store_free(store);
}

TEST(CApi, RanksThatAreNoGroupAreRefused) {
    regroup_context* world = nullptr;
    regroup_context* members = nullptr;
    ASSERT_EQ(regroup_context_create(1, 3, "127.0.0.1", 0, &world), REGROUP_OK);
    std::array<std::uint32_t, 2> chosen{0, 2};
    EXPECT_REFUSED(regroup_context_of_ranks(world, chosen.data(), 2, &members), "rank 1, this one");
    chosen = {1, 3};
    EXPECT_REFUSED(regroup_context_of_ranks(world, chosen.data(), 2, &members), "no rank 3");
    chosen = {1, 1};
    EXPECT_REFUSED(regroup_context_of_ranks(world, chosen.data(), 2, &members), "listed twice");
    EXPECT_EQ(members, nullptr);
    regroup_context_free(world);
}

TEST(CApi, WaitForTheEndOfAContextIsBounded) {
    regroup_context* context = nullptr;
    ASSERT_EQ(regroup_context_create(0, 1, "", 0, &context), REGROUP_OK);
    std::int32_t over = 1;
    EXPECT_OK(regroup_context_await_end(context, 0, &over));
    EXPECT_EQ(over, 0);
    over = 1;
    EXPECT_OK(regroup_context_await_end(context, 1, &over));
    EXPECT_EQ(over, 0);
    EXPECT_REFUSED(regroup_context_await_end(context, -1, &over), "timeout_ms is -1");
    EXPECT_REFUSED(regroup_context_await_end(context, 1, nullptr), "over is NULL");
    regroup_context_free(context);
}

TEST(CApi, TheStoreKeepsBytesAndNumbers) {
    regroup_store* store = nullptr;
    ASSERT_EQ(regroup_store_local(kPatienceMs, &store), REGROUP_OK);
    EXPECT_OK(regroup_store_set(store, "key", "a\0b", 3));
    char* value = nullptr;
    std::size_t bytes = 0;
    ASSERT_EQ(regroup_store_get(store, "key", &value, &bytes), REGROUP_OK);
    EXPECT_EQ(std::string(value, bytes), std::string("a\0b", 3));
    EXPECT_EQ(value[bytes], '\0');
    regroup_free(value);

    std::int64_t sum = 0;
    EXPECT_OK(regroup_store_add(store, "count", 4, nullptr));
    EXPECT_OK(regroup_store_add(store, "count", 3, &sum));
    EXPECT_EQ(sum, 7);

    EXPECT_OK(regroup_store_compare_set(store, "chosen", "", "first", &value, nullptr));
    EXPECT_STREQ(value, "first");
    regroup_free(value);
    EXPECT_OK(regroup_store_compare_set(store, "chosen", "other", "second", &value, nullptr));
    EXPECT_STREQ(value, "first");
    regroup_free(value);

    const std::array<const char*, 2> keys{"key", "chosen"};
    std::int32_t present = 0;
    EXPECT_OK(regroup_store_wait(store, keys.data(), keys.size(), 0));
    EXPECT_OK(regroup_store_check(store, keys.data(), keys.size(), &present));
    EXPECT_EQ(present, 1);
    std::int32_t existed = 0;
    EXPECT_OK(regroup_store_delete(store, "chosen", &existed));
    EXPECT_EQ(existed, 1);
    EXPECT_OK(regroup_store_check(store, keys.data(), keys.size(), &present));
    EXPECT_EQ(present, 0);
    EXPECT_EQ(regroup_store_wait(store, keys.data(), keys.size(), 1), REGROUP_DEADLINE_EXCEEDED);
    EXPECT_THAT(regroup_last_error(), HasSubstr("chosen"));
    regroup_store_free(store);
}

TEST(CApi, StoreReportsMissingKeys) {
    regroup_store* store = nullptr;
    EXPECT_REFUSED(regroup_store_local(-1, &store), "timeout_ms is -1");
    EXPECT_EQ(store, nullptr);
    ASSERT_EQ(regroup_store_local(kPatienceMs, &store), REGROUP_OK);
    EXPECT_REFUSED(regroup_store_set(nullptr, "key", "", 0), "store is NULL");
    EXPECT_REFUSED(regroup_store_set(store, nullptr, "", 0), "key is NULL");
    EXPECT_REFUSED(regroup_store_set(store, "key", nullptr, 1), "value is NULL");
    EXPECT_OK(regroup_store_set(store, "key", nullptr, 0));
    EXPECT_REFUSED(regroup_store_get(store, "key", nullptr, nullptr), "value is NULL");
    const std::array<const char*, 2> keys{"key", nullptr};
    EXPECT_REFUSED(regroup_store_wait(store, keys.data(), 2, 0), "a key is NULL");
    EXPECT_REFUSED(regroup_store_wait(store, nullptr, 1, 0), "keys is NULL");
    regroup_store_free(store);
    regroup_store_free(nullptr);
}

TEST(CApi, RanksReduceAndExchange) {
    run_two_ranks([](regroup_group* group, std::uint32_t rank) {
        const std::uint32_t peer = 1 - rank;
        regroup_group_info info{};
        EXPECT_OK(regroup_group_get(group, &info));
        EXPECT_STREQ(info.backend, "cpu");
        EXPECT_EQ(info.rank, rank);
        EXPECT_EQ(info.world_size, 2U);

        std::vector<float> mean{static_cast<float>(rank), 10.0F};
        EXPECT_OK(regroup_all_reduce(group, floats(mean), REGROUP_AVG, nullptr));
        EXPECT_THAT(mean, ElementsAre(0.5F, 10.0F));

        std::vector<std::int64_t> gathered(2);
        std::vector<std::int64_t> mine{100 + rank};
        EXPECT_OK(regroup_all_gather(group, tensor(mine, REGROUP_INT64),
                                     tensor(gathered, REGROUP_INT64), nullptr));
        EXPECT_THAT(gathered, ElementsAre(100, 101));
        EXPECT_OK(regroup_broadcast(group, tensor(mine, REGROUP_INT64), 1, nullptr));
        EXPECT_THAT(mine, ElementsAre(101));

        std::vector<float> out{static_cast<float>(rank)};
        std::vector<float> in{-1};
        regroup_work* sent = nullptr;
        regroup_work* received = nullptr;
        EXPECT_OK(regroup_send(group, floats(out), peer, 7, &sent));
        EXPECT_OK(regroup_recv(group, floats(in), peer, 7, &received));
        EXPECT_OK(regroup_work_wait(received));
        std::int32_t done = 0;
        EXPECT_OK(regroup_work_test(received, &done));
        EXPECT_EQ(done, 1);
        EXPECT_EQ(in[0], static_cast<float>(peer));
        EXPECT_OK(regroup_work_wait(sent));
        regroup_work_free(sent);
        regroup_work_free(received);
        EXPECT_OK(regroup_barrier(group, nullptr));
    });
}

TEST(CApi, AbortReleasesBlockedCalls) {
    run_two_ranks([](regroup_group* group, std::uint32_t rank) {
        std::vector<float> value{1};
        if (rank == 0) {
            regroup_work* work = nullptr;
            EXPECT_OK(regroup_recv(group, floats(value), 1, 0, &work));
            EXPECT_OK(regroup_group_abort(group, "enough"));
            EXPECT_EQ(regroup_work_wait(work), REGROUP_FENCED);
            EXPECT_THAT(regroup_last_error(), HasSubstr("enough"));
            regroup_work_free(work);
        } else {
            EXPECT_EQ(regroup_recv(group, floats(value), 0, 0, nullptr), REGROUP_DISCONNECTED);
        }
    });
}

TEST(CApi, GroupsRefuseWrongArguments) {
    regroup_context* context = nullptr;
    ASSERT_EQ(regroup_context_create(0, 1, "", 0, &context), REGROUP_OK);
    regroup_group* group = nullptr;
    EXPECT_REFUSED(regroup_group_create(context, nullptr, nullptr, 0, REGROUP_ANY_DEVICE, &group),
                   "backend is NULL");
    EXPECT_REFUSED(regroup_group_create(context, "smoke", nullptr, 0, REGROUP_ANY_DEVICE, &group),
                   "smoke");
    EXPECT_REFUSED(regroup_group_create(context, "cpu", nullptr, 0, -2, &group), "device is -2");
    ASSERT_EQ(regroup_group_create(context, "cpu", nullptr, 0, REGROUP_ANY_DEVICE, &group),
              REGROUP_OK);

    std::vector<float> value{1};
    regroup_tensor wrong = floats(value);
    wrong.dtype = 12;
    EXPECT_REFUSED(regroup_all_reduce(group, wrong, REGROUP_SUM, nullptr), "buffer's dtype is 12");
    wrong = floats(value);
    wrong.device_kind = 9;
    EXPECT_REFUSED(regroup_all_reduce(group, wrong, REGROUP_SUM, nullptr), "device_kind 9");
    wrong = floats(value);
    wrong.data = nullptr;
    EXPECT_REFUSED(regroup_all_reduce(group, wrong, REGROUP_SUM, nullptr), "its data is NULL");
    EXPECT_REFUSED(regroup_all_reduce(group, floats(value), 8, nullptr), "op is 8");
    EXPECT_REFUSED(regroup_all_reduce(nullptr, floats(value), REGROUP_SUM, nullptr),
                   "group is NULL");
    EXPECT_REFUSED(regroup_work_wait(nullptr), "work is NULL");
    EXPECT_OK(regroup_all_reduce(group, floats(value), REGROUP_SUM, nullptr));
    regroup_group_free(group);
    regroup_context_free(context);
}

TEST(CApi, DataParallelAveragesGradients) {
    run_two_ranks([](regroup_group* group, std::uint32_t rank) {
        std::vector<float> weight{static_cast<float>(rank + 1), 5};
        std::vector<float> gradient(2);
        const regroup_parameter parameter{floats(weight), floats(gradient)};
        regroup_ddp* ddp = nullptr;
        EXPECT_REFUSED(regroup_ddp_create(group, nullptr, 1, nullptr, 0, nullptr, &ddp),
                       "parameters is NULL");
        ASSERT_EQ(regroup_ddp_create(group, &parameter, 1, nullptr, 0, nullptr, &ddp), REGROUP_OK)
            << regroup_last_error();
        EXPECT_THAT(weight, ElementsAre(1, 5));
        gradient = {static_cast<float>(rank), 4};
        EXPECT_OK(regroup_ddp_gradient_ready(ddp, 0));
        EXPECT_REFUSED(regroup_ddp_gradient_ready(ddp, 0), "0");
        EXPECT_OK(regroup_ddp_finish_step(ddp));
        EXPECT_THAT(gradient, ElementsAre(0.5F, 4));
        regroup_ddp_free(ddp);
    });
}

TEST(CApi, DataParallelGradientsLieInItsBuckets) {
    run_two_ranks([](regroup_group* group, std::uint32_t rank) {
        std::vector<float> weight{1, 2};
        std::vector<float> unused{3};
        const std::array<regroup_parameter, 2> parameters{
            {{floats(weight), {}}, {floats(unused), {}}}};
        regroup_ddp_options options{};
        regroup_ddp* ddp = nullptr;
        EXPECT_REFUSED(regroup_ddp_create(group, parameters.data(), 2, nullptr, 0, &options, &ddp),
                       "struct_bytes is 0");
        options.struct_bytes = sizeof options;
        options.sum_gradients = 1;
        options.fixed_buckets = 1;
        options.unused_parameters = 1;
        options.wire = REGROUP_INT32;
        EXPECT_EQ(regroup_ddp_create(group, parameters.data(), 2, nullptr, 0, &options, &ddp),
                  REGROUP_INVALID_ARGUMENT);
        options.wire = REGROUP_BFLOAT16;
        ASSERT_EQ(regroup_ddp_create(group, parameters.data(), 2, nullptr, 0, &options, &ddp),
                  REGROUP_OK)
            << regroup_last_error();
        regroup_tensor gradient{};
        ASSERT_EQ(regroup_ddp_gradient(ddp, 0, &gradient), REGROUP_OK) << regroup_last_error();
        ASSERT_EQ(gradient.count, 2U);
        ASSERT_EQ(gradient.dtype, REGROUP_FLOAT32);
        auto* const values = static_cast<float*>(gradient.data);
        const auto step = [&] {
            EXPECT_OK(regroup_ddp_gradient_ready(ddp, 0));
            EXPECT_OK(regroup_ddp_gradient_unused(ddp, 1));
            EXPECT_OK(regroup_ddp_finish_step(ddp));
        };
        EXPECT_OK(regroup_ddp_no_sync_begin(ddp));
        values[0] = static_cast<float>(rank + 1);
        step();
        EXPECT_EQ(values[0], static_cast<float>(rank + 1)) << "no_sync must not reduce";
        EXPECT_OK(regroup_ddp_no_sync_end(ddp));
        EXPECT_REFUSED(regroup_ddp_no_sync_end(ddp), "no_sync_begin");
        values[1] = 0.5F;
        step();
        EXPECT_EQ(values[0], 3.0F);
        EXPECT_EQ(values[1], 1.0F);
        std::int32_t used = -1;
        EXPECT_OK(regroup_ddp_was_used(ddp, 0, &used));
        EXPECT_EQ(used, 1);
        EXPECT_OK(regroup_ddp_was_used(ddp, 1, &used));
        EXPECT_EQ(used, 0);
        EXPECT_OK(regroup_ddp_zero_gradients(ddp));
        EXPECT_EQ(values[0], 0.0F);
        weight = {static_cast<float>(rank), 0};
        EXPECT_OK(regroup_ddp_broadcast_parameters(ddp, 1));
        EXPECT_EQ(weight[0], 1.0F);
        regroup_ddp_free(ddp);
    });
}

TEST(CApi, TheSamplerDealsOutTheEpoch) {
    regroup_sampler* sampler = nullptr;
    ASSERT_EQ(regroup_sampler_create(5, 1, 2, 0, 0, 0, &sampler), REGROUP_OK);
    std::uint64_t per_rank = 0;
    EXPECT_OK(regroup_sampler_count(sampler, &per_rank));
    EXPECT_EQ(per_rank, 3U);
    std::vector<std::uint64_t> indices(3);
    std::size_t count = 0;
    EXPECT_OK(regroup_sampler_indices(sampler, 0, indices.data(), indices.size(), &count));
    EXPECT_EQ(count, 3U);
    EXPECT_THAT(indices, ElementsAre(1, 3, 0));
    indices = {9, 9, 9};
    EXPECT_OK(regroup_sampler_indices(sampler, 0, indices.data(), 1, &count));
    EXPECT_EQ(count, 3U) << "the number of positions, not the capacity";
    EXPECT_THAT(indices, ElementsAre(1, 9, 9));
    EXPECT_REFUSED(regroup_sampler_indices(sampler, 6, nullptr, 0, &count), "position 6");
    regroup_sampler_free(sampler);
    EXPECT_REFUSED(regroup_sampler_create(0, 0, 1, 0, 0, 0, &sampler), "0 samples");
    EXPECT_EQ(sampler, nullptr);
}

TEST(CApi, ACheckpointComesBack) {
    std::string folder = std::filesystem::path(testing::TempDir()) / "regroup-c-api-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    const std::filesystem::path path = std::filesystem::path(folder) / "checkpoint";
    regroup_checkpoint* checkpoint = nullptr;
    EXPECT_OK(regroup_checkpoint_load(path.c_str(), &checkpoint));
    EXPECT_EQ(checkpoint, nullptr);

    ASSERT_EQ(regroup_checkpoint_create(&checkpoint), REGROUP_OK);
    std::vector<float> weight{1.5F, 2.5F};
    EXPECT_OK(regroup_checkpoint_set_tensor(checkpoint, "weight", floats(weight)));
    EXPECT_OK(regroup_checkpoint_set_text(checkpoint, "model", "small", 5));
    EXPECT_OK(regroup_checkpoint_set_integer(checkpoint, "step", 42));
    EXPECT_OK(regroup_checkpoint_set_number(checkpoint, "loss", 0.25));
    EXPECT_OK(regroup_checkpoint_save(checkpoint, path.c_str(), 0));
    regroup_checkpoint_free(checkpoint);

    ASSERT_EQ(regroup_checkpoint_load(path.c_str(), &checkpoint), REGROUP_OK);
    std::vector<float> loaded(2);
    EXPECT_OK(regroup_checkpoint_get_tensor(checkpoint, "weight", floats(loaded)));
    EXPECT_EQ(loaded, weight);
    char* text = nullptr;
    EXPECT_OK(regroup_checkpoint_get_text(checkpoint, "model", &text, nullptr));
    EXPECT_STREQ(text, "small");
    regroup_free(text);
    std::int64_t step = 0;
    EXPECT_OK(regroup_checkpoint_get_integer(checkpoint, "step", &step));
    EXPECT_EQ(step, 42);
    double loss = 0;
    EXPECT_OK(regroup_checkpoint_get_number(checkpoint, "loss", &loss));
    EXPECT_EQ(loss, 0.25);
    std::int32_t present = 1;
    EXPECT_OK(regroup_checkpoint_contains(checkpoint, "other", &present));
    EXPECT_EQ(present, 0);
    EXPECT_REFUSED(regroup_checkpoint_get_integer(checkpoint, "model", &step), "model");
    regroup_checkpoint_free(checkpoint);
    std::filesystem::remove_all(folder);
}

}  // namespace
