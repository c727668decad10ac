// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/http/room.h"

#include <algorithm>
#include <map>
#include <utility>

#include "rendezvous/base/fair_share.h"

namespace regroup::http {

namespace {

using Held = std::shared_ptr<Connection>;
using Doing = Connection::Doing;
using Texts = std::set<std::shared_ptr<const std::string>>;

std::size_t bytes_of(const Texts& texts) {
    std::size_t bytes = 0;
    for (const auto& text : texts) {
        bytes += text->size();
    }
    return bytes;
}

}  // namespace

Held leaves_for(const Connections& all, const Connection& newcomer, Instant now,
                const Limits& limits) {
    using Owner = std::pair<bool, std::string>;  // Strangers come after all others.
    const auto owner_of = [](const Connection& one) {
        return Owner(!one.is_trusted, one.is_trusted ? one.identity : one.client.address);
    };
    std::map<Owner, std::size_t> held{{owner_of(newcomer), 1}};
    for (const Held& other : all) {
        ++held[owner_of(*other)];
    }
    const auto rank = [&](const Connection& one) {
        return std::pair(!one.is_trusted, held.at(owner_of(one)));
    };
    Held victim;
    Held slowest;
    for (const Held& other : all) {
        const bool may_go =
            !other->is_trusted || other->doing == Doing::idle || other->doing == Doing::reading;
        if (may_go && (!victim || rank(*other) > rank(*victim) ||
                       (rank(*other) == rank(*victim) && other->since < victim->since))) {
            victim = other;
        }
        if (other->doing == Doing::answering && now - other->since > limits.slow_limit &&
            (!slowest || other->since < slowest->since)) {
            slowest = other;
        }
    }
    return victim ? victim : slowest;
}

Held leaves_for_viewer(const Connections& all, const std::string& newcomer) {
    std::map<std::string, std::size_t> viewers;
    for (const Held& other : all) {
        viewers[other->identity] += other->doing == Doing::viewing ? 1 : 0;
    }
    Held newest;
    if (const auto most = gives_way(viewers, newcomer)) {
        for (const Held& other : all) {
            if (other->doing == Doing::viewing && other->identity == *most &&
                (!newest || other->since > newest->since)) {
                newest = other;
            }
        }
    }
    return newest;
}

Held leaves_for_text(const Connections& all, const std::shared_ptr<const std::string>& text,
                     std::size_t bytes_max) {
    Texts texts{text};
    std::map<std::string, Texts> of_peers;
    for (const Held& other : all) {
        if (other->text) {
            texts.insert(other->text);
            of_peers[other->identity].insert(other->text);
        }
    }
    if (of_peers.empty() || bytes_of(texts) <= bytes_max) {
        return nullptr;
    }
    const auto most = std::ranges::max_element(
        of_peers, {}, [](const auto& peer) { return bytes_of(peer.second); });
    Held slowest;
    for (const Held& other : all) {
        if (other->text && other->identity == most->first &&
            (!slowest || other->text_since < slowest->text_since)) {
            slowest = other;
        }
    }
    return slowest;
}

}  // namespace regroup::http
