// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace regroup::nccl_profiler {

/// The handle of an event, which NCCL keeps and gives back as a pointer. It is a number instead, so
/// that one that is too old, or of another process, does no harm.
class Handle {
   public:
    enum class Kind : std::uint8_t {
        none,     ///< The null pointer: NCCL says no more about the event.
        ignored,  ///< NCCL must have a handle, but what it says of the event is of no interest.
        group,    ///< A group call. Names it.
        call,     ///< The program has called an operation of a batch.
        task,     ///< NCCL has enqueued an operation of a batch.
        channel,  ///< A channel of a kernel runs for a batch.
    };

    constexpr Handle() noexcept = default;
    constexpr explicit Handle(Kind kind, std::uint32_t communicator = 0,
                              std::uint64_t batch = 0) noexcept
        : bits_(static_cast<std::uint64_t>(kind) | std::uint64_t{communicator & 0xffU} << 3U |
                batch << 11U) {}
    explicit Handle(const void* pointer) noexcept : bits_(std::bit_cast<std::uint64_t>(pointer)) {}

    [[nodiscard]] constexpr Kind kind() const noexcept { return static_cast<Kind>(bits_ & 7U); }
    [[nodiscard]] constexpr std::uint32_t communicator() const noexcept {
        return static_cast<std::uint32_t>(bits_ >> 3U) & 0xffU;
    }
    [[nodiscard]] constexpr std::uint64_t batch() const noexcept { return bits_ >> 11U; }
    [[nodiscard]] void* pointer() const noexcept { return std::bit_cast<void*>(bits_); }

    friend constexpr bool operator==(Handle, Handle) noexcept = default;

   private:
    std::uint64_t bits_ = 0;
};

}  // namespace regroup::nccl_profiler
