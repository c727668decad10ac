// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "worker_sdk/src/cpu/collectives.h"
#include "worker_sdk/src/cpu/control_line.h"
#include "worker_sdk/src/cpu/executor.h"
#include "worker_sdk/src/cpu/group_state.h"
#include "worker_sdk/src/cpu/interruption.h"
#include "worker_sdk/src/cpu/mesh.h"
#include "worker_sdk/src/cpu/messenger.h"
#include "worker_sdk/src/cpu/node_formation.h"
#include "worker_sdk/src/cpu/node_layout.h"
#include "worker_sdk/src/cpu/node_messenger.h"
#include "worker_sdk/src/cpu/operation.h"
#include "worker_sdk/src/cpu/roll_call.h"
#include "worker_sdk/src/group/descendants.h"
#include "worker_sdk/src/group/group_report.h"
#include "worker_sdk/src/net/wakeup.h"

namespace regroup::cpu {

/// How a group is formed.
struct FormationOptions {
    Instant deadline;
    /// Called several times a second; an exception from it ends the attempt.
    std::function<void()> check{};
    /// For a sub-group: the groups that are aborted together with it.
    std::shared_ptr<Descendants> siblings{};
    bool must_share = false;  ///< Without shared memory it is an error.
    /// The shared memory that this rank offers; nullptr if it expects no other rank on its node, or
    /// must not share memory.
    std::shared_ptr<NodeShare> share{};
    std::uint32_t node_ranks = 1;  ///< Ranks of this job on this node.
    /// The scope of the Context: its end also ends the group, formed or not, and it counts the
    /// operations of the group.
    std::shared_ptr<RoundScope> scope{};
};

/// The facts of a group that never change.
struct GroupFacts {
    GroupFacts(const Mesh& mesh, const ProcessGroupOptions& options,
               const FormationOptions& formation);

    /// A listener that writes into the flight recorder. It may outlive the group.
    [[nodiscard]] CollectiveBarrier::Listener note_standing() const;
    /// Fails an operation with the failure of the group.
    void fail(const Operation& operation, const GroupFailure& failure) const;

    const std::string suffix;  ///< " in group \"<name>\""; empty for the default one.
    const Duration limit;
    const GroupPosition position;
    const std::shared_ptr<const std::vector<Peer>> peers;
    const NodeLayout layout;
    const bool must_share;
    const std::uint32_t node_ranks;
    const std::shared_ptr<RoundScope> scope;
    const std::uint32_t record;  ///< The group's number in the flight recorder.
    const std::shared_ptr<GroupReport> report;
};

/// The group over TCP and shared memory. Its callers only put operations into queues:
///
///     caller --post----> executor: collectives, one at a time, in order of issue; a caller that
///                                  waits executes them itself
///            --issued_-> helper:   sends and recvs, all at once, whenever their bytes can move;
///                                  callers move those of ranks on their node
///            <--Work----
///
/// The helper thread also admits the peers that dial, and notices when a rank is gone. Then it ends
/// the group and its executor.
///
/// Comments on the members state which thread may access them.
class CpuProcessGroup final : public ProcessGroup, private net::Participant {
   public:
    /// Takes a mesh without connections.
    CpuProcessGroup(std::unique_ptr<Mesh> mesh, const ProcessGroupOptions& options,
                    const FormationOptions& formation);
    ~CpuProcessGroup() override;

    [[nodiscard]] std::uint32_t rank() const noexcept override { return facts_.position.rank; }
    [[nodiscard]] std::uint32_t world_size() const noexcept override {
        return facts_.position.world_size;
    }
    [[nodiscard]] std::string_view backend() const noexcept override { return "cpu"; }

    [[nodiscard]] std::unique_ptr<ProcessGroup> new_group(const std::vector<std::uint32_t>& ranks,
                                                          std::string_view name) override;
    [[nodiscard]] Buffer allocate(std::size_t bytes) override;
    void abort(std::string_view reason) noexcept override;

    /// True if collectives go through shared memory alone.
    [[nodiscard]] bool shares_memory() const noexcept { return collectives_->is_in_memory(); }
    /// Payload bytes that this rank has sent over connections for collectives. Any thread.
    [[nodiscard]] std::uint64_t collective_bytes_sent() const noexcept {
        return collectives_->bytes_sent();
    }

   protected:
    [[nodiscard]] Work issue(const OperationRequest& request) override;

   private:
    // Callers.
    void share_nodes(const FormationOptions& formation);
    [[nodiscard]] bool agree_among_nodes(bool mine, Instant deadline);
    [[nodiscard]] Work submit(Operation operation);

    // Any thread.
    void report(GroupFailure failure);
    void complete(const Operation& operation);

    // Helper thread.
    void watch(net::PollSet& poll) override;
    void progress() override;
    void run() noexcept;
    void take(const GroupFailure& reported);
    [[nodiscard]] Instant next_deadline() const override;
    void finish(GroupFailure failure);

    const GroupFacts facts_;
    const std::shared_ptr<Descendants> descendants_ = std::make_shared<Descendants>();
    GroupState state_;

    // Used by the helper alone, once it runs.
    std::unique_ptr<Mesh> mesh_;
    Interruption interruption_;
    ControlLine control_;
    net::Wakeup wakeup_;  // Any thread rings.
    RollCall roll_call_;
    Messenger messenger_;

    const std::shared_ptr<NodeMessenger> node_messenger_;
    const std::shared_ptr<Collectives> collectives_;
    const std::shared_ptr<Executor> executor_;

    std::thread helper_;
    SubgroupRegistration subgroup_registration_;
};

}  // namespace regroup::cpu
