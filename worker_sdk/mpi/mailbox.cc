// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/mpi/mailbox.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "worker_sdk/mpi/arguments.h"

namespace regroup::mpi {
namespace {

// The tags of the group's own messages.
constexpr std::uint32_t kEnvelopes = 0;
constexpr std::uint32_t kPayloads = 1;

TensorView view_of(Envelope& envelope) {
    return {&envelope, sizeof envelope, DType::uint8};
}

ConstTensorView view_of(const Envelope& envelope) {
    return {&envelope, sizeof envelope, DType::uint8};
}

bool matches(int source, int tag, const Message& message) {
    return (source == MPI_ANY_SOURCE || static_cast<std::uint32_t>(source) == message.source) &&
           (tag == MPI_ANY_TAG ? message.tag >= 0 : tag == message.tag);
}

}  // namespace

MPI_Status Receive::conclude() const {
    payload.wait();
    const std::size_t bytes = std::min(message->bytes, capacity);
    if (message->stored && bytes > 0) {
        std::memcpy(buffer, message->storage.data(), bytes);
    }
    if (message->bytes > capacity) {
        throw CallError(MPI_ERR_TRUNCATE, "rank " + std::to_string(message->source) + " sent " +
                                              std::to_string(message->bytes) +
                                              " bytes, and the buffer has " +
                                              std::to_string(capacity));
    }
    return {.MPI_SOURCE = static_cast<int>(message->source),
            .MPI_TAG = message->tag,
            .MPI_ERROR = MPI_SUCCESS,
            .regroup_bytes = bytes};
}

Mailbox::Mailbox(ProcessGroup& group)
    : group_(group), rank_(group.rank()), peers_(group.world_size()) {}

Mailbox::Sent Mailbox::send(const void* data, std::size_t bytes, std::uint32_t to, int tag) {
    if (to == rank_) {
        auto message = std::make_shared<Message>(Message{.source = rank_, .tag = tag});
        message->bytes = bytes;
        message->stored = true;
        const auto* const from = static_cast<const std::byte*>(data);
        message->storage.assign(from, from + bytes);
        deliver(std::move(message));
        return {};
    }
    Sent sent{.envelope = std::make_shared<Envelope>(Envelope{.bytes = bytes, .tag = tag}),
              .work = {}};
    sent.work = group_.send(view_of(*sent.envelope), to, kEnvelopes);
    if (bytes > 0) {
        sent.work = group_.send({data, bytes, DType::uint8}, to, kPayloads);
    }
    return sent;
}

std::shared_ptr<Receive> Mailbox::post(void* buffer, std::size_t capacity, int source, int tag) {
    auto receive = std::make_shared<Receive>();
    receive->source = source;
    receive->tag = tag;
    receive->buffer = buffer;
    receive->capacity = capacity;
    if (const std::shared_ptr<Message> found = find(source, tag)) {
        auto& queue = peers_[found->source].unexpected;
        queue.erase(std::find(queue.begin(), queue.end(), found));
        stored_bytes_ -= found->storage.size();
        match(*receive, found);
        return receive;
    }
    posted_.push_back(receive);
    ++wanted_[source];
    if (source != MPI_ANY_SOURCE && static_cast<std::uint32_t>(source) != rank_) {
        listen(static_cast<std::uint32_t>(source));
    }
    return receive;
}

void Mailbox::withdraw(const Receive& receive) {
    const auto found = std::find_if(posted_.begin(), posted_.end(),
                                    [&](const auto& other) { return other.get() == &receive; });
    if (found != posted_.end()) {
        unwant(receive.source);
        posted_.erase(found);
    }
}

std::shared_ptr<Message> Mailbox::find(int source, int tag) const {
    std::shared_ptr<Message> first;
    for (const Peer& peer : peers_) {
        const auto found =
            std::find_if(peer.unexpected.begin(), peer.unexpected.end(),
                         [&](const auto& message) { return matches(source, tag, *message); });
        if (found != peer.unexpected.end() && (!first || (*found)->arrival < first->arrival)) {
            first = *found;
        }
    }
    return first;
}

void Mailbox::unwant(int source) {
    const auto found = wanted_.find(source);
    if (--found->second == 0) {
        wanted_.erase(found);
    }
}

bool Mailbox::wants(std::uint32_t source) const {
    return wanted_.contains(MPI_ANY_SOURCE) || wanted_.contains(static_cast<int>(source));
}

std::optional<std::uint32_t> Mailbox::sole_source() const {
    if (wanted_.size() == 1 && wanted_.begin()->first != MPI_ANY_SOURCE) {
        return static_cast<std::uint32_t>(wanted_.begin()->first);
    }
    return std::nullopt;
}

void Mailbox::require_sender(int source) const {
    if (peers_.size() == 1 || static_cast<std::uint32_t>(source) == rank_) {
        throw CallError(MPI_ERR_OTHER,
                        "this rank waits for a message that only it could send, and so for ever");
    }
}

/// Posts the receive of the next envelope. The messages before it must be on their way to memory,
/// or they would block it.
void Mailbox::listen(std::uint32_t source) {
    Peer& peer = peers_[source];
    if (peer.listening) {
        return;
    }
    if (!peer.unexpected.empty()) {
        store(*peer.unexpected.back());
    }
    peer.work = group_.recv(view_of(peer.envelope), source, kEnvelopes);
    peer.listening = true;
}

void Mailbox::take_next(std::uint32_t source) {
    listen(source);
    take_in(source);
}

void Mailbox::take_in(std::uint32_t source) {
    Peer& peer = peers_[source];
    peer.work.wait();
    peer.listening = false;
    auto message = std::make_shared<Message>(Message{.source = source, .tag = peer.envelope.tag});
    message->bytes = peer.envelope.bytes;
    deliver(std::move(message));
}

void Mailbox::advance() {
    if (wanted_.contains(MPI_ANY_SOURCE)) {
        for (std::uint32_t source = 0; source < peers_.size(); ++source) {
            advance(source);
        }
        return;
    }
    std::vector<std::uint32_t> sources;  // Taking in changes wanted_.
    for (const auto& [source, count] : wanted_) {
        sources.push_back(static_cast<std::uint32_t>(source));
    }
    for (const std::uint32_t source : sources) {
        advance(source);
    }
}

void Mailbox::advance(std::uint32_t source) {
    while (source != rank_ && wants(source)) {
        listen(source);
        if (!peers_[source].work.done()) {
            return;
        }
        take_in(source);
    }
}

/// Gives a new message to the oldest receive that matches, or else puts it aside.
void Mailbox::deliver(std::shared_ptr<Message> message) {
    message->arrival = ++arrivals_;
    const auto found =
        std::find_if(posted_.begin(), posted_.end(), [&](const std::shared_ptr<Receive>& receive) {
            return matches(receive->source, receive->tag, *message);
        });
    if (found == posted_.end()) {
        stored_bytes_ += message->storage.size();
        peers_[message->source].unexpected.push_back(std::move(message));
        return;
    }
    const std::shared_ptr<Receive> receive = *found;
    posted_.erase(found);
    unwant(receive->source);
    match(*receive, std::move(message));
}

void Mailbox::match(Receive& receive, std::shared_ptr<Message> message) {
    if (!message->stored && message->bytes > receive.capacity) {
        store(*message);
        stored_bytes_ -= message->bytes;  // It leaves the unexpected messages.
    }
    if (message->stored) {
        receive.payload = message->payload;
    } else if (message->bytes > 0) {
        receive.payload =
            group_.recv({receive.buffer, message->bytes, DType::uint8}, message->source, kPayloads);
    }
    receive.message = std::move(message);
}

/// Begins to take in the payload of a message that no receive has matched.
void Mailbox::store(Message& message) {
    if (message.stored) {
        return;
    }
    if (message.bytes > kStoredBytesMax || stored_bytes_ > kStoredBytesMax - message.bytes) {
        throw CallError(MPI_ERR_OTHER,
                        "the messages that have arrived before their receives take more than " +
                            std::to_string(kStoredBytesMax >> 30U) +
                            " GiB; receive messages in the order in which they are sent");
    }
    message.storage.resize(message.bytes);
    if (message.bytes > 0) {
        message.payload = group_.recv({message.storage.data(), message.bytes, DType::uint8},
                                      message.source, kPayloads);
    }
    message.stored = true;
    stored_bytes_ += message.bytes;
}

void Mailbox::begin_close() {
    closing_ = std::make_unique<Closing>();
    closing_->asks.resize(peers_.size());
    closing_->asked.resize(peers_.size());
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
        closing_->asks[rank] = peers_[rank].listening && !peers_[rank].work.done() ? 1 : 0;
    }
    const std::size_t count = peers_.size();
    closing_->exchange = group_.all_to_all({closing_->asks.data(), count, DType::uint8},
                                           {closing_->asked.data(), count, DType::uint8});
}

/// Lets the peers end their receives of envelopes.
void Mailbox::send_last_envelopes() {
    closing_->exchange.wait();
    closing_->last.tag = kInternalTag;
    for (std::uint32_t rank = 0; rank < peers_.size(); ++rank) {
        if (closing_->asked[rank] != 0) {
            closing_->works.push_back(
                group_.send(view_of(std::as_const(closing_->last)), rank, kEnvelopes));
        }
        if (closing_->asks[rank] != 0) {
            closing_->works.push_back(peers_[rank].work);
        }
        for (const auto& message : peers_[rank].unexpected) {
            closing_->works.push_back(message->payload);
        }
    }
    closing_->sent = true;
}

bool Mailbox::close(bool block) {
    if (!closing_->sent) {
        if (!block && !closing_->exchange.done()) {
            return false;
        }
        send_last_envelopes();
    }
    if (!block && !std::all_of(closing_->works.begin(), closing_->works.end(),
                               [](const Work& work) { return work.done(); })) {
        return false;
    }
    for (const Work& work : closing_->works) {
        work.wait();
    }
    return true;
}

}  // namespace regroup::mpi
