// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/collective_lane.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "rendezvous/base/ensure.h"
#include "worker_sdk/src/cpu/reduce.h"

namespace regroup::cpu {
namespace {

// Small enough to stay in the cache between the kernel's copy and the reduction, large enough that
// system calls do not matter.
constexpr std::size_t kSegmentBytes = std::size_t{512} << 10U;
// While data flows without a pause, the end of the group is noticed after so many segments.
constexpr unsigned kSegmentsPerLook = 16;

std::size_t total_bytes(const std::vector<Piece>& pieces) {
    return std::accumulate(pieces.begin(), pieces.end(), std::size_t{0},
                           [](std::size_t sum, const Piece& piece) { return sum + piece.bytes; });
}

}  // namespace

/// The sending side of a flow: the signature, then the released bytes of the pieces.
class CollectiveLane::Outgoing {
   public:
    Outgoing(const Signature& signature, const Flow& flow)
        : signature_(signature),
          pieces_(flow.outgoing),
          total_(flow.to ? total_bytes(flow.outgoing) : 0),
          released_(std::min(flow.head_bytes, total_)),
          done_(!flow.to) {}

    [[nodiscard]] bool done() const noexcept { return done_; }
    [[nodiscard]] bool released() const noexcept {
        return signature_sent_ < sizeof signature_ || sent_ < released_;
    }
    void release(std::size_t bytes) noexcept { released_ = std::min(total_, released_ + bytes); }

    /// Sends as much as the connection accepts; returns the number of bytes, including the
    /// signature.
    std::size_t send(net::Stream& stream) {
        if (done_) {
            return 0;
        }
        std::array<iovec, 4> parts{};
        std::size_t part_count = 0;
        const auto head = bytes_of(signature_).subspan(signature_sent_);
        if (!head.empty()) {
            parts[part_count++] = {const_cast<std::byte*>(head.data()), head.size()};
        }
        std::size_t budget = std::min(released_ - sent_, kSegmentBytes);
        std::size_t offset = offset_;
        for (std::size_t i = index_; budget > 0 && part_count < parts.size(); ++i, offset = 0) {
            const std::size_t bytes = std::min(budget, pieces_[i].bytes - offset);
            if (bytes > 0) {
                parts[part_count++] = {pieces_[i].data + offset, bytes};
            }
            budget -= bytes;
        }
        const std::size_t count = stream.write_some(std::span(parts).first(part_count));
        const std::size_t of_head = std::min(count, head.size());
        signature_sent_ += of_head;
        advance(count - of_head);
        done_ = sent_ == total_ && signature_sent_ == sizeof signature_;
        return count;
    }

    [[nodiscard]] std::size_t payload_sent() const noexcept { return sent_; }

   private:
    void advance(std::size_t bytes) {
        sent_ += bytes;
        offset_ += bytes;
        while (index_ < pieces_.size() && offset_ >= pieces_[index_].bytes) {
            offset_ -= pieces_[index_].bytes;
            ++index_;
        }
    }

    const Signature& signature_;
    const std::vector<Piece>& pieces_;
    const std::size_t total_;
    std::size_t released_;
    std::size_t signature_sent_ = 0;
    std::size_t sent_ = 0;
    std::size_t index_ = 0;  // The next byte is pieces_[index_].data[offset_].
    std::size_t offset_ = 0;
    bool done_;
};

/// The receiving side of a flow, behind the signature.
class CollectiveLane::Incoming {
   public:
    Incoming(const Signature& signature, const Flow& flow, std::uint32_t world_size,
             std::byte* scratch)
        : signature_(signature),
          pieces_(flow.incoming),
          total_(flow.from ? total_bytes(flow.incoming) : 0),
          world_size_(world_size),
          scratch_(scratch) {}

    [[nodiscard]] bool done() const noexcept { return landed_ == total_; }
    [[nodiscard]] std::size_t landed() const noexcept { return landed_; }
    [[nodiscard]] std::size_t total() const noexcept { return total_; }

    /// Reads the available bytes into place; returns their number.
    std::size_t receive(net::Stream& stream) {
        while (index_ < pieces_.size() && offset_ == pieces_[index_].bytes) {
            ++index_;
            offset_ = 0;
        }
        if (index_ == pieces_.size()) {
            return 0;
        }
        const Piece& piece = pieces_[index_];
        std::byte* const target = piece.data + offset_;
        const std::size_t wanted =
            std::min(piece.bytes - offset_ - carried_, kSegmentBytes - carried_);
        if (piece.landing == Landing::copy) {
            const std::size_t count = stream.read_some({target, wanted});
            land(count);
            return count;
        }
        const std::size_t count = stream.read_some({scratch_ + carried_, wanted});
        reduce_into(target, carried_ + count, piece);
        return count;
    }

   private:
    void reduce_into(std::byte* target, std::size_t available, const Piece& piece) {
        const std::size_t item = item_bytes(signature_.dtype);
        const std::size_t items = available / item;
        const std::byte* const here = piece.with != nullptr ? piece.with + offset_ : target;
        const double divisor =
            piece.landing == Landing::reduce_last
                ? last_divisor(signature_.reduce_op, signature_.dtype, world_size_)
                : 1;
        combine(signature_.reduce_op, signature_.dtype, target, here, scratch_, items, divisor);
        // The first bytes of an element whose rest has not arrived.
        carried_ = available - items * item;
        std::memmove(scratch_, scratch_ + items * item, carried_);
        land(items * item);
    }

    void land(std::size_t bytes) {
        offset_ += bytes;
        landed_ += bytes;
    }

    const Signature& signature_;
    const std::vector<Piece>& pieces_;
    const std::size_t total_;
    const std::uint32_t world_size_;
    std::byte* const scratch_;
    std::size_t carried_ = 0;  // Bytes of an incomplete element.
    std::size_t landed_ = 0;
    std::size_t index_ = 0;
    std::size_t offset_ = 0;
};

CollectiveLane::CollectiveLane(CollectiveLinks& links, RollCall& roll_call, bool crowded)
    : links_(links),
      roll_call_(roll_call),
      spin_policy_(crowded),
      scratch_(std::make_unique_for_overwrite<std::byte[]>(kSegmentBytes)) {}

void CollectiveLane::begin(const Signature& signature, Instant now, Duration limit) {
    signature_ = signature;
    limit_ = limit;
    deadline_ = after(now, limit);
    roll_call_.enter(signature, now);
    for (const auto& [peer, arrival] : arrivals_) {
        if (arrival.complete()) {
            roll_call_.check(peer, arrival.value());
        }
    }
}

void CollectiveLane::end() {
    roll_call_.leave();
}

void CollectiveLane::carry(const Flow& flow) {
    Outgoing outgoing(signature_, flow);
    Incoming incoming(signature_, flow, links_.position().world_size, scratch_.get());
    Outbound* const to = flow.to ? &links_.outbound(*flow.to) : nullptr;
    unsigned segments = 0;
    Instant idle_since = Instant::max();
    while (true) {
        std::size_t moved = 0;
        if (to != nullptr && to->ready()) {
            moved += outgoing.send(to->stream());
        }
        if (net::Stream* const stream = flow.from ? payload_stream(*flow.from) : nullptr) {
            const std::size_t landed_before = incoming.landed();
            moved += incoming.receive(*stream);
            outgoing.release(incoming.landed() - landed_before);
        }
        if (outgoing.done() && incoming.done() && (!flow.from || entered(*flow.from))) {
            break;
        }
        if (moved != 0) {
            if (idle_since != Instant::max()) {
                spin_policy_.report(SteadyClock().now() - idle_since);
                idle_since = Instant::max();
            }
            if (++segments % kSegmentsPerLook == 0) {
                links_.look();
            }
        } else if (!spin(flow, idle_since)) {
            wait(flow, outgoing, incoming);
        }
    }
    if (idle_since != Instant::max()) {
        spin_policy_.report(SteadyClock().now() - idle_since);
    }
    bytes_sent_ += outgoing.payload_sent();
    if (flow.from) {
        arrivals_[*flow.from].reset();
    }
}

/// Lets the next attempt to send and to receive ask the kernel. `began` is when the spinning began,
/// or Instant::max(). False if it is time to sleep.
bool CollectiveLane::spin(const Flow& flow, Instant& began) {
    Outbound* const to = flow.to ? &links_.outbound(*flow.to) : nullptr;
    net::Stream* const from = flow.from ? links_.inbound(*flow.from) : nullptr;
    const bool is_connected = (to == nullptr || to->ready()) && (!flow.from || from != nullptr);
    const Instant now = SteadyClock().now();
    if (began == Instant::max()) {
        if (!is_connected || !spin_policy_.is_worth_it()) {
            return false;
        }
        began = now;
    } else if (now - began >= SpinPolicy::kLimit) {
        spin_policy_.report(now - began);
        began = Instant::max();
        return false;
    }
    links_.look();
    spin_policy_.pause();
    if (from != nullptr && !from->ended()) {
        from->readable = true;
        if (!arrivals_[*flow.from].complete()) {
            read_signature(*flow.from, *from);
        }
    }
    if (to != nullptr && !to->stream().ended()) {
        to->stream().writable = true;
    }
    return true;
}

/// Sleeps until something can move, or throws.
void CollectiveLane::wait(const Flow& flow, const Outgoing& outgoing, const Incoming& incoming) {
    const Instant now = SteadyClock().now();
    if (now >= deadline_) {
        throw deadline_failure(flow, incoming);
    }
    if (now >= roll_call_.next_call()) {
        roll_call_.call(now);
    }
    if (flow.to && !outgoing.done()) {
        watch_receiver(*flow.to, outgoing.released());
    }
    if (flow.from && !(entered(*flow.from) && incoming.done())) {
        watch_sender(*flow.from);
    }
    for (auto& [peer, stream] : links_.inbounds()) {
        if (!stream.ended() && !arrivals_[peer].complete()) {
            links_.poll().want_read(stream);
        }
    }
    links_.wait(std::min(deadline_, roll_call_.next_call()));
    for (auto& [peer, stream] : links_.inbounds()) {
        if (!arrivals_[peer].complete()) {
            read_signature(peer, stream);
        }
    }
}

void CollectiveLane::watch_receiver(std::uint32_t peer, bool has_bytes) {
    Outbound& to = links_.outbound(peer);
    if (to.ended() || (to.ready() && to.stream().ended())) {
        lose(peer, to.ended() ? to.ending() : "closed the connection");
    }
    if (to.ready() && has_bytes) {
        links_.poll().want_write(to.stream());
    }
}

/// Ensures that this rank would notice the death of `peer`.
void CollectiveLane::watch_sender(std::uint32_t peer) {
    net::Stream* const stream = links_.inbound(peer);
    if (stream != nullptr) {
        if (stream->ended()) {
            lose(peer, "closed the connection");
        }
        if (entered(peer)) {
            links_.poll().want_read(*stream);
        }
        return;
    }
    if (links_.has_left(peer)) {
        lose(peer, "has left the group");
    }
    const GroupPosition& position = links_.position();
    if (peer != position.next() && peer != position.previous()) {
        // The control line watches the neighbours. Any other peer needs a connection.
        const Outbound& outbound = links_.outbound(peer);
        if (outbound.ended()) {
            lose(peer, outbound.ending());
        }
    }
}

void CollectiveLane::lose(std::uint32_t peer, const std::string& how) const {
    throw GroupFailure{.code = Errc::disconnected,
                       .cause = links_.name(peer) + " " + how,
                       .operation = describe(signature_),
                       .broken_to = peer,
                       .how = how,
                       .follows = true};
}

GroupFailure CollectiveLane::deadline_failure(const Flow& flow, const Incoming& incoming) const {
    GroupFailure failure{.code = Errc::deadline_exceeded,
                         .operation = describe(signature_),
                         .expired = {{.number = signature_.number, .limit = limit_}}};
    const std::string within = " within " + format_duration(limit_);
    if (flow.from && !entered(*flow.from)) {
        failure.cause = links_.name(*flow.from) + " has not joined in" + within;
    } else if (flow.from && !incoming.done()) {
        failure.cause = links_.name(*flow.from) + " has joined in but sent only " +
                        std::to_string(incoming.landed()) + " of " +
                        std::to_string(incoming.total()) + " bytes" + within;
    } else {
        failure.cause = links_.name(*flow.to) + " has not taken all data" + within;
    }
    return failure;
}

bool CollectiveLane::entered(std::uint32_t peer) const {
    const auto arrival = arrivals_.find(peer);
    return arrival != arrivals_.end() && arrival->second.complete() &&
           arrival->second.value().number == signature_.number;
}

net::Stream* CollectiveLane::payload_stream(std::uint32_t peer) {
    return entered(peer) ? links_.inbound(peer) : nullptr;
}

void CollectiveLane::read_signature(std::uint32_t peer, net::Stream& stream) {
    Partial<Signature>& arrival = arrivals_[peer];
    arrival.filled(stream.read_some(arrival.space()));
    if (arrival.complete()) {
        roll_call_.check(peer, arrival.value());
    }
}

}  // namespace regroup::cpu
