// SPDX-License-Identifier: Apache-2.0
//
// Two daemons on one etcd, or on three members. Each may be killed. Skipped where etcd is
// missing.
#include <chrono>
#include <csignal>
#include <memory>

#include "tests/e2e/end_to_end.h"
#include "tests/support/etcd_server.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

class RunEtcd : public EndToEnd {
   protected:
    void SetUp() override {
        if (std::string(REGROUP_ETCD).empty()) {
            GTEST_SKIP() << "there was no etcd when this was configured";
        }
    }
    [[nodiscard]] std::unique_ptr<Rendezvous> serve(const std::string& lease = "5") const {
        return serve_on("127.0.0.1:" + std::to_string(etcd_.port()), lease);
    }
    [[nodiscard]] static std::unique_ptr<Rendezvous> serve_on(const std::string& etcds,
                                                              const std::string& lease) {
        const std::string own = "127.0.0.1:" + std::to_string(unused_port());
        return std::make_unique<Rendezvous>(Words{"--listen=" + own, "--advertise=" + own,
                                                  "--lease=" + lease, "--state=etcd://" + etcds});
    }
    [[nodiscard]] std::unique_ptr<Program> start_node(unsigned number,
                                                      const std::string& endpoints) const {
        return start_run(node(number, "2:2", endpoints) + Words{"--nproc-per-node=2",
                                                                "--max-restarts=3",
                                                                elastic_probe_program(), "beat"});
    }

    EtcdServer etcd_{REGROUP_ETCD, folder() + "/etcd"};
};

TEST_F(RunEtcd, NoWorkerNoticesThatTheLeaderIsKilledAndNoRoundNeedsEtcd) {
    etcd_.start();
    auto a = serve();
    ASSERT_TRUE(a->program().prints("this daemon leads")) << a->program().output();
    auto b = serve();
    const std::string endpoints = a->endpoint() + "," + b->endpoint();
    auto first_node = start_node(1, endpoints);
    auto second_node = start_node(2, endpoints);
    const auto first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4)) << first_node->output() << second_node->output();

    a->program().signal(SIGKILL);
    ASSERT_TRUE(first_node->prints("the daemon is back at " + b->endpoint()))
        << first_node->output() << b->program().output();
    ASSERT_TRUE(second_node->prints("the daemon is back at " + b->endpoint()))
        << second_node->output();
    EXPECT_TRUE(goes_on());
    EXPECT_THAT(marks("up"), SizeIs(1)) << "a round was lost with the leader";
    ::kill(pid_of(first.at(1)), SIGKILL);
    const auto second = await_marks("up", 4, 2);
    ASSERT_THAT(second, SizeIs(4)) << first_node->output() << b->program().output();
    for (const auto& [rank, mark] : first) {
        EXPECT_EQ(pid_of(mark) == pid_of(second.at(rank)), rank != 1) << "rank " << rank;
    }

    etcd_.kill();
    ASSERT_TRUE(first_node->prints("lost the connection to the daemon at " + b->endpoint()))
        << first_node->output() << b->program().output();
    EXPECT_TRUE(goes_on()) << first_node->output();
    EXPECT_THAT(marks("up"), SizeIs(2)) << "a round was lost with etcd";
    EXPECT_TRUE(first_node->running());
    EXPECT_TRUE(second_node->running());
}

TEST_F(RunEtcd, SecondDaemonLeadsWithinTheLeaseOfAKilledLeader) {
    constexpr std::chrono::seconds kLease(3);
    // For a busy machine, and for the daemon to read its jobs.
    constexpr std::chrono::seconds kMargin(1);
    etcd_.start();
    auto a = serve("3");
    ASSERT_TRUE(a->program().prints("this daemon leads")) << a->program().output();
    auto b = serve("3");
    ASSERT_TRUE(b->program().prints("the daemon at " + a->endpoint() + " leads; this one waits"))
        << b->program().output();
    const std::string endpoints = a->endpoint() + "," + b->endpoint();
    auto first_node = start_node(1, endpoints);
    auto second_node = start_node(2, endpoints);
    const auto first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4)) << first_node->output() << second_node->output();

    const auto killed = std::chrono::steady_clock::now();
    a->program().signal(SIGKILL);
    ASSERT_TRUE(b->program().prints("this daemon leads")) << b->program().output();
    EXPECT_LE(std::chrono::steady_clock::now() - killed, kLease + kMargin) << b->program().output();
    for (const auto& node : {&first_node, &second_node}) {
        ASSERT_TRUE((*node)->prints("the daemon is back at " + b->endpoint())) << (*node)->output();
    }
    EXPECT_TRUE(goes_on());
    release("finish");
    EXPECT_EQ(first_node->wait(), 0) << first_node->output();
    EXPECT_EQ(second_node->wait(), 0) << second_node->output();
    const auto done = last_marks("done");
    ASSERT_THAT(done, SizeIs(4)) << first_node->output();
    for (const auto& [rank, mark] : first) {
        EXPECT_EQ(pid_of(mark), pid_of(done.at(rank))) << "rank " << rank;
    }
    EXPECT_THAT(marks("up"), SizeIs(1)) << "a round was lost with the leader";
}

TEST_F(RunEtcd, NoWorkerNoticesThatTheLeadersOfEtcdAndOfTheDaemonsAreKilled) {
    EtcdCluster etcd(REGROUP_ETCD, folder());
    etcd.start();
    auto a = serve_on(etcd.endpoints(), "3");
    ASSERT_TRUE(a->program().prints("this daemon leads")) << a->program().output();
    auto b = serve_on(etcd.endpoints(), "3");
    ASSERT_TRUE(b->program().prints("the daemon at " + a->endpoint() + " leads; this one waits"))
        << b->program().output();
    const std::string endpoints = a->endpoint() + "," + b->endpoint();
    auto first_node = start_node(1, endpoints);
    auto second_node = start_node(2, endpoints);
    const auto first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4)) << first_node->output() << second_node->output();

    etcd.kill_leader();
    EXPECT_TRUE(goes_on());
    // The two members that are left choose a leader, and keep the next decision.
    ::kill(pid_of(first.at(1)), SIGKILL);
    const auto second = await_marks("up", 4, 2);
    ASSERT_THAT(second, SizeIs(4)) << first_node->output() << a->program().output();

    a->program().signal(SIGKILL);
    for (const auto& node : {&first_node, &second_node}) {
        ASSERT_TRUE((*node)->prints("the daemon is back at " + b->endpoint()))
            << (*node)->output() << b->program().output();
    }
    EXPECT_TRUE(goes_on());
    release("finish");
    EXPECT_EQ(first_node->wait(), 0) << first_node->output();
    EXPECT_EQ(second_node->wait(), 0) << second_node->output();
    const auto done = last_marks("done");
    ASSERT_THAT(done, SizeIs(4)) << first_node->output();
    for (const auto& [rank, mark] : first) {
        EXPECT_EQ(pid_of(mark) == pid_of(done.at(rank)), rank != 1) << "rank " << rank;
    }
    EXPECT_THAT(marks("up"), SizeIs(2)) << "a round was lost with a leader";
}

TEST_F(RunEtcd, DaemonStartedWithoutEtcdWarnsAndLeadsOnceEtcdAnswers) {
    auto daemon = serve();
    ASSERT_TRUE(daemon->program().prints("this daemon cannot lead before etcd answers"))
        << daemon->program().output();
    etcd_.start();
    EXPECT_TRUE(daemon->program().prints("this daemon leads")) << daemon->program().output();
}

TEST_F(RunEtcd, DaemonAndLauncherReachAnEtcdWithTlsByFlagsAndVariables) {
    const CertificateMaker maker(folder());
    maker.issue("etcd", {"/CN=etcd", "IP:127.0.0.1"});
    maker.issue("client", {"/O=regroup", "DNS:regroup"});
    EtcdServer etcd(
        REGROUP_ETCD, folder() + "/tls", "https",
        {"--cert-file=" + maker.path("etcd.crt"), "--key-file=" + maker.path("etcd.key"),
         "--trusted-ca-file=" + maker.path("ca.crt"), "--client-cert-auth"});
    etcd.start();
    const std::string state = "--state=etcds://127.0.0.1:" + std::to_string(etcd.port());
    {
        Rendezvous daemon({"--listen=127.0.0.1:0", "--advertise=127.0.0.1:1", state,
                           "--etcd-cacert=" + maker.path("ca.crt"),
                           "--etcd-cert=" + maker.path("client.crt"),
                           "--etcd-key=" + maker.path("client.key")});
        ASSERT_TRUE(daemon.program().prints("this daemon leads")) << daemon.program().output();
        daemon.program().signal(SIGTERM);
        EXPECT_EQ(daemon.program().wait(), 0);
    }
    Program launcher = run_probe({"--standalone", "--rdzv-id=nightly", state}, {"exit=0"},
                                 {"REGROUP_ETCD_CACERT=" + maker.path("ca.crt"),
                                  "REGROUP_ETCD_CERT=" + maker.path("client.crt"),
                                  "REGROUP_ETCD_KEY=" + maker.path("client.key")});
    EXPECT_EQ(launcher.wait(), 0) << launcher.output();
    EXPECT_TRUE(launcher.prints("this daemon leads")) << launcher.output();
}

TEST_F(RunEtcd, MistakeInAFlagOfEtcdEndsTheDaemonAtOnce) {
    const auto says = [&](const Words& flags, const std::string& text) {
        Program daemon({Words{regroup_program(), "serve", "--listen=127.0.0.1:0"} + flags, {}, {}});
        EXPECT_THAT(ended(daemon), exits(2, text));
    };
    const std::string tls = "--state=etcds://127.0.0.1:1";
    says({"--state=https://127.0.0.1:1"}, "must be a directory, etcd://HOST:PORT");
    says({"--state=etcds://"}, "etcds:// must be followed by HOST:PORT");
    says({tls, "--etcd-cacert=" + folder() + "/absent"}, "--etcd-cacert " + folder() + "/absent");
    says({tls, "--etcd-key=key.pem"}, "--etcd-key needs --etcd-cert");
    says({tls, "--etcd-user=regroup"}, "--etcd-password-file");
    says({"--state=etcd://127.0.0.1:1", "--etcd-cacert=ca.pem"}, "--state=etcds://");
    says({"--state=etcd://127.0.0.1:1", "--etcd-user=regroup", "--etcd-password-file=file"},
         "plain text");
}

}  // namespace
}  // namespace regroup::testing
