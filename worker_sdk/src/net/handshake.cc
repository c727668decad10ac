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

// Each end signs under a label of its own, so that neither can be answered with its own words.
constexpr std::string_view kDials = "regroup connection, dialling rank";
constexpr std::string_view kAccepts = "regroup connection, accepting rank";

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

std::string spoken(std::string_view label, const Challenge& challenge,
                   const Introduction& introduction) {
    std::string text(label);
    add(text, challenge);
    add(text, introduction.hello);
    add(text, introduction.traits);
    add(text, introduction.nonce);
    return text;
}

}  // namespace

Challenge make_challenge(const Protection& own) {
    return {.traits = traits_of(own), .nonce = fresh_nonce()};
}

Introduction introduce(const Hello& hello, const Challenge& challenge, const Protection& own) {
    Introduction introduction{.hello = hello, .traits = traits_of(own), .nonce = fresh_nonce()};
    if (own.key) {
        introduction.code = own.key->mac(spoken(kDials, challenge, introduction));
    }
    return introduction;
}

Welcome make_welcome(const Challenge& challenge, const Introduction& introduction,
                     const Protection& own) {
    Welcome welcome;
    if (own.key) {
        welcome.code = own.key->mac(spoken(kAccepts, challenge, introduction));
    }
    return welcome;
}

std::string objection_to(const Challenge& challenge, const Protection& own) {
    if (challenge.magic != Challenge::kMagic) {
        return "gave an answer that is not of this group";
    }
    const std::uint32_t differences = agreed(challenge.traits ^ traits_of(own));
    if ((differences & kProves) != 0) {
        return own.key ? "has no secret of the group, unlike this rank; give all ranks the same "
                         "one (Context::group_secret, REGROUP_GROUP_SECRET_FILE), or none"
                       : "asks for the group's secret, which this rank does not have; give all "
                         "ranks the same one (Context::group_secret, REGROUP_GROUP_SECRET_FILE)";
    }
    if (differences != 0) {
        return own.encrypts ? "does not encrypt, unlike this rank; set REGROUP_GROUP_ENCRYPTION "
                              "alike on all ranks"
                            : "encrypts, unlike this rank; set REGROUP_GROUP_ENCRYPTION alike on "
                              "all ranks";
    }
    return {};
}

std::string objection_to(const Welcome& welcome, const Challenge& challenge,
                         const Introduction& introduction, const Protection& own) {
    if (welcome.magic == Welcome::kMagic && welcome.verdict == Verdict::no_secret) {
        return "does not accept this rank: the two have different secrets of the group";
    }
    if (welcome.magic != Welcome::kMagic || welcome.verdict != Verdict::welcome) {
        return "gave an answer that is not of this group";
    }
    if (own.key && !own.key->verifies(spoken(kAccepts, challenge, introduction), welcome.code)) {
        return "does not know the group's secret";
    }
    return {};
}

std::optional<SessionKeys> session_keys(End own_end, const Challenge& challenge,
                                        const Introduction& introduction, const Protection& own) {
    if (!own.encrypts) {
        return std::nullopt;
    }
    // Both nonces are in what was spoken, so no other connection has these keys.
    const security::Key from_dialling =
        own.key->derive(spoken("regroup data of the dialling rank", challenge, introduction));
    const security::Key from_accepting =
        own.key->derive(spoken("regroup data of the accepting rank", challenge, introduction));
    const bool aes = (challenge.traits & introduction.traits & kHasAes) != 0;
    return own_end == End::dialling ? SessionKeys{from_dialling, from_accepting, aes}
                                    : SessionKeys{from_accepting, from_dialling, aes};
}

bool proves(const Introduction& introduction, const Challenge& challenge, const Protection& own) {
    return agreed(introduction.traits) == agreed(traits_of(own)) &&
           (!own.key ||
            own.key->verifies(spoken(kDials, challenge, introduction), introduction.code));
}

}  // namespace regroup::net
