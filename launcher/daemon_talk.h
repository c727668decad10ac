// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/client/leader_connection.h"

namespace regroup::launcher {

/// "no daemon has answered within 10 s: cannot connect to ...".
[[nodiscard]] Failure no_daemon(Duration limit, const std::string& trouble);

/// The event loop and the limits of a command that talks to a daemon until it has a result. One
/// use.
class DaemonTalk {
   public:
    /// `answer_limit`: for the first answer. `silence_limit`: after a longer silence, later, it
    /// connects again. Zero: the answer limit stays, and its end is an error.
    DaemonTalk(Duration answer_limit, Duration silence_limit)
        : answer_limit_(answer_limit), silence_limit_(silence_limit) {}

    [[nodiscard]] boost::asio::io_context& io() { return io_; }
    /// Starts `client`, which runs on io(), and returns what end() is given. Errors: disconnected,
    /// when no daemon answers in time.
    Result<void> run(rendezvous::LeaderConnection& client);

    /// The cause of silence, as far as it is known.
    void note_trouble(const std::string& trouble) { trouble_ = trouble; }
    /// The same, now that `peer` has been asked.
    void note_silence(const std::string& peer) {
        trouble_ = peer + " has accepted the connection and says nothing; is it a regroup daemon?";
    }
    /// A daemon has answered.
    void heard();
    [[nodiscard]] bool has_begun() const noexcept { return has_begun_; }
    /// Calls `then` after `pause`, in place of what was to be called before.
    void go_on_after(Duration pause, std::function<void()> then);
    void forget_pause() { pause_.cancel(); }
    void end(Result<void> result);

   private:
    void begin_limit();

    const Duration answer_limit_;
    const Duration silence_limit_;
    boost::asio::io_context io_{1};
    boost::asio::steady_timer deadline_{io_};
    boost::asio::steady_timer pause_{io_};
    rendezvous::LeaderConnection* client_ = nullptr;
    Result<void> result_;
    std::string trouble_;
    bool has_begun_ = false;
};

}  // namespace regroup::launcher
