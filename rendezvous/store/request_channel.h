// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/store/client_socket.h"
#include "rendezvous/store/store_wire.h"

namespace regroup::store {

/// A client's connection to a store, for requests and replies. The caller must receive the complete
/// reply to a request before it sends the next one.
///
/// Every failure except the `invalid_argument` of `send` ends the connection, because half an
/// exchange cannot be undone: later calls fail with `disconnected`. Threads: see ClientSocket.
class RequestChannel {
   public:
    /// See StoreClient::connect.
    Result<void> connect(const std::string& host, std::uint16_t port, Duration timeout);

    /// Refuses with `invalid_argument` a request that a server would refuse for its length.
    Result<void> send(const Request& request, Instant deadline);

    Result<char> receive_byte(Instant deadline);
    Result<std::int64_t> receive_i64(Instant deadline);
    Result<std::string> receive_text(Instant deadline);

    /// `send`, then receive the reply of that kind.
    Result<char> ask_byte(const Request& request, Instant deadline) {
        return ask(request, deadline, &RequestChannel::receive_byte);
    }
    Result<std::int64_t> ask_i64(const Request& request, Instant deadline) {
        return ask(request, deadline, &RequestChannel::receive_i64);
    }
    Result<std::string> ask_text(const Request& request, Instant deadline) {
        return ask(request, deadline, &RequestChannel::receive_text);
    }

    /// Sends a request that the server answers with `kStopWaiting`, perhaps after a long time.
    /// Returns false and cancels the request when there is no answer before the deadline.
    Result<bool> ask_and_wait(const Request& request, Instant deadline);

    /// The deadline for the quick last exchange of a call that may have used up its time by
    /// waiting.
    [[nodiscard]] static Instant at_least_an_answer(Instant deadline);

    Result<void> pause_until(Instant instant);
    void interrupt() noexcept { socket_.interrupt(); }

    /// Reports an invalid reply and ends the connection.
    Failure break_protocol(const std::string& what);

   private:
    template <class Reply>
    Result<Reply> ask(const Request& request, Instant deadline,
                      Result<Reply> (RequestChannel::*read_reply)(Instant)) {
        const Result<void> sent = send(request, deadline);
        return sent ? (this->*read_reply)(deadline) : sent.error();
    }
    Result<void> greet(Instant deadline);
    Result<void> receive(char* bytes, std::size_t count, Instant deadline);
    Failure give_up(Failure failure);

    ClientSocket socket_;
};

}  // namespace regroup::store
