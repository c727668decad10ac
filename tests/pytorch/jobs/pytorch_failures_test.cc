// SPDX-License-Identifier: Apache-2.0
//
// Workers and agents that die during training. The job resumes from its last snapshot, and ends
// with the same bits as an undisturbed run.
#include <csignal>
#include <memory>
#include <regex>
#include <set>

#include "tests/pytorch/jobs/pytorch.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

using Hashes = std::set<std::string>;

// The hashes of parameters that the ranks of `program` printed.
std::multiset<std::string> printed_hashes(const Program& program) {
    static const std::regex kHash("Parameters: ([0-9a-f]{16})");
    const std::string output = program.output();
    std::multiset<std::string> result;
    for (std::sregex_iterator match(output.begin(), output.end(), kHash), end; match != end;
         ++match) {
        result.insert((*match)[1]);
    }
    return result;
}

class PyTorchFailures : public PyTorchOfEach {
   protected:
    [[nodiscard]] std::unique_ptr<Program> train(const Words& flags,
                                                 const Words& arguments = {}) const {
        return std::make_unique<Program>(job(flags, "ddp_trainer.py", epochs_ + arguments));
    }
    [[nodiscard]] std::unique_ptr<Program> train_on(unsigned number, const std::string& nodes,
                                                    const Rendezvous& rendezvous,
                                                    const Words& flags,
                                                    const Words& arguments) const {
        return train(node(number, nodes, rendezvous.endpoint()) + flags, arguments);
    }

    /// The hash after an undisturbed run of that many workers.
    [[nodiscard]] std::string undisturbed_hash(int world) const {
        static std::map<std::pair<std::string, int>, std::string> known;
        std::string& hash = known[{GetParam().name, world}];
        if (hash.empty()) {
            const auto run = train({"--nproc-per-node=" + std::to_string(world)},
                                   {"--snapshot_path=undisturbed.pt"});
            EXPECT_EQ(run->wait(kPyTorchLimit), 0) << run->output();
            expect_hashes(*run, static_cast<std::size_t>(world), "");
            const auto printed = printed_hashes(*run);
            hash = printed.empty() ? "(none)" : *printed.begin();
        }
        return hash;
    }

    /// Each of `ranks` ranks printed the same hash: `expected`, unless that is "".
    static void expect_hashes(const Program& program, std::size_t ranks,
                              const std::string& expected) {
        const auto printed = printed_hashes(program);
        EXPECT_THAT(printed, SizeIs(ranks)) << program.output();
        EXPECT_THAT(Hashes(printed.begin(), printed.end()), SizeIs(1)) << program.output();
        EXPECT_TRUE(expected.empty() || printed.count(expected) == ranks)
            << "not " << expected << " in\n"
            << program.output();
    }

    static bool await_count(const Program& program, const std::string& text, std::size_t count) {
        return eventually([&] { return count_of(program, text) >= count; }, kPyTorchLimit);
    }

   private:
    const Words epochs_{"--max_epochs", "5", "--batch_size", "32", "--samples", "512"};
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PyTorchFailures);
INSTANTIATE_TEST_SUITE_P(With, PyTorchFailures, ::testing::ValuesIn(interpreters_and_preloaded()),
                         name_of);

TEST_P(PyTorchFailures, KilledWorkerOfTwoChangesNoBitOfTheResult) {
    const std::string hash = undisturbed_hash(2);
    const auto run = train({"--nproc-per-node=2", "--max-restarts=1"}, {"--kill_rank=1"});
    ASSERT_EQ(run->wait(kPyTorchLimit), 0) << run->output();
    EXPECT_EQ(count_of(*run, "[GPU: 1] Failing at epoch 2"), 1U) << run->output();
    EXPECT_EQ(count_of(*run, "] Resuming at epoch 2"), 2U) << run->output();
    EXPECT_THAT(run->output(), HasSubstr("ended by SIGKILL"));
    expect_hashes(*run, 2, hash);
}

TEST_P(PyTorchFailures, ExitOfTheRankThatSavesChangesNoBitOfTheResult) {
    const std::string hash = undisturbed_hash(4);
    const auto run = train({"--nproc-per-node=4", "--max-restarts=1"},
                           {"--kill_rank=0", "--kill_epoch=3", "--exit_code=3"});
    ASSERT_EQ(run->wait(kPyTorchLimit), 0) << run->output();
    EXPECT_EQ(count_of(*run, "] Resuming at epoch 3"), 4U) << run->output();
    EXPECT_THAT(run->output(), saying("rank 0 on ", "exited with code 3"));
    expect_hashes(*run, 4, hash);
}

TEST_P(PyTorchFailures, KilledWorkerOfTwoAgentsRestartsBoth) {
    const std::string hash = undisturbed_hash(4);
    const Rendezvous rendezvous;
    const Words flags{"--nproc-per-node=2", "--max-restarts=1"};
    const Words arguments{"--kill_rank=3"};
    const auto first = train_on(1, "2", rendezvous, flags, arguments);
    const auto second = train_on(2, "2", rendezvous, flags, arguments);
    for (const Program* agent : {first.get(), second.get()}) {
        ASSERT_EQ(const_cast<Program*>(agent)->wait(kPyTorchLimit), 0)
            << first->output() << second->output();
        EXPECT_EQ(count_of(*agent, "] Resuming at epoch 2"), 2U) << agent->output();
        EXPECT_THAT(agent->output(), HasSubstr("rank 3 on 127.0.0.3 was ended by SIGKILL"));
        expect_hashes(*agent, 2, hash);
    }
    EXPECT_EQ(count_of(*second, "[GPU: 3] Failing at epoch 2"), 1U);
}

/// Which of the two agents is killed: the one of group rank 0, which serves the store and saves
/// the snapshots, or the other.
class PyTorchAgentLoss : public PyTorchFailures {
   protected:
    void lose_and_start_again(unsigned lost_number) const {
        const std::string hash = undisturbed_hash(2);
        const Rendezvous rendezvous;
        const Words arguments{"--gate_epoch=3"};
        const auto survivor = train_on(3 - lost_number, "2", rendezvous, {}, arguments);
        auto lost = train_on(lost_number, "2", rendezvous, {}, arguments);
        ASSERT_TRUE(await_count(*survivor, "] Waiting at epoch 3", 1)) << survivor->output();
        ASSERT_TRUE(await_count(*lost, "] Waiting at epoch 3", 1)) << lost->output();

        lost->signal(SIGKILL);
        ASSERT_EQ(lost->wait(kPyTorchLimit), 128 + SIGKILL);
        ASSERT_TRUE(eventually([&] { return lost->family().empty(); }));
        const auto returned = train_on(lost_number, "2", rendezvous, {}, arguments);
        ASSERT_TRUE(await_count(*survivor, "] Waiting at epoch 3", 2)) << survivor->output();
        ASSERT_TRUE(await_count(*returned, "] Resuming at epoch 3", 1)) << returned->output();

        release("gate");
        ASSERT_EQ(survivor->wait(kPyTorchLimit), 0) << survivor->output() << returned->output();
        ASSERT_EQ(returned->wait(kPyTorchLimit), 0) << returned->output();
        EXPECT_THAT(survivor->output(), HasSubstr("127.0.0." + std::to_string(lost_number + 1)));
        expect_hashes(*survivor, 1, hash);
        expect_hashes(*returned, 1, hash);
        EXPECT_EQ(count_of(*lost, "Parameters: "), 0U);
    }
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PyTorchAgentLoss);
INSTANTIATE_TEST_SUITE_P(With, PyTorchAgentLoss, ::testing::ValuesIn(interpreters_and_preloaded()),
                         name_of);

TEST_P(PyTorchAgentLoss, AgentOfGroupRankZeroIsKilledAndStartedAgain) {
    lose_and_start_again(1);
}

TEST_P(PyTorchAgentLoss, AgentOfGroupRankOneIsKilledAndStartedAgain) {
    lose_and_start_again(2);
}

TEST_P(PyTorchAgentLoss, SurvivorOfAnElasticJobTrainsOnAlone) {
    const Rendezvous rendezvous;
    const Words arguments{"--gate_epoch=3"};
    const auto survivor = train_on(1, "1:2", rendezvous, {}, arguments);
    const auto lost = train_on(2, "1:2", rendezvous, {}, arguments);
    ASSERT_TRUE(await_count(*survivor, "Batchsize: 32 | Steps: 8", 1)) << survivor->output();
    ASSERT_TRUE(await_count(*survivor, "] Waiting at epoch 3", 1)) << survivor->output();
    ASSERT_TRUE(await_count(*lost, "] Waiting at epoch 3", 1)) << lost->output();
    lost->signal(SIGKILL);
    ASSERT_TRUE(await_count(*survivor, "] Waiting at epoch 3", 2)) << survivor->output();
    release("gate");
    ASSERT_EQ(survivor->wait(kPyTorchLimit), 0) << survivor->output();
    EXPECT_EQ(count_of(*survivor, "[GPU: 0] Resuming at epoch 3"), 1U) << survivor->output();
    // This node now has all the data.
    EXPECT_EQ(count_of(*survivor, "Epoch: 4 | Batchsize: 32 | Steps: 16"), 1U);
    expect_hashes(*survivor, 1, "");
}

}  // namespace
}  // namespace regroup::testing
