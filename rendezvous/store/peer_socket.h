// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace regroup::store {

/// Sets the options of a connected socket for a store. Errors mean that the connection has broken
/// already; they show again when it is read.
void prepare_socket(int fd);

/// "10.0.0.1:1234", "[fe80::1%eth0]:1234". An IPv4 address stays IPv4 also on a dual-stack socket.
[[nodiscard]] std::string describe_peer(int fd);

/// Sends as much of `bytes` as a non-blocking socket takes now, and returns the count. -1: the
/// connection has broken.
ssize_t send_some(int fd, std::string_view bytes);
/// Receives what is there now, up to `size` bytes, and returns the count. -1: the connection has
/// ended.
ssize_t receive_some(int fd, char* buffer, std::size_t size);

/// Bytes for a peer that takes them a part at a time.
struct Outbox {
    std::string bytes;  ///< The first `sent_bytes` have been sent.
    std::size_t sent_bytes = 0;

    [[nodiscard]] std::string_view unsent() const {
        return std::string_view(bytes).substr(sent_bytes);
    }
    /// `count` more bytes have been sent. Frees memory, at a cost in proportion to all bytes sent.
    void drop_sent(std::size_t count);
};

}  // namespace regroup::store
