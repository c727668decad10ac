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
    return state_.is_forming() ? after(SteadyClock().now(), kCheckInterval) : Instant::max();
}

/// Takes over the messages that callers have issued, and the failure that the executor has met.
/// Checks whether a caller has aborted the group.
void CpuProcessGroup::progress() {
    state_.check_forming();
    if (!wakeup_.drain()) {
        return;
    }
    GroupState::Orders orders = state_.take_orders();
    if (orders.leave) {
        throw Leave();
    }
    if (orders.reported) {
        take(*orders.reported);
    }
    for (Operation& operation : orders.messages) {
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
    state_.note_complete();
    if (operation.signature.kind != OperationKind::form) {
        flight_recorder().completed(operation.record, now);
        facts_.report->completed(operation.signature.kind, operation.report, now);
        facts_.scope->note_done();
    }
    operation.work->succeed(now);
}

/// Ends the group: tells the other ranks, then wakes all waiting callers on this rank.
void CpuProcessGroup::finish(GroupFailure failure) {
    if (failure.operation.empty()) {
        failure.operation = executor_->current();
    }
    if (const auto fault = peer_fault(failure)) {
        facts_.scope->note_peer_fault(*fault);
    }
    const std::string met_by = failure.operation.empty() ? "" : failure.operation + ": ";
    control_.announce_failure(failure.code, met_by + failure.cause, failure.broken_to);
    state_.end(failure);
    std::vector<Operation> failed = executor_->stop(false);
    const auto add = [&failed](auto operations) {
        std::move(operations.begin(), operations.end(), std::back_inserter(failed));
    };
    add(messenger_.take_all());
    add(node_messenger_->stop());
    mesh_.reset();
    add(state_.take_rest());
    for (const Operation& operation : failed) {
        facts_.fail(operation, failure);
    }
    if (failure.code != Errc::fenced) {
        write_flight_record();
    }
}

}  // namespace regroup::cpu
