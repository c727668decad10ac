// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>

#include <gtest/gtest.h>

#include "rendezvous/protocol/framing.h"
#include "rendezvous/server/first_bytes.h"
#include "rendezvous/store/store_wire.h"

namespace regroup::rendezvous {
namespace {

/// The final answer, byte by byte. Once the protocol is known the answer must not change.
PortProtocol told(const std::string& bytes) {
    PortProtocol last = PortProtocol::undecided;
    for (std::size_t count = 0; count <= bytes.size(); ++count) {
        const PortProtocol now = tell_protocol(std::string_view(bytes).substr(0, count));
        if (last != PortProtocol::undecided) {
            EXPECT_EQ(now, last) << "after " << count << " bytes";
        }
        last = now;
        if (count >= 5) {
            break;
        }
    }
    return last;
}

TEST(StoreFirstBytes, FramesOfEveryLengthAreControl) {
    for (std::size_t bytes = 2; bytes <= protocol::kFrameBytesMax; ++bytes) {
        const std::string frame{static_cast<char>(bytes >> 24U), static_cast<char>(bytes >> 16U),
                                static_cast<char>(bytes >> 8U), static_cast<char>(bytes), '{'};
        ASSERT_EQ(told(frame), PortProtocol::control) << bytes;
    }
}

TEST(StoreFirstBytes, OlderSetsOfEveryKeyLengthGoToTheStore) {
    for (std::uint64_t bytes = 1; bytes <= store::Limits().key_bytes_max; ++bytes) {
        std::string set(1, '\0');
        store::append_i64(set, static_cast<std::int64_t>(bytes));
        ASSERT_EQ(told(set), PortProtocol::store) << bytes;
    }
}

TEST(StoreFirstBytes, EveryOtherFirstRequestGoesToTheStore) {
    for (const store::Dialect dialect : {store::Dialect::v1_13, store::Dialect::v2_1}) {
        for (std::size_t opcode = 1; opcode < store::opcodes_of(dialect).size(); ++opcode) {
            EXPECT_EQ(told(std::string(1, static_cast<char>(opcode))), PortProtocol::store);
        }
    }
    EXPECT_EQ(told(std::string(store::kFirstBytes.data(), store::kFirstBytes.size())),
              PortProtocol::store);
}

TEST(StoreFirstBytes, MethodsOfHttpGoToTheDoor) {
    for (const char* request : {"GET / HTTP/1.1", "HEAD / HTTP/1.1", "POST /a", "PUT /a",
                                "OPTIONS *", "DELETE /a", "PATCH /a", "TRACE /a", "CONNECT a:1"}) {
        EXPECT_EQ(told(request), PortProtocol::http) << request;
    }
}

TEST(StoreFirstBytes, UnknownFirstBytesGoToTheControlProtocol) {
    for (const std::string& bytes :
         {std::string("SSH-2.0"), std::string("GE T /"), std::string("A /"),
          std::string("get / HTTP"), std::string("\x16\x03\x01", 3), std::string("\xff\xff", 2),
          std::string("\0\0\0\0", 4), std::string("\0\0\0\5hello", 9),
          std::string("\0\3\0\0 ", 5)}) {
        EXPECT_EQ(told(bytes), PortProtocol::control);
    }
}

}  // namespace
}  // namespace regroup::rendezvous
