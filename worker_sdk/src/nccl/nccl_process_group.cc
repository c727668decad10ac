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
#include "worker_sdk/src/nccl/agreement.h"

namespace regroup::nccl {
namespace {

constexpr int kMembersColor = 0;

std::string title(const std::string& name) {
    return "new_group \"" + name + "\"";
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
      bounds_(bounds_of(backend, lane_->identity())) {
    registration_.emplace(lane_->identity().round,
                          [this](const std::string& reason) { abort(reason); });
}

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
        lane_->issuer().issue(calls);
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

void NcclProcessGroup::abort(std::string_view reason) noexcept {
    fail_batch(reason);
    lane_->in_flight().post({Errc::fenced, "aborted: " + std::string(reason), {}});
}

Buffer NcclProcessGroup::allocate(std::size_t bytes) {
    Buffer buffer;
    std::optional<Error> obstacle;
    try {
        buffer = GpuMemory::allocate({lane_, &lane_->memory()}, bytes);
    } catch (const Error& error) {
        obstacle = error;
    }
    const std::string wanted = std::to_string(bytes);
    const GroupIdentity& identity = lane_->identity();
    agree(*lane_,
          {.purpose = "allocate",
           .signature = {.count = 2, .kind = OperationKind::all_gather, .dtype = DType::uint64},
           .digest = bytes,
           .obstacle = obstacle,
           .undone = "could not allocate " + wanted + " bytes of GPU memory",
           .difference = [&](const std::string& who, std::uint64_t theirs) {
               return who + " asks for " + std::to_string(theirs) + " bytes, " +
                      identity.name_of(identity.members[identity.rank]) + " for " + wanted;
           }});
    return buffer;
}

GroupIdentity NcclProcessGroup::identity_of(const std::vector<std::uint32_t>& ranks,
                                            const std::string& name) const {
    const GroupIdentity& parent = lane_->identity();
    GroupIdentity identity{.name = name,
                           .scope = scope_of_child(parent.scope, splits_),
                           .device = parent.device,
                           .timeout = parent.timeout,
                           .round = parent.round};
    for (std::uint32_t i = 0; i < ranks.size(); ++i) {
        identity.members.push_back(parent.members[ranks[i]]);
        if (ranks[i] == bounds_.rank) {
            identity.rank = i;
        }
    }
    return identity;
}

/// Throws on every rank if the ranks pass other `ranks` or names, or if one of them has an
/// `obstacle`.
void NcclProcessGroup::agree_on(const std::vector<std::uint32_t>& ranks, const std::string& name,
                                const std::optional<Error>& obstacle) {
    std::vector<std::uint64_t> words(ranks.begin(), ranks.end());
    words.push_back(checksum(name));
    words.push_back(splits_);
    const std::uint64_t digest = checksum(words);
    agree(*lane_,
          {.purpose = title(name),
           .signature = {.tag = static_cast<std::uint32_t>(digest) | 1U,
                         .kind = OperationKind::new_group},
           .digest = digest,
           .obstacle = obstacle,
           .undone = "could not set up its part of the group",
           .difference = [](const std::string& who, std::uint64_t /*theirs*/) {
               return "the ranks do not agree: " + who +
                      " calls new_group with another name or other ranks; all ranks must call "
                      "it alike, in the same order";
           }});
}

void NcclProcessGroup::split(int color, int key, const std::string& name) {
    const std::string what = title(name) + " on " + to_string(bounds_.device);
    const CommReport report = lane_->split(color, key);
    if (report.state == CommState::ready) {
        return;
    }
    GroupFailure failure = given_up();
    if (report.state == CommState::failed) {
        failure = failure_of_nccl(report, what);
    } else if (report.state == CommState::in_progress) {
        const Duration limit = lane_->identity().timeout;
        failure = {Errc::deadline_exceeded,
                   "not formed within " + format_duration(limit) +
                       ": a rank of the parent has not called it",
                   what};
        failure.expired = {.number = lane_->issuer().last_collective(), .limit = limit};
    } else if (const auto met = lane_->in_flight().failure()) {
        failure = *met;
    }
    lane_->in_flight().post(failure);
    if (failure.code == Errc::disconnected || failure.may_be_peer || failure.expired) {
        // The watchdog learns which peer is gone, or has not called it.
        failure = lane_->in_flight().await_end().value_or(failure);
    }
    throw Error(failure.code, what + ": " + failure.cause);
}

std::unique_ptr<ProcessGroup> NcclProcessGroup::new_group(const std::vector<std::uint32_t>& ranks,
                                                          std::string_view name) {
    const std::string text(name);
    check_members(ranks, bounds_.world_size, name);
    if (const auto failure = lane_->in_flight().failure()) {
        throw Error(failure->code, title(text) + ": the group has ended: " + failure->cause);
    }
    ++splits_;
    if (std::ranges::find(ranks, bounds_.rank) == ranks.end()) {
        agree_on(ranks, text, std::nullopt);
        // A child of this rank alone: NCCL_SPLIT_NOCOLOR would not survive a failure of the split.
        split(kMembersColor + 1 + static_cast<int>(bounds_.rank), 0, text);
        lane_->drop_child();
        return std::make_unique<RefusingProcessGroup>(backend(), bounds_.device, text, bounds_.rank,
                                                      ranks);
    }
    GroupIdentity identity = identity_of(ranks, text);
    const auto key = static_cast<int>(identity.rank);
    std::shared_ptr<Lane> lane;
    std::optional<Error> obstacle;
    try {
        lane = Lane::make(backend_, std::move(identity), watchdog_->wakeup(), watchdog_->reaper());
    } catch (const Error& error) {
        obstacle.emplace(error.code(), title(text) + ": " + error.what());
    }
    agree_on(ranks, text, obstacle);
    split(kMembersColor, key, text);
    if (!lane_->communicator().hand_child_to(lane->communicator())) {
        const GroupFailure failure = lane_->in_flight().failure().value_or(given_up());
        throw Error(failure.code, title(text) + ": " + failure.cause);
    }
    watchdog_->add(lane);
    if (!lane->communicator().has_place(key, static_cast<int>(ranks.size()))) {
        const GroupFailure failure{Errc::system, "NCCL has made a group of other ranks",
                                   title(text) + " on " + to_string(bounds_.device)};
        lane_->in_flight().post(failure);
        throw Error(failure.code, failure.operation + ": " + failure.cause);
    }
    auto group = std::make_unique<NcclProcessGroup>(backend_, watchdog_, std::move(lane));
    GroupOrders::attach(*group, GroupOrders::of(*this));
    return group;
}

}  // namespace regroup::nccl
