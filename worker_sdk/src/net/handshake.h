// SPDX-License-Identifier: Apache-2.0
//
// How two ranks of a group greet each other on a new connection:
//
//     accepting rank            dialling rank
//     Challenge    ------->                     a nonce
//                  <-------     Introduction    who calls whom, a nonce, and a code
//     Welcome      ------->                     the verdict, and a code
//
// Each code is computed with the group's key from all that was said before and from the direction.
// So a stranger, a recorded conversation, a mirrored one and a rank with the key of another round
// are refused. Without a key the codes are zero, and prove nothing.
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

struct Challenge {
    static constexpr std::uint32_t kMagic = 0x35504752;  // "RGP5"

    std::uint32_t magic = kMagic;
    std::uint32_t traits = 0;  ///< Of the accepting rank's Protection.
    Nonce nonce{};
};

struct Introduction {
    Hello hello{};
    std::uint64_t traits = 0;  ///< Of the dialling rank's Protection.
    Nonce nonce{};
    security::Mac code{};
};

enum class Verdict : std::uint32_t {
    welcome,
    stranger,   ///< The caller wants a connection that does not exist, or has it already.
    no_secret,  ///< The code of the Introduction is wrong.
};

struct Welcome {
    static constexpr std::uint32_t kMagic = 0x36504752;  // "RGP6"

    std::uint32_t magic = kMagic;
    Verdict verdict = Verdict::welcome;
    security::Mac code{};
};

static_assert(WireStruct<Challenge> && WireStruct<Introduction> && WireStruct<Welcome>);

[[nodiscard]] Challenge make_challenge(const Protection& own);
[[nodiscard]] Introduction introduce(const Hello& hello, const Challenge& challenge,
                                     const Protection& own);
[[nodiscard]] Welcome make_welcome(const Challenge& challenge, const Introduction& introduction,
                                   const Protection& own);

/// For the dialling rank: why it cannot go on after these words, as the rest of a sentence about
/// the accepting rank; empty if it can.
[[nodiscard]] std::string objection_to(const Challenge& challenge, const Protection& own);
[[nodiscard]] std::string objection_to(const Welcome& welcome, const Challenge& challenge,
                                       const Introduction& introduction, const Protection& own);
/// The keys of the connection, if it is to be encrypted.
enum class End { dialling, accepting };
[[nodiscard]] std::optional<SessionKeys> session_keys(End own_end, const Challenge& challenge,
                                                      const Introduction& introduction,
                                                      const Protection& own);
/// For the accepting rank. It checks `introduction.hello` itself.
[[nodiscard]] bool proves(const Introduction& introduction, const Challenge& challenge,
                          const Protection& own);

}  // namespace regroup::net
