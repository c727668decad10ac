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
    poll.want_read(wakeup_);
}

Instant CpuProcessGroup::next_deadline() const {
    return check_ ? after(SteadyClock().now(), kCheckInterval) : Instant::max();
}

/// Takes over the operations that callers have issued and checks whether a caller has aborted the
/// group.
void CpuProcessGroup::progress() {
    if (check_) {
        check_();
    }
    if (!wakeup_.readable) {
        return;
    }
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wakeup_.fd.get(), &count, sizeof count);
    wakeup_.readable = false;
    std::deque<Operation> issued;
    {
        const std::lock_guard lock(mutex_);
        if (abort_reason_) {
            throw GroupFailure{Errc::fenced, *abort_reason_, {}};
        }
        if (node_failure_ && node_failure_->follows) {
            mesh_->suspect(*node_failure_);
        } else if (node_failure_) {
            throw GroupFailure(*node_failure_);
        }
        if (closing_) {
            throw Leave();
        }
        issued.swap(issued_);
    }
    for (Operation& operation : issued) {
        if (is_message(operation)) {
            flight_recorder().started(operation.record, operation.issued_at);
            messenger_.post(std::move(operation));
        } else {
            collectives_.push_back(std::move(operation));
        }
    }
}

void CpuProcessGroup::run() noexcept {
    GroupFailure failure;
    try {
        carry_out_all();
    } catch (const Leave&) {
        control_.announce_leave();
        mesh_.reset();
        if (node_) {
            static_cast<void>(node_->stop(true));
        }
        return;
    } catch (GroupFailure& caught) {
        failure = std::move(caught);
    } catch (const Error& error) {
        failure = {error.code(), error.what(), {}};
    } catch (const std::exception& error) {
        failure = {Errc::system, error.what(), {}};  // Out of memory.
    }
    finish(std::move(failure));
}

void CpuProcessGroup::carry_out_all() {
    while (true) {
        if (collectives_.empty()) {
            mesh_->turn(Instant::max());
            continue;
        }
        // The operation stays at the front until it is complete, so that `finish` can fail it.
        carry_out(collectives_.front());
        Operation done = std::move(collectives_.front());
        collectives_.pop_front();
        complete(done);
    }
}

void CpuProcessGroup::carry_out(Operation& operation) {
    flight_recorder().started(operation.record, SteadyClock().now());
    lane_.begin(operation.signature, operation.limit);
    move_into_place(operation);
    algorithms_.carry_out(operation);
    lane_.end();
}

void CpuProcessGroup::complete(const Operation& operation) {
    const Instant now = SteadyClock().now();
    flight_recorder().completed(operation.record, now);
    {
        const std::lock_guard lock(mutex_);
        --outstanding_;
    }
    scope_->note_done();
    operation.work->succeed(now);
}

/// Ends the group: tells the other ranks, then wakes all waiting callers on this rank.
void CpuProcessGroup::finish(GroupFailure failure) {
    if (failure.operation.empty() && !collectives_.empty()) {
        failure.operation = describe(collectives_.front().signature);
    } else if (failure.operation.empty() && node_) {
        failure.operation = node_->current();
    }
    std::vector<Operation> failed = messenger_.take_all();
    const std::string met_by = failure.operation.empty() ? "" : failure.operation + ": ";
    control_.announce_failure(failure.code, met_by + failure.cause, failure.broken_to);
    mesh_.reset();
    {
        const std::lock_guard lock(mutex_);
        failure_ = failure;
    }
    if (node_) {
        std::vector<Operation> unfinished = node_->stop(false);
        std::move(unfinished.begin(), unfinished.end(), std::back_inserter(failed));
    }
    {
        const std::lock_guard lock(mutex_);
        outstanding_ = 0;
        std::move(issued_.begin(), issued_.end(), std::back_inserter(failed));
        issued_.clear();
    }
    std::move(collectives_.begin(), collectives_.end(), std::back_inserter(failed));
    collectives_.clear();
    for (const Operation& operation : failed) {
        operation.work->fail(failure.code, explain(failure, operation.signature));
    }
    if (failure.code != Errc::fenced) {
        write_flight_record();
    }
}

}  // namespace regroup::cpu
