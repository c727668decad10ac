// SPDX-License-Identifier: Apache-2.0
//
// How two ranks of a group greet each other on a new connection:
//
//     dialling rank          accepting rank
//     Introduction  ------->              who calls whom, a nonce, and a code
//                   <-------  Welcome     the answer, a nonce, and a code
//     Proof         ------->              a code; what the rank sends follows at once
//
// Each code is computed with the group's key from all that was said before and from its place in
// the conversation. So a stranger, a recorded conversation, a mirrored one and a rank with the key
// of another round are refused. Without a key the codes are zero, and prove nothing.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/security/key.h"
#include "worker_sdk/src/net/record_cipher.h"
#include "worker_sdk/src/net/wire_struct.h"

namespace regroup::net {

/// How the ranks of a group protect their connections; the same on all of them.
struct Protection {
    std::optional<security::Key> key{};  ///< Of the group; none: the ranks prove nothing.
    bool encrypts = false;               ///< Requires a key.
};

/// The connection that the dialling rank wants. The accepting rank refuses it unless every field is
/// as it expects.
struct Hello {
    static constexpr std::uint32_t kMagic = 0x34504752;  // "RGP4"

    std::uint32_t magic = kMagic;
    std::uint32_t kind = 0;  ///< Of traffic.
    std::uint32_t source = 0;
    std::uint32_t target = 0;
    std::uint64_t round = 0;
    std::uint64_t group = 0;  ///< Hash of the group's name and incarnation.
    std::uint64_t token = 0;  ///< The random number that the target published in the store.

    bool operator==(const Hello&) const = default;
};

using Nonce = std::array<std::uint8_t, 32>;

struct Introduction {
    Hello hello{};
    std::uint64_t traits = 0;  ///< Of the dialling rank's Protection.
    Nonce nonce{};
    security::Mac code{};
};

enum class HandshakeAnswer : std::uint32_t {
    welcome,
    stranger,   ///< The caller wants a connection that does not exist, or has it already.
    differs,    ///< Its Protection is another.
    no_secret,  ///< The code of the Introduction is wrong.
};

struct Welcome {
    static constexpr std::uint32_t kMagic = 0x35504752;  // "RGP5"

    std::uint32_t magic = kMagic;
    HandshakeAnswer answer = HandshakeAnswer::welcome;
    std::uint64_t traits = 0;  ///< Of the accepting rank's Protection.
    Nonce nonce{};
    security::Mac code{};
};

using Proof = security::Mac;

static_assert(WireStruct<Introduction> && WireStruct<Welcome> && WireStruct<Proof>);

[[nodiscard]] Introduction introduce(const Hello& hello, const Protection& own);

/// The accepting rank's answer to a caller with the right Hello.
[[nodiscard]] HandshakeAnswer judge(const Introduction& introduction, const Protection& own);
[[nodiscard]] Welcome make_welcome(HandshakeAnswer answer, const Introduction& introduction,
                                   const Protection& own);

/// Why the dialling rank cannot go on, as the rest of a sentence about the accepting rank; empty if
/// it can.
[[nodiscard]] std::string objection_to(const Welcome& welcome, const Introduction& introduction,
                                       const Protection& own);

/// The result of a handshake, equal for both ranks.
struct HandshakeResult {
    Proof proof{};
    std::optional<SessionKeys> keys{};  ///< If they encrypt.
};
enum class End { dialling, accepting };
[[nodiscard]] HandshakeResult result_of(End own_end, const Introduction& introduction,
                                        const Welcome& welcome, const Protection& own);

}  // namespace regroup::net
