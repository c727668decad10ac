// SPDX-License-Identifier: Apache-2.0
// ProcessGroup::create("nccl"), with GPUs that are host memory.
#include <regroup/context.h>
#include <regroup/process_group.h>

#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "tests/support/stand_in_nccl/host_runtime.h"
#include "worker_sdk/src/cuda/cuda_runtime.h"

namespace regroup {
namespace {

/// Calls back when the first context is made.
class WatchedRuntime final : public testing::HostRuntime {
   public:
    int peek_device_count() override {
        ADD_FAILURE() << "opens NVIDIA's management library";
        return HostRuntime::peek_device_count();
    }
    void set_device(int device) override {
        if (on_context) {
            std::exchange(on_context, nullptr)();
        }
        HostRuntime::set_device(device);
    }

    std::function<void()> on_context{};
};

WatchedRuntime& runtime() {
    static WatchedRuntime instance;
    return instance;
}

// Begins before any test has opened a library, which stays open.
TEST(NcclCreate, LibraryIsOpenedWhileTheGpuGetsItsContext) {
    const std::string fifo = ::testing::TempDir() + "nccl_create." + std::to_string(::getpid());
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    ::setenv("REGROUP_NCCL_LIBRARY", fifo.c_str(), 1);
    // The loader waits until the other end of its file is open; the test waits for the loader.
    int writing = -1;
    runtime().on_context = [&] {
        const auto deadline = std::chrono::steady_clock::now() + testing::kPatience;
        while (writing < 0 && std::chrono::steady_clock::now() < deadline) {
            writing = ::open(fifo.c_str(), O_WRONLY | O_NONBLOCK);
            std::this_thread::yield();
        }
        EXPECT_GE(writing, 0) << "nobody opens the library";
        ::close(writing < 0 ? ::open(fifo.c_str(), O_RDWR) : writing);
    };
    const auto error = error_of([] { (void)ProcessGroup::create("nccl", Context()); });
    ::unlink(fifo.c_str());
    EXPECT_THAT(error, is_error("NCCL's library cannot be opened", fifo));
    EXPECT_GE(writing, 0);
}

TEST(NcclCreate, GpusAreCountedByTheRuntimeThatIsUsed) {
    ::setenv("REGROUP_NCCL_LIBRARY", STAND_IN_NCCL, 1);
    const auto store = make_local_store(testing::kPatience);
    const auto group =
        ProcessGroup::create("nccl", testing::context_of_rank(0, 1, store), {.name = "counted"});
    group->barrier().wait();
    EXPECT_EQ(group->device().index, 0);
}

void create_alone() {
    (void)ProcessGroup::create(
        "nccl", testing::context_of_rank(0, 1, make_local_store(testing::kPatience)), {});
}

TEST(NcclCreate, RasIsOffUnlessTheUserWantsIt) {
    ::setenv("REGROUP_NCCL_LIBRARY", STAND_IN_NCCL, 1);
    ::unsetenv("NCCL_RAS_ENABLE");
    create_alone();
    EXPECT_STREQ(std::getenv("NCCL_RAS_ENABLE"), "0");
    ::setenv("NCCL_RAS_ENABLE", "1", 1);
    create_alone();
    EXPECT_STREQ(std::getenv("NCCL_RAS_ENABLE"), "1");
}

TEST(NcclCreate, OwnPluginIsOffAndThatOfTheUserStays) {
    ::setenv("REGROUP_NCCL_LIBRARY", STAND_IN_NCCL, 1);
    ::setenv("NCCL_PROFILER_PLUGIN", "/opt/lib/libnccl-profiler-regroup.so", 1);
    create_alone();
    EXPECT_STREQ(std::getenv("NCCL_PROFILER_PLUGIN"), "none");
    ::setenv("NCCL_PROFILER_PLUGIN", "/opt/lib/libnccl-profiler-other.so", 1);
    create_alone();
    EXPECT_STREQ(std::getenv("NCCL_PROFILER_PLUGIN"), "/opt/lib/libnccl-profiler-other.so");
    ::unsetenv("NCCL_PROFILER_PLUGIN");
    create_alone();
    EXPECT_EQ(std::getenv("NCCL_PROFILER_PLUGIN"), nullptr);
}

}  // namespace

namespace cuda {

DeviceRuntime& cuda_runtime() {
    return runtime();
}

}  // namespace cuda
}  // namespace regroup
