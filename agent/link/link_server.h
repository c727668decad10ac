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

#include "agent/link/shared_memory.h"
#include "agent/process/readable_watch.h"
#include "rendezvous/worker_link/messages.h"

namespace regroup::agent {

/// The agent's end of the links to workers that have the SDK (see worker_link/messages.h): a local
/// socket, and the page for each expected worker process.
///
/// Accepts only processes of the same user that know the secret of a started worker, and one
/// process at a time for each. Other connections are dropped, with one message. Never blocks: a
/// worker that does not read its messages loses its link, and is then treated as a program without
/// the SDK. So is a worker with an SDK of another version; the message for that comes once.
class LinkServer {
   public:
    struct Handlers {
        /// The process `pid` has said Hello as the worker of that key, and has its page. `is_new`:
        /// it had no link before.
        std::function<void(std::uint64_t key, pid_t pid, const worker_link::Hello& hello,
                           bool is_new)>
            on_hello;
        /// Any other message.
        std::function<void(std::uint64_t key, const worker_link::FromWorker& message)> on_message;
        /// A message to print: the dropped connection, and the reason.
        std::function<void(const std::string& line)> on_trouble;
    };

    /// Listens in the abstract namespace, under a random name. Handlers may call this object but
    /// must not destroy it. Errors: system.
    static Result<std::unique_ptr<LinkServer>> open(boost::asio::io_context& io, Handlers handlers);
    ~LinkServer();
    LinkServer(const LinkServer&) = delete;
    LinkServer& operator=(const LinkServer&) = delete;

    /// The value of REGROUP_AGENT_SOCKET.
    [[nodiscard]] const std::string& address() const noexcept { return address_; }

    /// Call before a worker is started. `welcome` is for the process, once it has said Hello.
    /// Returns its REGROUP_WORKER_ID.
    [[nodiscard]] std::string expect(std::uint64_t key, std::shared_ptr<SharedPage> page,
                                     worker_link::Welcome welcome = {});
    /// The worker has ended: handles its remaining messages before it returns.
    void hear_out(std::uint64_t key);
    /// The worker has ended: drops its link and its secret.
    void forget(std::uint64_t key);

    /// Sends a message, or queues it until the worker attaches. Ignores unexpected workers. With
    /// `descriptor` the worker must be attached.
    void send(std::uint64_t key, const worker_link::ToWorker& message, int descriptor = -1);

    [[nodiscard]] bool is_attached(std::uint64_t key) const;

   private:
    struct Connection {
        std::optional<ReadableWatch> socket;
        pid_t pid = 0;
        std::uint64_t key = 0;  ///< 0: has not said Hello.
    };
    using ConnectionAt = std::list<Connection>::iterator;
    struct Slot {
        std::string id;
        std::shared_ptr<SharedPage> page;
        worker_link::Welcome welcome;
        std::deque<std::string> unsent;  ///< Messages queued until it attaches.
        std::optional<ConnectionAt> connection;
    };

    LinkServer(boost::asio::io_context& io, Handlers handlers, std::string address);

    void accept_all();
    void admit(UniqueFd socket);
    void read(ConnectionAt connection);
    /// False if the connection was closed meanwhile.
    [[nodiscard]] bool read_pending(ConnectionAt connection);
    /// False if the connection was closed.
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
