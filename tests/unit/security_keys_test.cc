// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "rendezvous/security/key.h"

namespace regroup::security {
namespace {

TEST(SecurityKeys, HexKeepsTheKey) {
    const Key key = Key::random();
    EXPECT_EQ(Key::from_hex(key.hex()), key);
    EXPECT_FALSE(key == Key::random());
    for (const std::string& wrong :
         {std::string(), std::string("00"), key.hex() + "00", key.hex().replace(63, 1, "g")}) {
        EXPECT_FALSE(Key::from_hex(wrong)) << wrong;
    }
}

// The answer for this key and text is in RFC 4231, test case 2, for a key padded with zeros.
TEST(SecurityKeys, CodesAreThoseOfHmacSha256) {
    const Key key = *Key::from_hex(std::string("4a656665") + std::string(56, '0'));
    const Key expected =
        *Key::from_hex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    EXPECT_EQ(key.mac("what do ya want for nothing?"), expected.bytes());
}

TEST(SecurityKeys, SecretGivesAKeyUnlessItIsTooShort) {
    const std::string text = random_text();
    EXPECT_EQ(text.size(), 22U);
    EXPECT_NE(text, random_text());
    EXPECT_EQ(Key::from_secret(text), Key::from_secret(text));
    EXPECT_FALSE(Key::from_secret(text) == Key::from_secret(random_text()));
    EXPECT_FALSE(Key::from_secret(text.substr(1)));
    EXPECT_FALSE(Key::from_secret(""));
}

TEST(SecurityKeys, OnlyTheSameKeyAndMessageVerify) {
    const Key key = Key::random();
    Mac mac = key.mac("hello");
    EXPECT_TRUE(key.verifies("hello", mac));
    EXPECT_FALSE(key.verifies("hellp", mac));
    EXPECT_FALSE(Key::random().verifies("hello", mac));
    EXPECT_FALSE(key.derive("a") == key.derive("b"));
    mac[31] ^= 1;
    EXPECT_FALSE(key.verifies("hello", mac));
}

}  // namespace
}  // namespace regroup::security
