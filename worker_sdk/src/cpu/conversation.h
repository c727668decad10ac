// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <sys/uio.h>
#include <vector>

#include "worker_sdk/src/cpu/operation.h"
#include "worker_sdk/src/cpu/wire.h"

namespace regroup::cpu {

/// Moves bytes to and from another rank, in order.
class MessageStream {
   public:
    virtual ~MessageStream() = default;
    /// Returns how many bytes it has moved. 0: no more can move now.
    virtual std::size_t write_some(std::span<const iovec> parts) = 0;
    virtual std::size_t read_some(std::span<std::byte> space) = 0;
};

/// The sends and receives between this rank and one other. All messages share a stream; the message
/// at its front is matched with the oldest recv of the same tag. A message without a recv is
/// buffered. When `kAsideBytesMax` bytes are buffered, this rank reads nothing more until a recv
/// makes room. Not thread-safe.
class Conversation {
   public:
    static constexpr std::size_t kAsideBytesMax = std::size_t{64} << 20U;
    /// Called with each operation that has succeeded.
    using Complete = std::function<void(const Operation&)>;

    /// The names of the ranks are for errors.
    Conversation(std::string own_name, std::string peer_name, Complete complete);

    /// Takes over a send or a recv.
    void post(Operation operation);
    /// Moves bytes of the sends. Bounded, so that other conversations get their turn.
    void send(MessageStream& stream);
    /// Gives each new recv its buffered message.
    void sort_in();
    /// The same, and moves bytes to the receives. Throws GroupFailure if the messages do not fit.
    void receive(MessageStream& stream);
    /// Returns the operations that are not complete, and forgets them.
    void take_all(std::vector<Operation>& into);

    [[nodiscard]] bool is_idle() const noexcept { return deadlines_.empty(); }
    /// The oldest send that is not complete.
    [[nodiscard]] const Operation* sending() const noexcept;
    /// A recv that waits for bytes.
    [[nodiscard]] const Operation* receiving() const noexcept;
    /// False if the message at the front waits for a recv.
    [[nodiscard]] bool wants_to_read() const noexcept;

    [[nodiscard]] Instant next_deadline() const;
    /// Throws GroupFailure if an operation is late.
    void check_deadlines(Instant now) const;

   private:
    struct Sending {
        Operation operation;
        MessageHeader header;
        std::size_t sent = 0;  // Of header and data together.
    };
    struct Aside {
        MessageHeader header;
        std::vector<std::byte> data;
    };

    [[nodiscard]] bool choose_destination();
    void finish_message();
    void finish(const Operation& operation);
    [[nodiscard]] static Instant deadline_of(const Operation& operation);
    void check_agreement(const Operation& recv, const MessageHeader& header) const;

    const std::string own_name_;
    const std::string peer_name_;
    const Complete complete_;
    std::deque<Sending> sends_;
    std::deque<Operation> posted_;  // Not compared yet with the buffered messages.
    std::deque<Operation> recvs_;   // Waiting for messages, in order of issue.
    std::deque<Aside> asides_;      // Buffered messages, in order of arrival.
    std::size_t aside_bytes_ = 0;
    std::multiset<Instant> deadlines_;  // Of all operations.

    // The message at the front of the stream. It goes straight into the buffer of `target_` if a
    // recv wants it, else into `aside_`, for which there may be no room yet.
    Partial<MessageHeader> header_;
    std::optional<Operation> target_;
    std::optional<Aside> aside_;
    std::size_t received_ = 0;
};

}  // namespace regroup::cpu
