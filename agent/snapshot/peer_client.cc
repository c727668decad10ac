// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshot/peer_client.h"

#include <utility>

namespace regroup::agent {

namespace {

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

}  // namespace

Result<std::shared_ptr<ImageMemory>> get_image(const PeerPlace& place, const Ask& ask,
                                               const MakeMemory& make_memory) {
    Result<std::unique_ptr<PeerStream>> stream = connect(place);
    if (!stream) {
        return stream.error();
    }
    const Result<Answer> answer = exchange(place, **stream, ask);
    if (!answer) {
        return answer.error();
    }
    Result<std::shared_ptr<ImageMemory>> image = make_memory(answer->bytes);
    if (!image) {
        return image;
    }
    if (Result<void> received = (*stream)->receive((*image)->bytes()); !received) {
        return about(place, received.error());
    }
    return image;
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
