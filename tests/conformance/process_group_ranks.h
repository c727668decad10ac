// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>
#include <regroup/error.h>
#include <regroup/process_group.h>
#include <regroup/store.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/patience.h"

namespace regroup::testing {

inline Context context_of_rank(std::uint32_t rank, std::uint32_t world_size,
                               std::shared_ptr<Store> store) {
    Context context;
    context.job = "test";
    context.group_secret = "what only the ranks of the test know";
    context.rank = rank;
    context.world_size = world_size;
    if (const char* const transport = std::getenv("REGROUP_CPU_TRANSPORT")) {
        context.cpu_transport = transport;  // Set by the .cmake file of the suite.
    }
    context.group_encryption = std::getenv("REGROUP_GROUP_ENCRYPTION") != nullptr;
    context.use_store(std::move(store));
    return context;
}

/// The objects that the threads of a world share.
struct World {
    explicit World(std::uint32_t size_in) : size(size_in) {}

    [[nodiscard]] std::unique_ptr<ProcessGroup> join(std::uint32_t rank) const {
        return ProcessGroup::create("cpu", context_of_rank(rank, size, store), options);
    }

    std::uint32_t size;
    std::shared_ptr<Store> store = make_local_store(kPatience);
    ProcessGroupOptions options{.timeout = kPatience, .name = "test"};
};

/// Runs `body` once per rank, each in its own thread with its own member of one group, and waits
/// for all. An exception that leaves `body` fails the test.
inline void run_ranks(const World& world, const std::function<void(ProcessGroup&)>& body) {
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

inline void run_ranks(std::uint32_t world_size, const std::function<void(ProcessGroup&)>& body) {
    run_ranks(World(world_size), body);
}

/// The Error that `work` ends with; nothing if it succeeds.
inline std::optional<Error> error_of(const Work& work) {
    return error_of([&] { work.wait(); });
}

}  // namespace regroup::testing

namespace regroup {

using testing::error_of;
using testing::run_ranks;

}  // namespace regroup
