// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "worker_sdk/src/cpu/conversation.h"
#include "worker_sdk/src/cpu/mesh.h"
#include "worker_sdk/src/cpu/operation.h"

namespace regroup::cpu {

/// Sends and receives between pairs of ranks, over connections.
class Messenger final : public net::Participant {
   public:
    /// `complete` is called with each operation that has succeeded.
    Messenger(Mesh& mesh, Conversation::Complete complete);

    /// Takes over a send or a recv, which makes its first progress in this turn or the next.
    void post(Operation operation);
    /// Returns all operations that are not complete.
    [[nodiscard]] std::vector<Operation> take_all();

    void watch(net::PollSet& poll) override;
    void progress() override;
    [[nodiscard]] Instant next_deadline() const override;

   private:
    [[nodiscard]] Conversation& conversation(std::uint32_t peer);
    void progress_sends(std::uint32_t peer, Conversation& conversation);
    void progress_recvs(std::uint32_t peer, Conversation& conversation);

    Mesh& mesh_;
    const Conversation::Complete complete_;
    std::map<std::uint32_t, Conversation> conversations_;  // by peer
};

}  // namespace regroup::cpu
