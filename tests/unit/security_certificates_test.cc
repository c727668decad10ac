// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <unistd.h>

#include "rendezvous/security/tls.h"
#include "tests/support/certificates.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/security_handshake.h"

namespace regroup::security {
namespace {

using testing::CertificateMaker;

constexpr const char* kDaemonNames = "IP:127.0.0.1,DNS:localhost";

class SecurityCertificates : public ::testing::Test {
   protected:
    void SetUp() override {
        if (::access("/usr/bin/openssl", X_OK) != 0) {
            GTEST_SKIP() << "the program openssl is needed";
        }
        site_.emplace(folder_);
        site_->issue("daemon", {"/CN=daemon", kDaemonNames});
    }

    [[nodiscard]] Credentials of(const std::string& name,
                                 const std::string& authority = "ca") const {
        Credentials credentials;
        credentials.certificates =
            Certificates{site_->path(name + ".crt"), site_->path(name + ".key"),
                         site_->path(authority + ".crt")};
        return credentials;
    }

    [[nodiscard]] Handshake with(const std::string& client, const std::string& server = "daemon",
                                 const std::string& host = "localhost") const {
        return {*Tls::server(of(server)), *Tls::client(of(client), {}), host};
    }

    testing::TemporaryDirectory temporary_;
    std::string folder_ = temporary_.path();
    std::optional<CertificateMaker> site_;
};

TEST_F(SecurityCertificates, UnitOfTheSubjectGivesTheRole) {
    for (const auto& [unit, role] : {std::pair("", Role::node),
                                     {"/OU=research", Role::node},
                                     {"/OU=node", Role::node},
                                     {"/OU=operator", Role::operator_role},
                                     {"/OU=observer", Role::observer},
                                     {"/OU=full", Role::full}}) {
        site_->issue("client", {std::string(unit) + "/CN=node7", "DNS:node7"});
        const Handshake handshake = with("client");
        ASSERT_TRUE(handshake.client_accepts()) << handshake.errors();
        ASSERT_TRUE(handshake.server_accepts()) << handshake.errors();
        EXPECT_EQ(handshake.peer()->scope.role, role) << unit;
        EXPECT_THAT(handshake.peer()->name, HasSubstr("CN=node7"));
    }
}

TEST_F(SecurityCertificates, DaemonMustHaveTheNameByWhichItIsReached) {
    site_->issue("client", {"/CN=node7", "DNS:node7"});
    EXPECT_TRUE(with("client", "daemon", "127.0.0.1").client_accepts());
    EXPECT_FALSE(with("client", "daemon", "node0").client_accepts());
    EXPECT_FALSE(with("client", "daemon", "127.0.0.2").client_accepts());
}

TEST_F(SecurityCertificates, CertificateOfAnotherAuthorityIsRefused) {
    const CertificateMaker other(folder_, "other");
    other.issue("stranger", {"/CN=stranger", kDaemonNames});
    Handshake refused = with("stranger");
    EXPECT_FALSE(refused.server_accepts());
    EXPECT_FALSE(refused.client_accepts() && refused.refusal_for_client().empty());
    site_->issue("client", {"/CN=node7", "DNS:node7"});
    const Handshake rogue(*Tls::server(of("stranger")), *Tls::client(of("client"), {}));
    EXPECT_FALSE(rogue.client_accepts());
    EXPECT_THAT(rogue.client_error(), HasSubstr("--tls-ca"));
}

TEST_F(SecurityCertificates, ExpiredCertificateIsRefused) {
    site_->issue("client", {"/CN=node7", "DNS:node7", true});
    EXPECT_FALSE(with("client").server_accepts());
    site_->issue("fresh", {"/CN=node7", "DNS:node7"});
    site_->issue("old", {"/CN=daemon", kDaemonNames, true});
    const Handshake old = with("fresh", "old");
    EXPECT_FALSE(old.client_accepts());
    EXPECT_THAT(old.client_error(), HasSubstr("expired"));
}

TEST_F(SecurityCertificates, RefusedClientIsToldWhyItsCertificateIsRefused) {
    const CertificateMaker other(folder_, "other");
    other.issue("stranger", {"/CN=stranger", kDaemonNames});
    Credentials stranger = of("stranger");  // It knows the daemon's authority.
    Handshake unknown(*Tls::server(of("daemon")), *Tls::client(stranger, {}));
    ASSERT_TRUE(unknown.client_accepts()) << unknown.errors();
    EXPECT_THAT(unknown.refusal_for_client(), HasSubstr("--tls-cert): unknown authority"));
    site_->issue("old", {"/CN=node7", "DNS:node7", true});
    Handshake old = with("old");
    ASSERT_TRUE(old.client_accepts()) << old.errors();
    EXPECT_THAT(old.refusal_for_client(), HasSubstr("--tls-cert): it has expired"));
}

TEST_F(SecurityCertificates, ClientWithoutACertificateIsRefused) {
    Credentials token;
    token.token = Token::generate();
    const Handshake handshake(*Tls::server(of("daemon")), *Tls::client(token, {}));
    EXPECT_FALSE(handshake.client_accepts());
    EXPECT_FALSE(handshake.server_accepts());
}

TEST_F(SecurityCertificates, DaemonMayTakeBothTokensAndCertificates) {
    Credentials both = of("daemon");
    both.token = Token::generate();
    Credentials token;
    token.token = both.token;
    site_->issue("client", {"/CN=node7", "DNS:node7"});
    const Handshake by_token(*Tls::server(both), *Tls::client(token, {Role::node, "job"}));
    EXPECT_TRUE(by_token.server_accepts()) << by_token.errors();
    EXPECT_EQ(by_token.peer()->scope, (Scope{Role::node, "job"}));
    const Handshake by_certificate(*Tls::server(both), *Tls::client(of("client"), {}));
    EXPECT_TRUE(by_certificate.server_accepts()) << by_certificate.errors();
    EXPECT_EQ(by_certificate.peer()->scope, (Scope{Role::node, ""}));
}

TEST_F(SecurityCertificates, FilesThatCannotBeUsedAreNamed) {
    Credentials wrong = of("daemon");
    wrong.certificates->key = site_->path("absent.key");
    EXPECT_THAT(Tls::server(wrong), fails("--tls-key", "absent.key"));
}

}  // namespace
}  // namespace regroup::security
