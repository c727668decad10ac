// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary input to the parsers gives a value or a Failure. The seed is fixed, so a failing case
// fails again.
#include <gtest/gtest.h>

#include "protocol_samples.h"
#include "rendezvous/base/random.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/framing.h"

namespace regroup::protocol {
namespace {

using rendezvous::FromAgent;
using rendezvous::FromDaemon;

constexpr int kDamaged = 60000;
constexpr int kNoise = 130000;
constexpr int kStreams = 10000;

class Mutator {
   public:
    explicit Mutator(std::uint64_t seed) : random_(seed) {
        for (const FromAgent& message : testing::samples_from_agent()) {
            payloads_.push_back(encode(message));
        }
        for (const FromDaemon& message : testing::samples_from_daemon()) {
            payloads_.push_back(encode(message));
        }
    }

    Random& random() { return random_; }
    const std::string& sample() { return pick(payloads_); }

    std::string noise(std::size_t length_max) {
        std::string bytes(random_.below(length_max + 1), '\0');
        for (char& byte : bytes) {
            byte = any_byte();
        }
        return bytes;
    }

    /// A valid message with a few errors: usually still JSON, so that every field is reached.
    std::string damaged() {
        std::string text = sample();
        for (std::uint64_t changes = 1 + random_.below(4); changes > 0; --changes) {
            const std::size_t at = random_.below(text.size() + 1);
            const std::size_t length =
                random_.below(std::min<std::size_t>(12, text.size() - at) + 1);
            switch (random_.below(5)) {
                case 0:
                    text.insert(at, 1, any_byte());
                    break;
                case 1:
                    text.erase(at, length);
                    break;
                case 2:
                    text.replace(at, length, pick(kTokens));
                    break;
                case 3:
                    text.insert(at, sample().substr(0, random_.below(40)));
                    break;
                default:
                    replace_a_value(text);
            }
        }
        return text;
    }

   private:
    // Between a colon and what ends the value: syntax stays whole.
    void replace_a_value(std::string& text) {
        const std::size_t colon = text.find(':', random_.below(text.size() + 1));
        if (colon != std::string::npos) {
            const std::size_t end = text.find_first_of(",}]", colon);
            text.replace(colon + 1, end == std::string::npos ? end : end - colon - 1,
                         pick(kTokens));
        }
    }

    char any_byte() { return static_cast<char>(random_.below(256)); }

    const std::string& pick(const std::vector<std::string>& all) {
        return all[random_.below(all.size())];
    }

    inline static const std::vector<std::string> kTokens{"null",
                                                         "true",
                                                         "-1",
                                                         "0",
                                                         "1e308",
                                                         "1e999",
                                                         "-0.0",
                                                         "18446744073709551615",
                                                         "18446744073709551616",
                                                         "-9223372036854775808",
                                                         "9007199254740993",
                                                         "\"\"",
                                                         "\"x\"",
                                                         "\"\\u0000\"",
                                                         "\"\\ud800\"",
                                                         "\"\xFF\"",
                                                         "[]",
                                                         "{}",
                                                         "[[[[[[[[[[[[[[[[[[[[",
                                                         "{\"a\":",
                                                         "]",
                                                         "}",
                                                         ",",
                                                         "\"join\"",
                                                         "\"closed\"",
                                                         "\"failure\":{}",
                                                         "\\",
                                                         "\"",
                                                         "[1,[2,{\"a\":[]}]]",
                                                         std::string(300, '9'),
                                                         "\"" + std::string(300, 'n') + "\""};

    Random random_;
    std::vector<std::string> payloads_;
};

/// An accepted message fits a frame, and is equal after another round trip.
template <class Message>
bool expect_sound(const Result<Message>& message, Result<Message> (*decode)(std::string_view)) {
    if (!message) {
        EXPECT_FALSE(message.error().detail.empty());
        return false;
    }
    const std::string sent = encode(*message);
    EXPECT_LE(sent.size(), kFrameBytesMax);
    const Result<Message> again = decode(sent);
    EXPECT_TRUE(again) << sent << "\n" << again.error().detail;
    EXPECT_EQ(again ? encode(*again) : "", sent);
    return true;
}

/// True if either side would accept it.
bool expect_sound(std::string_view payload) {
    const bool by_daemon = expect_sound(decode_from_agent(payload), decode_from_agent);
    const bool by_agent = expect_sound(decode_from_daemon(payload), decode_from_daemon);
    EXPECT_FALSE(by_daemon && by_agent) << payload;
    return by_daemon || by_agent;
}

TEST(ProtocolFuzz, DamagedMessagesAreDecodedConsistentlyOrRefused) {
    Mutator mutator(20261121);
    int accepted = 0;
    for (int i = 0; i < kDamaged && !HasFailure(); ++i) {
        accepted += expect_sound(mutator.damaged()) ? 1 : 0;
    }
    // Otherwise the damage is too coarse to reach anything behind the JSON parser.
    EXPECT_GT(accepted, kDamaged / 20);
    EXPECT_LT(accepted, kDamaged / 2);
}

TEST(ProtocolFuzz, NoiseIsRefused) {
    Mutator mutator(7);
    for (int i = 0; i < kNoise && !HasFailure(); ++i) {
        EXPECT_FALSE(expect_sound(mutator.noise(64)));
    }
}

TEST(ProtocolFuzz, AnyStreamGivesPayloadsOrALastingFailure) {
    Mutator mutator(42);
    Random& random = mutator.random();
    for (int i = 0; i < kStreams && !HasFailure(); ++i) {
        std::string stream;
        for (std::uint64_t parts = random.below(5); parts > 0; --parts) {
            stream += random.chance(0.7) ? make_frame(mutator.sample()) : mutator.noise(20);
        }
        FrameReader reader;
        std::size_t taken = 0;
        bool lost = false;
        for (std::size_t at = 0; at < stream.size();) {
            const std::size_t count = 1 + random.below(stream.size() - at);
            reader.feed(std::string_view(stream).substr(at, count));
            at += count;
            while (true) {
                const auto payload = reader.next();
                ASSERT_FALSE(lost && payload) << "case " << i;
                if (!payload) {
                    lost = true;
                    break;
                }
                if (!*payload) {
                    break;
                }
                taken += kFrameHeaderBytes + (*payload)->size();
                expect_sound(**payload);
            }
        }
        ASSERT_LE(taken, stream.size());
    }
}

TEST(ProtocolFuzz, DeepestPossibleNestingDoesNotOverflowTheStack) {
    for (const std::string& unit :
         {std::string("["), std::string("{\"a\":"), std::string("[{\"\":")}) {
        std::string payload;
        while (payload.size() + unit.size() <= kFrameBytesMax) {
            payload += unit;
        }
        expect_sound(payload);
        expect_sound("{\"type\":\"leave\",\"x\":" + payload.substr(0, kFrameBytesMax / 2));
    }
    const std::size_t depth = kFrameBytesMax / 2 - 20;
    expect_sound("{\"type\":\"leave\",\"x\":" + std::string(depth, '[') + std::string(depth, ']') +
                 "}");
}

}  // namespace
}  // namespace regroup::protocol
