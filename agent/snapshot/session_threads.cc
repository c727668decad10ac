// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshot/session_threads.h"

#include <string>
#include <system_error>
#include <utility>

#include "rendezvous/files/background.h"

namespace regroup::agent {

SessionThreads::~SessionThreads() {
    for (Session& session : sessions_) {
        session.thread.join();
    }
}

void SessionThreads::join_ended() {
    for (auto session = sessions_.begin(); session != sessions_.end();) {
        if (session->ended.load()) {
            session->thread.join();
            session = sessions_.erase(session);
        } else {
            ++session;
        }
    }
}

Result<void> SessionThreads::start(std::function<void()> session) {
    join_ended();
    if (sessions_.size() >= most_) {
        return Failure(Errc::overloaded,
                       "there are " + std::to_string(most_) + " connections for snapshots already");
    }
    Session& place = sessions_.emplace_back();
    const files::AllSignalsBlocked blocked;
    try {
        place.thread = std::thread([&place, session = std::move(session)] {
            session();
            place.ended.store(true);
        });
    } catch (const std::system_error& error) {
        sessions_.pop_back();
        return system_failure("a thread for snapshots", error.code().value());
    }
    return {};
}

}  // namespace regroup::agent
