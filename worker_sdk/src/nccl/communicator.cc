// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/communicator.h"

#include <utility>

#include "rendezvous/base/ensure.h"

namespace regroup::nccl {
namespace {

/// From 2.31 on ncclCommDestroy holds a barrier among the ranks of a node that has no deadline.
/// After ncclCommFinalize, ncclCommAbort frees the same without asking anybody.
constexpr int kDestroyWaitsForOthers = 23100;

ncclConfig_t non_blocking() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    // Shared resources would tie the lives of communicators together.
    config.splitShare = 0;
    return config;
}

}  // namespace

Communicator::~Communicator() {
    ENSURE(comm_ == nullptr || gone_);
}

CommReport Communicator::report(ncclResult_t result) {
    if (result == ncclSuccess) {
        return {};
    }
    if (result == ncclInProgress) {
        return {.state = CommState::in_progress, .result = result};
    }
    std::string text = api_.get_error_string(result);
    const char* const last = api_.get_last_error(comm_);
    if (last != nullptr && *last != '\0') {
        text += " (" + std::string(last) + ")";
    }
    return {.state = CommState::failed, .result = result, .text = std::move(text)};
}

CommReport Communicator::begin(std::span<ncclUniqueId> ids, int world_size, int rank) {
    const std::lock_guard lock(mutex_);
    if (gone_) {
        return {.state = CommState::gone};
    }
    ENSURE(comm_ == nullptr);
    ncclConfig_t config = non_blocking();
    const ncclResult_t result =
        ids.size() == 1
            ? api_.comm_init_rank_config(&comm_, world_size, ids.front(), rank, &config)
            : api_.comm_init_rank_scalable(&comm_, world_size, rank, static_cast<int>(ids.size()),
                                           ids.data(), &config);
    return report(result);
}

CommReport Communicator::begin_split(int color, int key) {
    const std::lock_guard lock(mutex_);
    if (gone_) {
        return {.state = CommState::gone};
    }
    ENSURE(color != NCCL_SPLIT_NOCOLOR);
    child_ = nullptr;
    ncclConfig_t config = non_blocking();
    return report(api_.comm_split(comm_, color, key, &child_, &config));
}

bool Communicator::hand_child_to(Communicator& heir) {
    const std::scoped_lock lock(mutex_, heir.mutex_);
    if (gone_) {
        return false;
    }
    heir.comm_ = std::exchange(child_, nullptr);
    return true;
}

CommReport Communicator::launch(const std::function<ncclResult_t(ncclComm_t)>& body) {
    const std::lock_guard lock(mutex_);
    if (gone_) {
        return {.state = CommState::gone};
    }
    const ncclResult_t started = api_.group_start();
    if (started != ncclSuccess) {
        return report(started);
    }
    const ncclResult_t called = body(comm_);
    // Always end the group, or this thread would stay inside it.
    const ncclResult_t ended = api_.group_end();
    return report(is_good(called) ? ended : called);
}

CommReport Communicator::call(const std::function<ncclResult_t(ncclComm_t)>& body) {
    const std::lock_guard lock(mutex_);
    return gone_ ? CommReport{.state = CommState::gone} : report(body(comm_));
}

CommReport Communicator::poll() {
    const std::lock_guard lock(mutex_);
    return poll_locked();
}

CommReport Communicator::glance() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    return lock.owns_lock() ? poll_locked() : CommReport{};
}

CommReport Communicator::poll_locked() {
    if (gone_ || comm_ == nullptr) {
        return {.state = gone_ ? CommState::gone : CommState::ready};
    }
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = api_.comm_get_async_error(comm_, &state);
    return report(asked == ncclSuccess ? state : asked);
}

CommReport Communicator::begin_leaving() {
    const std::lock_guard lock(mutex_);
    if (gone_ || comm_ == nullptr) {
        return {.state = gone_ ? CommState::gone : CommState::ready};
    }
    return report(api_.comm_finalize(comm_));
}

ncclComm_t Communicator::let_go() {
    const std::lock_guard lock(mutex_);
    return std::exchange(gone_, true) ? nullptr : comm_;
}

void Communicator::finish_leaving() {
    if (const ncclComm_t comm = let_go()) {
        (void)(api_.version < kDestroyWaitsForOthers ? api_.comm_destroy(comm)
                                                     : api_.comm_abort(comm));
    }
}

void Communicator::abort_all(const NcclApi& api, std::span<Communicator* const> communicators) {
    std::vector<std::pair<Communicator*, ncclComm_t>> ended;
    for (Communicator* const communicator : communicators) {
        if (const ncclComm_t comm = communicator->let_go()) {
            ended.emplace_back(communicator, comm);
        }
    }
    if (ended.empty()) {
        return;
    }
    // Within a group ncclCommAbort raises its flag at once and leaves the freeing to ncclGroupEnd.
    (void)api.group_start();
    for (const auto& [communicator, comm] : ended) {
        (void)api.comm_abort(comm);
        // NCCL's thread, which writes the child, has been joined. `hand_child_to` returns false
        // from now on.
        if (const ncclComm_t child = std::exchange(communicator->child_, nullptr)) {
            (void)api.comm_abort(child);
        }
    }
    (void)api.group_end();
}

bool Communicator::is_gone() {
    const std::lock_guard lock(mutex_);
    return gone_;
}

}  // namespace regroup::nccl
