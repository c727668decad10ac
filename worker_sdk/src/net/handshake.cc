// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/net/handshake.h"

#include <cstddef>
#include <span>
#include <string_view>

namespace regroup::net {
namespace {

constexpr std::uint32_t kProves = 1;
constexpr std::uint32_t kEncrypts = 2;
constexpr std::uint32_t kHasAes = 4;

// Each code has a label of its own, so that nobody can be answered with his own words.
constexpr std::string_view kDials = "regroup connection: introduction";
constexpr std::string_view kAccepts = "regroup connection: welcome";
constexpr std::string_view kProof = "regroup connection: proof";
constexpr std::string_view kDialledData = "regroup connection: data of the dialling rank";
constexpr std::string_view kAcceptedData = "regroup connection: data of the accepting rank";

std::uint32_t traits_of(const Protection& protection) {
    return (protection.key ? kProves : 0) | (protection.encrypts ? kEncrypts : 0) |
           (protection.encrypts && has_fast_aes() ? kHasAes : 0);
}

/// The traits in which the ranks must be alike.
std::uint32_t agreed(std::uint64_t traits) {
    return static_cast<std::uint32_t>(traits) & (kProves | kEncrypts);
}

Nonce fresh_nonce() {
    return security::Key::random().bytes();
}

template <WireStruct T>
void add(std::string& text, const T& value) {
    const auto bytes = bytes_of(value);
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::string spoken(std::string_view label, const Introduction& introduction) {
    std::string text(label);
    add(text, introduction.hello);
    add(text, introduction.traits);
    add(text, introduction.nonce);
    return text;
}

std::string spoken(std::string_view label, const Introduction& introduction,
                   const Welcome& welcome) {
    std::string text = spoken(label, introduction);
    add(text, welcome.answer);
    add(text, welcome.traits);
    add(text, welcome.nonce);
    return text;
}

/// Why ranks whose traits differ cannot talk.
std::string difference(const Protection& own, std::uint64_t theirs) {
    const std::uint32_t differences = agreed(theirs ^ traits_of(own));
    if ((differences & kProves) != 0) {
        return own.key ? "has no secret of the group, unlike this rank; give all ranks the same "
                         "one (Context::group_secret, REGROUP_GROUP_SECRET_FILE), or none"
                       : "asks for the group's secret, which this rank does not have; give all "
                         "ranks the same one (Context::group_secret, REGROUP_GROUP_SECRET_FILE)";
    }
    return std::string(own.encrypts ? "does not encrypt" : "encrypts") +
           ", unlike this rank; set REGROUP_GROUP_ENCRYPTION alike on all ranks";
}

}  // namespace

Introduction introduce(const Hello& hello, const Protection& own) {
    Introduction introduction{.hello = hello, .traits = traits_of(own), .nonce = fresh_nonce()};
    if (own.key) {
        introduction.code = own.key->mac(spoken(kDials, introduction));
    }
    return introduction;
}

HandshakeAnswer judge(const Introduction& introduction, const Protection& own) {
    if (agreed(introduction.traits) != agreed(traits_of(own))) {
        return HandshakeAnswer::differs;
    }
    return own.key && !own.key->verifies(spoken(kDials, introduction), introduction.code)
               ? HandshakeAnswer::no_secret
               : HandshakeAnswer::welcome;
}

Welcome make_welcome(HandshakeAnswer answer, const Introduction& introduction,
                     const Protection& own) {
    Welcome welcome{.answer = answer, .traits = traits_of(own)};
    if (answer == HandshakeAnswer::welcome) {
        welcome.nonce = fresh_nonce();
        if (own.key) {
            welcome.code = own.key->mac(spoken(kAccepts, introduction, welcome));
        }
    }
    return welcome;
}

std::string objection_to(const Welcome& welcome, const Introduction& introduction,
                         const Protection& own) {
    if (welcome.magic != Welcome::kMagic || welcome.answer == HandshakeAnswer::stranger) {
        return "gave an answer that is not of this group";
    }
    if (agreed(welcome.traits) != agreed(traits_of(own))) {
        return difference(own, welcome.traits);
    }
    if (welcome.answer != HandshakeAnswer::welcome) {
        return "does not accept this rank: the two have different secrets of the group";
    }
    if (own.key && !own.key->verifies(spoken(kAccepts, introduction, welcome), welcome.code)) {
        return "does not know the group's secret";
    }
    return {};
}

HandshakeResult result_of(End own_end, const Introduction& introduction, const Welcome& welcome,
                          const Protection& own) {
    HandshakeResult session;
    if (!own.key) {
        return session;
    }
    session.proof = own.key->mac(spoken(kProof, introduction, welcome));
    if (!own.encrypts) {
        return session;
    }
    // Both nonces are in what was spoken, so no other connection has these keys.
    const security::Key dialled = own.key->derive(spoken(kDialledData, introduction, welcome));
    const security::Key accepted = own.key->derive(spoken(kAcceptedData, introduction, welcome));
    const bool aes = (introduction.traits & welcome.traits & kHasAes) != 0;
    session.keys = own_end == End::dialling ? SessionKeys{dialled, accepted, aes}
                                            : SessionKeys{accepted, dialled, aes};
    return session;
}

}  // namespace regroup::net
