// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/nccl_process_group.h"

#include <regroup/error.h>

#include <algorithm>
#include <array>
#include <utility>

#include "rendezvous/base/result.h"
#include "worker_sdk/src/base/checksum.h"
#include "worker_sdk/src/base/learned_orders.h"
#include "worker_sdk/src/group/refusing_process_group.h"
#include "worker_sdk/src/group/request.h"

namespace regroup::nccl {
namespace {

/// Colors from here on are those of ranks that are in no sub-group; below are those of sub-groups.
constexpr int kAloneColor = 1 << 30;

/// Differs, very probably, for sub-groups of other ranks or of another name.
int color_of(const std::vector<std::uint32_t>& ranks, const std::string& name) {
    const std::vector<std::uint64_t> words(ranks.begin(), ranks.end());
    return static_cast<int>((checksum(words) ^ checksum(name)) % kAloneColor);
}

Bounds bounds_of(const Backend& backend, const GroupIdentity& identity) {
    return {.rank = identity.rank,
            .world_size = static_cast<std::uint32_t>(identity.members.size()),
            .device = identity.device,
            .compute_capability = backend.runtime.compute_capability(identity.device.index),
            .nccl_version = backend.api.version};
}

/// The same on every rank of the parent, and different for every sub-group at any nesting depth.
std::uint32_t scope_of_child(std::uint32_t parent, std::uint32_t number) {
    const std::array<std::uint64_t, 2> words{parent, number};
    return std::max(static_cast<std::uint32_t>(checksum(words)), 1U);
}

}  // namespace

NcclProcessGroup::NcclProcessGroup(const Backend& backend, std::shared_ptr<Watchdog> watchdog,
                                   std::shared_ptr<Lane> lane)
    : backend_(backend),
      watchdog_(std::move(watchdog)),
      lane_(std::move(lane)),
      bounds_(bounds_of(backend, lane_->identity())) {}

NcclProcessGroup::~NcclProcessGroup() {
    registration_.reset();
    fail_batch("the group was destroyed");
    watchdog_->release(lane_);
}

void NcclProcessGroup::begin_batch() {
    const std::lock_guard lock(mutex_);
    if (batch_) {
        throw Error(Errc::invalid_argument,
                    "a batch of operations within another of the same group");
    }
    batch_.emplace();
}

void NcclProcessGroup::end_batch() {
    std::vector<Call> calls;
    {
        const std::lock_guard lock(mutex_);
        if (!batch_ || batch_->empty()) {
            batch_.reset();
            return;  // Nothing was issued, or abort() has failed it.
        }
        calls = std::move(*batch_);
        batch_.reset();
    }
    try {
        lane_->issue(calls);
    } catch (const Error& error) {
        for (const Call& call : calls) {
            call.work->fail(error.code(), error.what());
        }
        throw;
    }
}

void NcclProcessGroup::fail_batch(std::string_view reason) noexcept {
    std::optional<std::vector<Call>> calls;
    {
        const std::lock_guard lock(mutex_);
        calls.swap(batch_);
    }
    if (calls) {
        for (const Call& call : *calls) {
            call.work->fail(Errc::fenced, "aborted: " + std::string(reason));
        }
    }
}

void NcclProcessGroup::end_with(const std::shared_ptr<RoundScope>& scope) {
    scope_ = scope;
    registration_.emplace(scope, [this](const std::string& reason) { abort(reason); });
}

void NcclProcessGroup::abort(std::string_view reason) noexcept {
    fail_batch(reason);
    lane_->post({Errc::fenced, "aborted: " + std::string(reason), {}});
}

Buffer NcclProcessGroup::allocate(std::size_t bytes) {
    Buffer buffer = Lane::allocate(lane_, bytes);
    barrier().wait();
    return buffer;
}

GroupIdentity NcclProcessGroup::identity_of(const std::vector<std::uint32_t>& ranks,
                                            const std::string& name) const {
    const GroupIdentity& parent = lane_->identity();
    GroupIdentity identity{.name = name,
                           .scope = scope_of_child(parent.scope, splits_),
                           .device = parent.device,
                           .timeout = parent.timeout};
    for (std::uint32_t i = 0; i < ranks.size(); ++i) {
        identity.members.push_back(parent.members[ranks[i]]);
        if (ranks[i] == bounds_.rank) {
            identity.rank = i;
        }
    }
    return identity;
}

void NcclProcessGroup::split(int color, int key, const std::string& name) {
    const std::string what = "new_group \"" + name + "\" on " + to_string(bounds_.device);
    const CommReport report = lane_->split(color, key);
    if (report.state == CommState::ready) {
        return;
    }
    GroupFailure failure{Errc::fenced, "the group was given up", {}};
    if (report.state == CommState::failed) {
        failure = failure_of_nccl(report, what);
    } else if (report.state == CommState::in_progress) {
        const Duration limit = lane_->identity().timeout;
        failure = {Errc::deadline_exceeded,
                   "not formed within " + format_duration(limit) +
                       ": a rank of the parent has not called it",
                   what};
        failure.expired = {.number = lane_->last_collective(), .limit = limit};
    } else if (const auto met = lane_->failure()) {
        failure = *met;
    }
    lane_->post(failure);
    if (failure.code == Errc::disconnected || failure.may_be_peer || failure.expired) {
        // The watchdog learns which peer is gone, or has not called it.
        failure = lane_->await_end().value_or(failure);
    }
    throw Error(failure.code, what + ": " + failure.cause);
}

std::unique_ptr<ProcessGroup> NcclProcessGroup::new_group(const std::vector<std::uint32_t>& ranks,
                                                          std::string_view name) {
    const std::string text(name);
    check_members(ranks, bounds_.world_size, name);
    if (const auto failure = lane_->failure()) {
        throw Error(failure->code,
                    "new_group \"" + text + "\": the group has ended: " + failure->cause);
    }
    ++splits_;
    if (std::ranges::find(ranks, bounds_.rank) == ranks.end()) {
        // A child of this rank alone: NCCL_SPLIT_NOCOLOR would not survive a failure of the split.
        split(kAloneColor + static_cast<int>(bounds_.rank), 0, text);
        lane_->drop_child();
        return std::make_unique<RefusingProcessGroup>(backend(), bounds_.device, text, bounds_.rank,
                                                      ranks);
    }
    GroupIdentity identity = identity_of(ranks, text);
    const auto key = static_cast<int>(identity.rank);
    std::shared_ptr<Lane> lane =
        Lane::make(backend_, std::move(identity), watchdog_->wakeup(), watchdog_->reaper());
    split(color_of(ranks, text), key, text);
    if (!lane_->communicator().hand_child_to(lane->communicator())) {
        const GroupFailure failure =
            lane_->failure().value_or(GroupFailure{Errc::fenced, "the group was given up", {}});
        throw Error(failure.code, "new_group \"" + text + "\": " + failure.cause);
    }
    watchdog_->add(lane);
    if (const int made = lane->count_ranks(); made > 0 && made != static_cast<int>(ranks.size())) {
        watchdog_->release(lane);
        throw Error(Errc::invalid_argument,
                    "new_group \"" + text + "\": the ranks do not agree: only " +
                        std::to_string(made) + " of its " + std::to_string(ranks.size()) +
                        " ranks call it with this name and these ranks; all ranks must call it "
                        "alike, in the same order");
    }
    auto group = std::make_unique<NcclProcessGroup>(backend_, watchdog_, std::move(lane));
    if (scope_) {
        group->end_with(scope_);  // It may outlive this group.
    }
    GroupOrders::attach(*group, GroupOrders::of(*this));
    return group;
}

}  // namespace regroup::nccl
