// SPDX-License-Identifier: Apache-2.0
//
// The journal in a real etcd with TLS, client certificates and user names, and what it says where
// one of them is wrong.
#include <csignal>
#include <fstream>
#include <memory>
#include <sys/stat.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "etcd_side.h"
#include "rendezvous/journal/etcd_client.h"
#include "rendezvous/security/base64.h"
#include "tests/support/etcd_server.h"
#include "tests/support/matchers.h"

namespace regroup::journal {
namespace {

using nlohmann::json;
using security::to_base64;
using testing::EtcdServer;
using testing::EtcdSide;
using testing::Loop;

using Leaf = testing::CertificateMaker::Leaf;

constexpr const char* kHere = "IP:127.0.0.1,DNS:localhost";

boost::asio::awaitable<void> fetch_once(EtcdClient* client, std::string path, json request,
                                        std::optional<Result<json>>* answer) {
    answer->emplace(co_await client->call(path, request, std::chrono::seconds(20)));
}

/// Certificates that all tests of this process use: to make them takes longer than a test.
class Certificates {
   public:
    static const Certificates& get() {
        static const Certificates made;
        return made;
    }
    [[nodiscard]] std::string path(const std::string& file) const { return ours_.path(file); }

   private:
    Certificates() : ours_(folder_.path()), strange_(folder_.path(), "stranger_ca") {
        ours_.issue("server", {"/CN=etcd", kHere});
        ours_.issue("elsewhere", {"/CN=etcd", "DNS:etcd.example.org,IP:10.1.2.3"});
        ours_.issue("expired", {"/CN=etcd", kHere, true});
        ours_.issue("client", {"/O=regroup", "DNS:regroup"});
        ours_.issue("named_client", {"/CN=regroup", "DNS:regroup"});
        strange_.issue("stranger", {"/O=stranger", "DNS:stranger"});
    }

    testing::TemporaryDirectory folder_;
    testing::CertificateMaker ours_;
    testing::CertificateMaker strange_;
};

class EtcdAccessTest : public ::testing::Test {
   public:
    // The journal's connections are closed while their event loop still exists.
    ~EtcdAccessTest() override { side_.journal.reset(); }

   protected:
    EtcdAccessTest() { access_.tls = true, access_.ca_file = file("ca.crt"); }

    static std::string file(const std::string& name) { return Certificates::get().path(name); }
    static std::vector<std::string> serving(const std::string& certificate) {
        return {"--cert-file=" + file(certificate + ".crt"),
                "--key-file=" + file(certificate + ".key")};
    }
    static std::vector<std::string> serving_certified_clients() {
        std::vector<std::string> flags = serving("server");
        flags.push_back("--trusted-ca-file=" + file("ca.crt"));
        flags.push_back("--client-cert-auth");
        return flags;
    }
    void start_etcd(const std::vector<std::string>& flags, const std::string& scheme = "https") {
        etcd_ = std::make_unique<EtcdServer>(REGROUP_ETCD, folder_.path() + "/etcd", scheme, flags);
        etcd_->start();
    }
    void show(const std::string& certificate) {
        access_.cert_file = file(certificate + ".crt");
        access_.key_file = file(certificate + ".key");
    }
    void give_password(const std::string& password) {
        access_.user = "regroup";
        access_.password_file = folder_.path() + "/password";
        std::ofstream(access_.password_file, std::ios::trunc) << password << "\n";
        ::chmod(access_.password_file.c_str(), 0600);
    }
    void start_journal() {
        EtcdJournal::Options options = EtcdSide::options_of(etcd_->port(), "a");
        options.access = access_;
        side_.start(loop_, std::move(options));
    }
    [[nodiscard]] std::string where() const {
        return "etcd at 127.0.0.1:" + std::to_string(etcd_->port());
    }
    /// True once the journal has said so about this etcd.
    bool says(const std::string& text) {
        const bool said = loop_.until(
            [&] { return side_.log.find(where()) != side_.log.npos && has_logged(text); });
        EXPECT_FALSE(side_.leads);
        return said;
    }
    [[nodiscard]] bool has_logged(const std::string& text) const {
        return side_.log.find(text) != side_.log.npos;
    }
    bool keeps_a_job() {
        const StoredJob story = testing::story_of_two_rounds().job();
        side_.done = 0;
        side_.append(story);
        return loop_.until([&] { return side_.done == story.entries.size(); });
    }
    /// As the user root, if root has been added.
    json ask(const std::string& path, const json& request) {
        EtcdAccess access = access_;
        access.user = has_root_ ? "root" : "";
        access.password_file = folder_.path() + "/root";
        EtcdClient client(loop_.io(), {{{"127.0.0.1", etcd_->port()}}, access});
        std::optional<Result<json>> answer;
        boost::asio::co_spawn(loop_.io(), fetch_once(&client, path, request, &answer),
                              boost::asio::detached);
        EXPECT_TRUE(loop_.until([&] { return answer.has_value(); }));
        const bool good = answer && *answer;
        EXPECT_TRUE(good) << (answer ? answer->error().detail : "no answer");
        return good ? **answer : json();
    }
    /// Adds the user `regroup`, with access to keys that begin with `prefix`, and lets etcd ask for
    /// user names from now on.
    void enable_users(const std::string& password, const std::string& prefix = "regroup/") {
        std::ofstream(folder_.path() + "/root") << "root's own\n";
        ::chmod((folder_.path() + "/root").c_str(), 0600);
        ask("/v3/auth/user/add", {{"name", "root"}, {"password", "root's own"}});
        ask("/v3/auth/user/grant", {{"user", "root"}, {"role", "root"}});
        ask("/v3/auth/user/add", {{"name", "regroup"}, {"password", password}});
        ask("/v3/auth/role/add", {{"name", "regroup"}});
        std::string end = prefix;
        ++end.back();
        ask("/v3/auth/role/grant", {{"name", "regroup"},
                                    {"perm",
                                     {{"permType", "READWRITE"},
                                      {"key", to_base64(prefix)},
                                      {"range_end", to_base64(end)}}}});
        ask("/v3/auth/user/grant", {{"user", "regroup"}, {"role", "regroup"}});
        ask("/v3/auth/enable", json::object());
        has_root_ = true;
    }

    testing::TemporaryDirectory folder_;
    std::unique_ptr<EtcdServer> etcd_;
    EtcdAccess access_;
    bool has_root_ = false;
    Loop loop_;
    EtcdSide side_;
};

TEST_F(EtcdAccessTest, DaemonLeadsAndKeepsJobsOverTls) {
    start_etcd(serving("server"));
    start_journal();
    ASSERT_TRUE(loop_.until([&] { return side_.leads; })) << side_.log;
    EXPECT_TRUE(keeps_a_job()) << side_.log;
}

TEST_F(EtcdAccessTest, ClientCertificateIsShown) {
    start_etcd(serving_certified_clients());
    show("client");
    start_journal();
    ASSERT_TRUE(loop_.until([&] { return side_.leads; })) << side_.log;
    EXPECT_TRUE(keeps_a_job()) << side_.log;
}

TEST_F(EtcdAccessTest, CertificateAndKeyMayBeInOneFile) {
    start_etcd(serving_certified_clients());
    access_.cert_file = folder_.path() + "/both.pem";
    std::ofstream(access_.cert_file)
        << testing::read_file(file("client.crt")) << testing::read_file(file("client.key"));
    start_journal();
    EXPECT_TRUE(loop_.until([&] { return side_.leads; })) << side_.log;
}

TEST_F(EtcdAccessTest, MissingClientCertificateIsNamed) {
    start_etcd(serving_certified_clients());
    start_journal();
    EXPECT_TRUE(says("give --etcd-cert and --etcd-key")) << side_.log;
}

TEST_F(EtcdAccessTest, ClientCertificateOfAnotherAuthorityIsNamed) {
    start_etcd(serving_certified_clients());
    show("stranger");
    start_journal();
    EXPECT_TRUE(says("it refuses the certificate in --etcd-cert " + access_.cert_file))
        << side_.log;
}

TEST_F(EtcdAccessTest, EtcdOfAnotherAuthorityGetsNoRequest) {
    start_etcd(serving("server"));
    access_.ca_file = file("stranger_ca.crt");
    start_journal();
    EXPECT_TRUE(says("its certificate is not signed by a CA in " + access_.ca_file)) << side_.log;
}

TEST_F(EtcdAccessTest, EtcdOfNoAuthorityOfTheSystemGetsNoRequest) {
    start_etcd(serving("server"));
    access_.ca_file.clear();
    start_journal();
    EXPECT_TRUE(says("give --etcd-cacert")) << side_.log;
}

TEST_F(EtcdAccessTest, CertificateForAnotherHostIsRefused) {
    start_etcd(serving("elsewhere"));
    start_journal();
    EXPECT_TRUE(says("its certificate is not for 127.0.0.1")) << side_.log;
}

TEST_F(EtcdAccessTest, ExpiredCertificateIsRefused) {
    start_etcd(serving("expired"));
    start_journal();
    EXPECT_TRUE(says("has expired; renew etcd's --cert-file")) << side_.log;
}

TEST_F(EtcdAccessTest, EtcdWithoutTlsIsNamed) {
    start_etcd({}, "http");
    start_journal();
    EXPECT_TRUE(says("write etcd:// in --state")) << side_.log;
}

TEST_F(EtcdAccessTest, EtcdWithTlsIsNamed) {
    start_etcd(serving("server"));
    access_ = {};
    start_journal();
    EXPECT_TRUE(says("write etcds:// in --state")) << side_.log;
}

TEST_F(EtcdAccessTest, SilentEndpointIsGivenUpAtTheDeadline) {
    start_etcd(serving("server"));
    ASSERT_TRUE(etcd_->program().stop());
    start_journal();
    EXPECT_TRUE(says("no TLS handshake within")) << side_.log;
    etcd_->program().signal(SIGCONT);
    EXPECT_TRUE(loop_.until([&] { return side_.leads; })) << side_.log;
}

TEST_F(EtcdAccessTest, RenewedClientCertificateIsReadWithoutARestart) {
    start_etcd(serving_certified_clients());
    access_.cert_file = folder_.path() + "/client.pem";
    const auto put = [&](const std::string& name) {
        std::ofstream(access_.cert_file, std::ios::trunc)
            << testing::read_file(file(name + ".crt")) << testing::read_file(file(name + ".key"));
    };
    put("stranger");
    start_journal();
    ASSERT_TRUE(says("it refuses the certificate")) << side_.log;
    put("client");
    EXPECT_TRUE(loop_.until([&] { return side_.leads; })) << side_.log;
}

TEST_F(EtcdAccessTest, UserWithARoleForThePrefixLeadsAndKeepsJobs) {
    start_etcd(serving_certified_clients());
    show("client");
    enable_users("secret");
    give_password("secret");
    start_journal();
    ASSERT_TRUE(loop_.until([&] { return side_.leads; })) << side_.log;
    EXPECT_TRUE(keeps_a_job()) << side_.log;
    bool resigned = false;
    side_.journal->resign([&] { resigned = true; });
    EXPECT_TRUE(loop_.until([&] { return resigned; }));
    EXPECT_FALSE(ask("/v3/kv/range", {{"key", to_base64("regroup/leader")}}).contains("kvs"));
}

TEST_F(EtcdAccessTest, LoginIsRenewedWhenEtcdHasForgottenIt) {
    start_etcd(serving("server"));
    enable_users("secret");
    give_password("secret");
    start_journal();
    ASSERT_TRUE(loop_.until([&] { return side_.leads; })) << side_.log;
    etcd_->kill();
    etcd_->start();  // It keeps the tokens of logins in memory only.
    EXPECT_TRUE(keeps_a_job()) << side_.log;
    EXPECT_TRUE(side_.leads) << side_.log;
}

TEST_F(EtcdAccessTest, WrongPasswordIsNamedAndACorrectedFileIsRead) {
    start_etcd(serving("server"));
    enable_users("secret");
    give_password("guess");
    start_journal();
    ASSERT_TRUE(says("it refuses user regroup with the password in " + access_.password_file))
        << side_.log;
    EXPECT_THAT(side_.log, AllOf(Not(HasSubstr("guess")), Not(HasSubstr("secret"))));
    give_password("secret");
    EXPECT_TRUE(loop_.until([&] { return side_.leads; })) << side_.log;
}

TEST_F(EtcdAccessTest, MissingUserNameIsNamed) {
    start_etcd(serving("server"));
    enable_users("secret");
    start_journal();
    EXPECT_TRUE(says("give --etcd-user and --etcd-password-file")) << side_.log;
}

TEST_F(EtcdAccessTest, UserWithoutAccessToThePrefixIsNamed) {
    start_etcd(serving("server"));
    enable_users("secret", "other/");
    give_password("secret");
    start_journal();
    EXPECT_TRUE(says("user regroup may not")) << side_.log;
    EXPECT_THAT(side_.log, HasSubstr("readwrite on the prefix regroup/"));
}

TEST_F(EtcdAccessTest, CertificateWithACommonNameIsExplainedWhereThereAreUsers) {
    start_etcd(serving_certified_clients());
    show("client");
    enable_users("secret");
    give_password("secret");
    show("named_client");
    start_journal();
    EXPECT_TRUE(says("without a common name")) << side_.log;
}

TEST_F(EtcdAccessTest, UsersMayBeEnabledWhileTheDaemonLeads) {
    start_etcd(serving("server"));
    give_password("secret");
    start_journal();
    ASSERT_TRUE(loop_.until([&] { return side_.leads; })) << side_.log;
    access_.user.clear();
    enable_users("secret");
    EXPECT_TRUE(keeps_a_job()) << side_.log;
    EXPECT_TRUE(side_.leads) << side_.log;
}

TEST_F(EtcdAccessTest, NoJobIsGivenUpWhileEtcdAsksForAUserNameThatIsMissing) {
    start_etcd(serving("server"));
    start_journal();
    ASSERT_TRUE(loop_.until([&] { return side_.leads; })) << side_.log;
    enable_users("secret");
    const StoredJob story = testing::story_of_two_rounds().job();
    side_.append(story);
    EXPECT_TRUE(loop_.until([&] { return has_logged("give --etcd-user"); })) << side_.log;
    EXPECT_EQ(side_.done, 0U);
    EXPECT_THAT(side_.log, Not(HasSubstr("no more entries of job")));
    ask("/v3/auth/disable", json::object());
    EXPECT_TRUE(loop_.until([&] { return side_.done == story.entries.size(); })) << side_.log;
}

TEST_F(EtcdAccessTest, FilesAreCheckedBeforeEtcdIsAsked) {
    show("client");
    give_password("secret");
    EXPECT_TRUE(EtcdClient::check(access_));
    EtcdAccess wrong = access_;
    wrong.ca_file = file("absent.crt");
    EXPECT_THAT(EtcdClient::check(wrong).error().detail,
                HasSubstr("--etcd-cacert " + wrong.ca_file));
    wrong = access_;
    wrong.cert_file = file("client.key");
    EXPECT_THAT(EtcdClient::check(wrong).error().detail,
                HasSubstr("--etcd-cert " + wrong.cert_file));
    wrong = access_;
    wrong.key_file = file("stranger.key");
    EXPECT_THAT(EtcdClient::check(wrong).error().detail, HasSubstr("--etcd-key " + wrong.key_file));
    ::chmod(access_.password_file.c_str(), 0644);
    EXPECT_THAT(EtcdClient::check(access_).error().detail,
                HasSubstr("chmod 600 " + access_.password_file));
}

}  // namespace
}  // namespace regroup::journal
