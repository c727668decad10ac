// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/http/guard.h"
#include "rendezvous/http/limits.h"
#include "rendezvous/http/pages.h"
#include "rendezvous/http/request_head.h"
#include "rendezvous/security/stream.h"

namespace regroup::http {

/// One client of the door. Held by shared pointers: the coroutines that serve it, the door, and the
/// reply of the pages release it in no fixed order.
struct Connection {
    enum class Doing : std::uint8_t { idle, reading, answering, viewing };

    Connection(security::Stream stream_in, Client client_in, const Limits& limits)
        : stream(std::move(stream_in)),
          client(std::move(client_in)),
          reader(limits.head_bytes_max, limits.body_bytes_max),
          wake(stream.socket().get_executor()) {}

    security::Stream stream;
    Client client;
    RequestReader reader;
    Doing doing = Doing::reading;
    std::string identity;          ///< Of the peer of its last request; see security::Peer::name.
    bool is_trusted = false;       ///< It has proved who it is, by itself or with its last request.
    Instant expires{};             ///< When it is disconnected.
    Instant since{};               ///< Since when it does what it does.
    std::optional<Answer> answer;  ///< Of the pages.
    std::shared_ptr<const std::string> text;  ///< Being sent; may be null.
    Instant text_since{};                     ///< Since when.
    bool has_queue = false;                   ///< More waits for its viewer.
    boost::asio::steady_timer wake;  ///< Cancelled when there is an answer, or an event to send.

    void close() {
        stream.close();
        wake.cancel();
    }
};

/// The viewer at the end of a connection.
class ConnectionViewer final : public Viewer {
   public:
    ConnectionViewer(std::weak_ptr<Connection> connection, const Limits& limits)
        : connection_(std::move(connection)), limits_(limits) {}

    [[nodiscard]] bool is_open() const override;
    void push(std::shared_ptr<const std::string> event) override;
    void show(std::shared_ptr<const std::string> state) override;
    void close() override;
    void finish() override;

    /// The next text to send; null if there is none.
    [[nodiscard]] std::shared_ptr<const std::string> take();
    [[nodiscard]] bool is_finished() const noexcept { return is_finished_; }
    /// It did not read, and its connection is to be closed.
    [[nodiscard]] bool has_too_much() const noexcept { return has_too_much_; }

   private:
    void wake();

    std::weak_ptr<Connection> connection_;
    const Limits limits_;
    std::deque<std::shared_ptr<const std::string>> events_;
    std::size_t events_bytes_ = 0;
    std::shared_ptr<const std::string> state_;
    bool has_too_much_ = false;
    bool is_finished_ = false;
};

}  // namespace regroup::http
