// SPDX-License-Identifier: Apache-2.0
//
// Somebody with a token of the cluster: it may join jobs as a node, and speaks the protocol as it
// likes. The victim is a job of others.
#include <filesystem>

#include "rendezvous/protocol/codec.h"
#include "tests/attack/attack.h"

namespace regroup::attack {
namespace {

using rendezvous::Assign;
using rendezvous::FromAgent;
using rendezvous::Join;
using rendezvous::Leave;
using rendezvous::NodeState;
using rendezvous::Operated;
using rendezvous::Refused;
using rendezvous::Report;
using rendezvous::RoundId;
using security::Role;
using security::Token;

/// The limit on the nodes of all jobs is 256 MiB.
constexpr std::size_t kMembersMemoryMax = std::size_t{512} << 20U;
constexpr std::uint64_t kLargestNumber = std::uint64_t{1} << 53U;

std::string frame(const FromAgent& message) {
    return protocol::make_frame(protocol::encode(message));
}

class Members : public ::testing::Test {
   protected:
    static void SetUpTestSuite() { victim_ = std::make_unique<Victim>(Victim::Options{}); }
    static void TearDownTestSuite() {
        // The attacked daemon dies. The job relies on the state that it has kept.
        const Victim::State before = victim_->state();
        EXPECT_TRUE(has_sanitizer() || victim_->daemon_peak() < kMembersMemoryMax)
            << victim_->daemon_peak();
        victim_->restart_daemon();
        EXPECT_TRUE(victim_->trains_in_round(before.round));
        EXPECT_EQ(victim_->state().round, before.round);
        victim_->kill_worker(before.round, 0);
        EXPECT_TRUE(victim_->trains_in_round(before.round + 1));
        victim_->finish(kMembersMemoryMax);
        victim_.reset();
    }

    static void endure(const std::function<std::string(Siege&)>& attack) {
        victim_->endure(std::nullopt, ::geteuid(), attack);
    }
    static Token token() { return victim_->token().limited_to({Role::node, ""}); }
    static std::unique_ptr<Caller> call(Siege& siege) {
        return attack::call(siege, victim_->daemon(), token());
    }
    static bool is_refused(Siege& siege, const std::string& payload) {
        const auto caller = call(siege);
        caller->send(protocol::make_frame(payload));
        return caller->await<Refused>().has_value();
    }
    /// A join of another node for the victim's job, with all that its own nodes say of the job.
    static Join join_of_spare(const std::string& name) {
        Join join = join_of("victim", name, 2, 2);
        join.policy = victims_joins().at(0).policy;
        return join;
    }
    static std::vector<Join> victims_joins() {
        testing::Program replay({{testing::regroup_program(), "replay", "--export", "--job=victim",
                                  victim_->state_folder()},
                                 {},
                                 ""});
        EXPECT_EQ(replay.wait(), 0);
        std::vector<Join> joins;
        for (const std::string& line : testing::lines_of(replay.output())) {
            auto entry = nlohmann::json::parse(line);
            if (entry.value("event", "") == "joined") {
                entry.update({{"type", "join"}, {"protocol", 1}, {"job", "victim"}});
                auto decoded = protocol::decode_from_agent(entry.dump());
                EXPECT_TRUE(decoded) << decoded.error().detail;
                joins.push_back(std::get<Join>(*decoded));
            }
        }
        return joins;
    }

    static inline std::unique_ptr<Victim> victim_;
};

TEST_F(Members, RoundsOfTheFarFutureMoveNoOtherNode) {
    const Join spare = join_of_spare("spare");
    endure([&](Siege& siege) {
        while (siege.goes_on()) {
            for (const std::uint64_t round : {kLargestNumber, kLargestNumber - 1,
                                              kLargestNumber / 2, kLargestNumber / 2 - 100}) {
                Join own = join_of("mine", "a", 1, 1);
                own.report.round = RoundId{round};
                own.report.state = NodeState::running;
                call(siege)->say(own);
                Join theirs = spare;
                theirs.report = own.report;
                const auto caller = call(siege);
                caller->say(theirs);
                caller->say(Report{own.report});
                caller->next(milliseconds(20));
            }
        }
        return "";
    });
}

TEST_F(Members, TimesThatNoJobHasAreRefused) {
    endure([&](Siege& siege) {
        std::string failed;
        std::size_t tried = 0;
        auto join = nlohmann::json::parse(protocol::encode(join_of("mine", "a", 1, 1)));
        for (const char* field : {"last_call_ms", "heartbeat_timeout_ms", "shutdown_timeout_ms",
                                  "grow_after_ms", "regroup_window_ms", "prepare_timeout_ms",
                                  "join_timeout_ms", "at_work_ms", "ended_ago_ms"}) {
            for (const std::uint64_t time :
                 {std::uint64_t{1} << 40U, kLargestNumber, ~std::uint64_t{0}}) {
                auto changed = join;
                changed[field] = time;
                failed += is_refused(siege, changed.dump()) ? "" : field + std::string(" ");
                ++tried;
            }
        }
        return failed + (tried == 27 ? "" : "not all was tried");
    });
}

TEST_F(Members, JobThatBeginsAnewAtOnceWithOtherRulesHarmsNoJournal) {
    endure([&](Siege& siege) {
        for (std::uint32_t i = 0; siege.goes_on(); ++i) {
            const auto caller = call(siege);
            Join join = join_of("mine", "a", 1, 1 + i % 2);
            caller->send(frame(join) + frame(Leave{"", false}));
            const auto second = call(siege);
            join.policy.restarts_max = i;
            second->send(frame(join) + frame(Leave{"", false}));
        }
        return "";
    });
}

TEST_F(Members, JobsWithoutANodeFillTheTableAndMakeRoomForAnother) {
    endure([&](Siege& siege) {
        for (std::uint32_t i = 0; i < 1100; ++i) {
            const auto caller = call(siege);
            caller->say(join_of("mine " + std::to_string(i), "a", 2, 2));
        }
        std::string failed = "no further job can begin";
        const auto honest = call(siege);
        honest->say(join_of("of another user", "a", 1, 1));
        if (honest->await<Assign>()) {
            failed = "";
        }
        return failed;
    });
}

TEST_F(Members, JobsThatAreHeldKeepNewOnesOutUntilTheyAreLetGo) {
    endure([&](Siege& siege) {
        std::vector<std::unique_ptr<Caller>> held;
        std::string failed = "the number of jobs has no limit";
        for (std::uint32_t i = 0; i < 1100; ++i) {
            held.push_back(call(siege));
            Join join = join_of("held " + std::to_string(i), "a", 2, 2);
            join.policy.heartbeat_timeout = std::chrono::minutes(10);  // No node is lost meanwhile.
            held.back()->say(join);
        }
        const auto further = call(siege);
        further->say(join_of("of another user", "b", 1, 1));
        const auto refused = further->await<Refused>();
        if (refused && refused->code == Errc::overloaded) {
            failed = "";
        }
        siege.hold();
        return failed;
    });
    endure([&](Siege& siege) {
        const auto further = call(siege);
        further->say(join_of("of a third user", "c", 1, 1));
        return further->await<Assign>() ? "" : "no new job can begin";
    });
}

TEST_F(Members, NodeCannotBeReplacedOrRemovedWithoutItsSecret) {
    const std::vector<Join> joins = victims_joins();
    ASSERT_GE(joins.size(), 2U);
    endure([&](Siege& siege) {
        std::string failed;
        while (siege.goes_on()) {
            for (Join join : joins) {
                for (const char* secret : {"", "guess"}) {
                    join.offer.secret = secret;
                    const auto taken = call(siege);
                    taken->send(frame(join) + frame(Leave{"its agent was killed", true}));
                    failed += taken->await<Refused>() ? "" : "a node was replaced; ";
                    join.report.state = NodeState::stopped;
                    const auto again = call(siege);
                    again->send(frame(join) + frame(Report{join.report}));
                    failed += again->await<Refused>() ? "" : "a node was replaced; ";
                }
            }
        }
        return failed;
    });
}

TEST_F(Members, SpareTakesNoPlaceAndJudgesNoRound) {
    const Join spare = join_of_spare("spare");
    const RoundId round{victim_->state().round};
    endure([&](Siege& siege) {
        std::vector<std::unique_ptr<Caller>> spares;
        for (std::uint32_t i = 0; i < 40; ++i) {
            Join join = spare;
            join.node += std::to_string(i);
            join.offer.name += std::to_string(i);
            if (i % 2 == 0) {
                join.offer.slot = i % 4 / 2;
            }
            spares.push_back(call(siege));
            spares.back()->say(join);
        }
        Report report;
        report.report.round = round;
        report.report.state = NodeState::running;
        report.report.elastic = true;
        report.report.hang = rendezvous::Hang{0, "rank 0 sleeps", false, seconds(99)};
        report.report.broken_links = {{1, 0, "closed the connection"}};
        Report failed = report;
        failed.report.state = NodeState::stopped;
        failed.report.failure.emplace().exit_code = 1;
        failed.report.failure->rank = 0;
        Report finished = report;
        finished.report.state = NodeState::finished;
        finished.report.step = finished.report.held_step = kLargestNumber;
        while (siege.goes_on()) {
            for (const auto& caller : spares) {
                caller->send(frame(report) + frame(failed) + frame(finished) +
                             frame(rendezvous::Resumed{round, kLargestNumber}));
            }
        }
        return "";
    });
}

TEST_F(Members, SpareThatReportsAsFastAsItCanKeepsNobodyWaiting) {
    const Join spare = join_of_spare("talker");
    endure([&](Siege& siege) {
        const auto caller = call(siege);
        caller->say(spare);
        std::string burst;
        for (int i = 0; i < 50; ++i) {
            Report report;
            report.report.store_port = static_cast<std::uint16_t>(1000 + i);
            report.report.draining = std::string(4000, static_cast<char>('a' + i % 26));
            burst += frame(report);
        }
        while (siege.goes_on() && caller->send(burst)) {
            while (caller->next(milliseconds(1))) {
            }
        }
        return "";
    });
    // The bound on a journal is 64 MiB for each job.
    std::uintmax_t kept = 0;
    for (const auto& entry : std::filesystem::directory_iterator(victim_->state_folder())) {
        kept += entry.file_size();
    }
    EXPECT_LT(kept, std::uintmax_t{64} << 20U);
}

TEST_F(Members, AnswersThatNobodyReadsAreBounded) {
    const std::vector<std::string> requests{frame(Report{}), frame(join_of("mine", "a", 2, 2))};
    endure([&](Siege& siege) {
        std::vector<std::unique_ptr<Caller>> callers;
        for (int i = 0; i < 20; ++i) {
            callers.push_back(call(siege));
            callers.back()->say(join_of("mine", "deaf" + std::to_string(i), 2, 40));
        }
        std::string burst;
        for (int i = 0; i < 2000; ++i) {
            burst += frame(Report{});
        }
        while (siege.goes_on()) {
            for (const auto& caller : callers) {
                caller->send(burst);
            }
        }
        return "";
    });
}

TEST_F(Members, FloodOfStatusRequestsOverManyJobsKeepsNobodyWaiting) {
    endure([&](Siege& siege) {
        std::vector<std::unique_ptr<Caller>> nodes;
        for (int i = 0; i < 300; ++i) {
            nodes.push_back(call(siege));
            nodes.back()->say(
                join_of("mine " + std::string(200, 'x') + std::to_string(i), "a", 1, 1));
        }
        while (siege.goes_on()) {
            std::vector<std::unique_ptr<Caller>> callers;
            for (int i = 0; i < 50; ++i) {
                callers.push_back(call(siege));
                callers.back()->send("GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n");
            }
        }
        return "";
    });
}

}  // namespace
}  // namespace regroup::attack
