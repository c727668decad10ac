// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <thread>

#include "rendezvous/base/result.h"

namespace regroup::agent {

/// A bounded number of threads, each of which serves one connection. The threads have all signals
/// blocked. One thread calls, and its owner makes the sessions end before this object ends.
class SessionThreads {
   public:
    explicit SessionThreads(std::size_t most) : most_(most) {}
    /// Waits for all of them.
    ~SessionThreads();
    SessionThreads(const SessionThreads&) = delete;
    SessionThreads& operator=(const SessionThreads&) = delete;

    /// Errors: overloaded, if there are as many as there may be; system.
    Result<void> start(std::function<void()> session);

   private:
    struct Session {
        std::thread thread;
        std::atomic<bool> ended{false};
    };
    void join_ended();

    const std::size_t most_;
    std::list<Session> sessions_;
};

}  // namespace regroup::agent
