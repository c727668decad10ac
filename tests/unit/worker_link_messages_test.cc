// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include <gmock/gmock.h>

#include "rendezvous/base/random.h"
#include "rendezvous/worker_link/messages.h"

namespace regroup::worker_link {
namespace {

using ::testing::HasSubstr;

AssignWorker sample_assign() {
    AssignWorker assign;
    assign.round = 7;
    assign.job = "nightly=1";
    assign.rank = 13;
    assign.world_size = 16;
    assign.local_rank = 5;
    assign.local_world_size = 8;
    assign.group_rank = 1;
    assign.group_world_size = 2;
    assign.role_rank = 3;
    assign.role_world_size = 6;
    assign.restart_count = 3;
    assign.max_restarts = 4;
    assign.master_addr = "10.0.0.4";
    assign.master_port = 40117;
    assign.round_key = std::string(64, 'a');
    assign.master_node_addr = "10.0.0.4";
    assign.reason = "rank 5 on b ended by SIGKILL;\nstandby \\d took slot 1";
    return assign;
}

std::vector<FromWorker> samples_from_worker() {
    return {Hello{"9f3c01aa", 2, true},        Suspended{6, 812, true},
            Resumed{7, 813, 1.25, 0.5, 12.75}, Fatal{FatalKind::bad_node, "ECC error on GPU 3"},
            Remark{"rank 3 is slow\n"},        PeerLost{7, 12, "closed the connection"},
            RecordsSaved{2, "disk full"}};
}

std::vector<ToWorker> samples_to_worker() {
    return {Welcome{},
            Welcome{7, std::string(64, 'f')},
            sample_assign(),
            EndRound{7, "node c is lost"},
            Pause{7, true, 30000, "drain"},
            SaveRecords{"/runs/a b/rank3"}};
}

std::string error_of(std::string_view packet) {
    const Result<ToWorker> decoded = decode_to_worker(packet);
    return decoded ? "no error" : decoded.error().detail;
}

TEST(WorkerLink, KeyThatIsNoneIsRefusedAndNotRepeated) {
    for (const std::string& key : {std::string(63, 'a'), std::string(64, 'x')}) {
        const std::string error = error_of("welcome\nround=7\nround_key=" + key);
        EXPECT_THAT(error, HasSubstr("field 'round_key' of welcome must be 64"));
        EXPECT_EQ(error.find(key), std::string::npos);
    }
}

TEST(WorkerLink, EveryMessageOfAWorkerKeepsEveryField) {
    for (const FromWorker& message : samples_from_worker()) {
        const Result<FromWorker> decoded = decode_from_worker(encode(message));
        ASSERT_TRUE(decoded) << decoded.error().detail;
        EXPECT_EQ(*decoded, message) << encode(message);
    }
    for (const FatalKind kind : {FatalKind::user_error, FatalKind::retry, FatalKind::bad_node}) {
        const Result<FromWorker> decoded = decode_from_worker(encode(FromWorker(Fatal{kind, ""})));
        ASSERT_TRUE(decoded) << decoded.error().detail;
        EXPECT_EQ(std::get<Fatal>(*decoded).kind, kind);
    }
}

TEST(WorkerLink, EveryMessageOfAnAgentKeepsEveryField) {
    for (const ToWorker& message : samples_to_worker()) {
        const Result<ToWorker> decoded = decode_to_worker(encode(message));
        ASSERT_TRUE(decoded) << decoded.error().detail;
        EXPECT_EQ(*decoded, message) << encode(message);
    }
}

TEST(WorkerLink, PacketHasItsNameAndALineForEachField) {
    EXPECT_EQ(encode(FromWorker(Suspended{6, 812})), "suspended\nround=6\nstep=812\nat_boundary=0");
    EXPECT_EQ(encode(ToWorker(EndRound{6, "a\nb\\c"})), "end_round\nround=6\nreason=a\\nb\\\\c");
    EXPECT_EQ(encode(ToWorker(Welcome{})), "welcome\nround=0");
}

TEST(WorkerLink, UnknownFieldsAreIgnoredAndOptionalOnesMayBeMissing) {
    const Result<ToWorker> decoded = decode_to_worker("end_round\ncolour=red\nround=9\nnonsense");
    ASSERT_TRUE(decoded) << decoded.error().detail;
    EXPECT_EQ(std::get<EndRound>(*decoded), (EndRound{9, ""}));
}

TEST(WorkerLink, ErrorNamesTheWrongField) {
    EXPECT_THAT(error_of("end_round"), HasSubstr("'round' of end_round is missing"));
    EXPECT_THAT(error_of("end_round\nround=-1"), HasSubstr("'round'"));
    EXPECT_THAT(error_of("end_round\nround=7x"), HasSubstr("'round'"));
    EXPECT_THAT(error_of("end_round\nround=18446744073709551616"), HasSubstr("'round'"));
    EXPECT_THAT(error_of("pause\nround=1\nleave=yes"), HasSubstr("'leave'"));
    EXPECT_THAT(error_of("hello\nworker_id=x"), HasSubstr("unknown name"));  // A worker's.
    EXPECT_THAT(error_of(""), HasSubstr("unknown name"));
    AssignWorker assign = sample_assign();
    assign.rank = 16;
    EXPECT_THAT(error_of(encode(ToWorker(assign))), HasSubstr("'rank' of assign"));
    assign = sample_assign();
    assign.master_addr = "";
    EXPECT_THAT(error_of(encode(ToWorker(assign))), HasSubstr("'master_addr'"));
    for (const char* packet :
         {"hello\nversion=1", "hello\nworker_id=x",
          "hello\nversion=1\nworker_id=", "fatal\nkind=bored",
          "resumed\nround=1\nstep=1\nstate_ms=nan", "resumed\nround=1\nstep=1\nstate_ms=-1"}) {
        EXPECT_FALSE(decode_from_worker(packet)) << packet;
    }
}

TEST(WorkerLink, LongTextsAreCutBetweenCharactersAndFit) {
    std::string snowmen;
    while (snowmen.size() < 5 * kMessageLimit) {
        snowmen += "\xE2\x98\x83";
    }
    AssignWorker assign = sample_assign();
    assign.job = assign.master_addr = assign.reason = std::string(kMessageLimit, '\n');
    EXPECT_LE(encode(ToWorker(assign)).size(), kMessageLimit);
    const Result<FromWorker> decoded = decode_from_worker(encode(FromWorker(Remark{snowmen})));
    ASSERT_TRUE(decoded) << decoded.error().detail;
    const std::string text = std::get<Remark>(*decoded).text;
    EXPECT_GT(text.size(), 4000U);
    EXPECT_EQ(text.size() % 3, 0U);
    EXPECT_FALSE(decode_from_worker("remark\ntext=" + std::string(kMessageLimit, 'x')));
}

TEST(WorkerLink, RandomInputIsAcceptedOrRefused) {
    std::vector<std::string> packets;
    for (const FromWorker& message : samples_from_worker()) {
        packets.push_back(encode(message));
    }
    for (const ToWorker& message : samples_to_worker()) {
        packets.push_back(encode(message));
    }
    const std::vector<std::string> tokens{"",    "-1",       "0",      "18446744073709551616",
                                          "\n",  "=",        "\\",     "1e999",
                                          "inf", "assign\n", "round=", "\xFF"};
    Random random(20261122);
    int accepted = 0;
    for (int i = 0; i < 60000 && !HasFailure(); ++i) {
        std::string text = packets[random.below(packets.size())];
        for (std::uint64_t changes = 1 + random.below(4); changes > 0; --changes) {
            const std::size_t at = random.below(text.size() + 1);
            text.replace(at, random.below(std::min<std::size_t>(8, text.size() - at) + 1),
                         random.chance(0.5) ? std::string(1, static_cast<char>(random.below(256)))
                                            : tokens[random.below(tokens.size())]);
        }
        if (const Result<FromWorker> message = decode_from_worker(text)) {
            const Result<FromWorker> again = decode_from_worker(encode(*message));
            ASSERT_TRUE(again) << text << "\n" << again.error().detail;
            EXPECT_EQ(*again, *message) << text;
            ++accepted;
        }
        if (const Result<ToWorker> message = decode_to_worker(text)) {
            const Result<ToWorker> again = decode_to_worker(encode(*message));
            ASSERT_TRUE(again) << text << "\n" << again.error().detail;
            EXPECT_EQ(*again, *message) << text;
            ++accepted;
        }
    }
    EXPECT_GT(accepted, 3000);
}

}  // namespace
}  // namespace regroup::worker_link
