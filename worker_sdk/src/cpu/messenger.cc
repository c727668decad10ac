// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/messenger.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "rendezvous/base/ensure.h"

namespace regroup::cpu {
namespace {

// The memory that a buffered message uses beyond its data.
constexpr std::size_t kAsideOverheadBytes = 128;
// The bytes that a turn moves for one peer before the others get their turn.
constexpr std::size_t kTurnBytes = std::size_t{1} << 20U;

std::size_t data_bytes(const MessageHeader& header) {
    return static_cast<std::size_t>(header.count) * item_bytes(header.dtype);
}

bool valid(const MessageHeader& header) {
    return header.dtype <= DType::float8_e5m2 &&
           header.count <= std::numeric_limits<std::size_t>::max() / 16;
}

template <class Range>
auto find_tag(Range& range, std::uint32_t tag) {
    return std::find_if(range.begin(), range.end(), [tag](const auto& entry) {
        if constexpr (requires { entry.header; }) {
            return entry.header.tag == tag;
        } else {
            return entry.signature.tag == tag;
        }
    });
}

}  // namespace

Messenger::Messenger(Mesh& mesh, std::function<void(const Operation&)> complete)
    : mesh_(mesh), complete_(std::move(complete)) {}

void Messenger::post(Operation operation) {
    const std::uint32_t peer = operation.signature.peer;
    deadlines_.insert(deadline_of(operation));
    if (operation.signature.kind == OperationKind::send) {
        const MessageHeader header{.count = operation.buffer.count,
                                   .tag = operation.signature.tag,
                                   .dtype = operation.buffer.dtype};
        sends_[peer].push_back({.operation = std::move(operation), .header = header});
    } else {
        mailboxes_[peer].posted.push_back(std::move(operation));
    }
}

/// Gives each new recv its buffered message, or else lets it wait.
void Messenger::sort_in_posted(Mailbox& mailbox) {
    for (; !mailbox.posted.empty(); mailbox.posted.pop_front()) {
        Operation& recv = mailbox.posted.front();
        const auto aside = find_tag(mailbox.asides, recv.signature.tag);
        if (aside != mailbox.asides.end()) {
            check_agreement(recv, aside->header);
            if (!aside->data.empty()) {
                std::memcpy(recv.buffer.data, aside->data.data(), aside->data.size());
            }
            mailbox.aside_bytes -= aside->data.size() + kAsideOverheadBytes;
            mailbox.asides.erase(aside);
            finish(recv);
        } else if (mailbox.aside && mailbox.aside->header.tag == recv.signature.tag) {
            // The message is arriving: its rest goes directly into the buffer.
            check_agreement(recv, mailbox.aside->header);
            if (mailbox.received > 0) {
                std::memcpy(recv.buffer.data, mailbox.aside->data.data(), mailbox.received);
            }
            mailbox.aside_bytes -= mailbox.aside->data.size() + kAsideOverheadBytes;
            mailbox.aside.reset();
            mailbox.target = std::make_unique<Operation>(std::move(recv));
        } else {
            mailbox.recvs.push_back(std::move(recv));
        }
    }
}

std::vector<Operation> Messenger::take_all() {
    std::vector<Operation> operations;
    for (auto& [peer, queue] : sends_) {
        for (Sending& sending : queue) {
            operations.push_back(std::move(sending.operation));
        }
    }
    for (auto& [peer, mailbox] : mailboxes_) {
        if (mailbox.target) {
            operations.push_back(std::move(*mailbox.target));
        }
        std::move(mailbox.posted.begin(), mailbox.posted.end(), std::back_inserter(operations));
        std::move(mailbox.recvs.begin(), mailbox.recvs.end(), std::back_inserter(operations));
    }
    sends_.clear();
    mailboxes_.clear();
    return operations;
}

void Messenger::watch(net::PollSet& poll) {
    for (auto& [peer, queue] : sends_) {
        Outbound& outbound = mesh_.outbound(peer, ChannelKind::message);
        if (!queue.empty() && outbound.ready() && !outbound.stream().ended()) {
            poll.want_write(outbound.stream());
        }
    }
    for (auto& [peer, stream] : mesh_.inbounds(ChannelKind::message)) {
        if (!stream.ended() && wants_to_read(mailboxes_[peer])) {
            poll.want_read(stream);
        }
    }
}

bool Messenger::wants_to_read(const Mailbox& mailbox) const {
    return !mailbox.header.complete() || mailbox.target || mailbox.aside;
}

void Messenger::progress() {
    for (auto& [peer, queue] : sends_) {
        progress_sends(peer, queue);
    }
    for (const auto& [peer, stream] : mesh_.inbounds(ChannelKind::message)) {
        static_cast<void>(mailboxes_[peer]);  // Read its messages even without a recv.
    }
    for (auto& [peer, mailbox] : mailboxes_) {
        progress_recvs(peer, mailbox);
    }
    check_deadlines(SteadyClock().now());
}

void Messenger::progress_sends(std::uint32_t peer, std::deque<Sending>& queue) {
    if (queue.empty()) {
        return;
    }
    Outbound& outbound = mesh_.outbound(peer, ChannelKind::message);
    for (std::size_t moved = 0; !queue.empty() && outbound.ready() && moved < kTurnBytes;) {
        Sending& sending = queue.front();
        const auto head =
            bytes_of(sending.header).subspan(std::min(sending.sent, sizeof sending.header));
        const std::size_t data_sent = sending.sent - (sizeof sending.header - head.size());
        const std::size_t data_left = sending.operation.buffer.bytes() - data_sent;
        std::array<iovec, 2> parts{iovec{const_cast<std::byte*>(head.data()), head.size()}};
        if (data_left > 0) {
            parts[1] = {static_cast<std::byte*>(sending.operation.buffer.data) + data_sent,
                        std::min(data_left, kTurnBytes)};
        }
        const std::size_t count = outbound.stream().write_some(parts);
        if (count == 0) {
            break;
        }
        sending.sent += count;
        moved += count;
        if (count == head.size() + data_left) {
            finish(sending.operation);
            queue.pop_front();
        }
    }
    if (!queue.empty() && (outbound.ended() || (outbound.ready() && outbound.stream().ended()))) {
        mesh_.note_gone(peer, outbound.ended() ? outbound.ending() : "closed the connection");
        mesh_.suspect(peer, queue.front().operation.signature);
    }
}

void Messenger::progress_recvs(std::uint32_t peer, Mailbox& mailbox) {
    sort_in_posted(mailbox);
    net::Stream* const stream = mesh_.inbound(peer, ChannelKind::message);
    for (std::size_t moved = 0; stream != nullptr && moved < kTurnBytes;) {
        if (!mailbox.header.complete()) {
            mailbox.header.filled(stream->read_some(mailbox.header.space()));
        }
        if (!mailbox.header.complete() || !choose_destination(peer, mailbox)) {
            break;
        }
        const std::size_t total = data_bytes(mailbox.header.value());
        if (mailbox.received < total) {
            auto* const start = mailbox.target
                                    ? static_cast<std::byte*>(mailbox.target->buffer.data)
                                    : mailbox.aside->data.data();
            const std::size_t count = stream->read_some(
                {start + mailbox.received, std::min(total - mailbox.received, kTurnBytes)});
            mailbox.received += count;
            moved += count;
            if (count == 0) {
                break;
            }
        }
        if (mailbox.received == total) {
            finish_message(mailbox);
        }
    }
    if (mailbox.target || !mailbox.recvs.empty()) {
        const Operation& waiting = mailbox.target ? *mailbox.target : mailbox.recvs.front();
        mesh_.await(peer, ChannelKind::message, waiting.signature);
    }
}

/// Chooses the destination of the message at the front; false if there is no room for it yet.
bool Messenger::choose_destination(std::uint32_t peer, Mailbox& mailbox) {
    if (mailbox.target || mailbox.aside) {
        return true;
    }
    const MessageHeader header = mailbox.header.value();
    if (!valid(header)) {
        throw GroupFailure{.code = Errc::disconnected,
                           .cause = mesh_.peer(peer).name + " sent a malformed message"};
    }
    const auto recv = find_tag(mailbox.recvs, header.tag);
    if (recv != mailbox.recvs.end()) {
        check_agreement(*recv, header);
        mailbox.target = std::make_unique<Operation>(std::move(*recv));
        mailbox.recvs.erase(recv);
        return true;
    }
    const std::size_t bytes = data_bytes(header);
    if (bytes > kAsideBytesMax ||
        mailbox.aside_bytes + bytes + kAsideOverheadBytes > kAsideBytesMax) {
        return false;
    }
    mailbox.aside_bytes += bytes + kAsideOverheadBytes;
    mailbox.aside =
        std::make_unique<Aside>(Aside{.header = header, .data = std::vector<std::byte>(bytes)});
    return true;
}

void Messenger::finish_message(Mailbox& mailbox) {
    mailbox.header.reset();
    mailbox.received = 0;
    if (mailbox.target) {
        const std::unique_ptr<Operation> target = std::move(mailbox.target);
        finish(*target);
    } else {
        mailbox.asides.push_back(std::move(*mailbox.aside));
        mailbox.aside.reset();
    }
}

void Messenger::check_agreement(const Operation& recv, const MessageHeader& header) const {
    if (recv.buffer.count == header.count && recv.buffer.dtype == header.dtype) {
        return;
    }
    Signature theirs{.count = header.count, .kind = OperationKind::send, .dtype = header.dtype};
    throw GroupFailure{.code = Errc::invalid_argument,
                       .cause = "the ranks do not agree: " + mesh_.peer(recv.signature.peer).name +
                                " sends " + std::to_string(theirs.count) + " x " +
                                std::string(to_string(theirs.dtype)) + " where " +
                                mesh_.peer(mesh_.position().rank).name + " receives " +
                                std::to_string(recv.buffer.count) + " x " +
                                std::string(to_string(recv.buffer.dtype)),
                       .operation = describe(recv.signature)};
}

void Messenger::finish(const Operation& operation) {
    deadlines_.erase(deadlines_.find(deadline_of(operation)));
    complete_(operation);
}

Instant Messenger::deadline_of(const Operation& operation) {
    return after(operation.issued_at, operation.limit);
}

Instant Messenger::next_deadline() const {
    return deadlines_.empty() ? Instant::max() : *deadlines_.begin();
}

void Messenger::check_deadlines(Instant now) const {
    if (now < next_deadline()) {
        return;
    }
    const auto check = [&](const Operation& operation, const std::string& what) {
        if (now >= deadline_of(operation)) {
            throw GroupFailure{.code = Errc::deadline_exceeded,
                               .cause = mesh_.peer(operation.signature.peer).name + " " + what +
                                        " within " + format_duration(operation.limit),
                               .operation = describe(operation.signature)};
        }
    };
    for (const auto& [peer, queue] : sends_) {
        for (const Sending& sending : queue) {
            check(sending.operation, "has not taken the message");
        }
    }
    for (const auto& [peer, mailbox] : mailboxes_) {
        if (mailbox.target) {
            check(*mailbox.target, "has not sent the whole message");
        }
        const bool full = mailbox.header.complete() && !wants_to_read(mailbox);
        for (const Operation& recv : mailbox.recvs) {
            check(recv, full ? "has sent other messages, too many to put aside, but not this one"
                             : "has not sent the message");
        }
    }
}

}  // namespace regroup::cpu
