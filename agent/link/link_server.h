// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>

#include "agent/link/shared_page.h"
#include "agent/process/readable_watch.h"
#include "rendezvous/worker_link/messages.h"

namespace regroup::agent {

/// The agent's end of its links with workers that have the SDK (see worker_link/messages.h): a
/// local socket, and for each worker process that was announced the page that it gets.
///
/// Only processes of our own user get in, and only who knows the secret of a worker that we have
/// started; of those, one at a time. Who says anything else is dropped, with one line. Never waits:
/// a worker that does not read what it is sent loses its link, and is then like any other program.
/// So is one whose SDK speaks another version; that is said once.
class LinkServer {
   public:
    struct Handlers {
        /// The process `pid` has said Hello as the worker of that key; `is_new` if it had no link.
        /// It has its page by now.
        std::function<void(std::uint64_t key, pid_t pid, bool elastic, bool is_new)> on_hello;
        /// Anything else.
        std::function<void(std::uint64_t key, const worker_link::FromWorker& message)> on_message;
        /// One line for people: who was dropped, and why.
        std::function<void(const std::string& line)> on_trouble;
    };

    /// Listens in the abstract namespace, under a name that cannot be guessed. Handlers may call
    /// this object, and not destroy it. Errors: system.
    static Result<std::unique_ptr<LinkServer>> open(boost::asio::io_context& io, Handlers handlers);
    ~LinkServer();
    LinkServer(const LinkServer&) = delete;
    LinkServer& operator=(const LinkServer&) = delete;

    /// For REGROUP_AGENT_SOCKET.
    [[nodiscard]] const std::string& address() const noexcept { return address_; }

    /// A worker is about to be started; the result is for its REGROUP_WORKER_ID.
    [[nodiscard]] std::string expect(std::uint64_t key, std::shared_ptr<SharedPage> page);
    /// The worker is gone: what it has said before is told now, from within.
    void hear_out(std::uint64_t key);
    /// The worker is gone: nothing more is heard of it.
    void forget(std::uint64_t key);

    /// To the worker; once it attaches, if it has not yet. Nothing for one that is not expected.
    void send(std::uint64_t key, const worker_link::ToWorker& message);

    [[nodiscard]] bool is_attached(std::uint64_t key) const;

   private:
    struct Connection {
        std::optional<ReadableWatch> socket;
        pid_t pid = 0;
        std::uint64_t key = 0;  ///< 0: has not said who it is.
    };
    using ConnectionAt = std::list<Connection>::iterator;
    struct Slot {
        std::string id;
        std::shared_ptr<SharedPage> page;
        std::deque<std::string> unsent;  ///< Until it attaches.
        std::optional<ConnectionAt> connection;
    };

    LinkServer(boost::asio::io_context& io, Handlers handlers, std::string address);

    void accept_all();
    void admit(UniqueFd socket);
    void read(ConnectionAt connection);
    /// False if the connection is gone after that.
    [[nodiscard]] bool read_pending(ConnectionAt connection);
    /// False if the connection is gone.
    bool take(ConnectionAt connection, std::string_view packet);
    bool greet(ConnectionAt connection, const worker_link::Hello& hello);
    void turn_away(ConnectionAt connection, std::uint32_t version);
    bool welcome(Slot& slot, ConnectionAt connection);
    void drop(ConnectionAt connection, const std::string& why);
    void close(ConnectionAt connection);

    boost::asio::io_context& io_;
    Handlers handlers_;
    std::string address_;
    std::optional<ReadableWatch> listener_;
    std::list<Connection> connections_;
    std::map<std::uint64_t, Slot> slots_;
    bool has_turned_away_ = false;
};

}  // namespace regroup::agent
