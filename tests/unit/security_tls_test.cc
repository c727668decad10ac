// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gtest/gtest.h>

#include "rendezvous/security/tls.h"
#include "tests/unit/security_handshake.h"

namespace regroup::security {
namespace {

Credentials with(const Token& token) {
    Credentials credentials;
    credentials.token = token;
    return credentials;
}

Handshake between(const Token& server, const Token& client, const Scope& scope) {
    return {*Tls::server(with(server)), *Tls::client(with(client), scope)};
}

const Scope kNodeOfJob{Role::node, "nightly"};

TEST(SecurityTls, HoldersOfOneTokenAcceptEachOther) {
    const Token token = Token::generate();
    Handshake handshake = between(token, token, kNodeOfJob);
    ASSERT_TRUE(handshake.client_accepts());
    ASSERT_TRUE(handshake.server_accepts()) << handshake.errors();
    const Result<Peer> peer = handshake.peer();
    ASSERT_TRUE(peer);
    EXPECT_EQ(peer->scope, kNodeOfJob);
    const std::string text(300000, 'x');
    EXPECT_EQ(handshake.pass(text), text);
}

TEST(SecurityTls, LimitedTokenGivesItsOwnScopeWhateverTheClientWants) {
    const Token token = Token::generate();
    const Scope observer{Role::observer, "nightly"};
    const Handshake handshake = between(token, token.limited_to(observer), kNodeOfJob);
    ASSERT_TRUE(handshake.server_accepts()) << handshake.errors();
    EXPECT_EQ(handshake.peer()->scope, observer);
}

TEST(SecurityTls, LongJobNameIsKept) {
    const Token token = Token::generate();
    const Scope scope{Role::node, std::string(255, 'j')};
    const Handshake handshake = between(token, token, scope);
    ASSERT_TRUE(handshake.server_accepts()) << handshake.errors();
    EXPECT_EQ(handshake.peer()->scope, scope);
}

TEST(SecurityTls, AnotherTokenIsRefusedByBoth) {
    const Handshake handshake = between(Token::generate(), Token::generate(), kNodeOfJob);
    EXPECT_FALSE(handshake.client_accepts());
    EXPECT_FALSE(handshake.server_accepts());
}

TEST(SecurityTls, DaemonWithTheWrongKeyUnderTheRightNameIsRefused) {
    const Token token = Token::generate();
    std::string text = Token::generate().limited_to(kNodeOfJob).text();
    text.replace(text.find(".node.") + 6, 8, token.id());
    const Token forged = *Token::parse(text);
    const Handshake handshake = between(forged, token, kNodeOfJob);
    EXPECT_FALSE(handshake.client_accepts());
    EXPECT_FALSE(handshake.server_accepts());
}

TEST(SecurityTls, KeysOfOneRoundWorkForThatRoundOnly) {
    const Key key = Key::random();
    const Handshake same(Tls::server(key, "store, round 3"), Tls::client(key, "store, round 3"));
    EXPECT_TRUE(same.client_accepts());
    EXPECT_TRUE(same.server_accepts()) << same.errors();
    const Handshake older(Tls::server(key, "store, round 3"), Tls::client(key, "store, round 2"));
    EXPECT_FALSE(older.client_accepts());
    EXPECT_FALSE(older.server_accepts());
}

}  // namespace
}  // namespace regroup::security
