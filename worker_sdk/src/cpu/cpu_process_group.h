// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "worker_sdk/src/cpu/collective_lane.h"
#include "worker_sdk/src/cpu/collectives.h"
#include "worker_sdk/src/cpu/control_line.h"
#include "worker_sdk/src/cpu/mesh.h"
#include "worker_sdk/src/cpu/messenger.h"
#include "worker_sdk/src/cpu/operation.h"

namespace regroup::cpu {

/// The group over TCP. Its callers only put operations into a queue; one helper thread owns all
/// connections and carries everything out:
///
///     caller --issued_--> helper: collectives, one at a time, in order of issue
///                                 sends and recvs, all at once, whenever their bytes can move
///            <--Work----
///
/// Members are labelled by who may touch them.
class CpuProcessGroup final : public ProcessGroup, private Participant {
   public:
    /// Takes a mesh that is connected to nobody yet and forms the group by `deadline`.
    CpuProcessGroup(std::unique_ptr<Mesh> mesh, const ProcessGroupOptions& options,
                    Instant deadline);
    ~CpuProcessGroup() override;

    [[nodiscard]] std::uint32_t rank() const noexcept override { return seat_.rank; }
    [[nodiscard]] std::uint32_t world_size() const noexcept override { return seat_.world_size; }
    [[nodiscard]] std::string_view backend() const noexcept override { return "cpu"; }

    [[nodiscard]] Work all_reduce(TensorView buffer, Reduction reduction) override;
    [[nodiscard]] Work broadcast(TensorView buffer, std::uint32_t root) override;
    [[nodiscard]] Work all_gather(ConstTensorView input, TensorView output) override;
    [[nodiscard]] Work barrier() override;
    [[nodiscard]] Work send(ConstTensorView buffer, std::uint32_t peer, std::uint32_t tag) override;
    [[nodiscard]] Work recv(TensorView buffer, std::uint32_t peer, std::uint32_t tag) override;
    void abort(std::string_view reason) noexcept override;

    /// Payload bytes that this rank has sent for collectives. Any thread.
    [[nodiscard]] std::uint64_t collective_bytes_sent() const noexcept {
        return lane_.bytes_sent();
    }

   private:
    // Callers.
    [[nodiscard]] Work issue(Operation operation);
    void wake() noexcept;

    // Both.
    [[nodiscard]] std::string explain(const GroupFailure& failure,
                                      const Signature& signature) const;

    // Helper thread.
    void watch(PollSet& poll) override;
    void progress() override;
    void run() noexcept;
    void carry_out_all();
    void carry_out(const Operation& operation);
    void complete(const Operation& operation);
    void finish(GroupFailure failure);

    // Constant.
    const std::string suffix_;  // " in group \"<name>\""; empty for the default one.
    const Duration limit_;
    const Seat seat_;

    // The helper's alone, once it runs.
    std::unique_ptr<Mesh> mesh_;
    ControlLine control_;
    CollectiveLane lane_;
    Collectives algorithms_;
    Messenger messenger_;
    Pollable wakeup_;  // An eventfd; callers only write to it.
    std::deque<Operation> collectives_;

    // Guarded by mutex_.
    std::mutex mutex_;
    std::deque<Operation> issued_;
    std::size_t outstanding_ = 0;
    std::uint64_t collectives_issued_ = 0;
    std::uint64_t messages_issued_ = 0;
    std::optional<std::string> abort_reason_;
    bool closing_ = false;
    std::optional<GroupFailure> failure_;

    std::thread helper_;
};

}  // namespace regroup::cpu
