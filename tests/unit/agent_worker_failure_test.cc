// SPDX-License-Identifier: Apache-2.0
//
// Which facts about the end of a worker its failure tells.
#include <csignal>

#include <gtest/gtest.h>

#include "agent/workers/worker_failure.h"
#include "rendezvous/protocol/codec.h"
#include "tests/support/matchers.h"

namespace regroup::agent {
namespace {

using rendezvous::FailureKind;
using rendezvous::PeerError;
using rendezvous::WorkerFailure;

const ExitStatus kFailed = ExitStatus::exited(3);
const ExitStatus kKilled = ExitStatus::signalled(SIGKILL, false);
const OwnReport kReport{FailureKind::user_error, "no data set", true};
const HangKill kHang{"rank 1 is in load", true};

struct Case {
    const char* name;
    FailureFacts facts;
    FailureKind kind = FailureKind::failure;
    const char* evidence = "";
    const char* message = "in its file";
    PeerError peer_error = PeerError::none;
    bool announced = false;
    bool by_silence = false;
};

class WorkerFailureTest : public ::testing::TestWithParam<Case> {};

TEST_P(WorkerFailureTest, TellsWhatTheFactsSay) {
    WorkerFailure known;
    known.rank = 7;
    known.error_message = "in its file";
    const WorkerFailure failure = failure_of(known, GetParam().facts);
    EXPECT_EQ(failure.rank, 7U);
    EXPECT_EQ(failure.exit_code, GetParam().facts.status.exit_code);
    EXPECT_EQ(failure.signal, GetParam().facts.status.signal);
    EXPECT_EQ(failure.core_dumped, GetParam().facts.status.core_dumped);
    EXPECT_EQ(failure.kind, GetParam().kind);
    EXPECT_THAT(failure.evidence, HasSubstr(GetParam().evidence));
    EXPECT_EQ(failure.evidence.empty(), std::string(GetParam().evidence).empty());
    EXPECT_EQ(failure.error_message, GetParam().message);
    EXPECT_EQ(failure.peer_error, GetParam().peer_error);
    EXPECT_EQ(failure.announced, GetParam().announced);
    EXPECT_EQ(failure.by_silence, GetParam().by_silence);
}

INSTANTIATE_TEST_SUITE_P(
    All, WorkerFailureTest,
    ::testing::Values(
        Case{"ExitCode", {kFailed}}, Case{"CoreDump", {ExitStatus::signalled(SIGSEGV, true)}},
        Case{"OwnReport",
             {kFailed, kReport},
             FailureKind::user_error,
             "",
             "no data set\nin its file",
             PeerError::none,
             true},
        Case{"PeerError",
             {kFailed, {}, {}, PeerError::lost},
             FailureKind::failure,
             "",
             "in its file",
             PeerError::lost},
        // A worker in a hang that the agent ended cannot tell why.
        Case{"Hang",
             {kKilled, kReport, kHang, PeerError::awaited},
             FailureKind::hang,
             "rank 1 is in load",
             "in its file",
             PeerError::none,
             false,
             true},
        Case{"OutOfMemory",
             {kKilled, {}, {}, PeerError::none, "the kernel killed it"},
             FailureKind::failure,
             "the kernel killed it"},
        Case{"FileSize", {ExitStatus::signalled(SIGXFSZ, true)}, FailureKind::failure, "ulimit -f"},
        Case{"CpuTime", {ExitStatus::signalled(SIGXCPU, true)}, FailureKind::failure, "ulimit -t"}),
    [](const auto& test) { return test.param.name; });

TEST(WorkerFailure, ReportKeepsTheEndOfALongErrorFile) {
    WorkerFailure known;
    known.error_message = std::string(2 * protocol::kOutputBytesMax, 'x') + "the last line";
    const WorkerFailure failure = failure_of(known, {kFailed, kReport});
    EXPECT_LE(failure.error_message.size(), protocol::kOutputBytesMax);
    EXPECT_TRUE(failure.error_message.starts_with("no data set\n"));
    EXPECT_TRUE(failure.error_message.ends_with("the last line"));
}

}  // namespace
}  // namespace regroup::agent
