// SPDX-License-Identifier: Apache-2.0
// Hostile bytes against the request parser and the store behind it. Each input must be consumed or
// refused. The sanitizer builds check the use of memory, the other builds its amount.
#include <algorithm>
#include <array>
#include <malloc.h>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/base/random.h"
#include "rendezvous/store/store_dispatch.h"
#include "rendezvous/store/store_wire.h"

namespace regroup::store {
namespace {

/// More than any request within `small_limits` needs, and much less than one announced length.
constexpr std::size_t kMemoryBound = 256 * 1024;
constexpr int kInputsPerKind = 60'000;

/// The bytes allocated now; always 0 under a sanitizer, which has its own allocator.
std::size_t live_bytes() {
    const struct mallinfo2 information = ::mallinfo2();
    return information.uordblks + information.hblkhd;
}

Limits small_limits() {
    Limits limits;
    limits.key_bytes_max = 64;
    limits.value_bytes_max = 256;
    limits.stored_value_bytes_max = 512;
    limits.keys_max = 16;
    limits.request_bytes_max = 1024;
    limits.reply_bytes_max = 4096;
    limits.total_bytes_max = 8192;
    return limits;
}

std::string random_text(Random& random, std::size_t bytes_max) {
    std::string text(random.below(bytes_max + 1), '\0');
    for (char& c : text) {
        c = static_cast<char>('a' + random.below(4));
    }
    return text;
}

constexpr std::array kDialects = {Dialect::current, Dialect::v2_1, Dialect::v1_13};

Dialect random_dialect(Random& random) {
    return kDialects.at(random.below(kDialects.size()));
}

/// The bytes for a server that expects this dialect among others.
Dialect older_of(Dialect dialect) {
    return dialect == Dialect::current ? Dialect::v1_13 : dialect;
}

/// A request that can be sent at any time.
Opcode random_opcode(Random& random, Dialect dialect) {
    const auto opcodes = opcodes_of(dialect);
    const std::size_t first = dialect == Dialect::current ? 1 : 0;
    return opcodes[first + random.below(opcodes.size() - first)];
}

/// A short valid conversation.
std::string random_stream(Random& random, Dialect dialect) {
    std::string stream;
    if (dialect == Dialect::current) {
        encode({Opcode::validate, {}, kMagic}, stream);
    }
    for (std::uint64_t i = 0; i <= random.below(6); ++i) {
        Request request{random_opcode(random, dialect), {}};
        std::size_t texts_count = 0;
        switch (request.opcode) {
            case Opcode::set:
            case Opcode::append:
            case Opcode::queue_push:
                texts_count = 2;
                break;
            case Opcode::compare_set:
                texts_count = 3;
                break;
            case Opcode::check:
            case Opcode::wait:
            case Opcode::multi_get:
                texts_count = random.below(5);
                break;
            case Opcode::multi_set:
                texts_count = 2 * random.below(4);
                break;
            case Opcode::num_keys:
            case Opcode::cancel_wait:
            case Opcode::list_keys:
            case Opcode::ping:
                break;
            default:
                texts_count = 1;
                break;
        }
        for (std::size_t t = 0; t < texts_count; ++t) {
            request.texts.push_back(random_text(random, 5));
        }
        if (request.opcode == Opcode::add || request.opcode == Opcode::barrier) {
            request.number = static_cast<std::int64_t>(random.next() >> random.below(64));
        }
        encode(request, stream, dialect);
    }
    return stream;
}

void mutate(Random& random, std::string& bytes) {
    for (std::uint64_t i = 0; i <= random.below(4); ++i) {
        const std::size_t at = bytes.empty() ? 0 : random.below(bytes.size());
        switch (random.below(5)) {
            case 0:
                if (!bytes.empty()) {
                    bytes[at] = static_cast<char>(random.next());
                }
                break;
            case 1:
                if (!bytes.empty()) {
                    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
                }
                break;
            case 2:
                bytes.insert(at, random.below(9), static_cast<char>(random.next()));
                break;
            case 3:
                bytes.erase(at, random.below(9));
                break;
            default:
                bytes.resize(at);
                break;
        }
    }
}

/// The result of one input.
struct Fate {
    std::size_t requests_count = 0;
    bool refused = false;
};

/// Feeds a connection as the server does, in random pieces.
Fate feed(Random& random, StoreCore& core, ClientId client, Dialect older, std::string_view bytes,
          std::size_t live_bytes_max) {
    const Limits limits = core.limits();
    RequestParser parser(limits, older_of(older));
    Fate fate;
    Released released;
    while (!bytes.empty()) {
        std::string_view piece = bytes.substr(0, 1 + random.below(bytes.size()));
        bytes.remove_prefix(piece.size());
        while (!piece.empty()) {
            const std::size_t before = piece.size();
            auto request = parser.next(piece);
            if (!request) {
                EXPECT_FALSE(request.error().detail.empty());
                fate.refused = true;
                return fate;
            }
            EXPECT_LT(piece.size(), before) << "no progress";
            if (!*request) {
                EXPECT_TRUE(piece.empty()) << "bytes left without a request";
                EXPECT_LE(live_bytes(), live_bytes_max);
                continue;
            }
            EXPECT_TRUE(check_limits(**request, limits));
            EXPECT_TRUE(fate.requests_count > 0 || parser.dialect() != Dialect::current ||
                        (*request)->opcode == Opcode::validate);
            ++fate.requests_count;
            std::string reply;
            if (!execute(core, client, **request, reply, released)) {
                fate.refused = true;
                return fate;
            }
            EXPECT_LE(reply.size(), limits.reply_bytes_max + 8);
            EXPECT_LE(released.size(), 2 * kOpcodeCount);
            released.clear();
        }
    }
    return fate;
}

TEST(StoreFuzz, ValidStreamsAreAlwaysAccepted) {
    Random random(1);
    for (int i = 0; i < 2'000; ++i) {
        StoreCore core;
        const Dialect dialect = random_dialect(random);
        RequestParser parser(Limits(), older_of(dialect));
        const std::string stream = random_stream(random, dialect);
        std::string_view bytes = stream;
        while (!bytes.empty()) {
            ASSERT_TRUE(parser.next(bytes)) << "input " << i;
        }
    }
}

TEST(StoreFuzz, MutatedStreamsAreConsumedOrRefused) {
    Random random(2);
    StoreCore core(small_limits());
    const std::size_t bound = live_bytes() + kMemoryBound;
    std::size_t refused_count = 0;
    for (int i = 0; i < kInputsPerKind; ++i) {
        const Dialect dialect = random_dialect(random);
        std::string bytes = random_stream(random, dialect);
        mutate(random, bytes);
        const ClientId client{random.below(4)};
        const Fate fate = feed(random, core, client, dialect, bytes, bound);
        refused_count += fate.refused ? 1 : 0;
        if (fate.refused || random.chance(0.5)) {
            core.cancel_wait(client);
        }
        ASSERT_FALSE(HasFailure()) << "input " << i;
    }
    // Some inputs are consumed and some refused: the mutations get past the first check.
    EXPECT_GT(refused_count, std::size_t{kInputsPerKind / 10});
    EXPECT_LT(refused_count, std::size_t{kInputsPerKind} - kInputsPerKind / 10);
}

TEST(StoreFuzz, RandomBytesAreConsumedOrRefused) {
    Random random(3);
    StoreCore core(small_limits());
    const std::size_t bound = live_bytes() + kMemoryBound;
    for (int i = 0; i < kInputsPerKind; ++i) {
        std::string bytes;
        if (random.chance(0.5)) {
            encode({Opcode::validate, {}, kMagic}, bytes);
        }
        for (std::uint64_t n = random.below(80); n > 0; --n) {
            // Mostly small numbers, such as valid lengths.
            bytes.push_back(static_cast<char>(random.next() >> (56 + random.below(8))));
        }
        const ClientId client{random.below(4)};
        feed(random, core, client, random_dialect(random), bytes, bound);
        core.cancel_wait(client);
        ASSERT_FALSE(HasFailure()) << "input " << i;
    }
}

TEST(StoreFuzz, AnnouncedLengthAloneTakesNoMemory) {
    std::string value;
    encode({Opcode::set, {"/k", std::string(8 << 20, 'v')}}, value);
    std::string list;
    encode({Opcode::multi_set, std::vector<std::string>(2 * 131072)}, list);
    for (std::string* bytes : {&value, &list}) {
        bytes->resize(100);
        std::string greeting;
        encode({Opcode::validate, {}, kMagic}, greeting);
        const std::size_t bound = live_bytes() + 4096;
        RequestParser parser;
        std::string_view left = greeting;
        ASSERT_TRUE(parser.next(left));
        left = *bytes;
        const auto request = parser.next(left);
        ASSERT_TRUE(request);
        EXPECT_FALSE(*request);
        EXPECT_LE(live_bytes(), bound);
    }
}

TEST(StoreFuzz, AShortValueReleasesTheMemoryOfALongOne) {
    StoreCore core;
    ASSERT_TRUE(core.set("/k", ""));
    const std::size_t bound = live_bytes() + 4096;
    ASSERT_TRUE(core.set("/k", std::string(1 << 20, 'v')));
    ASSERT_TRUE(core.set("/k", "short"));
    EXPECT_LE(live_bytes(), bound);
}

}  // namespace
}  // namespace regroup::store
