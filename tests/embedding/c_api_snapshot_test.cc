// SPDX-License-Identifier: Apache-2.0
// Snapshots through the C interface.
#include <regroup/c_api_snapshot.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace {

using ::testing::HasSubstr;

/// The context of a rank whose store the ranks share, and a snapshot in a folder.
class Rank {
   public:
    Rank(uint32_t rank, uint32_t world_size, regroup_store* store, const std::string& folder) {
        EXPECT_EQ(regroup_context_create(rank, world_size, "", 0, &context_), REGROUP_OK);
        if (store != nullptr) {
            EXPECT_EQ(regroup_context_use_store(context_, store), REGROUP_OK);
        }
        regroup_snapshot_options options{};
        options.struct_bytes = sizeof options;
        options.folder = folder.c_str();
        EXPECT_EQ(regroup_snapshot_create(context_, &options, &snapshot_), REGROUP_OK)
            << regroup_last_error();
    }
    ~Rank() {
        regroup_snapshot_free(snapshot_);
        regroup_context_free(context_);
    }
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;

    [[nodiscard]] regroup_snapshot* get() const { return snapshot_; }

   private:
    regroup_context* context_ = nullptr;
    regroup_snapshot* snapshot_ = nullptr;
};

/// A row of a matrix of `rows` rows with 3 columns.
struct Row {
    Row(uint64_t row, uint64_t rows) : offset{row, 0}, global_shape{rows, 3} {
        tensor.struct_bytes = sizeof tensor;
        tensor.name = "matrix";
        tensor.dtype = "BF16";
        tensor.data = values.data();
        tensor.dimensions = 2;
        tensor.shape = shape.data();
        tensor.offset = offset.data();
        tensor.global_shape = global_shape.data();
    }
    Row(const Row&) = delete;
    Row& operator=(const Row&) = delete;

    std::array<uint64_t, 2> shape{1, 3};
    std::array<uint64_t, 2> offset;
    std::array<uint64_t, 2> global_shape;
    std::array<uint16_t, 3> values{};
    regroup_snapshot_tensor tensor{};
};

TEST(CApiSnapshot, SavedPiecesAreReadByOneRank) {
    const regroup::testing::TemporaryDirectory folder;
    regroup_store* store = nullptr;
    ASSERT_EQ(regroup_store_local(60'000, &store), REGROUP_OK);
    std::vector<std::jthread> threads;
    for (uint32_t rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            const Rank own(rank, 2, store, folder.path());
            Row row(rank, 2);
            row.values = {static_cast<uint16_t>(rank), 7, 8};
            EXPECT_EQ(regroup_snapshot_add(own.get(), &row.tensor), REGROUP_OK);
            EXPECT_EQ(regroup_snapshot_set_bytes(own.get(), "note", "early", 5), REGROUP_OK);
            EXPECT_EQ(regroup_snapshot_set_bytes(own.get(), "note", "later", 5), REGROUP_OK);
            int32_t flag = 1;
            uint64_t step = 1;
            EXPECT_EQ(regroup_snapshot_load(own.get(), &flag, &step), REGROUP_OK);
            EXPECT_EQ(flag, 0);
            EXPECT_EQ(regroup_snapshot_save(own.get(), 12, &flag), REGROUP_OK);
            EXPECT_EQ(flag, 1);
            EXPECT_EQ(regroup_snapshot_wait_until_whole(own.get(), 60'000, &flag), REGROUP_OK);
            EXPECT_EQ(flag, 1);
            EXPECT_EQ(regroup_snapshot_whole_step(own.get(), &flag, &step), REGROUP_OK);
            EXPECT_EQ(flag, 1);
            EXPECT_EQ(step, 12);
            flag = 0;  // Without an agent there is nothing to copy.
            EXPECT_EQ(regroup_snapshot_wait_until_kept(own.get(), 60'000, &flag), REGROUP_OK);
            EXPECT_EQ(flag, 1);
        });
    }
    threads.clear();
    regroup_store_free(store);

    const Rank reader(0, 1, nullptr, folder.path());
    int32_t found = 0;
    uint64_t step = 0;
    ASSERT_EQ(regroup_snapshot_open(reader.get(), &found, &step), REGROUP_OK);
    EXPECT_EQ(found, 1);
    EXPECT_EQ(step, 12);
    std::array<uint16_t, 6> all{};
    const std::array<uint64_t, 2> shape{2, 3};
    regroup_snapshot_tensor whole{};
    whole.struct_bytes = sizeof whole;
    whole.name = "matrix";
    whole.dtype = "BF16";
    whole.data = all.data();
    whole.dimensions = 2;
    whole.shape = shape.data();
    ASSERT_EQ(regroup_snapshot_read(reader.get(), &whole), REGROUP_OK) << regroup_last_error();
    EXPECT_EQ(all, (std::array<uint16_t, 6>{0, 7, 8, 1, 7, 8}));
    const void* data = nullptr;
    size_t bytes = 0;
    ASSERT_EQ(regroup_snapshot_get_bytes(reader.get(), "note", &data, &bytes), REGROUP_OK);
    EXPECT_EQ(std::string(static_cast<const char*>(data), bytes), "later");
    whole.name = "bias";
    EXPECT_EQ(regroup_snapshot_read(reader.get(), &whole), REGROUP_INVALID_ARGUMENT);
    EXPECT_THAT(regroup_last_error(), HasSubstr("\"bias\""));
}

TEST(CApiSnapshot, WrongArgumentsAreRefused) {
    const Rank rank(0, 1, nullptr, "");
    Row row(0, 1);
    int32_t flag = 0;
    uint64_t step = 0;
    const void* data = nullptr;
    size_t bytes = 0;
    EXPECT_EQ(regroup_snapshot_read(rank.get(), &row.tensor), REGROUP_INVALID_ARGUMENT);
    EXPECT_THAT(regroup_last_error(), HasSubstr("no step is open"));
    EXPECT_EQ(regroup_snapshot_get_bytes(rank.get(), "x", &data, &bytes), REGROUP_INVALID_ARGUMENT);
    EXPECT_EQ(regroup_snapshot_load(rank.get(), nullptr, &step), REGROUP_INVALID_ARGUMENT);
    EXPECT_EQ(regroup_snapshot_save(nullptr, 1, &flag), REGROUP_INVALID_ARGUMENT);
    row.tensor.dtype = "float32";
    EXPECT_EQ(regroup_snapshot_add(rank.get(), &row.tensor), REGROUP_INVALID_ARGUMENT);
    EXPECT_THAT(regroup_last_error(), HasSubstr("float32"));
    row.tensor.struct_bytes = 1;
    EXPECT_EQ(regroup_snapshot_add(rank.get(), &row.tensor), REGROUP_INVALID_ARGUMENT);
    EXPECT_THAT(regroup_last_error(), HasSubstr("struct_bytes"));
    regroup_snapshot* none = nullptr;
    EXPECT_EQ(regroup_snapshot_create(nullptr, nullptr, &none), REGROUP_INVALID_ARGUMENT);
    EXPECT_EQ(none, nullptr);
}

TEST(CApiSnapshot, ClearForgetsWhatWasAdded) {
    const Rank rank(0, 1, nullptr, "");
    Row row(0, 1);
    ASSERT_EQ(regroup_snapshot_add(rank.get(), &row.tensor), REGROUP_OK);
    EXPECT_EQ(regroup_snapshot_add(rank.get(), &row.tensor), REGROUP_INVALID_ARGUMENT);
    ASSERT_EQ(regroup_snapshot_set_bytes(rank.get(), "note", "x", 1), REGROUP_OK);
    ASSERT_EQ(regroup_snapshot_clear(rank.get()), REGROUP_OK);
    EXPECT_EQ(regroup_snapshot_add(rank.get(), &row.tensor), REGROUP_OK);
    EXPECT_EQ(regroup_snapshot_set_bytes(rank.get(), "note", "x", 1), REGROUP_OK);
}

}  // namespace
