// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "launcher/rank_key.h"
#include "launcher/run_plan.h"
#include "rendezvous/core/rank_assignment.h"
#include "tests/support/matchers.h"

namespace regroup::launcher {
namespace {

using rendezvous::RankOrder;

using Names = std::vector<std::string>;

struct Order {
    RankOrder order = RankOrder::automatic;
    std::string file;
};

Allocation slurm(std::uint32_t index, const std::string& topology) {
    Allocation allocation;
    allocation.scheduler = "Slurm";
    allocation.index = index;
    allocation.topology = topology;
    return allocation;
}

class LauncherRankOrder : public ::testing::Test {
   protected:
    void TearDown() override { std::filesystem::remove_all(path_); }

    std::string file(const std::string& text) const {
        std::ofstream(path_) << text;
        return path_;
    }
    [[nodiscard]] std::string key_of(const Order& flag, const std::optional<Allocation>& allocation,
                                     const Names& names = {"node7"}) {
        const Result<std::string> result =
            rank_key(flag.order, flag.file, allocation, names, notes_);
        EXPECT_TRUE(result) << result.error().detail;
        return result ? *result : "";
    }
    [[nodiscard]] std::string key(RankOrder order, const std::optional<Allocation>& allocation) {
        return key_of({order, ""}, allocation);
    }
    [[nodiscard]] std::string error_of(const Order& flag,
                                       const std::optional<Allocation>& allocation = {}) {
        const auto result = rank_key(flag.order, flag.file, allocation, {"node7"}, notes_);
        if (result) {
            return "no error";
        }
        EXPECT_EQ(result.error().code, Errc::invalid_argument);
        EXPECT_THAT(result.error().detail, Not(HasSubstr("\n")));
        return result.error().detail;
    }
    // The hosts in the order of their ranks, as the file has it.
    [[nodiscard]] Names ranked(Names hosts, const std::string& text) {
        const Order flag{RankOrder::file, file(text)};
        std::map<std::string, std::string> keys;
        for (const std::string& host : hosts) {
            keys[host] = key_of(flag, {}, {host});
        }
        std::ranges::sort(hosts, [&](const std::string& a, const std::string& b) {
            return rendezvous::natural_less(keys[a], keys[b]);
        });
        return hosts;
    }

    std::string path_ = ::testing::TempDir() + "rank_order_hosts";
    Names notes_;
};

TEST_F(LauncherRankOrder, FlagTakesItsWordsAndAPath) {
    Order flag;
    const FlagTable::Take take = rank_order_into(flag.order, flag.file);
    for (const RankOrder order : {RankOrder::name, RankOrder::joined, RankOrder::scheduler,
                                  RankOrder::topology, RankOrder::automatic}) {
        EXPECT_EQ(take(std::string(to_string(order))), "");
        EXPECT_EQ(flag.order, order);
    }
    EXPECT_EQ(take("file:/etc/hosts:1"), "");
    EXPECT_EQ(flag.order, RankOrder::file);
    EXPECT_EQ(flag.file, "/etc/hosts:1");
    for (const char* bad : {"", "file", "file:", "Name", "slurm", "topology:x"}) {
        EXPECT_THAT(take(bad), HasSubstr("file:")) << bad;
    }
}

TEST_F(LauncherRankOrder, AutoFollowsTopologyThenTheSchedulerThenNames) {
    EXPECT_EQ(key(RankOrder::automatic, slurm(3, "s0.s4.node7")), "s0.s4.node7");
    EXPECT_EQ(key(RankOrder::automatic, slurm(3, "")), "3");
    EXPECT_EQ(key(RankOrder::automatic, slurm(3, std::string(256, 's'))), "3");
    EXPECT_EQ(key(RankOrder::automatic, std::nullopt), "");
}

TEST_F(LauncherRankOrder, FlagComesBeforeTheScheduler) {
    EXPECT_EQ(key(RankOrder::scheduler, slurm(3, "s0.s4.node7")), "3");
    EXPECT_EQ(key(RankOrder::topology, slurm(3, "s0.s4.node7")), "s0.s4.node7");
    EXPECT_EQ(key(RankOrder::name, slurm(3, "s0.s4.node7")), "");
    EXPECT_EQ(key(RankOrder::joined, slurm(3, "s0.s4.node7")), "");
}

TEST_F(LauncherRankOrder, SchedulerOrTopologyThatIsMissingIsRefused) {
    EXPECT_THAT(error_of({RankOrder::scheduler, ""}),
                AllOf(HasSubstr("--rank-order=scheduler"), HasSubstr("no scheduler")));
    EXPECT_THAT(error_of({RankOrder::topology, ""}), HasSubstr("no scheduler"));
    EXPECT_THAT(error_of({RankOrder::topology, ""}, slurm(3, "")),
                AllOf(HasSubstr("--rank-order=topology"), HasSubstr("SLURM_TOPOLOGY_ADDR"),
                      HasSubstr("use scheduler or file:PATH")));
}

TEST_F(LauncherRankOrder, HostsHaveTheOrderOfTheirLines) {
    EXPECT_THAT(ranked({"a", "b", "c", "n8", "n9", "n10"},
                       "# The order of the rack.\n"
                       "c slots=8\n\n"
                       "a:8   # the middle\n"
                       "n[8-10]\n"
                       "ann@b\n"),
                ElementsAre("c", "a", "n8", "n9", "n10", "b"));
    EXPECT_THAT(notes_, IsEmpty());
    // Line 10 comes after line 9.
    Names hosts;
    std::string text;
    for (int line = 30; line > 0; --line) {
        hosts.push_back("h" + std::to_string(line));
        text += hosts.back() + "\n";
    }
    EXPECT_EQ(ranked(hosts, text), hosts);
}

TEST_F(LauncherRankOrder, HostsOfOneSwitchStandWhereItsFirstOneIs) {
    EXPECT_THAT(ranked({"a", "b", "c", "d", "e", "f", "g"},
                       "a switch=core1.leaf9\n"
                       "b switch=core0.leaf1\n"
                       "c slots=8 switch=core1.leaf2\n"
                       "d\n"
                       "e switch=core0.leaf3\n"
                       "f switch=core1.leaf9\n"
                       "g switch=core0.leaf1\n"),
                ElementsAre("a", "f", "c", "b", "g", "e", "d"));
}

TEST_F(LauncherRankOrder, AnyNameOfTheNodeIsFoundItsOwnNameFirst) {
    const Order flag{RankOrder::file, file("10.0.0.7\nnode7.cluster\nnode8\n")};
    EXPECT_EQ(key_of(flag, {}, {"node7", "node7.cluster"}), "2");
    EXPECT_EQ(key_of(flag, {}, {"node7", "x", "10.0.0.7"}), "1");
    EXPECT_EQ(key_of(flag, {}, {"node8", "10.0.0.7"}), "3");
    EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(LauncherRankOrder, NodeThatTheFileDoesNotHaveGetsANoteAndNoKey) {
    const Order flag{RankOrder::file, file("node1\nnode2\n")};
    EXPECT_EQ(key_of(flag, {}, {"node7", "10.0.0.7"}), "");
    EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr(path_), HasSubstr("node7"))));
}

TEST_F(LauncherRankOrder, FilesThatCannotBeUsedAreRefused) {
    EXPECT_THAT(error_of({RankOrder::file, "/nowhere/hosts"}),
                AllOf(HasSubstr("--rank-order=file:/nowhere/hosts"), HasSubstr("No such file")));
    EXPECT_THAT(error_of({RankOrder::file, "/dev/zero"}), HasSubstr("no regular file"));
    EXPECT_THAT(error_of({RankOrder::file, "/"}), HasSubstr("no regular file"));
    for (const auto& [text, complaint] : {
             std::pair<std::string, const char*>{"", "no host"},
             {"a\nb\na slots=8\n", "line 3"},
             {"a\nb rack=7\n", "line 2"},
             {"a switch=\n", "line 1"},
             {"a switch=s0 switch=s1\n", "twice"},
             {"a switch=s0..s4\n", "line 1"},
             {"a switch=.s0\n", "line 1"},
             {"a switch=s0.\n", "line 1"},
             {std::string(std::size_t{5} << 20, '\n'), "MiB"},
         }) {
        EXPECT_THAT(error_of({RankOrder::file, file(text)}),
                    AllOf(HasSubstr("--rank-order=file:" + path_), HasSubstr(complaint)));
    }
    // As many switches as a key has room for.
    std::string path = "s";
    for (int i = 0; i < 100; ++i) {
        path += ".s";
    }
    EXPECT_THAT(error_of({RankOrder::file, file("node7 switch=" + path + "\n")}),
                HasSubstr("at most 16 switches"));
}

// ---- The plan.

RunFlags two_nodes() {
    RunFlags options;
    options.program.program = "/bin/true";
    options.log_dir = "/dev/null";
    options.rendezvous.backend = "c10d";
    options.rendezvous.endpoint = "127.0.0.1:29400";
    options.agent.core.policy.nodes_min = options.agent.core.policy.nodes_max = 2;
    options.agent.core.offer.address = "127.0.0.9";
    return options;
}

TEST_F(LauncherRankOrder, PlanOffersTheKeyAndStatesTheOrder) {
    RunFlags options = two_nodes();
    options.agent.core.policy.rank_order = RankOrder::file;
    options.rendezvous.rank_file = file("127.0.0.8\n127.0.0.9\n");
    const auto plan = make_run_plan(options);
    ASSERT_TRUE(plan) << plan.error().detail;
    EXPECT_EQ(plan->agent.core.offer.rank_key, "2");
    EXPECT_EQ(plan->agent.core.policy.rank_order, RankOrder::file);
    EXPECT_THAT(plan->notes, IsEmpty());
}

TEST_F(LauncherRankOrder, NodeRankIsMeantBeforeTheOrder) {
    RunFlags options = two_nodes();
    options.agent.core.offer.slot = 1;
    options.agent.core.policy.rank_order = RankOrder::topology;
    const auto plan = make_run_plan(options);
    ASSERT_TRUE(plan) << plan.error().detail;
    EXPECT_EQ(plan->agent.core.offer.rank_key, "");
    EXPECT_THAT(plan->notes, ElementsAre(HasSubstr("--rank-order is not used: --node-rank")));
}

TEST_F(LauncherRankOrder, JobOfOneNodeNeedsNoOrder) {
    RunFlags options = two_nodes();
    options.agent.core.policy.nodes_min = options.agent.core.policy.nodes_max = 1;
    options.agent.core.policy.rank_order = RankOrder::topology;
    EXPECT_TRUE(make_run_plan(options));
}

}  // namespace
}  // namespace regroup::launcher
