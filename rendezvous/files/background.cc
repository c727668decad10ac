// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/files/background.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace regroup::files {

struct Background::State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> tasks;  // The first one may be running.
    std::thread thread;
    bool ends = false;
};

Background::Background() : state_(std::make_shared<State>()) {}

Background::~Background() {
    const bool done = drain(kEndLimit);
    std::thread thread;
    {
        const std::scoped_lock lock(state_->mutex);
        state_->ends = true;
        thread = std::move(state_->thread);
    }
    state_->changed.notify_all();
    if (thread.joinable() && done) {
        thread.join();
    } else if (thread.joinable()) {
        thread.detach();
    }
}

bool Background::post(std::function<void()> task) {
    const std::scoped_lock lock(state_->mutex);
    if (state_->tasks.size() >= kTasksMax || state_->ends) {
        return false;
    }
    if (!state_->thread.joinable()) {
        try {
            const AllSignalsBlocked blocked;
            state_->thread = std::thread([state = state_] { run(state); });
        } catch (const std::system_error&) {  // The next task tries again.
        }
        if (!state_->thread.joinable()) {
            return false;
        }
    }
    state_->tasks.push_back(std::move(task));
    state_->changed.notify_all();
    return true;
}

bool Background::drain(Duration limit) {
    std::unique_lock lock(state_->mutex);
    return state_->changed.wait_for(lock, limit, [this] { return state_->tasks.empty(); });
}

void Background::run(const std::shared_ptr<State>& state) {
    std::unique_lock lock(state->mutex);
    for (;;) {
        state->changed.wait(lock, [&] { return state->ends || !state->tasks.empty(); });
        if (state->ends) {
            return;
        }
        // It stays in the queue while it runs, so that drain() waits for it.
        const std::function<void()> task = std::move(state->tasks.front());
        lock.unlock();
        task();
        lock.lock();
        state->tasks.pop_front();
        state->changed.notify_all();
    }
}

}  // namespace regroup::files
