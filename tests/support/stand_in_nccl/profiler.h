// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/stand_in_nccl/wire.h"

namespace stand_in_nccl {

/// An operation, as far as a profiler plugin hears of it.
struct ProfiledOperation {
    const char* function = "";  ///< By NCCL's name.
    bool is_message = false;
    std::uint32_t dtype = 0;
    std::size_t count = 0;
    int peer = 0;
    void* call = nullptr;  ///< The plugin's handle of the program's call.
};

/// The handles of one kernel's operations.
struct ProfiledKernel {
    std::vector<void*> tasks{};
    std::vector<void*> channels{};
};

/// The events of which NCCL tells the plugin that NCCL_PROFILER_PLUGIN names of one communicator,
/// with the same events in the same order and threads of the same kind. Without a plugin, all calls
/// do nothing.
class Profiler {
   public:
    /// Loads the plugin at the first communicator.
    void begin(const std::string& name, std::uint64_t id, int ranks, int rank);
    /// Unloads it with the last one.
    void end();

    /// The first operation of a group call. Since version 5.
    [[nodiscard]] void* start_group(bool is_captured) const;
    void stop_group(void* group) const;
    /// The program's call. Since version 5.
    [[nodiscard]] void* call(void* group, const ProfiledOperation& operation,
                             bool is_captured) const;
    /// Captured operations are enqueued at each replay, else once when they are captured. NCCL does
    /// the first for the network, too.
    [[nodiscard]] bool tells_of_replays() const;
    /// Enqueues the operations of one kernel: the largest collectives first, and then messages.
    [[nodiscard]] ProfiledKernel enqueue(const std::vector<ProfiledOperation>& operations) const;
    void begin_kernel(ProfiledKernel& kernel) const;
    void end_kernel(const ProfiledKernel& kernel) const;

   private:
    void* context_ = nullptr;
    std::string name_;
    std::uint64_t id_ = 0;
    int rank_ = 0;
    std::atomic<bool> has_begun_ = false;
};

}  // namespace stand_in_nccl
