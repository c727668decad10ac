// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "worker_sdk/src/net/socket.h"

namespace regroup::cpu {

/// Memory that several processes of one machine have mapped. It has no name anywhere, so nothing is
/// left of it when they are gone, however they went.
class SharedMemory {
   public:
    /// By what others find it, as long as its maker keeps the descriptor open.
    struct Ticket {
        std::uint64_t bytes = 0;  ///< 0: there is none.
        std::uint64_t device = 0;
        std::uint64_t inode = 0;
        std::int32_t process = 0;
        std::int32_t descriptor = -1;
    };

    SharedMemory() = default;
    /// Zeroed, in whole pages. `reserved` memory is there for certain; other memory is found, or
    /// not, when it is first touched. Throws Error `system`.
    [[nodiscard]] static SharedMemory create(std::size_t bytes, bool reserved);
    /// Maps what another rank has made. Nothing if this process cannot reach it: it is on another
    /// machine, in another container, or of another user.
    [[nodiscard]] static std::optional<SharedMemory> open(const Ticket& ticket);

    ~SharedMemory();
    SharedMemory(SharedMemory&& other) noexcept;
    SharedMemory& operator=(SharedMemory&& other) noexcept;

    [[nodiscard]] Ticket ticket() const;
    /// From now on nobody else can open it.
    void close_ticket() noexcept { descriptor_ = net::Descriptor(); }

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

   private:
    void map();

    net::Descriptor descriptor_;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace regroup::cpu
