// SPDX-License-Identifier: Apache-2.0
//
// Two nodes in two network namespaces with a cable between them. They have their own addresses and
// host names that do not resolve, and the cable can be pulled.
#include <memory>

#include "tests/e2e/cable.h"
#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

class RunNamespaces : public EndToEnd {
   protected:
    explicit RunNamespaces(bool ipv6 = false) : cable_(ipv6) {}

    void SetUp() override {
        if (const auto missing = cable_.lay()) {
            GTEST_SKIP() << *missing;
        }
    }

    // A node of one worker that trains until it is told to finish.
    [[nodiscard]] std::unique_ptr<Program> start(std::size_t index, const std::string& host,
                                                 const Words& flags) const {
        return std::make_unique<Program>(ProgramSpec{
            cable_.inside(index, host,
                          Words{regroup_program(), "run", "--rdzv-backend=c10d", "--insecure",
                                "--grow-after=0"} +
                              flags + Words{probe_program(), "store", "mark=up", "await=finish"}),
            {"PROBE_DIR=" + folder()},
            folder()});
    }

    void finish(Program& first, Program& second) const {
        release("finish");
        EXPECT_EQ(first.wait(), 0) << first.output();
        EXPECT_EQ(second.wait(), 0) << second.output();
    }

    Cable cable_;
};

TEST_F(RunNamespaces, MasterIsAnAddressThatTheOtherReachesWhereNoNameResolves) {
    // The host of the daemon is second in the order of names. So the other node is the master,
    // and it has no flag with its address.
    const Words flags{"--nnodes=2", "--rdzv-endpoint=10.77.0.1:29400"};
    auto host = start(0, "node-b", flags);
    auto other = start(1, "node-a", flags);
    const auto up = await_marks("up", 2);
    ASSERT_THAT(up, SizeIs(2)) << host->output() << other->output();
    for (const auto& [rank, mark] : up) {
        EXPECT_EQ(mark.at("MASTER_ADDR"), "10.77.0.2");
        // Otherwise Gloo would try to resolve its own host name.
        EXPECT_EQ(mark.at("GLOO_SOCKET_IFNAME"), "cable0");
    }
    EXPECT_TRUE(other->prints("[node-a:0]")) << other->output();
    finish(*host, *other);
}

TEST_F(RunNamespaces, HostThatJoinsOverLoopbackIsKnownByAnotherAddress) {
    auto host = start(0, "node-a", {"--nnodes=2", "--rdzv-endpoint=127.0.0.1:29400"});
    auto other = start(1, "node-b", {"--nnodes=2", "--rdzv-endpoint=10.77.0.1:29400"});
    const auto up = await_marks("up", 2);
    ASSERT_THAT(up, SizeIs(2)) << host->output() << other->output();
    for (const auto& [rank, mark] : up) {
        EXPECT_EQ(mark.at("MASTER_ADDR"), "10.77.0.1");
    }
    finish(*host, *other);
}

TEST_F(RunNamespaces, PulledCableIsFoundByTheHeartbeatTimeoutAndHealsWhenPlugged) {
    const Words flags{"--nnodes=1:2", "--rdzv-endpoint=10.77.0.1:29400", "--last-call=60"};
    auto host = start(0, "node-a", flags);
    auto other = start(1, "node-b", flags);
    const auto first = await_marks("up", 2);
    ASSERT_THAT(first, SizeIs(2)) << host->output() << other->output();

    cable_.pull();
    const auto second = await_marks("up", 1, 2);
    ASSERT_THAT(second, SizeIs(1)) << host->output();
    EXPECT_EQ(second.at(0).at("WORLD_SIZE"), "1");
    EXPECT_THAT(host->output(), HasSubstr("node node-b is lost"));
    EXPECT_TRUE(other->running());
    ASSERT_TRUE(other->prints("reconnecting")) << other->output();

    cable_.plug();
    const auto third = await_marks("up", 2, 3);
    ASSERT_THAT(third, SizeIs(2)) << host->output() << other->output();
    for (const auto& [rank, mark] : first) {
        // The agent reports the end a moment before the kernel has removed the process.
        EXPECT_TRUE(eventually([&, pid = pid_of(mark)] { return !is_alive(pid); }));
    }
    finish(*host, *other);
}

class RunNamespacesOfIpv6 : public RunNamespaces {
   protected:
    RunNamespacesOfIpv6() : RunNamespaces(true) {}
};

TEST_F(RunNamespacesOfIpv6, NodesWithoutAnyIpv4FormAWorld) {
    const Words flags{"--nnodes=2", "--rdzv-endpoint=[fd77::1]:29400"};
    auto host = start(0, "node-b", flags);
    auto other = start(1, "node-a", flags);
    const auto up = await_marks("up", 2);
    ASSERT_THAT(up, SizeIs(2)) << host->output() << other->output();
    for (const auto& [rank, mark] : up) {
        EXPECT_EQ(mark.at("MASTER_ADDR"), "fd77::2");
    }
    finish(*host, *other);
}

TEST_F(RunNamespacesOfIpv6, StandaloneJobRunsWithoutAnyIpv4) {
    Program job({cable_.inside(0, "node-a",
                               {regroup_program(), "run", "--standalone", "--nproc-per-node=2",
                                probe_program(), "store"}),
                 {"PROBE_DIR=" + folder()},
                 folder()});
    EXPECT_EQ(job.wait(), 0) << job.output();
}

}  // namespace
}  // namespace regroup::testing
