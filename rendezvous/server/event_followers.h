// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/core/messages.h"
#include "rendezvous/server/session.h"
#include "rendezvous/view/job_history.h"

namespace regroup::rendezvous {

/// The connections of operators that read the events of jobs. Each gets the next page when it has
/// taken the last one, so that a slow reader holds one page of memory. A reader that is slower than
/// the job's history sees a gap in the numbers. Runs on the io_context's one thread.
class EventFollowers {
   public:
    /// Beyond these, a new connection takes the place of one of the peer that has the most. See
    /// gives_way().
    static constexpr std::size_t kMax = 64;

    /// The events of a job; `history` is null if there is no such job.
    struct Source {
        const JobHistory* history = nullptr;
        std::int64_t began_ms = 0;
        bool is_over = false;  ///< No event comes any more.
    };
    using SourceOf = std::function<Source(const std::string& job)>;

    EventFollowers(boost::asio::any_io_executor executor, SourceOf source_of);

    /// False: there is no room for one more connection of the session's peer.
    [[nodiscard]] bool make_room(const std::shared_ptr<Session>& session);
    /// Sends the events that `asked` names. The last page closes the connection.
    void add(const std::shared_ptr<Session>& session, const std::string& job, const Operate& asked);
    /// The job has new events, or is gone.
    void note(const std::string& job);
    /// Call about once a second: tells quiet followers that the daemon lives.
    void sweep(Instant now);
    void ended(const std::shared_ptr<Session>& session);
    /// Queues the next page for each, at once. Call before the daemon ends.
    void flush();
    /// The daemon has no jobs any more: closes all connections.
    void hang_up();

   private:
    struct Follower {
        std::shared_ptr<Session> session;
        std::string job;
        std::int64_t began_ms = 0;
        std::uint64_t sent = 0;  ///< The number of the last event that was sent.
        bool stays = false;      ///< For events to come.
        bool is_behind = true;
        Instant spoken{};
    };

    /// False: the follower is done.
    bool pump(Follower& follower, bool waits);
    void pump_all(bool waits);
    void arm(Duration pause);

    const SourceOf source_of_;
    std::list<Follower> followers_;
    bool armed_ = false;
    boost::asio::steady_timer timer_;
    std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace regroup::rendezvous
