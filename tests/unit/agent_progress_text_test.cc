// SPDX-License-Identifier: Apache-2.0
//
// The words of a node while it waits for its own workers.
#include <csignal>

#include <gtest/gtest.h>

#include "agent/text/progress_text.h"
#include "agent_core_fixture.h"

namespace regroup::agent {
namespace {

using std::chrono::seconds;

class AgentProgressText : public AgentCoreTest {
   protected:
    [[nodiscard]] std::string text() const { return parting_text(core.parting(), now); }
};

TEST_F(AgentProgressText, StoppedWorkersAreCountedUntilTheyHaveEnded) {
    EXPECT_EQ(text(), "");
    in_round(1);
    EXPECT_EQ(text(), "");
    gets_signal(SIGTERM);
    EXPECT_EQ(text(), "waiting for 2 workers to end; SIGKILL in 10 s");
    pass(seconds(3));
    exits(1, 0, crash(0, SIGTERM));
    EXPECT_EQ(text(), "waiting for 1 worker to end; SIGKILL in 7.0 s");
    pass(std::chrono::milliseconds(6500));
    EXPECT_EQ(text(), "");
    exits(1, 1, crash(1, SIGTERM));
    EXPECT_EQ(text(), "");
}

WorkerLook look(std::uint64_t round, worker_link::Phase phase) {
    WorkerLook look;
    look.round = round;
    look.phase = phase;
    return look;
}

TEST(AgentJoiningText, TellsHowManyWorkersHaveEnteredTheRoundAndItsGroup) {
    using worker_link::Phase;
    constexpr rendezvous::RoundId kRound{3};
    const WorkerLook starting = look(0, Phase::starting);
    const WorkerLook forming = look(3, Phase::forming);
    const WorkerLook training = look(3, Phase::training);
    const auto text = [](const std::vector<WorkerLook>& looks) {
        return joining_text(looks, kRound, 2);
    };
    EXPECT_EQ(text({}), "round 3: 0 of 2 workers have entered it");
    EXPECT_EQ(text({starting, forming}), "round 3: 1 of 2 workers has entered it");
    EXPECT_EQ(text({training, forming}), "round 3: forming the group; 1 of 2 workers are ready");
    EXPECT_EQ(text({training, training}), "");
}

TEST(AgentSlowStartText, NamesPyTorchWhereItIsLoaded) {
    EXPECT_EQ(slow_start_text(std::chrono::milliseconds(2340), true),
              "the new processes took 2.3 s until their first output or connection; "
              "--preload=torch imports PyTorch once on each node, and starts workers from there");
    EXPECT_EQ(slow_start_text(seconds(1), false),
              "the new processes took 1.0 s until their first output or connection; "
              "--preload=MODULES imports modules once on each node, and starts workers from there");
}

TEST(AgentTransferText, AddsTheBytesOfAllWorkers) {
    using worker_link::Phase;
    using worker_link::TransferKind;
    std::vector<WorkerLook> looks{look(3, Phase::training), look(3, Phase::section)};
    EXPECT_EQ(transfer_text(looks), "");
    for (WorkerLook& one : looks) {
        one.transfer = TransferKind::save;
        one.transfer_bytes = 2'000'000'000;
        one.transfer_done = 60'000'000;
    }
    EXPECT_EQ(transfer_text(looks), "saving a checkpoint: 120 of 4000 MB");
    looks[0].transfer = TransferKind::state;
    looks[0].transfer_bytes = 1;
    EXPECT_EQ(transfer_text(looks), "state transfer: 0 of 1 MB");
}

}  // namespace
}  // namespace regroup::agent
