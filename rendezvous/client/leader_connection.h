// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/security/credentials.h"

namespace regroup::rendezvous {

/// The limit of LeaderConnection::stop() in a command that has its answer.
inline constexpr Duration kClientStopLimit = std::chrono::milliseconds(100);

/// A connection to the daemon that leads, whatever is said on it. It is opened, and opened
/// again with jittered back-off as long as the object exists. With several endpoints, it tries the
/// endpoint of the last good connection first and then the others in turn, with a pause after each
/// turn.
///
/// See check_daemon for the daemons that it believes. Everything runs on the io_context's one
/// thread.
class LeaderConnection {
   public:
    /// The peer's words.
    struct Heard {
        enum class Kind : std::uint8_t {
            part,       ///< Nothing whole yet.
            answer,     ///< Something that a daemon says.
            refusal,    ///< The connection is to be closed.
            elsewhere,  ///< The same: `leader` leads.
        };
        Kind kind = Kind::part;
        std::string leader{};  ///< Its endpoint; empty: the peer knows none.
    };
    /// Decodes what the peer says on one connection.
    class Decoder {
       public:
        Decoder() = default;
        virtual ~Decoder() = default;
        Decoder(const Decoder&) = delete;
        Decoder& operator=(const Decoder&) = delete;

        virtual void feed(std::string_view bytes) = 0;
        /// Handles the next words. Errors: the peer is no daemon.
        virtual Result<Heard> next() = 0;
    };
    using MakeDecoder = std::function<std::unique_ptr<Decoder>()>;
    struct Handlers {
        std::function<void()> on_up;
        std::function<void()> on_down;
        /// An attempt failed, or the peer is no daemon; one sentence for people. `answered` is true
        /// if a process answered at the endpoint.
        std::function<void(const std::string& reason, bool answered)> on_trouble;
    };

    /// Requires at least one endpoint. `io` outlives it. Handlers and decoders are never called
    /// after its destruction, and may destroy it. No pause is longer than a quarter of
    /// `heartbeat_timeout`, and no attempt than all of it, while a daemon that accepts the
    /// connection answers: one that does not is waited for twice as long the next time, up to a
    /// minute.
    LeaderConnection(boost::asio::io_context& io, std::vector<Endpoint> endpoints,
                     Handlers handlers, MakeDecoder make_decoder, Duration heartbeat_timeout,
                     security::Identity identity);
    ~LeaderConnection();
    LeaderConnection(const LeaderConnection&) = delete;
    LeaderConnection& operator=(const LeaderConnection&) = delete;

    void start();
    /// Queues `bytes` on the open connection. Without a connection they are dropped.
    void send_bytes(std::string bytes);
    /// Closes the connection; another is opened.
    void drop();
    /// Sends what is queued, for at most `limit`, closes, and calls `done`. No reconnection.
    void stop(Duration limit, std::function<void()> done);

    /// The daemon's address as resolved and connected to, for people; empty before that.
    [[nodiscard]] const std::string& peer() const;
    /// Its host as the endpoint names it.
    [[nodiscard]] const std::string& daemon_host() const;
    /// This node's address on that connection.
    [[nodiscard]] const std::string& local_address() const;

   private:
    struct Impl;
    std::shared_ptr<Impl> impl_;
};

}  // namespace regroup::rendezvous
