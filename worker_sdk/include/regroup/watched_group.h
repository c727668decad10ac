// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/tensor_view.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace regroup {

/// An operation of a WatchedGroup. The values are stable.
enum class WatchedOperation : std::uint8_t {
    all_reduce,
    reduce,
    broadcast,
    all_gather,
    reduce_scatter,
    all_to_all,
    gather,
    scatter,
    barrier,
    send,
    receive,
    other,
};

/// Tells the agent of this process which collectives a group is in that the SDK did not make, such
/// as one of gloo. When ranks wait in a collective that another rank has not entered, the launcher
/// names that rank (docs/hangs.md). ProcessGroup does this by itself.
///
///     regroup::WatchedGroup group(
///         {.backend = "gloo", .name = "data", .id = 7, .size = 4, .rank = 1});
///     const std::uint64_t number =
///         group.entered(regroup::WatchedOperation::all_reduce, regroup::DType::float32, 1024);
///     // The other library's all_reduce.
///     group.completed(number);
///
/// All ranks construct the group and tell the same collectives in the same order. The calls that
/// enter come one after the other, and so do those that complete; both may be made by any thread.
/// They cost no system call, about 50 ns each, and throw nothing. Without an agent, for more than
/// 64 groups of a process, and in a forked child they do nothing.
class WatchedGroup {
   public:
    /// How the program learns that collectives have ended.
    enum class Ends : std::uint8_t {
        unknown,     ///< It does not. completed() may be called, and is a hint.
        told,        ///< It calls completed() as soon as one has ended.
        looked_for,  ///< It looks several times a second, and calls looked() each time.
    };

    struct Identity {
        std::string backend{};   ///< "gloo", "nccl" or "cpu"; others are shown without a name.
        std::string name{};      ///< For people; 31 bytes are kept.
        std::uint64_t id = 0;    ///< The same on all ranks, and no other group's; 53 bits are kept.
        std::uint32_t size = 0;  ///< Ranks of the group.
        std::uint32_t rank = 0;  ///< Of this process, in the group.
        Ends ends = Ends::told;
    };

    explicit WatchedGroup(const Identity& identity) noexcept;
    /// The group has ended.
    ~WatchedGroup();
    WatchedGroup(const WatchedGroup&) = delete;
    WatchedGroup& operator=(const WatchedGroup&) = delete;

    /// The program calls a collective, which begins. `dtype` and `elements` are those of this rank;
    /// of all_reduce, reduce and broadcast they must be the same on all ranks. Returns its number,
    /// from 1; 0 if nobody watches.
    std::uint64_t entered(WatchedOperation operation, std::optional<DType> dtype = std::nullopt,
                          std::uint64_t elements = 0) noexcept;
    /// The collective `number` has ended, and so have those before it.
    void completed(std::uint64_t number) noexcept;
    /// completed() has been called for all that have ended until now. For Ends::looked_for: when
    /// the last call is older than 2 s, the agent takes the ends for unknown.
    void looked() noexcept;

    /// The program waits in a send or a receive for the rank `peer` of the group. One message at a
    /// time.
    void message_entered(WatchedOperation operation, std::uint32_t peer,
                         std::optional<DType> dtype = std::nullopt,
                         std::uint64_t elements = 0) noexcept;
    void message_completed() noexcept;

   private:
    struct Writer;
    std::unique_ptr<Writer> writer_;  // Null if there was no memory for it.
};

}  // namespace regroup
