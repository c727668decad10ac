// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/daemon_get.h"
#include "launcher/daemon_talk.h"
#include "rendezvous/base/result.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/core/messages.h"

namespace regroup::launcher {

/// Reads the output of a rank from the node on which it runs, by way of the daemon that leads. When
/// the rank moves to another node or file, or the connection is lost, it goes on there. One use.
class LogFollower {
   public:
    struct Request {
        rendezvous::Operate wish;                    ///< With Action::logs.
        std::vector<rendezvous::LogStream> streams;  ///< At least one.
        /// Until the job ends; the limit of the access is then for the first answer only.
        bool follow = false;
    };
    struct Handlers {
        /// The next bytes of a stream.
        std::function<void(rendezvous::LogStream stream, const std::string& text)> on_text;
        /// A sentence for people: another file, a lost connection.
        std::function<void(const std::string& note)> on_note;
    };

    LogFollower(DaemonAccess access, Request request, Handlers handlers);

    /// Errors: disconnected, when no daemon answers in time; closed, when the rank is on no node
    /// now, or writes to no file; otherwise the daemon refuses.
    Result<void> run() { return talk_.run(client_); }

   private:
    struct Cursor {
        rendezvous::LogStream stream{};
        std::string node{};
        std::string file{};
        std::uint64_t offset = 0;
        bool has_no_file = false;
    };

    rendezvous::ControlClient::Handlers client_handlers();
    void ask();
    void take(const std::string& answer);
    void take_part(Cursor& cursor, const std::string& node, const std::string& file);
    /// Asks for the next stream, or again after a pause.
    void go_on();
    void ask_after(Duration pause);
    void note_once(const std::string& note);

    const rendezvous::Operate wish_;
    const bool follow_;
    const Handlers handlers_;
    DaemonTalk talk_;
    std::string noted_;
    std::vector<Cursor> cursors_;
    std::size_t current_ = 0;
    rendezvous::ControlClient client_;
};

}  // namespace regroup::launcher
