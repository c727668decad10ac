// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "rendezvous/security/credentials.h"
#include "rendezvous/security/token.h"
#include "tests/support/failures.h"
#include "tests/support/temporary_directory.h"

namespace regroup::security {
namespace {

const Scope kNode{Role::node, ""};
const Scope kNodeOfDottedJob{Role::node, "night.ly"};

class TokenFiles : public ::testing::Test {
   protected:
    [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }

    testing::TemporaryDirectory folder_;
};

TEST(SecurityToken, TextKeepsTheToken) {
    const Token full = Token::generate();
    for (const Token& token : {full, full.limited_to(kNode), full.limited_to(kNodeOfDottedJob),
                               full.limited_to({Role::observer, ""})}) {
        const Result<Token> read = Token::parse(token.text());
        ASSERT_TRUE(read) << read.error().detail;
        EXPECT_EQ(read->scope(), token.scope());
        EXPECT_EQ(read->id(), full.id());
        EXPECT_EQ(read->key(), token.key());
    }
}

TEST(SecurityToken, DamagedTextIsRefusedAndNotRepeated) {
    const std::string text = Token::generate().text();
    std::string other_key = text;
    other_key.back() = other_key.back() == '0' ? '1' : '0';
    for (const std::string& wrong :
         {std::string(), std::string("secret"), text.substr(0, 60), text + "0", text + ".job",
          other_key, "regroup2" + text.substr(8)}) {
        const Result<Token> read = Token::parse(wrong);
        ASSERT_FALSE(read) << wrong;
        EXPECT_EQ(read.error().detail.find(text.substr(30)), std::string::npos);
    }
}

TEST(SecurityToken, EachScopeHasAKeyOfItsOwn) {
    const Token full = Token::generate();
    EXPECT_FALSE(full.limited_to(kNode).key() == full.key());
    EXPECT_FALSE(full.limited_to(kNode).key() == full.limited_to(kNodeOfDottedJob).key());
    EXPECT_FALSE(full.limited_to(kNode).key() == full.limited_to({Role::observer, ""}).key());
}

TEST(SecurityToken, FullTokenFindsTheOnesDerivedFromIt) {
    const Token full = Token::generate();
    const Token node = full.limited_to(kNodeOfDottedJob);
    EXPECT_EQ(full.named(node.identity())->key(), node.key());
    EXPECT_EQ(full.named(full.identity())->key(), full.key());
    EXPECT_FALSE(full.named(Token::generate().limited_to(kNode).identity()));
    EXPECT_FALSE(full.named("regroup1.king." + full.id()));
    EXPECT_FALSE(full.named(""));
}

TEST(SecurityToken, LimitedTokenFindsOnlyItself) {
    const Token full = Token::generate();
    const Token node = full.limited_to(kNodeOfDottedJob);
    EXPECT_EQ(node.named(node.identity())->key(), node.key());
    EXPECT_FALSE(node.named(full.identity()));
    EXPECT_FALSE(node.named(full.limited_to(kNode).identity()));
}

TEST_F(TokenFiles, WrittenTokenIsReadAndBelongsToThisUserOnly) {
    const Token token = Token::generate();
    const mode_t before = ::umask(0);
    const Result<void> written = write_token(path("a/b/token"), token);
    ::umask(before);
    ASSERT_TRUE(written);
    for (const char* folder : {"a", "a/b"}) {
        struct stat facts{};
        ASSERT_EQ(::stat(path(folder).c_str(), &facts), 0);
        EXPECT_EQ(facts.st_mode & 0777U, 0700U) << folder;
    }
    struct stat info{};
    ASSERT_EQ(::stat(path("a/b/token").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0600U);
    const Result<Token> read = read_token(path("a/b/token"));
    ASSERT_TRUE(read) << read.error().detail;
    EXPECT_EQ(read->key(), token.key());
    EXPECT_FALSE(write_token(path("a/b/token"), Token::generate()));
    EXPECT_EQ(read_token(path("a/b/token"))->key(), token.key());
}

TEST_F(TokenFiles, FileThatOthersMayReadIsRefused) {
    ASSERT_TRUE(write_token(path("token"), Token::generate()));
    for (const mode_t mode : {0640U, 0604U, 0622U}) {
        if (::geteuid() == 0 && (mode & S_IRWXO) == 0) {
            continue;  // A file of root may be read by a group.
        }
        ASSERT_EQ(::chmod(path("token").c_str(), mode), 0);
        EXPECT_THAT(read_token(path("token")), fails(Errc::invalid_argument));
    }
}

TEST_F(TokenFiles, WhatIsNoFileIsRefused) {
    EXPECT_FALSE(read_token(path("absent")));
    EXPECT_FALSE(read_token(path("")));
    ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
    EXPECT_FALSE(read_token(path("fifo")));
    std::ofstream(path("empty")).close();
    ::chmod(path("empty").c_str(), 0600);
    EXPECT_FALSE(read_token(path("empty")));
}

TEST_F(TokenFiles, NamedFileGoesBeforeTheUsualOne) {
    CredentialSources sources;
    sources.usual_token_file = path("usual");
    EXPECT_FALSE(load_credentials(sources)->can_prove());
    const Token usual = Token::generate();
    ASSERT_TRUE(write_token(path("usual"), usual));
    EXPECT_EQ(load_credentials(sources)->token->id(), usual.id());
    const Token named = Token::generate();
    ASSERT_TRUE(write_token(path("named"), named));
    sources.token_file = path("named");
    EXPECT_EQ(load_credentials(sources)->token->id(), named.id());
    sources.token_file = path("absent");
    EXPECT_FALSE(load_credentials(sources));
}

TEST_F(TokenFiles, CertificateFilesBelongTogether) {
    EXPECT_FALSE(load_credentials({"", "", {"cert.pem", "", "ca.pem"}, false}));
    EXPECT_TRUE(load_credentials({"", "", {"cert.pem", "key.pem", "ca.pem"}, false}));
}

}  // namespace
}  // namespace regroup::security
