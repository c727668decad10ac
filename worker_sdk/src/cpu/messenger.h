// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "worker_sdk/src/cpu/mesh.h"
#include "worker_sdk/src/cpu/operation.h"

namespace regroup::cpu {

/// Sends and receives between pairs of ranks. All messages of one rank to another share a
/// connection; the message at its front is matched with the oldest recv of the same tag. A message
/// without a recv is buffered. When `kAsideBytesMax` bytes from one peer are buffered, this rank
/// reads nothing more from that peer until a recv makes room.
class Messenger final : public net::Participant {
   public:
    static constexpr std::size_t kAsideBytesMax = std::size_t{64} << 20U;

    /// `complete` is called with each operation that has succeeded.
    Messenger(Mesh& mesh, std::function<void(const Operation&)> complete);

    /// Takes over a send or a recv, which makes its first progress in this turn or the next.
    void post(Operation operation);
    /// Returns all operations that are not complete.
    [[nodiscard]] std::vector<Operation> take_all();

    void watch(net::PollSet& poll) override;
    void progress() override;
    [[nodiscard]] Instant next_deadline() const override;

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
    struct Mailbox {
        std::deque<Operation> posted;  // Not compared yet with the buffered messages.
        std::deque<Operation> recvs;   // Waiting for messages, in order of issue.
        std::deque<Aside> asides;      // Buffered messages, in order of arrival.
        std::size_t aside_bytes = 0;

        // The message at the front of the connection. It goes straight into the buffer of `target`
        // if a recv wants it, else into `aside`, for which there may be no room yet.
        Partial<MessageHeader> header;
        std::unique_ptr<Operation> target;
        std::unique_ptr<Aside> aside;
        std::size_t received = 0;
    };

    void progress_sends(std::uint32_t peer, std::deque<Sending>& queue);
    void progress_recvs(std::uint32_t peer, Mailbox& mailbox);
    [[nodiscard]] bool choose_destination(std::uint32_t peer, Mailbox& mailbox);
    void finish_message(Mailbox& mailbox);
    void sort_in_posted(Mailbox& mailbox);
    [[nodiscard]] bool wants_to_read(const Mailbox& mailbox) const;
    void finish(const Operation& operation);
    [[nodiscard]] static Instant deadline_of(const Operation& operation);
    void check_deadlines(Instant now) const;
    void check_agreement(const Operation& recv, const MessageHeader& header) const;

    Mesh& mesh_;
    const std::function<void(const Operation&)> complete_;
    std::map<std::uint32_t, std::deque<Sending>> sends_;  // by peer
    std::map<std::uint32_t, Mailbox> mailboxes_;          // by peer
    std::multiset<Instant> deadlines_;                    // Of all operations under way.
};

}  // namespace regroup::cpu
