// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/growth_bounds.h"

#include "rendezvous/core/message_bytes.h"

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

bool GrowthBounds::admit(Job& job, NodeReported& event) const {
    const std::size_t bytes = bytes_of(event.report);
    if (bytes > kSmallReportBytes &&
        (!job.core.has_member(event.node) || nodes_bytes() + bytes > limits_.nodes_bytes_max)) {
        remove_details(event.report);
    }
    job.history.reached(job.timeline(clock_.now()), event.report.step);
    if (!journal_.is_used() || job.core.is_routine(event) ||
        may_keep(job, event.node, bytes_of(event.report))) {
        return true;
    }
    remove_details(event.report);
    return may_keep(job, event.node, bytes_of(event.report));
}

bool GrowthBounds::may_keep(Job& job, const NodeId& node, std::size_t bytes) const {
    return !journal_.is_used() || job.allowances.take(node, kEntryBytes + bytes, clock_.now());
}

std::size_t GrowthBounds::nodes_bytes() const {
    std::size_t bytes = 0;
    for (const auto& [id, job] : runner_.jobs()) {
        bytes += job.core.nodes_bytes();
    }
    return bytes;
}

std::size_t GrowthBounds::attendance_bytes() const {
    std::size_t bytes = 0;
    for (const auto& [id, job] : runner_.jobs()) {
        bytes += job.attendance_bytes();
    }
    return bytes;
}

std::string GrowthBounds::excess(Job* job, const Join& join, std::size_t bytes) {
    const bool is_new = job == nullptr || !job->core.knows(join.node);
    if (is_new && nodes_bytes() + bytes > limits_.nodes_bytes_max) {
        return "the nodes of all jobs take all the memory that the daemon has for them";
    }
    if (is_new && job != nullptr && job->core.nodes_count() >= limits_.nodes_max) {
        return "the job has " + std::to_string(job->core.nodes_count()) + " nodes already";
    }
    if (!journal_.is_used()) {
        return "";
    }
    const Instant now = clock_.now();
    bytes += kEntryBytes;
    const bool may_grow = is_new
                              ? (job == nullptr || job->allowances.take_for_newcomer(bytes, now)) &&
                                    newcomers_.take(bytes, now)
                              : job->allowances.take(join.node, bytes, now);
    return may_grow ? "" : "nodes join job " + join.job + " faster than its journal may grow";
}

void GrowthBounds::settle(Job& job, const NodeId& node, std::size_t bytes) {
    if (!job.core.knows(node) && job.core.phase() != Phase::closed) {
        // It was refused, and refusals are not kept: repeated ones must not keep others out.
        job.allowances.give_back(kEntryBytes + bytes);
        newcomers_.give_back(kEntryBytes + bytes);
    } else if (attendance_bytes() < kAttendanceBytesMax) {
        job.remember(node);
    }
}

}  // namespace regroup::rendezvous
