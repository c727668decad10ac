// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "worker_sdk/src/cpu/conversation.h"
#include "worker_sdk/src/cpu/node_memory.h"

namespace regroup::cpu {

/// Moves bytes between two ranks of a node through their rings. One thread at a time on each side.
/// When a call returns, the new position is visible before anything that this thread looks at next.
class RingStream final : public MessageStream {
   public:
    RingStream(const MessageRing& outgoing, const MessageRing& incoming) noexcept
        : outgoing_(outgoing), incoming_(incoming) {}

    std::size_t write_some(std::span<const iovec> parts) override;
    std::size_t read_some(std::span<std::byte> space) override;
    /// True if bytes have moved since the last call.
    [[nodiscard]] bool take_moved() noexcept { return std::exchange(moved_, false); }

   private:
    std::size_t write(std::span<const std::byte> bytes) noexcept;

    const MessageRing outgoing_;
    const MessageRing incoming_;
    // The positions as this rank last saw them. Looking again costs a transfer between processors.
    std::uint64_t written_ = 0;
    std::uint64_t written_read_ = 0;
    std::uint64_t read_ = 0;
    std::uint64_t read_written_ = 0;
    bool moved_ = false;
};

}  // namespace regroup::cpu
