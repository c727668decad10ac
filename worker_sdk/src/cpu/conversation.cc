// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/conversation.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <utility>

#include "worker_sdk/src/base/copy.h"
#include "worker_sdk/src/group/group_failure.h"

namespace regroup::cpu {
namespace {

// The memory that a buffered message uses beyond its data.
constexpr std::size_t kAsideOverheadBytes = 128;
// The bytes that move in one direction before others get their turn.
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

Conversation::Conversation(std::string own_name, std::string peer_name, Complete complete)
    : own_name_(std::move(own_name)),
      peer_name_(std::move(peer_name)),
      complete_(std::move(complete)) {}

void Conversation::post(Operation operation) {
    deadlines_.insert(deadline_of(operation));
    if (operation.signature.kind == OperationKind::send) {
        const MessageHeader header{.count = operation.buffer.count,
                                   .tag = operation.signature.tag,
                                   .dtype = operation.buffer.dtype};
        sends_.push_back({.operation = std::move(operation), .header = header});
    } else {
        posted_.push_back(std::move(operation));
    }
}

void Conversation::send(MessageStream& stream) {
    for (std::size_t moved = 0; !sends_.empty() && moved < kTurnBytes;) {
        Sending& sending = sends_.front();
        const auto head =
            bytes_of(sending.header).subspan(std::min(sending.sent, sizeof sending.header));
        const std::size_t data_sent = sending.sent - (sizeof sending.header - head.size());
        const std::size_t data_left = sending.operation.buffer.bytes() - data_sent;
        std::array<iovec, 2> parts{iovec{const_cast<std::byte*>(head.data()), head.size()}};
        if (data_left > 0) {
            parts[1] = {static_cast<std::byte*>(sending.operation.buffer.data) + data_sent,
                        std::min(data_left, kTurnBytes)};
        }
        const std::size_t count = stream.write_some(parts);
        if (count == 0) {
            return;
        }
        sending.sent += count;
        moved += count;
        if (count == head.size() + data_left) {
            const Operation done = std::move(sending.operation);
            sends_.pop_front();
            finish(done);
        }
    }
}

void Conversation::sort_in() {
    for (; !posted_.empty(); posted_.pop_front()) {
        Operation& recv = posted_.front();  // Stays there if the messages do not fit.
        const auto aside = find_tag(asides_, recv.signature.tag);
        if (aside != asides_.end()) {
            check_agreement(recv, aside->header);
            copy_bytes(recv.buffer.data, aside->data.data(), aside->data.size());
            aside_bytes_ -= aside->data.size() + kAsideOverheadBytes;
            asides_.erase(aside);
            finish(recv);
        } else if (aside_ && aside_->header.tag == recv.signature.tag) {
            // The message is arriving: its rest goes directly into the buffer.
            check_agreement(recv, aside_->header);
            copy_bytes(recv.buffer.data, aside_->data.data(), received_);
            aside_bytes_ -= aside_->data.size() + kAsideOverheadBytes;
            aside_.reset();
            target_ = std::move(recv);
        } else {
            recvs_.push_back(std::move(recv));
        }
    }
}

void Conversation::receive(MessageStream& stream) {
    sort_in();
    for (std::size_t moved = 0; moved < kTurnBytes;) {
        if (!header_.complete()) {
            header_.filled(stream.read_some(header_.space()));
        }
        if (!header_.complete() || !choose_destination()) {
            return;
        }
        const std::size_t total = data_bytes(header_.value());
        if (received_ < total) {
            auto* const start =
                target_ ? static_cast<std::byte*>(target_->buffer.data) : aside_->data.data();
            const std::size_t count =
                stream.read_some({start + received_, std::min(total - received_, kTurnBytes)});
            received_ += count;
            moved += count;
            if (count == 0) {
                return;
            }
        }
        if (received_ == total) {
            finish_message();
        }
    }
}

/// Chooses the destination of the message at the front; false if there is no room for it yet.
bool Conversation::choose_destination() {
    if (target_ || aside_) {
        return true;
    }
    const MessageHeader header = header_.value();
    if (!valid(header)) {
        throw GroupFailure{.code = Errc::disconnected,
                           .cause = peer_name_ + " sent a malformed message"};
    }
    const auto recv = find_tag(recvs_, header.tag);
    if (recv != recvs_.end()) {
        check_agreement(*recv, header);
        target_ = std::move(*recv);
        recvs_.erase(recv);
        return true;
    }
    const std::size_t bytes = data_bytes(header);
    if (bytes > kAsideBytesMax || aside_bytes_ + bytes + kAsideOverheadBytes > kAsideBytesMax) {
        return false;
    }
    aside_bytes_ += bytes + kAsideOverheadBytes;
    aside_ = Aside{.header = header, .data = std::vector<std::byte>(bytes)};
    return true;
}

void Conversation::finish_message() {
    header_.reset();
    received_ = 0;
    if (target_) {
        const Operation done = std::move(*target_);
        target_.reset();
        finish(done);
    } else {
        asides_.push_back(std::move(*aside_));
        aside_.reset();
    }
}

void Conversation::check_agreement(const Operation& recv, const MessageHeader& header) const {
    if (recv.buffer.count == header.count && recv.buffer.dtype == header.dtype) {
        return;
    }
    throw GroupFailure{.code = Errc::invalid_argument,
                       .cause = "the ranks do not agree: " + peer_name_ + " sends " +
                                std::to_string(header.count) + " x " +
                                std::string(regroup::to_string(header.dtype)) + " where " +
                                own_name_ + " receives " + std::to_string(recv.buffer.count) +
                                " x " + std::string(regroup::to_string(recv.buffer.dtype)),
                       .operation = describe(recv.signature)};
}

void Conversation::finish(const Operation& operation) {
    deadlines_.erase(deadlines_.find(deadline_of(operation)));
    complete_(operation);
}

void Conversation::take_all(std::vector<Operation>& into) {
    for (Sending& sending : sends_) {
        into.push_back(std::move(sending.operation));
    }
    if (target_) {
        into.push_back(std::move(*target_));
    }
    std::move(posted_.begin(), posted_.end(), std::back_inserter(into));
    std::move(recvs_.begin(), recvs_.end(), std::back_inserter(into));
    sends_.clear();
    target_.reset();
    posted_.clear();
    recvs_.clear();
    deadlines_.clear();
}

const Operation* Conversation::sending() const noexcept {
    return sends_.empty() ? nullptr : &sends_.front().operation;
}

const Operation* Conversation::receiving() const noexcept {
    if (target_) {
        return &*target_;
    }
    return recvs_.empty() ? nullptr : &recvs_.front();
}

bool Conversation::wants_to_read() const noexcept {
    return !header_.complete() || target_ || aside_;
}

Instant Conversation::deadline_of(const Operation& operation) {
    return after(operation.issued_at, operation.limit);
}

Instant Conversation::next_deadline() const {
    return deadlines_.empty() ? Instant::max() : *deadlines_.begin();
}

void Conversation::check_deadlines(Instant now) const {
    if (now < next_deadline()) {
        return;
    }
    const auto check = [&](const Operation& operation, const std::string& what) {
        if (now >= deadline_of(operation)) {
            throw GroupFailure{
                .code = Errc::deadline_exceeded,
                .cause = peer_name_ + " " + what + " within " + format_duration(operation.limit),
                .operation = describe(operation.signature)};
        }
    };
    for (const Sending& sending : sends_) {
        check(sending.operation, "has not taken the message");
    }
    if (target_) {
        check(*target_, "has not sent the whole message");
    }
    for (const Operation& recv : recvs_) {
        check(recv, wants_to_read()
                        ? "has not sent the message"
                        : "has sent other messages, too many to put aside, but not this one");
    }
}

}  // namespace regroup::cpu
