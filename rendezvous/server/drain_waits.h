// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/core/job_status.h"
#include "rendezvous/core/rendezvous_core.h"
#include "rendezvous/core/rendezvous_events.h"
#include "rendezvous/server/session.h"

namespace regroup::rendezvous {

/// The operators that wait until the nodes that they drain have left a job, and the last reports of
/// those nodes. Costs nothing while no operator waits.
class DrainWaits {
   public:
    [[nodiscard]] bool empty() const noexcept { return waits_.empty(); }
    [[nodiscard]] std::size_t count() const noexcept { return waits_.size(); }
    /// `session` waits for those of `nodes` whose name or id is `name`. It gets no answer before
    /// `accept`.
    void add(const std::shared_ptr<Session>& session, const std::string& name,
             const std::vector<JobStatus::Node>& nodes);
    /// The operator has been told that the nodes are to leave.
    void accept(const std::shared_ptr<Session>& session);
    /// The connection of an operator, or of a node, has ended.
    void ended(const std::shared_ptr<Session>& session);
    /// Another daemon has the job: closes the connections, so that operators ask there.
    void hang_up();
    /// Must be called for each event of the job.
    void note(const Event& event);
    /// Answers the operators whose wait is over: all their nodes have left, or the job has ended. A
    /// job that all nodes leave ends before the last nodes have saved their state; the end of their
    /// connections shows that they have.
    void answer_gone(const std::string& job, const RendezvousCore& core);
    /// Answers all that were accepted: the daemon is about to end.
    void answer_all(const std::string& job);

   private:
    struct Leaver {
        std::string title;       // "node b (ranks 2-3)"
        std::uint64_t step = 0;  // The last step that its workers are known to have had.
        bool said_goodbye = false;
        bool killed = false;
        std::string reason;  // The reason in its Leave message.
        bool gone = false;
        bool outlives_job = false;  // It had not left when the job ended.
    };
    struct Wait {
        std::shared_ptr<Session> session;
        bool accepted = false;
        std::map<NodeId, Leaver> leavers;
    };

    void hear(const NodeId& node, const NodeReport& report);
    void look(Leaver& leaver, const NodeId& id, const RendezvousCore& core) const;
    static void answer(const Wait& wait, const std::string& job, const std::string& why_not);

    std::vector<Wait> waits_;
    std::size_t nodes_count_ = 0;  // The number of nodes at the last check for departures.
    bool look_again_ = true;       // The last check may be out of date.
};

}  // namespace regroup::rendezvous
