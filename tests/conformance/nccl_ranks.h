// SPDX-License-Identifier: Apache-2.0
// Ranks as threads over the stand-in for libnccl.so.2.
#pragma once

#include <regroup/context.h>
#include <regroup/process_group.h>
#include <regroup/store.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <dlfcn.h>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/stand_in_nccl/host_runtime.h"
#include "tests/support/stand_in_nccl/stand_in_nccl.h"
#include "worker_sdk/src/nccl/formation.h"
#include "worker_sdk/src/nccl/nccl_api.h"

namespace regroup::testing {

/// The stand-in and its controls.
class StandIn {
   public:
    StandIn() : api_(nccl::open_api(STAND_IN_NCCL)), library_(::dlopen(STAND_IN_NCCL, RTLD_NOW)) {
        find<void (*)()>("stand_in_nccl_reset")();
    }

    [[nodiscard]] nccl::NcclApi& api() { return api_; }
    void set_faults(const char* text) const {
        find<void (*)(const char*)>("stand_in_nccl_faults")(text);
    }
    [[nodiscard]] std::string journal() const {
        const auto read = find<std::size_t (*)(char*, std::size_t)>("stand_in_nccl_journal");
        std::string text(read(nullptr, 0), '\0');
        text.resize(std::min(text.size(), read(text.data(), text.size())));
        return text;
    }
    /// Lines of the journal that begin with `what`.
    [[nodiscard]] std::vector<std::string> events(const std::string& what) const {
        std::vector<std::string> found;
        std::istringstream lines(journal());
        for (std::string line; std::getline(lines, line);) {
            if (line.starts_with(what)) {
                found.push_back(line);
            }
        }
        return found;
    }

   private:
    template <class Function>
    [[nodiscard]] Function find(const char* name) const {
        return reinterpret_cast<Function>(::dlsym(library_, name));
    }

    nccl::NcclApi api_;
    void* library_;
};

/// A new `T` that lives as long as the process, as NCCL and CUDA do: threads that free what a group
/// has left behind may be a little later than the group.
template <class T>
[[nodiscard]] T& kept() {
    static std::deque<T> all;
    return all.emplace_back();
}

/// A world of ranks, each with a GPU of its own that is host memory.
struct NcclWorld {
    explicit NcclWorld(std::uint32_t size_in) : size(size_in) {}

    [[nodiscard]] Device device_of(std::uint32_t rank) const {
        return {DeviceKind::cuda, static_cast<std::int32_t>(rank)};
    }
    [[nodiscard]] std::unique_ptr<ProcessGroup> join(std::uint32_t rank) {
        return join(context_of_rank(rank, size, store));
    }
    [[nodiscard]] std::unique_ptr<ProcessGroup> join(const Context& context) {
        return nccl::form_group_on({stand_in.api(), runtime, freeing_max, blocking}, context,
                                   options, device_of(context.rank),
                                   {.meeting_limit = meeting_limit});
    }

    std::uint32_t size;
    StandIn& stand_in = kept<StandIn>();
    HostRuntime& runtime = kept<HostRuntime>();
    std::shared_ptr<Store> store = make_local_store(kPatience);
    ProcessGroupOptions options{.timeout = kPatience, .name = "test", .device = {}};
    /// Lets the ranks meet, for tests of the timeout.
    std::optional<Duration> meeting_limit{};
    Duration freeing_max = kPatience;
    /// Set by the .cmake file of the suite.
    bool blocking = std::getenv("REGROUP_NCCL_BLOCKING") != nullptr;
};

/// Runs `body` once per rank, each in its own thread with its own member of one group, and waits
/// for all. An exception that leaves `body` fails the test, and so does a violation of NCCL's
/// rules.
inline void run_ranks(NcclWorld& world, const std::function<void(ProcessGroup&)>& body) {
    {
        std::vector<std::jthread> threads;
        for (std::uint32_t rank = 0; rank < world.size; ++rank) {
            threads.emplace_back([&, rank] {
                try {
                    const auto group = world.join(rank);
                    body(*group);
                } catch (const std::exception& error) {
                    ADD_FAILURE() << "rank " << rank << ": " << error.what();
                }
            });
        }
    }
    EXPECT_EQ(world.stand_in.events("VIOLATION"), std::vector<std::string>());
}

inline void run_ranks_on_gpus(std::uint32_t size, const std::function<void(ProcessGroup&)>& body) {
    NcclWorld world(size);
    run_ranks(world, body);
}

/// `values` as a buffer of this group.
template <class T>
TensorView view(std::vector<T>& values, const ProcessGroup& group) {
    return {values.data(), values.size(), DTypeOf<T>::value, group.device()};
}

}  // namespace regroup::testing

namespace regroup {

using testing::run_ranks;

}  // namespace regroup
