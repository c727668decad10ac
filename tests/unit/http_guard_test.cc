// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>
#include <variant>

#include <gtest/gtest.h>

#include "rendezvous/http/guard.h"
#include "rendezvous/security/base64.h"
#include "tests/support/matchers.h"

namespace regroup::http {
namespace {

using security::Peer;
using security::Role;
using security::Scope;
using security::to_base64;
using security::Token;

using Method = RequestHead::Method;

class HttpGuard : public ::testing::Test {
   protected:
    HttpGuard() {
        credentials.token = Token::generate();
        head.method = Method::get;
        head.has_one_host = true;
        head.host = "127.0.0.1:29400";
        stranger.peer = "10.0.0.4:41234";
        stranger.address = "10.0.0.4";
        stranger.objection = "this daemon wants a certificate";
        here = stranger;
        here.is_here = true;
        owner = here;
        owner.proven = Peer{Scope(), "user ann"};
    }

    [[nodiscard]] std::string text_of(const Scope& scope) const {
        return credentials.token->limited_to(scope).text();
    }
    void bear(const std::string& token) { head.authorization = "Bearer " + token; }

    /// 200 if the request may pass.
    unsigned judge(const Client& client, bool is_public = false) {
        const auto judged = Guard(credentials, hosts).judge(client, head, is_public);
        if (const auto* refusal = std::get_if<Guard::Refusal>(&judged)) {
            why = *refusal->answer.body;
            wants_token = refusal->wants_token;
            return refusal->answer.status;
        }
        peer = std::get<Peer>(judged);
        return 200;
    }

    security::Credentials credentials;
    std::set<std::string> hosts{"node0", "node0.example.org"};
    RequestHead head;
    Client stranger;  ///< On another host.
    Client here;      ///< Another user of this host.
    Client owner;     ///< The same user.
    Peer peer;
    std::string why;
    bool wants_token = false;
};

TEST_F(HttpGuard, UserOfTheDaemonMayReadWithoutAToken) {
    EXPECT_EQ(judge(owner), 200U);
    EXPECT_EQ(peer.name, "user ann");
    EXPECT_EQ(judge(here), 401U);
    EXPECT_TRUE(wants_token);
    EXPECT_EQ(judge(stranger), 401U);
    EXPECT_THAT(why, HasSubstr("regroup token --role=observer"));
}

TEST_F(HttpGuard, PublicPathsNeedNoProofButAHost) {
    EXPECT_EQ(judge(stranger, true), 200U);
    EXPECT_EQ(peer.scope.role, Role::observer);
    head.host = "evil.example.org";
    EXPECT_EQ(judge(stranger, true), 421U);
}

TEST_F(HttpGuard, ObserversTokenIsAcceptedInBothForms) {
    const std::string token = text_of({Role::observer, ""});
    bear(token);
    EXPECT_EQ(judge(stranger), 200U);
    EXPECT_EQ(peer.scope.role, Role::observer);
    EXPECT_THAT(peer.name, HasSubstr("(observer)"));
    head.authorization = "Basic " + to_base64("anybody:" + token);
    EXPECT_EQ(judge(stranger), 200U);
    head.authorization = "basic " + to_base64(":" + token);
    EXPECT_EQ(judge(stranger), 200U);
}

TEST_F(HttpGuard, TokenOfOneJobSeesThatJob) {
    bear(text_of({Role::observer, "night: run"}));
    EXPECT_EQ(judge(stranger), 200U);
    EXPECT_EQ(peer.scope.job, "night: run");
    EXPECT_THAT(peer.name, HasSubstr("(observer of job night: run)"));
    head.authorization = "Basic " + to_base64("a:" + text_of({Role::observer, "night: run"}));
    EXPECT_EQ(judge(stranger), 200U);
}

TEST_F(HttpGuard, WrongTokensAreRefused) {
    const std::string token = text_of({Role::observer, ""});
    const std::string other = Token::generate().limited_to({Role::observer, ""}).text();
    std::string same_name = token;
    same_name.back() = same_name.back() == '0' ? '1' : '0';
    for (const std::string& wrong :
         {std::string(), std::string("nonsense"), other, same_name, token + ".job", token.substr(1),
          std::string("regroup1.observer.."), std::string(100000, 'a')}) {
        bear(wrong);
        EXPECT_EQ(judge(stranger), 401U) << wrong.substr(0, 100);
        EXPECT_EQ(judge(owner), 401U) << wrong.substr(0, 100);
    }
    for (const std::string& field : {std::string("Basic"), std::string("Basic !"),
                                     "Basic " + to_base64(token), "Digest " + token, token}) {
        head.authorization = field;
        EXPECT_EQ(judge(stranger), 401U) << field;
    }
}

TEST_F(HttpGuard, TokenThatCanDoMoreMustNotCrossTheNetworkUnencrypted) {
    for (const Role role : {Role::node, Role::operator_role, Role::full}) {
        bear(text_of({role, ""}));
        EXPECT_EQ(judge(stranger), 403U);
        EXPECT_THAT(why, HasSubstr("must not cross the network unencrypted"));
        EXPECT_EQ(judge(here), 200U);
        Client secured = stranger;
        secured.is_secured = true;
        secured.proven = Peer{{Role::observer, ""}, "certificate CN=a (observer)"};
        EXPECT_EQ(judge(secured), 200U);
        EXPECT_EQ(peer.scope.role, role);
    }
}

TEST_F(HttpGuard, DaemonWithoutATokenSaysWhatItWants) {
    credentials.token.reset();
    EXPECT_EQ(judge(stranger), 403U);
    EXPECT_THAT(why, HasSubstr("wants a certificate"));
    bear(Token::generate().text());
    EXPECT_EQ(judge(stranger), 403U);
    EXPECT_EQ(judge(owner), 200U) << "it cannot check the token, and needs none";
}

TEST_F(HttpGuard, OnlyOwnNamesAreAccepted) {
    for (const char* host : {"127.0.0.1", "10.0.0.1:29400", "[::1]:29400", "[fe80::1]", "localhost",
                             "LOCALHOST:1", "node0", "Node0.example.org:29400"}) {
        head.host = host;
        EXPECT_EQ(judge(owner), 200U) << host;
    }
    for (const char* host :
         {"evil.example.org", "evil.example.org:29400", "node0.evil.org", "localhost.evil.org", "",
          ":29400", "node0:port", "[::1", "[evil]", "[::1]evil", "127.0.0.1.evil.org", "1.2.3.4@a",
          "node0:29400:1", "0x7f.1"}) {
        head.host = host;
        EXPECT_EQ(judge(owner), 421U) << host;
        EXPECT_THAT(why, HasSubstr("--http-host")) << host;
    }
    head.host = "node0";
    head.has_one_host = false;
    EXPECT_EQ(judge(owner), 400U);
}

TEST_F(HttpGuard, PagesOfOtherSitesAreRefused) {
    head.has_origin = true;
    head.origin = "http://127.0.0.1:29400";
    EXPECT_EQ(judge(owner), 200U);
    for (const char* origin : {"http://evil.example.org", "https://127.0.0.1:29400",
                               "http://127.0.0.1", "http://127.0.0.1:8080", "null", ""}) {
        head.origin = origin;
        EXPECT_EQ(judge(owner), 403U) << origin;
    }
    head.has_origin = false;
    for (const char* site : {"same-origin", "none", ""}) {
        head.fetch_site = site;
        EXPECT_EQ(judge(owner), 200U) << site;
    }
    for (const char* site : {"cross-site", "same-site", "other"}) {
        head.fetch_site = site;
        EXPECT_EQ(judge(owner), 403U) << site;
    }
}

TEST_F(HttpGuard, LinkOfAnotherSiteMayBeFollowed) {
    head.fetch_site = "cross-site";
    head.fetch_mode = "navigate";
    head.fetch_dest = "document";
    EXPECT_EQ(judge(owner), 200U);
    head.fetch_dest = "iframe";
    EXPECT_EQ(judge(owner), 403U);
    head.fetch_dest = "document";
    head.method = Method::post;
    EXPECT_EQ(judge(owner), 403U);
}

TEST_F(HttpGuard, OtherMethodsAreNotAllowed) {
    head.method = Method::other;
    EXPECT_EQ(judge(owner), 405U);
    head.method = Method::head;
    EXPECT_EQ(judge(owner), 200U);
}

class HttpGuardOfActions : public HttpGuard {
   protected:
    HttpGuardOfActions() {
        head.method = Method::post;
        head.content_type = "application/json";
    }
};

TEST_F(HttpGuardOfActions, UserAloneMayNotAct) {
    EXPECT_EQ(judge(owner), 401U);
    EXPECT_THAT(why, HasSubstr("role operator"));
    credentials.token.reset();
    EXPECT_EQ(judge(owner), 403U);
    EXPECT_THAT(why, HasSubstr("use regroup drain or regroup stop"));
    credentials.insecure = true;
    EXPECT_EQ(judge(owner), 403U);
}

TEST_F(HttpGuardOfActions, OperatorMayAct) {
    bear(text_of({Role::operator_role, ""}));
    EXPECT_EQ(judge(here), 200U);
    EXPECT_THAT(peer.name, HasSubstr("(operator)"));
    EXPECT_EQ(judge(stranger), 403U);
    head.content_type = "Application/JSON; charset=utf-8";
    EXPECT_EQ(judge(owner), 200U);
    Client secured = stranger;
    secured.is_secured = true;
    secured.proven = Peer{{Role::operator_role, ""}, "certificate CN=a (operator)"};
    head.authorization.clear();
    EXPECT_EQ(judge(secured), 200U);
}

TEST_F(HttpGuardOfActions, OthersMayOnlyRead) {
    for (const Role role : {Role::observer, Role::node}) {
        bear(text_of({role, ""}));
        EXPECT_EQ(judge(here), 403U);
        EXPECT_THAT(why, HasSubstr("may only read"));
        EXPECT_EQ(judge(owner), 403U);
        Client secured = stranger;
        secured.is_secured = true;
        secured.proven = Peer{{role, ""}, "a peer"};
        head.authorization.clear();
        EXPECT_EQ(judge(secured), 403U);
    }
}

TEST_F(HttpGuardOfActions, FormsOfOtherSitesAreRefused) {
    bear(text_of({Role::operator_role, ""}));
    for (const char* type : {"", "text/plain", "application/x-www-form-urlencoded",
                             "multipart/form-data", "application/jsonx"}) {
        head.content_type = type;
        EXPECT_EQ(judge(owner), 415U) << type;
    }
    head.content_type = "application/json";
    head.has_origin = true;
    head.origin = "http://evil.example.org";
    EXPECT_EQ(judge(owner), 403U);
}

TEST_F(HttpGuardOfActions, PublicPathsAreNoActions) {
    EXPECT_EQ(judge(stranger, true), 401U);
}

}  // namespace
}  // namespace regroup::http
