// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/store_wire.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/store/store_dispatch.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"

namespace regroup::store {
namespace {

/// "06 0100" -> three bytes; "00*7" -> seven zeros; anything that is no hexadecimal is skipped.
std::string hex(std::string_view text) {
    std::string bytes;
    for (std::size_t i = 0; i + 1 < text.size();) {
        const auto digit = [&](std::size_t at) {
            return std::string_view("0123456789abcdef").find(text[at]);
        };
        if (digit(i) == std::string_view::npos || digit(i + 1) == std::string_view::npos) {
            ++i;
            continue;
        }
        const char byte = static_cast<char>(digit(i) * 16 + digit(i + 1));
        i += 2;
        std::size_t repeat = 1;
        if (i + 1 < text.size() && text[i] == '*') {
            repeat = static_cast<std::size_t>(text[i + 1] - '0');
            i += 2;
        }
        bytes.append(repeat, byte);
    }
    return bytes;
}

const Request kValidate{Opcode::validate, {}, kMagic};

std::string encoded(const Request& request) {
    std::string bytes;
    encode(request, bytes);
    return bytes;
}

/// A parser that has seen the greeting.
RequestParser greeted(const Limits& limits = {}) {
    RequestParser parser(limits);
    const std::string greeting = encoded(kValidate);
    std::string_view bytes = greeting;
    const auto request = parser.next(bytes);
    EXPECT_TRUE(request && *request && **request == kValidate);
    EXPECT_TRUE(bytes.empty());
    return parser;
}

/// All requests in `bytes`, given to the parser in pieces of at most `piece_bytes`.
std::vector<Request> parse_all(RequestParser& parser, std::string_view bytes,
                               std::size_t piece_bytes) {
    std::vector<Request> requests;
    while (!bytes.empty()) {
        std::string_view piece = bytes.substr(0, piece_bytes);
        bytes.remove_prefix(piece.size());
        while (!piece.empty()) {
            auto request = parser.next(piece);
            if (!request) {
                ADD_FAILURE() << request.error().detail;
                return requests;
            }
            if (*request) {
                requests.push_back(**std::move(request));
            }
        }
    }
    return requests;
}

std::vector<Request> one_of_each() {
    return {
        kValidate,
        {Opcode::ping, {}, 0xFFFFFFFF},
        {Opcode::set, {"/key", "value"}},
        {Opcode::set, {"", ""}},
        {Opcode::compare_set, {"/key", "", std::string(300, 'd')}},
        {Opcode::get, {"/key"}},
        {Opcode::add, {"init/"}, -2},
        {Opcode::check, {}},
        {Opcode::check, {"/a", "/b"}},
        {Opcode::wait, {"/a"}},
        {Opcode::wait, {"", ""}},
        {Opcode::num_keys, {}},
        {Opcode::delete_key, {"/key"}},
        {Opcode::append, {"/key", std::string("\0\x01\xff", 3)}},
        {Opcode::multi_get, {"/a", "/b", "/c"}},
        {Opcode::multi_set, {"/a", "1", "/b", ""}},
        {Opcode::multi_set, {}},
        {Opcode::cancel_wait, {}},
        {Opcode::queue_push, {"/q", "item"}},
        {Opcode::queue_pop, {"/q"}},
        {Opcode::queue_len, {"/q"}},
        {Opcode::list_keys, {}},
        {Opcode::barrier, {"/b"}, 1LL << 40},
        kValidate,
    };
}

// ---- Golden bytes.

TEST(StoreWire, RequestsAreEncodedAsPyTorchEncodesThem) {
    EXPECT_EQ(encoded(kValidate), hex("00 ce f7 85 3c"));
    EXPECT_EQ(encoded(kValidate), std::string(kFirstBytes.data(), kFirstBytes.size()));
    EXPECT_EQ(encoded({Opcode::ping, {}, 0x01020304}), hex("0d 04 03 02 01"));
    EXPECT_EQ(encoded({Opcode::add, {"init/"}, 1}), hex("04 | 05 00*7 69 6e 69 74 2f | 01 00*7"));
    EXPECT_EQ(encoded({Opcode::add, {"/n"}, -2}), hex("04 | 02 00*7 2f 6e | fe ff*7"));
    EXPECT_EQ(encoded({Opcode::set, {"/k", "v"}}), hex("01 | 02 00*7 2f 6b | 01 00*7 76"));
    EXPECT_EQ(encoded({Opcode::wait, {"/k"}}), hex("06 | 01 00*7 | 02 00*7 2f 6b"));
    EXPECT_EQ(encoded({Opcode::get, {"/k"}}), hex("03 | 02 00*7 2f 6b"));
    EXPECT_EQ(encoded({Opcode::check, {"/k"}}), hex("05 | 01 00*7 | 02 00*7 2f 6b"));
    EXPECT_EQ(encoded({Opcode::cancel_wait, {}}), hex("0c"));
    EXPECT_EQ(encoded({Opcode::compare_set, {"/k", "", "v"}}),
              hex("02 | 02 00*7 2f 6b | 00*8 | 01 00*7 76"));
    EXPECT_EQ(encoded({Opcode::num_keys, {}}), hex("07"));
    EXPECT_EQ(encoded({Opcode::delete_key, {"/k"}}), hex("08 | 02 00*7 2f 6b"));
    EXPECT_EQ(encoded({Opcode::append, {"/k", "v"}}), hex("09 | 02 00*7 2f 6b | 01 00*7 76"));
    EXPECT_EQ(encoded({Opcode::multi_get, {"/k"}}), hex("0a | 01 00*7 | 02 00*7 2f 6b"));
    EXPECT_EQ(encoded({Opcode::multi_set, {"/k", "v"}}),
              hex("0b | 01 00*7 | 02 00*7 2f 6b | 01 00*7 76"));
    EXPECT_EQ(encoded({Opcode::queue_push, {"/k", "v"}}), hex("0e | 02 00*7 2f 6b | 01 00*7 76"));
    EXPECT_EQ(encoded({Opcode::queue_pop, {"/k"}}), hex("0f | 02 00*7 2f 6b"));
    EXPECT_EQ(encoded({Opcode::queue_len, {"/k"}}), hex("10 | 02 00*7 2f 6b"));
    EXPECT_EQ(encoded({Opcode::list_keys, {}}), hex("11"));
    EXPECT_EQ(encoded({Opcode::barrier, {"/k"}, 3}), hex("12 | 02 00*7 2f 6b | 03 00*7"));
}

struct Exchange {
    const char* request;
    const char* reply;
};

/// A whole connection, sent in pieces of at most `piece_bytes`.
void expect_conversation(const std::vector<Exchange>& conversation, Dialect older,
                         std::size_t piece_bytes) {
    SCOPED_TRACE("pieces of " + std::to_string(piece_bytes));
    StoreCore core;
    RequestParser parser(Limits(), older);
    for (const Exchange& exchange : conversation) {
        std::string reply;
        Released released;
        const auto requests = parse_all(parser, hex(exchange.request), piece_bytes);
        ASSERT_EQ(requests.size(), 1U) << exchange.request;
        ASSERT_TRUE(execute(core, ClientId{1}, requests.front(), reply, released));
        EXPECT_EQ(reply, hex(exchange.reply)) << exchange.request;
    }
}

// The bytes that PyTorch 1.13 sends and expects; opcode 7 has another meaning later.
TEST(StoreWire, ConversationOf113IsAnsweredByteForByte) {
    const std::vector<Exchange> conversation = {
        {"00 | 02 00*7 2f 6b | 01 00*7 76", ""},                          // set /k v
        {"05 | 01 00*7 | 02 00*7 2f 6b", "00"},                           // wait /k
        {"02 | 02 00*7 2f 6b", "01 00*7 76"},                             // get /k
        {"01 | 02 00*7 2f 6b | 01 00*7 76 | 01 00*7 77", "01 00*7 77"},   // compare_set
        {"03 | 05 00*7 69 6e 69 74 2f | 02 00*7", "02 00*7"},             // add init/ 2
        {"04 | 02 00*7 | 02 00*7 2f 6b | 05 00*7 69 6e 69 74 2f", "00"},  // check both
        {"06", "02 00*7"},                                                // num_keys
        {"07 | 02 00*7 2f 6b", "03"},                                     // watch_key
        {"08 | 02 00*7 2f 6b", "01 00*7"},                                // delete_key
        {"05 | 01 00*7 | 02 00*7 2f 6b", ""},                             // wait /k
    };
    for (const std::size_t piece_bytes : {1U, 2U, 5U, 1000U}) {
        expect_conversation(conversation, Dialect::v1_13, piece_bytes);
    }
}

TEST(StoreWire, ConversationOf21IsAnsweredByteForByte) {
    const std::vector<Exchange> conversation = {
        {"03 | 05 00*7 69 6e 69 74 2f | 01 00*7", "01 00*7"},      // add init/ 1
        {"00 | 02 00*7 2f 6b | 01 00*7 76", ""},                   // set /k v
        {"08 | 02 00*7 2f 6b | 01 00*7 78", ""},                   // append x
        {"09 | 01 00*7 | 02 00*7 2f 6b", "02 00*7 76 78"},         // multi_get
        {"0a | 01 00*7 | 02 00*7 2f 61 | 01 00*7 39", ""},         // multi_set /a 9
        {"06", "03 00*7"},                                         // num_keys
        {"07 | 02 00*7 2f 61", "01 00*7"},                         // delete_key
        {"05 | 01 00*7 | 02 00*7 2f 61", ""},                      // wait /a
        {"0b", "01"},                                              // cancel_wait
        {"01 | 02 00*7 2f 61 | 00*8 | 01 00*7 62", "01 00*7 62"},  // compare_set
        {"02 | 02 00*7 2f 61", "01 00*7 62"},                      // get /a
        {"04 | 01 00*7 | 02 00*7 2f 62", "01"},                    // check /b
    };
    for (const std::size_t piece_bytes : {1U, 2U, 5U, 1000U}) {
        expect_conversation(conversation, Dialect::v2_1, piece_bytes);
    }
}

TEST(StoreWire, CurrentConversationIsAnsweredByteForByte) {
    const std::vector<Exchange> conversation = {
        {"00 ce f7 85 3c", ""},
        {"0d 67 45 23 01", "67 45 23 01"},
        {"04 | 05 00*7 69 6e 69 74 2f | 01 00*7", "01 00*7"},            // add init/ 1
        {"05 | 01 00*7 | 02 00*7 2f 6b", "01"},                          // check /k: not ready
        {"03 | 02 00*7 2f 6b", "00*8"},                                  // get /k: absent is empty
        {"06 | 01 00*7 | 02 00*7 2f 6b", ""},                            // wait /k
        {"0c", "01"},                                                    // cancel
        {"0c", "01"},                                                    // cancel without a wait
        {"01 | 02 00*7 2f 6b | 01 00*7 76", ""},                         // set /k v
        {"06 | 01 00*7 | 02 00*7 2f 6b", "00"},                          // wait /k
        {"03 | 02 00*7 2f 6b", "01 00*7 76"},                            // get /k
        {"05 | 01 00*7 | 02 00*7 2f 6b", "00"},                          // check /k: ready
        {"05 | 00*8", "00"},                                             // check nothing
        {"06 | 00*8", "00"},                                             // wait for nothing
        {"02 | 02 00*7 2f 6b | 01 00*7 76 | 01 00*7 77", "01 00*7 77"},  // compare_set v -> w
        {"02 | 02 00*7 2f 6b | 01 00*7 76 | 01 00*7 78", "01 00*7 77"},  // compare_set refused
        {"02 | 02 00*7 2f 61 | 01 00*7 76 | 01 00*7 78", "01 00*7 76"},  // ... on an absent key
        {"09 | 02 00*7 2f 6b | 01 00*7 78", ""},                         // append x
        {"0a | 02 00*7 | 02 00*7 2f 6b | 02 00*7 2f 61", "02 00*7 77 78 | 00*8"},  // multi_get
        {"0b | 01 00*7 | 02 00*7 2f 61 | 01 00*7 39", ""},                         // multi_set /a 9
        {"04 | 02 00*7 2f 61 | ff*8", "08 00*7"},                                  // add /a -1
        {"07", "03 00*7"},                                                         // num_keys
        {"08 | 02 00*7 2f 6b", "01 00*7"},                                         // delete_key
        {"08 | 02 00*7 2f 6b", "00*8"},
        {"0e | 02 00*7 2f 71 | 02 00*7 68 69", ""},         // queue_push /q hi
        {"10 | 02 00*7 2f 71", "01 00*7"},                  // queue_len
        {"0f | 02 00*7 2f 71", "01 00*7 | 02 00*7 68 69"},  // queue_pop
        {"0f | 02 00*7 2f 71", "00*8"},
        {"11", "02 00*7 | 02 00*7 2f 61 | 05 00*7 69 6e 69 74 2f"},  // list_keys
        {"12 | 02 00*7 2f 62 | 01 00*7", "00"},                      // barrier /b of one
    };
    expect_conversation(conversation, Dialect::v1_13, 1000);
}

TEST(StoreWire, RequestMayReleaseItsOwnSenderAndOthers) {
    StoreCore core;
    std::string reply;
    Released released;
    ASSERT_TRUE(execute(core, ClientId{1}, {Opcode::wait, {"/k"}}, reply, released));
    ASSERT_TRUE(execute(core, ClientId{2}, {Opcode::wait, {"/k"}}, reply, released));
    ASSERT_TRUE(execute(core, ClientId{2}, {Opcode::set, {"/k", "v"}}, reply, released));
    EXPECT_EQ(reply, "");
    EXPECT_EQ(released, (Released{ClientId{1}, ClientId{2}}));
}

TEST(StoreWire, ReplyThatWouldBeTooLongIsRefusedBeforeItIsBuilt) {
    Limits limits;
    limits.reply_bytes_max = 100;
    StoreCore core(limits);
    ASSERT_TRUE(core.set("/" + std::string(20, 'k'), std::string(60, 'v')));
    std::string reply;
    Released released;
    const std::string key = "/" + std::string(20, 'k');
    EXPECT_TRUE(execute(core, ClientId{1}, {Opcode::multi_get, {key}}, reply, released));
    reply.clear();
    EXPECT_THAT(execute(core, ClientId{1}, {Opcode::multi_get, {key, key}}, reply, released),
                fails("136"));
    EXPECT_EQ(reply, "");
}

// ---- Segmentation.

TEST(StoreWire, StreamMayBeCutAnywhere) {
    std::string stream;
    for (const Request& request : one_of_each()) {
        encode(request, stream);
    }
    const std::vector<Request> expected = one_of_each();
    for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
        RequestParser parser;
        auto requests = parse_all(parser, std::string_view(stream).substr(0, cut), stream.size());
        for (auto& request :
             parse_all(parser, std::string_view(stream).substr(cut), stream.size())) {
            requests.push_back(std::move(request));
        }
        ASSERT_EQ(requests, expected) << "cut at " << cut;
    }
    for (const std::size_t piece_bytes : {1U, 2U, 3U, 7U, 64U}) {
        RequestParser parser;
        ASSERT_EQ(parse_all(parser, stream, piece_bytes), expected) << "pieces of " << piece_bytes;
    }
}

// ---- Dialects.

TEST(StoreWire, FirstBytesTellTheDialect) {
    const auto dialect_after = [](std::string_view bytes, Dialect older) {
        RequestParser parser(Limits(), older);
        EXPECT_TRUE(parser.next(bytes));
        return parser.dialect();
    };
    for (const Dialect older : {Dialect::v1_13, Dialect::v2_1}) {
        EXPECT_EQ(dialect_after(hex("00 ce f7 85 3c"), older), Dialect::current);
        EXPECT_EQ(dialect_after(hex("00 ce f7 85"), older), std::nullopt);
        EXPECT_EQ(dialect_after(hex("00"), older), std::nullopt);
        EXPECT_EQ(dialect_after("", older), std::nullopt);
        EXPECT_EQ(dialect_after(hex("01"), older), older);
        EXPECT_EQ(dialect_after(hex("06"), older), older);
        EXPECT_EQ(dialect_after(hex("00 05"), older), older);
    }
}

// A key of 0xce, or 0xf7ce bytes, begins as the greeting does.
TEST(StoreWire, OlderSetThatLooksLikeAGreetingIsASet) {
    Limits limits;
    limits.key_bytes_max = 1 << 20;
    for (const std::size_t key_bytes : {0xceU, 0x1ceU, 0xf7ceU, 0x1f7ceU}) {
        const Request set{Opcode::set, {std::string(key_bytes, 'k'), "v"}};
        for (const std::size_t piece_bytes : {1U, 3U, 4096U}) {
            RequestParser parser(limits, Dialect::v1_13);
            std::string bytes;
            encode(set, bytes, Dialect::v1_13);
            EXPECT_EQ(parse_all(parser, bytes, piece_bytes), std::vector{set});
        }
    }
}

TEST(StoreWire, EveryRequestOfEveryDialectIsDecodedAsItWasSent) {
    for (const Dialect dialect : {Dialect::current, Dialect::v2_1, Dialect::v1_13}) {
        const auto opcodes = opcodes_of(dialect);
        std::vector<Request> expected;
        std::string stream;
        for (const Request& request : one_of_each()) {
            if (std::find(opcodes.begin(), opcodes.end(), request.opcode) != opcodes.end()) {
                expected.push_back(request);
                encode(request, stream, dialect);
            }
        }
        EXPECT_GT(expected.size(), 8U);
        RequestParser parser(Limits(), dialect == Dialect::v2_1 ? dialect : Dialect::v1_13);
        EXPECT_EQ(parse_all(parser, stream, 1), expected);
        EXPECT_EQ(parser.dialect(), dialect);
    }
}

// ---- Violations.

void expect_violation(RequestParser& parser, const std::string& bytes, const char* sentence) {
    std::string_view left = bytes;
    while (!left.empty()) {
        const auto request = parser.next(left);
        if (!request) {
            EXPECT_EQ(request.error().code, Errc::invalid_argument);
            EXPECT_THAT(request.error().detail, HasSubstr(sentence));
            return;
        }
    }
    ADD_FAILURE() << "accepted, but expected: " << sentence;
}

TEST(StoreWire, MagicIsCheckedTheFirstTimeAndLater) {
    RequestParser parser;
    expect_violation(parser, hex("00 ce f7 85 3d"), "wrong magic");
    RequestParser later = greeted();
    expect_violation(later, hex("00 00*4"), "wrong magic");
}

TEST(StoreWire, UnknownOpcodesAreRefusedAtTheirFirstByte) {
    for (int opcode = static_cast<int>(kOpcodeCount); opcode < 256; ++opcode) {
        RequestParser parser = greeted();
        expect_violation(parser, std::string(1, static_cast<char>(opcode)), "unknown request");
    }
    for (int opcode = 9; opcode < 256; ++opcode) {
        RequestParser of_1_13(Limits(), Dialect::v1_13);
        expect_violation(of_1_13, std::string(1, static_cast<char>(opcode)), "unknown request");
    }
    for (int opcode = 12; opcode < 256; ++opcode) {
        RequestParser of_2_1(Limits(), Dialect::v2_1);
        expect_violation(of_2_1, std::string(1, static_cast<char>(opcode)), "unknown request");
    }
}

TEST(StoreWire, LengthsBeyondTheLimitsAreRefusedBeforeTheBytesCome) {
    const auto start = [](std::string_view opcode, std::int64_t number) {
        std::string bytes = hex(opcode);
        append_i64(bytes, number);
        return bytes;
    };
    const std::int64_t value_limit = 8 << 20;
    struct Case {
        std::string bytes;
        const char* sentence;
    };
    for (const Case& c : {
             Case{start("03", 8193), "key length of 8193"},
             Case{start("03", -1), "key length of 18446744073709551615"},
             Case{start("01 | 01 00*7 6b", value_limit + 1), "value length of 8388609"},
             Case{start("02 | 01 00*7 6b | 00*8", value_limit + 1), "value length"},
             Case{start("06", 131073), "number of keys of 131073"},
             Case{start("0b", -1), "number of keys"},
             Case{start("0b | 01 00*7 | 01 00*7 6b", value_limit + 1), "value length"},
             Case{start("0b | 02 00*7 | 01 00*7 6b | 00*8", 8193), "key length"},
         }) {
        RequestParser parser = greeted();
        expect_violation(parser, c.bytes, c.sentence);
    }
}

TEST(StoreWire, LengthsAtTheLimitsAreAccepted) {
    const Request largest{Opcode::set, {std::string(8192, 'k'), std::string(8 << 20, 'v')}};
    const Request longest{Opcode::wait, std::vector<std::string>(131072, "/k")};
    for (const Request& request : {largest, longest}) {
        RequestParser parser = greeted();
        EXPECT_TRUE(check_limits(request, Limits()));
        const auto requests = parse_all(parser, encoded(request), 65536);
        ASSERT_EQ(requests.size(), 1U);
        EXPECT_TRUE(requests.front() == request);
    }
}

TEST(StoreWire, RequestIsBoundedAsAWhole) {
    Limits limits;
    limits.request_bytes_max = 100;
    const Request fits{Opcode::multi_set, {"/a", std::string(46, 'v'), "/b", std::string(50, 'v')}};
    const Request exceeds{Opcode::multi_set,
                          {"/a", std::string(46, 'v'), "/b", std::string(51, 'v')}};
    RequestParser parser = greeted(limits);
    EXPECT_EQ(parse_all(parser, encoded(fits), 1000).size(), 1U);
    EXPECT_EQ(parse_all(parser, encoded(fits), 1000).size(), 1U) << "each request by itself";
    expect_violation(parser, encoded(exceeds), "request length of 101");
    EXPECT_TRUE(check_limits(fits, limits));
    EXPECT_FALSE(check_limits(exceeds, limits));
}

TEST(StoreWire, CheckLimitsRefusesTheSameRequestsAsTheParser) {
    EXPECT_FALSE(check_limits({Opcode::get, {std::string(8193, 'k')}}, Limits()));
    EXPECT_FALSE(check_limits({Opcode::wait, std::vector<std::string>(131073)}, Limits()));
    EXPECT_FALSE(check_limits({Opcode::set, {"/k", std::string((8 << 20) + 1, 'v')}}, Limits()));
    EXPECT_TRUE(check_limits({Opcode::compare_set, {"/k", std::string(9000, 'v'), ""}}, Limits()));
}

}  // namespace
}  // namespace regroup::store
