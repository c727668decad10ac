// SPDX-License-Identifier: Apache-2.0
// Each operation of the C interface calls the C++ operation of the same name, with its arguments.
#include <regroup/c_api.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "rendezvous/base/clock.h"
#include "tests/support/matchers.h"
#include "worker_sdk/src/c_api/call.h"
#include "worker_sdk/src/group/request.h"

namespace regroup {
namespace {

/// Records the calls that it gets.
class RecordingGroup final : public ProcessGroup {
   public:
    explicit RecordingGroup(std::string& record) : record_(record) {}
    ~RecordingGroup() override { record_ = "destroyed"; }
    RecordingGroup(const RecordingGroup&) = delete;
    RecordingGroup& operator=(const RecordingGroup&) = delete;

    [[nodiscard]] std::uint32_t rank() const noexcept override { return 1; }
    [[nodiscard]] std::uint32_t world_size() const noexcept override { return 4; }
    [[nodiscard]] std::string_view backend() const noexcept override { return "recording"; }
    [[nodiscard]] Device device() const noexcept override {
        return {.kind = DeviceKind::cuda, .index = 2};
    }

    [[nodiscard]] std::unique_ptr<ProcessGroup> new_group(const std::vector<std::uint32_t>& ranks,
                                                          std::string_view name) override {
        record_ = "new_group " + std::string(name);
        for (const std::uint32_t rank : ranks) {
            record_ += " " + std::to_string(rank);
        }
        return std::make_unique<RecordingGroup>(child_record_);
    }
    void use_stream(Stream stream) override {
        record_ = stream.handle == &record_ ? "use_stream" : "another stream";
    }
    void abort(std::string_view reason) noexcept override {
        record_ = "abort " + std::string(reason);
    }

   private:
    void begin_batch() override { record_ = "begin"; }
    void end_batch() override { record_ = "end"; }

    Work issue(const OperationRequest& request) override {
        const ConstTensorView given =
            request.kind == OperationKind::recv ? request.output : request.input;
        const bool in_place = request.kind == OperationKind::all_reduce ||
                              request.kind == OperationKind::reduce ||
                              request.kind == OperationKind::broadcast;
        const bool has_two = !in_place && !is_message(request.kind);
        record_ = std::string(name_of(request.kind)) + " " + std::to_string(given.count) + " " +
                  std::string(to_string(given.dtype)) + " " + to_string(given.device) + " > " +
                  std::to_string(has_two ? request.output.count : 0) + " " +
                  std::string(to_string(request.reduction.op)) + " " +
                  std::to_string(request.peer) + " " + std::to_string(request.tag);
        record_counts("counts", request.counts);
        record_counts("output counts", request.output_counts);
        if (request.options.timeout) {
            record_ += ", " + format_duration(*request.options.timeout);
        }
        if (request.options.stream) {
            record_ += request.options.stream->handle == &record_ ? ", stream" : ", another stream";
        }
        if (in_place && request.output.data != request.input.data) {
            record_ += ", " + std::to_string(request.output.count) + " elsewhere";
        }
        return {};
    }
    void record_counts(const char* name, const std::vector<std::size_t>& counts) {
        if (!counts.empty()) {
            record_ += std::string(", ") + name;
        }
        for (const std::size_t count : counts) {
            record_ += " " + std::to_string(count);
        }
    }

    std::string& record_;
    std::string child_record_;
};

class Calls : public ::testing::Test {
   public:
    ~Calls() override { regroup_group_free(group); }

   protected:
    std::string record;
    regroup_group* group =
        new regroup_group{nullptr, std::make_shared<RecordingGroup>(record), "recording"};
    std::array<std::int32_t, 8> values{};
    regroup_tensor eight{values.data(), 8, REGROUP_INT32, REGROUP_CUDA, 2};
    regroup_tensor two{values.data(), 2, REGROUP_INT32, REGROUP_CUDA, 2};
};

TEST_F(Calls, CallsPassTheirArgumentsOn) {
    const struct {
        regroup_errc code;
        std::string record;
        std::string expected;
    } calls[] = {
        {regroup_all_reduce(group, eight, REGROUP_MIN, nullptr), record,
         "all_reduce 8 int32 cuda:2 > 0 min 0 0"},
        {regroup_reduce(group, eight, REGROUP_PRODUCT, 3, nullptr), record,
         "reduce 8 int32 cuda:2 > 0 product 3 0"},
        {regroup_all_reduce(group, eight, REGROUP_BIT_XOR, nullptr), record,
         "all_reduce 8 int32 cuda:2 > 0 bit_xor 0 0"},
        {regroup_reduce_scatter(group, eight, two, REGROUP_AVG, nullptr), record,
         "reduce_scatter 8 int32 cuda:2 > 2 avg 0 0"},
        {regroup_broadcast(group, eight, 2, nullptr), record,
         "broadcast 8 int32 cuda:2 > 0 sum 2 0"},
        {regroup_all_gather(group, two, eight, nullptr), record,
         "all_gather 2 int32 cuda:2 > 8 sum 0 0"},
        {regroup_gather(group, two, eight, 1, nullptr), record,
         "gather 2 int32 cuda:2 > 8 sum 1 0"},
        {regroup_scatter(group, eight, two, 1, nullptr), record,
         "scatter 8 int32 cuda:2 > 2 sum 1 0"},
        {regroup_all_to_all(group, eight, eight, nullptr), record,
         "all_to_all 8 int32 cuda:2 > 8 sum 0 0"},
        {regroup_barrier(group, nullptr), record, "barrier 0 float32 cpu > 0 sum 0 0"},
        {regroup_send(group, two, 3, 5, nullptr), record, "send 2 int32 cuda:2 > 0 sum 3 5"},
        {regroup_recv(group, two, 2, 6, nullptr), record, "recv 2 int32 cuda:2 > 0 sum 2 6"},
        {regroup_group_abort(group, "enough"), record, "abort enough"},
        {regroup_group_use_stream(group, &record), record, "use_stream"},
    };
    for (const auto& call : calls) {
        EXPECT_EQ(call.code, REGROUP_OK) << call.expected;
        EXPECT_EQ(call.record, call.expected);
    }
}

TEST_F(Calls, GeneralFormsPassCountsAndOptionsOn) {
    const regroup_operation_options options{sizeof options, 1500, 1, &record};
    std::array<std::int32_t, 8> others{};
    const regroup_tensor elsewhere{others.data(), 8, REGROUP_INT32, REGROUP_CUDA, 2};
    const std::array<std::size_t, 4> counts{1, 2, 5, 0};
    const std::array<std::size_t, 4> output_counts{2, 2, 2, 2};
    const struct {
        regroup_errc code;
        std::string record;
        std::string expected;
    } calls[] = {
        {regroup_all_reduce_with(group, eight, elsewhere, REGROUP_MIN, &options, nullptr), record,
         "all_reduce 8 int32 cuda:2 > 0 min 0 0, 1.5 s, stream, 8 elsewhere"},
        {regroup_reduce_with(group, eight, elsewhere, REGROUP_SUM, 3, &options, nullptr), record,
         "reduce 8 int32 cuda:2 > 0 sum 3 0, 1.5 s, stream, 8 elsewhere"},
        {regroup_reduce_scatter_with(group, eight, two, REGROUP_AVG, counts.data(), &options,
                                     nullptr),
         record, "reduce_scatter 8 int32 cuda:2 > 2 avg 0 0, counts 1 2 5 0, 1.5 s, stream"},
        {regroup_broadcast_with(group, eight, 2, &options, nullptr), record,
         "broadcast 8 int32 cuda:2 > 0 sum 2 0, 1.5 s, stream"},
        {regroup_all_gather_with(group, two, eight, counts.data(), &options, nullptr), record,
         "all_gather 2 int32 cuda:2 > 8 sum 0 0, counts 1 2 5 0, 1.5 s, stream"},
        {regroup_gather_with(group, two, eight, 1, &options, nullptr), record,
         "gather 2 int32 cuda:2 > 8 sum 1 0, 1.5 s, stream"},
        {regroup_scatter_with(group, eight, two, 1, &options, nullptr), record,
         "scatter 8 int32 cuda:2 > 2 sum 1 0, 1.5 s, stream"},
        {regroup_all_to_all_with(group, eight, elsewhere, counts.data(), output_counts.data(),
                                 &options, nullptr),
         record,
         "all_to_all 8 int32 cuda:2 > 8 sum 0 0, counts 1 2 5 0, output counts 2 2 2 2, 1.5 s, "
         "stream"},
        {regroup_barrier_with(group, &options, nullptr), record,
         "barrier 0 float32 cpu > 0 sum 0 0, 1.5 s, stream"},
        {regroup_send_with(group, two, 3, 5, &options, nullptr), record,
         "send 2 int32 cuda:2 > 0 sum 3 5, 1.5 s, stream"},
        {regroup_recv_with(group, two, 2, 6, &options, nullptr), record,
         "recv 2 int32 cuda:2 > 0 sum 2 6, 1.5 s, stream"},
    };
    for (const auto& call : calls) {
        EXPECT_EQ(call.code, REGROUP_OK) << call.expected;
        EXPECT_EQ(call.record, call.expected);
    }
}

TEST_F(Calls, GeneralFormsWithoutCountsAndOptionsAreTheSimpleOnes) {
    regroup_operation_options options{};
    options.struct_bytes = sizeof options;
    EXPECT_EQ(regroup_all_gather_with(group, two, eight, nullptr, &options, nullptr), REGROUP_OK);
    EXPECT_EQ(record, "all_gather 2 int32 cuda:2 > 8 sum 0 0");
    EXPECT_EQ(regroup_all_to_all_with(group, eight, eight, nullptr, nullptr, nullptr, nullptr),
              REGROUP_OK);
    EXPECT_EQ(record, "all_to_all 8 int32 cuda:2 > 8 sum 0 0");
}

TEST_F(Calls, GeneralFormsRefuseWrongOptionsAndCounts) {
    regroup_work* work = nullptr;
    const regroup_operation_options unsized{0, 1500, 0, nullptr};
    EXPECT_EQ(regroup_barrier_with(group, &unsized, &work), REGROUP_INVALID_ARGUMENT);
    EXPECT_THAT(regroup_last_error(), HasSubstr("options's struct_bytes is 0"));
    EXPECT_EQ(work, nullptr);
    const regroup_operation_options negative{sizeof negative, -1, 0, nullptr};
    EXPECT_EQ(regroup_barrier_with(group, &negative, &work), REGROUP_INVALID_ARGUMENT);
    EXPECT_THAT(regroup_last_error(), HasSubstr("timeout_ms is -1"));
    const std::array<std::size_t, 4> counts{2, 2, 2, 2};
    EXPECT_EQ(
        regroup_all_to_all_with(group, eight, eight, counts.data(), nullptr, nullptr, nullptr),
        REGROUP_INVALID_ARGUMENT);
    EXPECT_THAT(regroup_last_error(), HasSubstr("output_counts"));
    EXPECT_EQ(record, "") << "nothing was issued";
}

TEST_F(Calls, GroupReportsWhereBuffersMustLie) {
    regroup_group_info info{};
    ASSERT_EQ(regroup_group_get(group, &info), REGROUP_OK);
    EXPECT_STREQ(info.backend, "recording");
    EXPECT_EQ(info.rank, 1U);
    EXPECT_EQ(info.world_size, 4U);
    EXPECT_EQ(info.device_kind, REGROUP_CUDA);
    EXPECT_EQ(info.device_index, 2);
}

TEST_F(Calls, ASubGroupKeepsItsParent) {
    const std::array<std::uint32_t, 2> ranks{3, 1};
    regroup_group* child = nullptr;
    ASSERT_EQ(regroup_group_new_group(group, ranks.data(), 2, "pair", &child), REGROUP_OK);
    EXPECT_EQ(record, "new_group pair 3 1");
    regroup_group_free(group);
    EXPECT_EQ(record, "new_group pair 3 1");
    regroup_group_free(child);
    EXPECT_EQ(record, "destroyed");
    group = nullptr;
}

TEST_F(Calls, BatchThatIsNotStartedAbortsTheGroup) {
    regroup_batch* batch = nullptr;
    ASSERT_EQ(regroup_batch_begin(group, &batch), REGROUP_OK);
    EXPECT_EQ(record, "begin");
    EXPECT_EQ(regroup_batch_start(batch), REGROUP_OK);
    EXPECT_EQ(record, "end");
    EXPECT_EQ(regroup_batch_start(batch), REGROUP_INVALID_ARGUMENT);
    regroup_batch_free(batch);
    EXPECT_EQ(record, "end");

    ASSERT_EQ(regroup_batch_begin(group, &batch), REGROUP_OK);
    regroup_batch_free(batch);
    EXPECT_TRUE(record.starts_with("abort")) << record;
}

TEST_F(Calls, MemoryMayOutliveItsGroup) {
    regroup_memory* memory = nullptr;
    void* data = nullptr;
    ASSERT_EQ(regroup_group_allocate(group, 100, &memory, &data), REGROUP_OK);
    regroup_group_free(group);
    group = nullptr;
    EXPECT_EQ(static_cast<char*>(data)[99], 0);
    regroup_memory_free(memory);
}

}  // namespace
}  // namespace regroup
