// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshot/peer_client.h"

#include <algorithm>
#include <utility>

namespace regroup::agent {

namespace {

constexpr std::size_t kAwaitedBytes = std::size_t{16} << 20U;

using snapshot::Answer;
using snapshot::Ask;

Failure about(const PeerPlace& place, const Failure& why) {
    return {why.code, "the agent at " + place.endpoint + " " + why.detail};
}
Failure refused(const PeerPlace& place, const Answer& answer) {
    return {Errc::overloaded, "the agent at " + place.endpoint + " says: " + answer.error};
}

Result<std::unique_ptr<PeerStream>> connect(const PeerPlace& place) {
    const auto endpoint = rendezvous::Endpoint::parse(place.endpoint);
    if (!endpoint) {
        return Failure(Errc::disconnected,
                       "'" + place.endpoint + "' is no address of an agent for snapshots");
    }
    auto stream = PeerStream::connect(*endpoint, place.trust, place.sockets);
    return stream ? std::move(stream)
                  : Result<std::unique_ptr<PeerStream>>(about(place, stream.error()));
}

using Image = Result<std::shared_ptr<ImageMemory>>;

Result<Answer> exchange(const PeerPlace& place, PeerStream& stream, const Ask& ask) {
    if (Result<void> sent = stream.send(ask); !sent) {
        return about(place, sent.error());
    }
    Result<Answer> answer = stream.receive_answer();
    if (!answer) {
        return about(place, answer.error());
    }
    if (!answer->error.empty()) {
        return refused(place, *answer);
    }
    return answer;
}

Image get_once(const PeerPlace& place, const Ask& ask, const MakeMemory& make_memory) {
    Result<std::unique_ptr<PeerStream>> stream = connect(place);
    if (!stream) {
        return stream.error();
    }
    const Result<Answer> answer = exchange(place, **stream, ask);
    if (!answer) {
        return answer.error();
    }
    if (ask.bytes != 0 && answer->bytes > ask.bytes) {
        return about(place, Failure(Errc::overloaded, "gives more bytes than it was asked for"));
    }
    Image image = make_memory(answer->bytes);
    if (!image) {
        return image;
    }
    AllocationAhead allocation(**image);
    for (std::span<std::byte> left = (*image)->bytes(); !left.empty();) {
        const std::span<std::byte> piece = left.first(std::min(kAwaitedBytes, left.size()));
        left = left.subspan(piece.size());
        if (Result<void> there = allocation.await((*image)->size() - left.size()); !there) {
            return there.error();
        }
        if (Result<void> received = (*stream)->receive(piece); !received) {
            return about(place, received.error());
        }
    }
    return image;
}

}  // namespace

Image get_image(const PeerPlace& place, const Ask& ask, const MakeMemory& make_memory,
                Duration limit) {
    constexpr Duration kPauseMin = std::chrono::milliseconds(50);
    constexpr Duration kPauseMax = std::chrono::seconds(1);
    const Instant deadline = after(now(), limit);
    for (Duration pause = kPauseMin;; pause = std::min(2 * pause, kPauseMax)) {
        Image image = get_once(place, ask, make_memory);
        if (image || image.error().code != Errc::disconnected || after(now(), pause) >= deadline ||
            place.sockets.await_stop(pause)) {
            return image;
        }
    }
}

Result<void> put_copy(const PeerPlace& place, const snapshot::PartId& id,
                      const snapshot::Version& version, std::span<const std::byte> image,
                      const KnownVersions& known) {
    Result<std::unique_ptr<PeerStream>> stream = connect(place);
    if (!stream) {
        return stream.error();
    }
    for (const auto& [kind, what] :
         {std::pair(Ask::Kind::whole, known.whole), std::pair(Ask::Kind::kept, known.kept)}) {
        if (what) {
            const auto told = exchange(place, **stream, {.kind = kind, .id = id, .version = *what});
            if (!told) {
                return told.error();
            }
        }
    }
    const Result<Answer> wanted =
        exchange(place, **stream,
                 {.kind = Ask::Kind::saved, .id = id, .version = version, .bytes = image.size()});
    if (!wanted) {
        return wanted.error();
    }
    if (wanted->bytes == 0) {
        return {};  // It has this version.
    }
    if (Result<void> sent = (*stream)->send(image); !sent) {
        return about(place, sent.error());
    }
    const Result<Answer> kept = (*stream)->receive_answer();
    if (!kept) {
        return about(place, kept.error());
    }
    return kept->error.empty() ? Result<void>() : refused(place, *kept);
}

}  // namespace regroup::agent
