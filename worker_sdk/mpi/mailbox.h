// SPDX-License-Identifier: Apache-2.0
//
// MPI's messages over the sends and receives of a process group, which must know the sender and the
// size. A message of MPI is two of the group: an envelope of fixed size, and behind it the payload,
// if there is one. A rank reads the envelopes of a peer one by one. It posts the receive of each
// payload before it reads the next envelope. So payloads match in order, and a payload that nobody
// wants yet never blocks the messages behind it.
#pragma once

#include <regroup/process_group.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "worker_sdk/mpi/mpi.h"

namespace regroup::mpi {

/// Goes ahead of each payload.
struct Envelope {
    std::uint64_t bytes = 0;
    std::int32_t tag = 0;
    std::uint32_t unused = 0;
};

/// The tag of messages inside collectives. MPI_ANY_TAG does not match it.
constexpr int kInternalTag = -2;

/// A message whose envelope has been read.
struct Message {
    std::uint32_t source = 0;
    int tag = 0;
    std::size_t bytes = 0;
    std::uint64_t arrival = 0;  ///< Counts the messages of a mailbox.

    /// The payload, if it had to be taken in before a receive wanted it. Complete after `payload`.
    std::vector<std::byte> storage{};
    Work payload{};
    bool stored = false;
};

/// A receive that the program has posted.
struct Receive {
    int source = 0;  ///< Or MPI_ANY_SOURCE.
    int tag = 0;     ///< Or MPI_ANY_TAG.
    void* buffer = nullptr;
    std::size_t capacity = 0;

    /// Set when a message matches. Then `payload` says when its bytes are here.
    std::shared_ptr<Message> message{};
    Work payload{};

    [[nodiscard]] bool done() const { return message != nullptr && payload.done(); }
    /// Puts the bytes where they belong, and describes them. Requires `done`, or a failed payload.
    /// Throws CallError MPI_ERR_TRUNCATE, and the Error of the payload.
    [[nodiscard]] MPI_Status conclude() const;
};

/// The messages of one communicator. Used by one thread at a time.
class Mailbox {
   public:
    /// The payloads that are taken in without a receive, of all peers together.
    static constexpr std::size_t kStoredBytesMax = std::size_t{4} << 30U;

    /// `group` outlives every call but the destructor's.
    explicit Mailbox(ProcessGroup& group);

    /// One send under way; keeps the envelope in memory.
    struct Sent {
        std::shared_ptr<const Envelope> envelope;
        Work work;
    };
    [[nodiscard]] Sent send(const void* data, std::size_t bytes, std::uint32_t to, int tag);

    /// Posts a receive. It matches at once if its message is here.
    [[nodiscard]] std::shared_ptr<Receive> post(void* buffer, std::size_t capacity, int source,
                                                int tag);
    /// Forgets a receive that no message has matched.
    void withdraw(const Receive& receive);

    /// While it lives, the mailbox reads the envelopes of `source`, as for a receive.
    class Interest {
       public:
        Interest(Mailbox& mailbox, int source) : mailbox_(mailbox), source_(source) {
            ++mailbox_.wanted_[source_];
        }
        ~Interest() { mailbox_.unwant(source_); }
        Interest(const Interest&) = delete;
        Interest& operator=(const Interest&) = delete;

       private:
        Mailbox& mailbox_;
        int source_;
    };
    /// The first message that has arrived, that no receive has matched, and that such a receive
    /// would match; or nullptr.
    [[nodiscard]] std::shared_ptr<Message> find(int source, int tag) const;

    /// True if it waits for no envelope.
    [[nodiscard]] bool idle() const { return wanted_.empty(); }
    /// The rank whose envelopes alone it waits for, if there is just one.
    [[nodiscard]] std::optional<std::uint32_t> sole_source() const;
    /// Blocks until the next envelope of `source` is here, and takes it in.
    void take_next(std::uint32_t source);
    /// Takes in the envelopes that it waits for and that are here.
    void advance();
    /// Throws CallError if a message from `source` could only come from this rank, which waits.
    void require_sender(int source) const;

    /// Begins the end, which all ranks of the group must begin: the receives of envelopes must be
    /// complete before a rank may leave the group, or its peers would see it fail.
    void begin_close();
    /// Goes on with it; true once the rank may leave the group. With `block`, waits until then.
    [[nodiscard]] bool close(bool block);

   private:
    struct Peer {
        bool listening = false;
        Envelope envelope;
        Work work;
        std::deque<std::shared_ptr<Message>> unexpected;  // In order; only the last is not stored.
    };
    struct Closing {
        std::vector<std::uint8_t> asks;   // By rank: 1 if this rank waits for its envelope.
        std::vector<std::uint8_t> asked;  // By rank: 1 if it waits for an envelope of this rank.
        Work exchange;
        Envelope last;
        bool sent = false;
        std::vector<Work> works;
    };

    void unwant(int source);
    [[nodiscard]] bool wants(std::uint32_t source) const;
    void listen(std::uint32_t source);
    void take_in(std::uint32_t source);
    void deliver(std::shared_ptr<Message> message);
    void match(Receive& receive, std::shared_ptr<Message> message);
    void store(Message& message);
    void advance(std::uint32_t source);
    void send_last_envelopes();

    ProcessGroup& group_;
    const std::uint32_t rank_;
    std::vector<Peer> peers_;                     // By rank; never moved, since recvs write here.
    std::list<std::shared_ptr<Receive>> posted_;  // Without a message, in order.
    std::map<int, std::size_t> wanted_;           // Waits for envelopes, by source.
    std::uint64_t arrivals_ = 0;
    std::size_t stored_bytes_ = 0;  // Of unexpected messages.
    std::unique_ptr<Closing> closing_;
};

}  // namespace regroup::mpi
