// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "tests/support/matchers.h"
#include "tests/unit/worker_link_samples.h"

namespace regroup::worker_link {
namespace {

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
    assign.place.rank = 16;
    EXPECT_THAT(error_of(encode(ToWorker(assign))), HasSubstr("'rank' of assign"));
    assign = sample_assign();
    assign.place.master_addr = "";
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
    assign.place.job = assign.place.master_addr = assign.reason = std::string(kMessageLimit, '\n');
    EXPECT_LE(encode(ToWorker(assign)).size(), kMessageLimit);
    const Result<FromWorker> decoded = decode_from_worker(encode(FromWorker(Remark{snowmen})));
    ASSERT_TRUE(decoded) << decoded.error().detail;
    const std::string text = std::get<Remark>(*decoded).text;
    EXPECT_GT(text.size(), 4000U);
    EXPECT_EQ(text.size() % 3, 0U);
    EXPECT_FALSE(decode_from_worker("remark\ntext=" + std::string(kMessageLimit, 'x')));
}

}  // namespace
}  // namespace regroup::worker_link
