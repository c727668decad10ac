// SPDX-License-Identifier: Apache-2.0
//
// All ports of the job's hosts are hammered, by another host and by another user of a host, while
// the job forms again after the death of a worker.
#include <csignal>
#include <map>

#include "tests/attack/attack.h"

namespace regroup::attack {
namespace {

constexpr std::size_t kSilent = 200;
constexpr std::size_t kReformingMemoryMax = std::size_t{256} << 20U;

class Reforming : public ::testing::Test {
   protected:
    void SetUp() override {
        auto laid = chaos::Network::lay(3);
        if (!laid) {
            GTEST_SKIP() << laid.error().detail;
        }
        network_ = std::make_unique<chaos::Network>(*std::move(laid));
        victim_ = std::make_unique<Victim>(Victim::Options{network_.get()});
    }
    void TearDown() override {
        if (victim_) {
            victim_->finish(kReformingMemoryMax);
        }
    }
    /// Where anything of the job listens now, on both hosts.
    [[nodiscard]] static std::vector<Target> ports(pid_t first, pid_t second) {
        std::vector<Target> found = listeners_of(first, chaos::Network::address(0), false);
        for (const Target& target : listeners_of(second, chaos::Network::address(1), false)) {
            found.push_back(target);
        }
        return found;
    }

    /// Garbage and silent connections to each port as soon as it is there.
    void begin_attack() {
        const pid_t first = victim_->node(0).pid();
        const pid_t second = victim_->node(1).pid();
        const auto hammer = [=](Siege& siege) {
            const std::string garbage(300, '\xA7');
            std::map<std::string, std::size_t> dialled;
            while (siege.goes_on()) {
                for (const Target& target : ports(first, second)) {
                    std::size_t& count = dialled[target.text()];
                    const std::size_t wanted = count < kSilent ? 40 : 2;
                    for (std::size_t i = 0; i < wanted; ++i, ++count) {
                        siege.dial(target, i % 4 == 0 ? garbage : "");
                    }
                }
            }
            return std::string();
        };
        attackers_.push_back(std::make_unique<Attacker>(network_.get(), kStrangersHost, 0, hammer));
        attackers_.push_back(
            std::make_unique<Attacker>(network_.get(), kFirstHost, kOtherUser, hammer));
        for (const auto& attacker : attackers_) {
            ASSERT_TRUE(attacker->is_in_force());
        }
    }
    void expect_recoveries() {
        for (int i = 0; i < 3; ++i) {
            const Victim::State before = victim_->state();
            victim_->kill_worker(before.round, static_cast<std::uint32_t>(i % 2));
            ASSERT_TRUE(victim_->trains_in_round(before.round + 1))
                << victim_->node(0).output() << victim_->node(1).output();
            // One death, one round.
            EXPECT_EQ(victim_->state().round, before.round + 1) << victim_->node(0).output();
            EXPECT_GE(victim_->state().step, before.step);
        }
    }
    void end_attack() {
        for (const auto& attacker : attackers_) {
            EXPECT_EQ(attacker->end(), "");
        }
        EXPECT_TRUE(victim_->takes_steps(2));
    }

    std::unique_ptr<chaos::Network> network_;
    std::unique_ptr<Victim> victim_;
    std::vector<std::unique_ptr<Attacker>> attackers_;
};

TEST_F(Reforming, JobFormsAgainWhileAllItsPortsAreHammered) {
    begin_attack();
    expect_recoveries();
    end_attack();
}

TEST_F(Reforming, NodesComeBackToANewDaemonWhileAllPortsAreHammered) {
    begin_attack();
    const Victim::State before = victim_->state();
    victim_->restart_daemon();
    EXPECT_TRUE(victim_->trains_in_round(before.round));
    EXPECT_EQ(victim_->state().round, before.round);
    end_attack();
}

}  // namespace
}  // namespace regroup::attack
