// SPDX-License-Identifier: Apache-2.0
//
// Two nodes on two hosts that share a token: workers reach the store of the round through their own
// agents only.
#include <csignal>
#include <cstdint>
#include <memory>
#include <set>
#include <sstream>

#include "tests/e2e/cable.h"
#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

class RunRelayedStore : public EndToEnd {
   protected:
    explicit RunRelayedStore(bool ipv6 = false) : cable_(ipv6) {}

    void SetUp() override {
        if (const auto missing = cable_.lay()) {
            GTEST_SKIP() << *missing;
        }
        Program token(
            {{regroup_program(), "token", "--generate", "--token-file=" + token_file()}, {}, ""});
        ASSERT_EQ(token.wait(), 0) << token.output();
    }

    [[nodiscard]] std::string token_file() const { return folder() + "/token"; }

    [[nodiscard]] std::unique_ptr<Program> start(std::size_t index, const Words& flags,
                                                 const Words& command) const {
        return std::make_unique<Program>(ProgramSpec{
            cable_.inside(index, index == 0 ? "node-a" : "node-b",
                          Words{regroup_program(), "run", "--nnodes=2", "--nproc-per-node=2",
                                "--grow-after=0", "--token-file=" + token_file()} +
                              flags + command),
            {"PROBE_DIR=" + folder()},
            folder()});
    }

    /// The output of a program in namespace `index`.
    [[nodiscard]] std::string output_in(std::size_t index, const Words& command) const {
        Program program({cable_.inside(index, "stranger", command), {}, folder()});
        program.wait();
        return program.output();
    }

    /// The ports on which programs of namespace `index` listen, for other hosts.
    [[nodiscard]] std::set<std::uint16_t> open_ports(std::size_t index) const {
        std::set<std::uint16_t> ports;
        std::istringstream table(output_in(index, {"/bin/cat", "/proc/net/tcp", "/proc/net/tcp6"}));
        for (std::string line; std::getline(table, line);) {
            std::istringstream fields(line);
            std::string number;
            std::string local;
            std::string remote;
            std::string state;
            fields >> number >> local >> remote >> state;
            const std::size_t colon = local.find(':');
            const bool is_loopback = local.starts_with("0100007F") ||
                                     local.starts_with("00000000000000000000000001000000");
            if (state == "0A" && !is_loopback && colon != local.npos) {
                ports.insert(
                    static_cast<std::uint16_t>(std::stoul(local.substr(colon + 1), nullptr, 16)));
            }
        }
        return ports;
    }

    Cable cable_;
};

const Words kEndpoint{"--rdzv-backend=c10d", "--rdzv-endpoint=10.77.0.1:29400"};

TEST_F(RunRelayedStore, WorkersMeetThroughTheirOwnAgentsAndNobodyElseReachesTheStore) {
    const Words program{probe_program(), "store", "join", "barrier", "mark=up", "await=finish"};
    const auto first = start(0, kEndpoint, program);
    const auto second = start(1, kEndpoint, program);
    auto up = await_marks("up", 4);
    ASSERT_THAT(up, SizeIs(4)) << first->output() << second->output();
    for (const auto& [rank, mark] : up) {
        EXPECT_EQ(mark.at("MASTER_ADDR"), "127.0.0.1");
        EXPECT_THAT(mark.at("REGROUP_MASTER_NODE_ADDR"), HasSubstr("10.77.0."));
        EXPECT_EQ(mark.at("REGROUP_MASTER_NODE_ADDR"), up.at(0).at("REGROUP_MASTER_NODE_ADDR"));
        // Gloo connects between the nodes.
        EXPECT_EQ(mark.at("GLOO_SOCKET_IFNAME"), "cable0");
    }
    EXPECT_EQ(up.at(0).at("MASTER_PORT"), up.at(1).at("MASTER_PORT"));
    EXPECT_EQ(up.at(2).at("MASTER_PORT"), up.at(3).at("MASTER_PORT"));

    // The host of rank 0 may be either; its store listens on one of these ports.
    for (const std::size_t index : {0U, 1U}) {
        const std::string host = index == 0 ? "10.77.0.1" : "10.77.0.2";
        const std::set<std::uint16_t> ports = open_ports(index);
        EXPECT_THAT(ports, Not(IsEmpty()));
        Words strangers{probe_program()};
        for (const std::uint16_t port : ports) {
            strangers.push_back("reach=" + host + ":" + std::to_string(port));
        }
        const std::string from_outside = output_in(1 - index, strangers);
        EXPECT_THAT(from_outside, saying(Not(HasSubstr("reached")), "refused"));
        EXPECT_THAT(output_in(index, strangers), Not(HasSubstr("reached")));
    }
    // A process of the same user on the host of the master may.
    const std::size_t master = up.at(0).at("REGROUP_MASTER_NODE_ADDR") == "10.77.0.1" ? 0 : 1;
    EXPECT_THAT(
        output_in(master, {probe_program(), "reach=127.0.0.1:" + up.at(0).at("MASTER_PORT")}),
        HasSubstr("reached 127.0.0.1"));
    release("finish");
    EXPECT_EQ(first->wait(), 0) << first->output();
    EXPECT_EQ(second->wait(), 0) << second->output();
    EXPECT_THAT(first->output() + second->output(), HasSubstr("read word of 3"));
}

TEST_F(RunRelayedStore, RoundAfterAFailureHasAStoreOfItsOwn) {
    const Words flags = kEndpoint + Words{"--max-restarts=1"};
    const Words steps{probe_program(), "store", "join", "barrier", "rank=3,restart=0?raise=11",
                      "barrier"};
    const auto first = start(0, flags, steps);
    const auto second = start(1, flags, steps);
    EXPECT_EQ(first->wait(), 0) << first->output();
    EXPECT_EQ(second->wait(), 0) << second->output();
    EXPECT_THAT(first->output(), HasSubstr("round 2"));
}

TEST_F(RunRelayedStore, StaticBackEndRelaysToo) {
    const Words flags{"--rdzv-backend=static", "--master-addr=10.77.0.1", "--master-port=29500"};
    const Words program{probe_program(), "store", "join", "barrier", "mark=up"};
    const auto first = start(0, flags + Words{"--node-rank=0"}, program);
    const auto second = start(1, flags + Words{"--node-rank=1"}, program);
    EXPECT_EQ(first->wait(), 0) << first->output();
    EXPECT_EQ(second->wait(), 0) << second->output();
    const auto up = last_marks("up");
    ASSERT_THAT(up, SizeIs(4));
    for (const auto& [rank, mark] : up) {
        EXPECT_EQ(mark.at("MASTER_ADDR"), "127.0.0.1");
        EXPECT_EQ(mark.at("REGROUP_MASTER_NODE_ADDR"), "10.77.0.1");
    }
}

TEST_F(RunRelayedStore, ElasticWorkersKeepTheirProcessesInTheNextRound) {
    const Words flags = kEndpoint + Words{"--max-restarts=3"};
    const auto first = start(0, flags, {elastic_probe_program()});
    const auto second = start(1, flags, {elastic_probe_program()});
    const auto before = await_marks("up", 4);
    ASSERT_THAT(before, SizeIs(4)) << first->output() << second->output();
    ::kill(pid_of(before.at(3)), SIGKILL);
    const auto after = await_marks("up", 4, 2);
    ASSERT_THAT(after, SizeIs(4)) << first->output() << second->output();
    for (const std::uint32_t rank : {0U, 1U, 2U}) {
        EXPECT_EQ(pid_of(before.at(rank)), pid_of(after.at(rank)));
    }
    release("finish");
    EXPECT_EQ(first->wait(), 0) << first->output();
    EXPECT_EQ(second->wait(), 0) << second->output();
}

class RunRelayedStoreOfIpv6 : public RunRelayedStore {
   protected:
    RunRelayedStoreOfIpv6() : RunRelayedStore(true) {}
};

TEST_F(RunRelayedStoreOfIpv6, NodesWithoutAnyIpv4Relay) {
    const Words flags{"--rdzv-backend=c10d", "--rdzv-endpoint=[fd77::1]:29400"};
    const Words program{probe_program(), "store", "join", "barrier", "mark=up"};
    const auto first = start(0, flags, program);
    const auto second = start(1, flags, program);
    EXPECT_EQ(first->wait(), 0) << first->output();
    EXPECT_EQ(second->wait(), 0) << second->output();
    for (const auto& [rank, mark] : last_marks("up")) {
        EXPECT_EQ(mark.at("MASTER_ADDR"), "::1");
    }
}

}  // namespace
}  // namespace regroup::testing
