// SPDX-License-Identifier: Apache-2.0
// The profiler plugin alone, with events that NCCL makes rarely. tests/conformance has the usual
// ones.
#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>
#include <elf.h>
#include <functional>
#include <link.h>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/collectives_file.h"
#include "tests/support/fresh_process.h"
#include "tests/support/sanitizer.h"
#include "worker_sdk/nccl_profiler/abi.h"

namespace regroup::nccl_profiler {
namespace {

using testing::CollectivesFile;
using testing::succeeds_in_fresh_process;

/// One communicator of NCCL 2.29, without NCCL.
class Caller {
   public:
    using TableOf6 = Table<InitOf5, EventOf5>;

    Caller()
        : table_(static_cast<const TableOf6*>(
              ::dlsym(::dlopen(NCCL_PROFILER_PLUGIN, RTLD_NOW | RTLD_LOCAL), "ncclProfiler_v6"))) {
        init();
    }

    void init() {
        int mask = 0;
        table_->init(&context_, 77, &mask, "data", 1, 4, 2, nullptr);
        mask_ = static_cast<std::uint32_t>(mask);
    }
    void finalize() { table_->finalize(context_); }
    [[nodiscard]] std::uint32_t mask() const { return mask_; }
    [[nodiscard]] bool has_context() const { return context_ != nullptr; }

    void* group_call() { return start(event(group_call_event, nullptr)); }
    void* group() { return start(event(group_event, nullptr)); }
    void* call(void* group, bool is_captured = false) {
        EventOf5 made = event(call_event, group);
        made.call = {"AllReduce", 100, "ncclFloat32", 0, nullptr, is_captured};
        return start(made);
    }
    void* task(void* call, void* group, std::uint8_t channels) {
        EventOf5 made = event(collective_event, call);
        made.collective = {
            {0, "AllReduce", nullptr, nullptr, 100, 0, "ncclFloat32", channels, 4, "", ""}, group};
        return start(made);
    }
    void* channel(void* task) { return start(event(channel_event, task)); }
    void stop(void* handle) { table_->stop_event(handle); }
    /// A whole call, as far as it is enqueued.
    void* enqueue(std::uint8_t channels) { return task(call(group_call()), group(), channels); }

   private:
    static EventOf5 event(EventType type, void* parent) {
        EventOf5 made{};
        made.head = {type, parent, 2};
        return made;
    }
    void* start(const EventOf5& of) {
        void* handle = nullptr;
        table_->start_event(context_, &handle, &of);
        return handle;
    }

    const TableOf6* table_;
    void* context_ = nullptr;
    std::uint32_t mask_ = 0;
};

class NcclProfilerTest : public ::testing::Test {
   protected:
    [[nodiscard]] bool run(const std::function<bool(Caller&)>& body) const {
        return succeeds_in_fresh_process([&] {
            ::setenv(worker_link::kCollectivesVariable, file.path().c_str(), 1);
            ::setenv("REGROUP_NCCL_KERNELS", kernels, 1);
            auto& caller = *new Caller;
            return body(caller);
        });
    }
    [[nodiscard]] worker_link::CollectiveGroup& group(std::size_t index = 0) {
        return file.group(index);
    }

    CollectivesFile file;
    const char* kernels = "1";
};

TEST_F(NcclProfilerTest, LibraryNeedsTheCLibraryAlone) {
    if (testing::has_sanitizer()) {
        GTEST_SKIP() << "sanitizers need libraries of their own";
    }
    void* const library = ::dlopen(NCCL_PROFILER_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << ::dlerror();
    link_map* map = nullptr;
    ASSERT_EQ(::dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)), 0);
    const char* strings = nullptr;
    for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_STRTAB) {
            strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
        }
    }
    std::vector<std::string> needed;
    for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_NEEDED) {
            needed.emplace_back(strings + entry->d_un.d_val);
        }
    }
    EXPECT_EQ(needed, std::vector<std::string>{"libc.so.6"});
}

TEST_F(NcclProfilerTest, LibraryStaysWhenNcclUnloadsIt) {
    EXPECT_TRUE(run([](Caller& caller) {
        void* const library = ::dlopen(NCCL_PROFILER_PLUGIN, RTLD_NOW | RTLD_LOCAL);
        ::dlclose(library);
        ::dlclose(library);
        return ::dlopen(NCCL_PROFILER_PLUGIN, RTLD_NOW | RTLD_NOLOAD) != nullptr &&
               caller.enqueue(1) != nullptr;
    }));
    EXPECT_EQ(group().entered, 1U);
}

TEST_F(NcclProfilerTest, NothingIsAskedForWithoutAPage) {
    EXPECT_TRUE(succeeds_in_fresh_process([] {
        ::unsetenv(worker_link::kCollectivesVariable);
        Caller caller;
        // NCCL may ask for events in spite of the mask.
        void* const task = caller.enqueue(2);
        caller.stop(caller.channel(task));
        caller.finalize();
        return caller.mask() == 0 && !caller.has_context();
    }));
}

TEST_F(NcclProfilerTest, KernelsAreAskedForOnlyIfTheUserWantsThem) {
    EXPECT_TRUE(run([](Caller& caller) { return (caller.mask() & channel_event) != 0; }));
    for (const char* const wish : {"0", "", "10"}) {
        kernels = wish;
        EXPECT_TRUE(run([](Caller& caller) {
            caller.call(caller.group_call());
            return caller.mask() == (call_event | message_event);
        }));
        EXPECT_EQ(group().entered, 1U);
        EXPECT_EQ(group().knows_starts + group().knows_ends, 0U);
    }
}

TEST_F(NcclProfilerTest, WithoutKernelsCapturedCollectivesDoNotCount) {
    kernels = "0";
    EXPECT_TRUE(run([](Caller& caller) {
        caller.call(caller.group_call());
        caller.call(caller.group_call(), true);
        caller.call(caller.group_call());
        return true;
    }));
    EXPECT_EQ(group().entered, 2U);
}

TEST_F(NcclProfilerTest, CollectiveEndsWithItsLastChannel) {
    EXPECT_TRUE(run([&](Caller& caller) {
        void* const task = caller.enqueue(3);
        const auto& own = file.group(0);
        const bool is_called = own.entered == 1 && own.started == 0;
        void* const first = caller.channel(task);
        const bool has_begun = own.started == 1;
        caller.stop(first);
        void* const second = caller.channel(task);
        void* const third = caller.channel(task);
        caller.stop(third);
        const bool goes_on = own.completed == 0;
        caller.stop(second);
        return is_called && has_begun && goes_on && own.completed == 1;
    }));
}

TEST_F(NcclProfilerTest, BatchOfSeveralKernelsEndsWithTheLastOne) {
    EXPECT_TRUE(run([&](Caller& caller) {
        const auto& own = file.group(0);
        void* const group = caller.group_call();
        void* const call = caller.call(group);
        void* const other = caller.call(group);
        void* const kernel = caller.task(other, caller.group(), 1);
        caller.stop(caller.channel(kernel));
        const bool goes_on = own.entered == 2 && own.started == 2 && own.completed == 0;
        caller.stop(caller.channel(caller.task(call, caller.group(), 1)));
        return goes_on && own.completed == 2;
    }));
}

TEST_F(NcclProfilerTest, BatchThatBeginsEndsTheEarlierOnes) {
    EXPECT_TRUE(run([&](Caller& caller) {
        const auto& own = file.group(0);
        void* const first = caller.enqueue(2);
        void* const second = caller.enqueue(2);
        caller.channel(first);
        const bool goes_on = own.started == 1 && own.completed == 0;
        caller.channel(second);
        return goes_on && own.started == 2 && own.completed == 1;
    }));
}

TEST_F(NcclProfilerTest, HandlesThatAreTooOldAreIgnored) {
    EXPECT_TRUE(run([&](Caller& caller) {
        const auto& own = file.group(0);
        void* const old = caller.enqueue(1);
        void* const channel = caller.channel(old);
        void* latest = nullptr;
        for (int i = 0; i < 3000; ++i) {
            latest = caller.enqueue(1);
        }
        caller.stop(channel);
        const bool is_ignored = caller.channel(old) == nullptr && own.started == 1 &&
                                own.completed == 0 && own.entered == 3001;
        caller.stop(caller.channel(latest));
        return is_ignored && own.completed == 3001;
    }));
}

TEST_F(NcclProfilerTest, HandlesThatAreNoneAreIgnored) {
    EXPECT_TRUE(run([&](Caller& caller) {
        caller.enqueue(1);
        std::uintptr_t bits = 1;
        for (int i = 0; i < 10'000; ++i) {
            bits = bits * 6364136223846793005U + 1442695040888963407U;
            // The upper bits are those of a number that no batch has.
            void* const none = reinterpret_cast<void*>(bits | (std::uintptr_t{1} << 62U));
            caller.stop(none);
            caller.stop(caller.channel(none));
        }
        caller.stop(nullptr);
        const auto& own = file.group(0);
        return own.entered == 1 && own.started == 0 && own.completed == 0;
    }));
}

TEST_F(NcclProfilerTest, HandlesOfAnEndedCommunicatorAreIgnored) {
    EXPECT_TRUE(run([&](Caller& caller) {
        void* const task = caller.enqueue(1);
        void* const channel = caller.channel(task);
        caller.finalize();
        caller.init();
        caller.enqueue(1);
        caller.channel(task);
        caller.stop(channel);
        const auto& own = file.group(0);
        return own.entered == 1 && own.started == 0 && own.completed == 0;
    }));
    EXPECT_EQ(file.groups_in_use(), 1U);
}

TEST_F(NcclProfilerTest, ManyCommunicatorsDoNoHarm) {
    EXPECT_TRUE(run([](Caller& caller) {
        for (int i = 0; i < 300; ++i) {
            caller.init();
            caller.stop(caller.channel(caller.enqueue(1)));
        }
        return true;
    }));
    EXPECT_EQ(file.groups_in_use(), worker_link::kGroupsMax);
    EXPECT_GT(file.page().groups_refused, 0U);
    EXPECT_EQ(group(worker_link::kGroupsMax - 1).completed, 1U);
}

TEST_F(NcclProfilerTest, CollectiveWithoutAKernelMakesStartsAndEndsUnknown) {
    EXPECT_TRUE(run([&](Caller& caller) {
        caller.call(caller.group_call());  // By copy engines, or in symmetric memory.
        const bool known = file.group(0).knows_starts == 1 && file.group(0).knows_ends == 1;
        caller.enqueue(1);
        return known;
    }));
    EXPECT_EQ(group().entered, 2U);
    EXPECT_EQ(group().knows_starts, 0U);
    EXPECT_EQ(group().knows_ends, 0U);
}

TEST_F(NcclProfilerTest, UnknownNumberOfChannelsMakesEndsUnknown) {
    EXPECT_TRUE(run([](Caller& caller) {
        caller.channel(caller.enqueue(0));
        return true;
    }));
    EXPECT_EQ(group().started, 1U);
    EXPECT_EQ(group().knows_starts, 1U);
    EXPECT_EQ(group().knows_ends, 0U);
}

TEST_F(NcclProfilerTest, CapturedCollectiveIsNumberedAtEachReplay) {
    EXPECT_TRUE(run([&](Caller& caller) {
        const auto& own = file.group(0);
        void* const captured = caller.call(caller.group_call(), true);
        const bool is_not_called = own.entered == 0;
        void* const first = caller.task(captured, caller.group(), 1);
        void* const later = caller.call(caller.group_call());
        void* const second = caller.task(captured, caller.group(), 1);
        void* const third = caller.task(later, caller.group(), 1);
        caller.stop(caller.channel(first));
        const bool first_is_done = own.entered == 3 && own.completed == 1;
        caller.stop(caller.channel(second));
        caller.stop(caller.channel(third));
        return is_not_called && first_is_done && own.completed == 3 && own.knows_ends == 1;
    }));
}

}  // namespace
}  // namespace regroup::nccl_profiler
