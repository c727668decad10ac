// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/attack/attack.h"

namespace regroup::attack {

/// The tests of a suite share a job on two hosts. The attackers are on a third host, without a
/// token. The daemon must never have more memory than this.
template <std::size_t kConnections, std::size_t kDaemonBytesMax>
class StrangersTest : public ::testing::Test {
   protected:
    static void SetUpTestSuite() {
        auto laid = chaos::Network::lay(3);
        if (!laid) {
            missing_ = laid.error().detail;
            return;
        }
        network_ = std::make_unique<chaos::Network>(*std::move(laid));
        victim_ = std::make_unique<Victim>(Victim::Options{network_.get()});
    }
    static void TearDownTestSuite() {
        if (victim_) {
            victim_->finish(kDaemonBytesMax);
        }
        victim_.reset();
        network_.reset();
    }
    void SetUp() override {
        if (!victim_) {
            GTEST_SKIP() << missing_;
        }
    }

    static void endure(const std::function<std::string(Siege&)>& attack) {
        victim_->endure(kStrangersHost, 0, attack);
    }
    /// Opens connections that send `bytes`, and new ones as the daemon closes them.
    static void endure_connections_with(const std::string& bytes) {
        endure([&](Siege& siege) {
            for (std::size_t i = 0; i < kConnections; ++i) {
                siege.dial(victim_->daemon(), bytes);
            }
            while (siege.goes_on()) {
                siege.dial(victim_->daemon(), bytes);
            }
            return "";
        });
    }

    static inline std::unique_ptr<chaos::Network> network_;
    static inline std::unique_ptr<Victim> victim_;
    static inline std::string missing_;
};

}  // namespace regroup::attack
