// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "worker_sdk/src/base/spin.h"
#include "worker_sdk/src/cpu/conversation.h"
#include "worker_sdk/src/cpu/doorbell.h"
#include "worker_sdk/src/cpu/mesh.h"
#include "worker_sdk/src/cpu/node_memory.h"
#include "worker_sdk/src/cpu/operation.h"
#include "worker_sdk/src/cpu/ring_stream.h"
#include "worker_sdk/src/group/work.h"

namespace regroup::cpu {

/// Another rank of the node.
struct Neighbour {
    std::uint32_t rank = 0;   ///< In the group.
    std::uint32_t place = 0;  ///< In the shared memory.
    UniqueFd button;          ///< Rings its doorbell.
};

/// Sends and receives between the ranks of one node, through their shared memory. A caller moves
/// the bytes itself when it issues a message and while it waits for one. This saves all wake-ups if
/// the other rank does the same. Otherwise the group's helper thread moves them; another rank that
/// needs it rings the doorbell.
///
/// Outlives its group if a Work does; the group stops it first.
class NodeMessenger final : public WaitHelper, public net::Participant {
   public:
    struct Listener {
        Conversation::Complete complete;  ///< The operation has succeeded.
        /// A caller has met a failure. The group calls `stop` next.
        std::function<void(GroupFailure)> fail;
    };

    NodeMessenger(Mesh& mesh, Listener listener);

    /// From now on, this rank reaches its neighbours. Called once at most, before any caller.
    void open(std::shared_ptr<const NodeMemory> memory, std::uint32_t place,
              std::vector<Neighbour> neighbours, Doorbell doorbell);

    // Callers.

    [[nodiscard]] bool reaches(std::uint32_t rank) const { return lines_.contains(rank); }
    /// Takes over a send or a recv with a rank that it reaches. False if the messenger is stopped.
    [[nodiscard]] bool post(Operation& operation);
    void help(const Work::State& state) override;

    // The helper thread.

    void watch(net::PollSet& poll) override;
    void progress() override;
    [[nodiscard]] Instant next_deadline() const override;
    /// Ends all operations and returns the incomplete ones. Afterwards the messenger accesses no
    /// buffer and calls no callback.
    [[nodiscard]] std::vector<Operation> stop();

   private:
    struct Line {
        Neighbour neighbour;
        Conversation conversation;
        RingStream stream;
    };

    void move(Line& line);
    void move_all();
    void update_attention();
    [[nodiscard]] bool is_idle() const;
    void guard(const std::function<void()>& action);
    [[nodiscard]] bool spin(const Work::State& state);

    Mesh& mesh_;  // The helper thread.
    const Listener listener_;

    mutable std::mutex mutex_;  // Guards the rest; which ranks have lines is constant once open.
    std::shared_ptr<const NodeMemory> memory_;
    NodeMemory::Board* board_ = nullptr;
    std::optional<Doorbell> doorbell_;
    std::map<std::uint32_t, Line> lines_;  // by rank
    SpinPolicy spin_policy_{false};
    int spinners_ = 0;
    std::uint64_t moves_ = 0;            // Calls that have moved bytes.
    bool helper_knows_ = true;           // The helper thread has seen all operations.
    Instant wakes_at_ = Instant::max();  // The helper thread, without a ring.
    bool failed_ = false;
    bool stopped_ = false;
};

}  // namespace regroup::cpu
