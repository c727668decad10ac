// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "worker_sdk/src/cpu/file_ticket.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup::cpu {

/// Memory that several processes of one machine map. It has no name in a file system, so the kernel
/// frees it when the processes have ended in any way.
class SharedMemory {
   public:
    struct Ticket {
        std::uint64_t bytes = 0;  ///< 0: there is none.
        FileTicket file{};
    };

    SharedMemory() = default;
    /// Zeroed, in whole pages. `reserved` memory is allocated at once; the kernel allocates other
    /// memory at the first access, which can fail. Throws Error `system`.
    [[nodiscard]] static SharedMemory create(std::size_t bytes, bool reserved);
    /// Maps the memory of another rank. Returns nothing if this process cannot reach it: the rank
    /// is on another machine, in another container, or runs as another user.
    [[nodiscard]] static std::optional<SharedMemory> open(const Ticket& ticket);

    ~SharedMemory();
    SharedMemory(SharedMemory&& other) noexcept;
    SharedMemory& operator=(SharedMemory&& other) noexcept;

    [[nodiscard]] Ticket ticket() const;
    /// After this call no other process can open the memory.
    void close_ticket() noexcept { descriptor_ = UniqueFd(); }

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

   private:
    void map();

    UniqueFd descriptor_;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace regroup::cpu
