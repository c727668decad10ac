// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/server/daemon.h"
#include "rendezvous/server/job.h"
#include "rendezvous/server/session.h"

namespace regroup::rendezvous {

/// All jobs of a daemon: takes what sessions say to the cores, what the cores decide to the
/// sessions, and keeps one timer at the cores' next deadline.
class JobTable {
   public:
    struct Hooks {
        std::function<void(const std::shared_ptr<Session>&, const FromDaemon&)> send;
        /// Sends a refusal, and nothing after it.
        std::function<void(const std::shared_ptr<Session>&, Errc, const std::string& reason)>
            refuse;
        std::function<void(const std::string& line)> log;
    };

    /// `io` and `clock` outlive it. Its timer's handler may run, cancelled, after its end.
    JobTable(boost::asio::io_context& io, const Clock& clock, const DaemonLimits& limits,
             Hooks hooks);

    void handle(const std::shared_ptr<Session>& session, FromAgent message);
    /// The session's connection has ended.
    void end(const std::shared_ptr<Session>& session);

    /// Forgets jobs that nobody needs any more.
    void sweep();
    /// Closes every job for everyone, and accepts no new one.
    void stop(const std::string& author, const std::string& reason);

   private:
    void join(const std::shared_ptr<Session>& session, Join join);
    [[nodiscard]] bool is_over(const Job& job, const JobPolicy& policy) const;
    void step(const std::string& job_id, const Event& event);
    void apply(const std::string& job_id, Job& job, const Effects& effects);
    [[nodiscard]] bool speaks_for_node(const std::shared_ptr<Session>& session) const;
    void arm();

    const Clock& clock_;
    const DaemonLimits limits_;
    const Hooks hooks_;
    std::map<std::string, Job> jobs_;
    bool closed_ = false;
    boost::asio::steady_timer timer_;
    std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace regroup::rendezvous
