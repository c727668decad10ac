// SPDX-License-Identifier: Apache-2.0
#include <regroup/distributed_data_parallel.h>

#include <cstddef>
#include <optional>

#include <gtest/gtest.h>

#include "tests/support/fake_process_group.h"
#include "tests/unit/data_parallel_model.h"

namespace regroup {
namespace {

using testing::Model;

/// A group that knows streams, as "nccl" does.
class StreamedGroup : public FakeProcessGroup {
   public:
    using FakeProcessGroup::FakeProcessGroup;
    void use_stream(Stream stream) override { stream_ = stream; }
    [[nodiscard]] std::optional<Stream> current_stream() const override { return stream_; }
    void use_own_stream() override { stream_.reset(); }

   private:
    std::optional<Stream> stream_{};
};

struct Streams {
    int place[3] = {};
    [[nodiscard]] Stream at(std::size_t index) { return {&place[index]}; }
};

TEST(DataParallelStream, StreamIsTheGroupsWhileTheWrapperExists) {
    FakeWorld world(1);
    StreamedGroup group(world, 0);
    Streams streams;
    {
        const Model model(group, {4}, {.stream = streams.at(0)});
        EXPECT_EQ(group.current_stream(), streams.at(0));
    }
    EXPECT_EQ(group.current_stream(), std::nullopt);
    group.use_stream(streams.at(1));
    {
        const Model model(group, {4}, {.stream = streams.at(0)});
        EXPECT_EQ(group.current_stream(), streams.at(0));
    }
    EXPECT_EQ(group.current_stream(), streams.at(1));
}

TEST(DataParallelStream, PreviousStreamReturnsWhenTheConstructorFails) {
    FakeWorld world(1);
    StreamedGroup group(world, 0);
    Streams streams;
    EXPECT_THROW(Model(group, {4}, {.reduction = ReduceOp::max, .stream = streams.at(0)}), Error);
    EXPECT_EQ(group.current_stream(), std::nullopt);
}

TEST(DataParallelStream, StreamThatTheCallerChoseLaterIsKept) {
    FakeWorld world(1);
    StreamedGroup group(world, 0);
    Streams streams;
    {
        const Model model(group, {4}, {.stream = streams.at(0)});
        group.use_stream(streams.at(2));
    }
    EXPECT_EQ(group.current_stream(), streams.at(2));
}

}  // namespace
}  // namespace regroup
