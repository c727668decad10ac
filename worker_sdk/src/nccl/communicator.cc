// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/communicator.h"

#include <algorithm>
#include <atomic>
#include <poll.h>
#include <sched.h>
#include <thread>
#include <utility>

#include "rendezvous/base/ensure.h"

namespace regroup::nccl {
namespace {

/// From 2.31 on ncclCommDestroy holds a barrier among the ranks of a node that has no deadline.
/// After ncclCommFinalize, ncclCommAbort frees the same without asking anybody.
constexpr int kDestroyWaitsForOthers = 23100;

/// Waits a little, longer with every turn: NCCL has no call to wait for the end of its work.
void pause(int turns) {
    constexpr int kYields = 50;
    constexpr long kLongest = 1'000'000;
    if (turns < kYields) {
        ::sched_yield();
        return;
    }
    const timespec span{.tv_sec = 0,
                        .tv_nsec = std::min(20'000L * (turns - kYields + 1), kLongest)};
    (void)::ppoll(nullptr, 0, &span, nullptr);
}

}  // namespace

ncclConfig_t Communicator::config() const {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking_ ? 1 : 0;
    // Shared resources would tie the lives of communicators together.
    config.splitShare = 0;
    return config;
}

Communicator::~Communicator() {
    ENSURE(comm_ == nullptr || gone_);
}

CommReport Communicator::report(ncclResult_t result) {
    if (is_gone()) {
        return {.state = CommState::gone};  // The abort has ended the call.
    }
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

template <class Body>
CommReport Communicator::locked(const Body& body) {
    const std::lock_guard lock(calls_);
    return is_gone() ? CommReport{.state = CommState::gone} : report(body());
}

CommReport Communicator::begin(std::span<ncclUniqueId> ids, int world_size, int rank) {
    return locked([&] {
        ENSURE(comm_ == nullptr);
        ncclConfig_t wanted = config();
        return ids.size() == 1
                   ? api_.comm_init_rank_config(&comm_, world_size, ids.front(), rank, &wanted)
                   : api_.comm_init_rank_scalable(&comm_, world_size, rank,
                                                  static_cast<int>(ids.size()), ids.data(),
                                                  &wanted);
    });
}

CommReport Communicator::begin_split(int color, int key) {
    return locked([&] {
        ENSURE(color != NCCL_SPLIT_NOCOLOR);
        child_ = nullptr;
        ncclConfig_t wanted = config();
        return api_.comm_split(comm_, color, key, &child_, &wanted);
    });
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
    return locked([&] {
        const ncclResult_t started = api_.group_start();
        if (started != ncclSuccess) {
            return started;
        }
        const ncclResult_t called = body(comm_);
        // Always end the group, or this thread would stay inside it.
        const ncclResult_t ended = api_.group_end();
        return is_good(called) ? ended : called;
    });
}

CommReport Communicator::call(const std::function<ncclResult_t(ncclComm_t)>& body) {
    return locked([&] { return body(comm_); });
}

CommReport Communicator::poll() {
    const std::lock_guard lock(calls_);
    return poll_locked();
}

CommReport Communicator::glance() {
    const std::unique_lock lock(calls_, std::try_to_lock);
    return lock.owns_lock() ? poll_locked() : CommReport{};
}

CommReport Communicator::poll_locked() {
    if (is_gone() || comm_ == nullptr) {
        return {.state = is_gone() ? CommState::gone : CommState::ready};
    }
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = api_.comm_get_async_error(comm_, &state);
    return report(asked == ncclSuccess ? state : asked);
}

CommReport Communicator::await_ready(Instant deadline) {
    for (int turns = 0;; ++turns) {
        CommReport report = poll();
        if (report.state != CommState::in_progress || SteadyClock().now() >= deadline) {
            return report;
        }
        pause(turns);
    }
}

bool Communicator::has_place(int rank, int world_size) {
    int own_rank = rank;
    int count = world_size;
    const CommReport told = call([&](ncclComm_t comm) {
        const ncclResult_t counted = api_.comm_count(comm, &count);
        return is_good(counted) ? api_.comm_user_rank(comm, &own_rank) : counted;
    });
    return told.state == CommState::gone ||
           (told.state == CommState::ready && own_rank == rank && count == world_size);
}

CommReport Communicator::begin_leaving() {
    return locked([&] { return comm_ == nullptr ? ncclSuccess : api_.comm_finalize(comm_); });
}

bool Communicator::let_go() {
    const std::lock_guard lock(mutex_);
    return !std::exchange(gone_, true);
}

void Communicator::finish_leaving() {
    if (let_go() && comm_ != nullptr) {
        await_calls();
        (void)(api_.version < kDestroyWaitsForOthers ? api_.comm_destroy(comm_)
                                                     : api_.comm_abort(comm_));
    }
}

ncclComm_t Communicator::await_made() {
    while (true) {
        // NCCL stores it before it waits for other ranks.
        if (const ncclComm_t comm = std::atomic_ref(comm_).load()) {
            return comm;
        }
        if (const std::unique_lock lock(calls_, std::try_to_lock); lock.owns_lock()) {
            return comm_;
        }
        std::this_thread::yield();
    }
}

void Communicator::abort_all(const NcclApi& api, std::span<Communicator* const> communicators) {
    std::vector<Communicator*> ended;
    for (Communicator* const communicator : communicators) {
        if (communicator->let_go()) {
            ended.push_back(communicator);
        }
    }
    // Within a group ncclCommAbort raises its flag at once and leaves the freeing to ncclGroupEnd.
    (void)api.group_start();
    for (Communicator* const communicator : ended) {
        if (!communicator->blocking_) {
            communicator->await_calls();
        }
        if (const ncclComm_t comm = communicator->await_made()) {
            (void)api.comm_abort(comm);
        }
    }
    for (Communicator* const communicator : ended) {
        // The flag ends a call that waits for other ranks.
        communicator->await_calls();
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
