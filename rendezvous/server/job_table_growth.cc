// SPDX-License-Identifier: Apache-2.0
//
// Bounds on the growth of a job table, and of its journal, by peers.
#include <utility>

#include "rendezvous/core/message_bytes.h"
#include "rendezvous/server/job_table.h"

namespace regroup::rendezvous {

namespace {

// Beyond this further nodes are not remembered: if such a node comes back after the end of its job,
// it begins the job anew.
constexpr std::size_t kAttendanceBytesMax = std::size_t{64} << 20U;
// An entry of a journal besides the texts in it.
constexpr std::size_t kEntryBytes = 256;
// A report of this size is accepted at any time.
constexpr std::size_t kSmallReportBytes = 2048;

}  // namespace

// A report that would take too much loses its details first. Then it counts as a lost message: the
// node repeats its state.
void JobTable::report(const std::shared_ptr<Session>& session, Job& job, NodeReport report) {
    const std::size_t bytes = bytes_of(report);
    if (bytes > kSmallReportBytes &&
        (!job.core.has_member(session->node) || nodes_bytes() + bytes > limits_.nodes_bytes_max)) {
        remove_details(report);
    }
    job.history.reached(job.timeline(clock_.now()), report.step);
    NodeReported event{session->node, std::move(report)};
    if (journal_ && !job.core.is_routine(event) &&
        !may_keep(job, event.node, bytes_of(event.report))) {
        remove_details(event.report);
        if (!may_keep(job, event.node, bytes_of(event.report))) {
            return;
        }
    }
    step(job, event);
}

bool JobTable::has_place(const FromAgent& message) const {
    const auto* join = std::get_if<Join>(&message);
    const auto job = join == nullptr ? jobs_.end() : jobs_.find(join->job);
    return job != jobs_.end() && job->second.core.knows(join->node) &&
           job->second.core.is_proven(join->node, join->offer);
}

bool JobTable::may_keep(Job& job, const NodeId& node, std::size_t bytes) const {
    return !journal_ || job.may_grow_for(node, kEntryBytes + bytes, clock_.now());
}

std::size_t JobTable::nodes_bytes() const {
    std::size_t bytes = 0;
    for (const auto& [id, job] : jobs_) {
        bytes += job.core.nodes_bytes();
    }
    return bytes;
}

std::size_t JobTable::attendance_bytes() const {
    std::size_t bytes = 0;
    for (const auto& [id, job] : jobs_) {
        bytes += job.attendance_bytes();
    }
    return bytes;
}

std::string JobTable::excess(Job* job, const Join& join, std::size_t bytes) {
    const bool is_new = job == nullptr || !job->core.knows(join.node);
    if (is_new && nodes_bytes() + bytes > limits_.nodes_bytes_max) {
        return "the nodes of all jobs take all the memory that the daemon has for them";
    }
    if (!journal_) {
        return "";
    }
    const Instant now = clock_.now();
    bytes += kEntryBytes;
    const bool may_grow = is_new ? (job == nullptr || job->may_grow_for_newcomer(bytes, now)) &&
                                       newcomers_.take(bytes, now)
                                 : job->may_grow_for(join.node, bytes, now);
    return may_grow ? "" : "nodes join job " + join.job + " faster than its journal may grow";
}

void JobTable::settle(Job& job, const NodeId& node, std::size_t bytes) {
    if (!job.core.knows(node) && job.core.phase() != Phase::closed) {
        // It was refused, and refusals are not kept: repeated ones must not keep others out.
        job.has_not_grown(kEntryBytes + bytes);
        newcomers_.give_back(kEntryBytes + bytes);
    } else if (attendance_bytes() < kAttendanceBytesMax) {
        job.remember(node);
    }
}

bool JobTable::make_room(const std::string& address) {
    auto found = jobs_.end();
    for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
        if (job->second.is_expendable() &&
            (found == jobs_.end() ||
             job->second.deserted_since() < found->second.deserted_since())) {
            found = job;
        }
    }
    if (found == jobs_.end()) {
        return false;
    }
    peers_log_.log("make room", address,
                   "job " + found->first +
                       ": forgotten to make room for another job; no node of it is connected, and "
                       "it has no round",
                   clock_.now());
    forget(found);
    return true;
}

}  // namespace regroup::rendezvous
