// SPDX-License-Identifier: Apache-2.0
// The functions that the helper thread of a group runs.
#include <regroup/error.h>

#include <exception>
#include <iterator>
#include <unistd.h>
#include <utility>
#include <vector>

#include "worker_sdk/src/base/flight_recorder.h"
#include "worker_sdk/src/cpu/cpu_process_group.h"

namespace regroup::cpu {
namespace {

constexpr Duration kCheckInterval = std::chrono::milliseconds(50);

/// Ends the helper of a group that is destroyed with nothing left to do.
struct Leave {};

}  // namespace

void CpuProcessGroup::watch(net::PollSet& poll) {
    wakeup_.watch(poll);
}

Instant CpuProcessGroup::next_deadline() const {
    const std::lock_guard lock(mutex_);
    return check_ ? after(SteadyClock().now(), kCheckInterval) : Instant::max();
}

/// Takes over the messages that callers have issued, and the failure that the executor has met.
/// Checks whether a caller has aborted the group.
void CpuProcessGroup::progress() {
    std::deque<Operation> issued;
    std::optional<GroupFailure> reported;
    {
        const std::lock_guard lock(mutex_);
        if (check_) {
            check_();
        }
        if (!wakeup_.drain()) {
            return;
        }
        if (abort_reason_) {
            throw GroupFailure{Errc::fenced, *abort_reason_};
        }
        reported = reported_failure_;
        if (closing_ && !reported) {
            throw Leave();
        }
        issued.swap(issued_);
    }
    if (reported) {
        take(*reported);
    }
    for (Operation& operation : issued) {
        flight_recorder().started(operation.record, operation.issued_at);
        messenger_.post(std::move(operation));
    }
}

/// Throws the failure, or waits for the other ranks' explanation.
void CpuProcessGroup::take(const GroupFailure& reported) {
    if (reported.follows) {
        mesh_->suspect(reported);
    } else if (reported.expired) {
        roll_call_.expire(reported);
    } else {
        throw GroupFailure(reported);
    }
}

void CpuProcessGroup::run() noexcept {
    GroupFailure failure;
    try {
        while (true) {
            mesh_->turn(Instant::max());
        }
    } catch (const Leave&) {
        control_.announce_leave();
        static_cast<void>(executor_->stop(true));
        static_cast<void>(node_messenger_->stop());
        mesh_.reset();
        return;
    } catch (GroupFailure& caught) {
        failure = std::move(caught);
    } catch (const Error& error) {
        failure = {.code = error.code(), .cause = error.what()};
    } catch (const std::exception& error) {
        failure = {.code = Errc::system, .cause = error.what()};  // Out of memory.
    }
    finish(std::move(failure));
}

void CpuProcessGroup::complete(const Operation& operation) {
    const Instant now = SteadyClock().now();
    {
        const std::lock_guard lock(mutex_);
        --outstanding_;
    }
    if (operation.signature.kind != OperationKind::form) {
        flight_recorder().completed(operation.record, now);
        scope_->note_done();
    }
    operation.work->succeed(now);
}

/// Ends the group: tells the other ranks, then wakes all waiting callers on this rank.
void CpuProcessGroup::finish(GroupFailure failure) {
    if (failure.operation.empty()) {
        failure.operation = executor_->current();
    }
    if (const auto fault = peer_fault(failure)) {
        scope_->note_peer_fault(*fault);
    }
    const std::string met_by = failure.operation.empty() ? "" : failure.operation + ": ";
    control_.announce_failure(failure.code, met_by + failure.cause, failure.broken_to);
    {
        const std::lock_guard lock(mutex_);
        failure_ = failure;
    }
    std::vector<Operation> failed = executor_->stop(false);
    for (std::vector<Operation> messages : {messenger_.take_all(), node_messenger_->stop()}) {
        std::move(messages.begin(), messages.end(), std::back_inserter(failed));
    }
    mesh_.reset();
    {
        const std::lock_guard lock(mutex_);
        outstanding_ = 0;
        std::move(issued_.begin(), issued_.end(), std::back_inserter(failed));
        issued_.clear();
    }
    for (const Operation& operation : failed) {
        operation.work->fail(failure.code, explain(failure, operation.signature));
    }
    if (failure.code != Errc::fenced) {
        write_flight_record();
    }
}

}  // namespace regroup::cpu
