// SPDX-License-Identifier: Apache-2.0
//
// Error files: workers write them, and launchers report them on every node.
#include <fstream>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

class ErrorFile : public EndToEnd {
   protected:
    // One node with a worker that writes `text` to its error file and exits with code 3.
    [[nodiscard]] Program failing(const std::string& text, const Words& flags = {},
                                  const Words& environment = {}) const {
        return run(Words{"--standalone", "--log-dir=logs"} + flags +
                       Words{"/bin/sh", "-c",
                             "printf %s \"$ERROR\" > \"$TORCHELASTIC_ERROR_FILE\"; exit 3"},
                   Words{"ERROR=" + text} + environment);
    }
    [[nodiscard]] std::string parent_file() const { return folder() + "/parent.json"; }
};

const char* const kTraceback =
    R"({"message": {"message": "ValueError: shard 7", "extraInfo": {)"
    R"("py_callstack": "Traceback (most recent call last):\n  at train.py:12\nValueError: shard 7",)"
    R"( "timestamp": "1700000000"}}})";

TEST_F(ErrorFile, TracebackIsPartOfTheReport) {
    Program job = failing(kTraceback);
    EXPECT_THAT(ended(job), exits(3, "  its error:\n    Traceback (most recent call last)",
                                  "\n    ValueError: shard 7\n", "  error file ", ".error.json\n"));
}

TEST_F(ErrorFile, PlainMessageIsShownToo) {
    Program job = failing(R"({"message": "disk is gone", "timestamp": 1700000000})");
    EXPECT_THAT(ended(job), exits(3, "  its error:\n    disk is gone\n"));
}

TEST_F(ErrorFile, UnreadableErrorFileIsNamedAndHarmsNothing) {
    for (const char* text : {"{half", "[1]", "{\"messages\": 1}", "\xff\xfe"}) {
        Program job = failing(text);
        EXPECT_EQ(job.wait(), 3) << job.output();
        EXPECT_THAT(job.output(), AllOf(HasSubstr("error file is not understood"),
                                        HasSubstr("exited with code 3")))
            << text;
    }
}

TEST_F(ErrorFile, LauncherCopiesTheFirstFailureToItsOwnErrorFile) {
    Program job = failing(kTraceback, {}, {"TORCHELASTIC_ERROR_FILE=" + parent_file()});
    EXPECT_EQ(job.wait(), 3) << job.output();
    EXPECT_THAT(read_file(parent_file()),
                saying("\"errorCode\":3", "ValueError: shard 7", "\"timestamp\":\"1700000000\""));
}

TEST_F(ErrorFile, LauncherWritesItsErrorFileWhenTheWorkerWroteNone) {
    std::ofstream(parent_file()) << "old";
    Program job =
        run_probe({"--standalone"}, {"raise=11"}, {"TORCHELASTIC_ERROR_FILE=" + parent_file()});
    EXPECT_EQ(job.wait(), 139) << job.output();
    EXPECT_THAT(read_file(parent_file()),
                saying("\"errorCode\":-11", "SIGSEGV", Not(HasSubstr("old"))));
}

TEST_F(ErrorFile, SuccessLeavesTheParentsFileAlone) {
    Program job =
        run_probe({"--standalone"}, {"exit=0"}, {"TORCHELASTIC_ERROR_FILE=" + parent_file()});
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(read_file(parent_file()), IsEmpty());
}

TEST_F(ErrorFile, ErrorFileOfAnEarlierRunIsIgnored) {
    const Words same{"--rdzv-id=same"};
    Program first = failing(kTraceback, same);
    EXPECT_EQ(first.wait(), 3) << first.output();
    Program second = run(Words{"--standalone", "--log-dir=logs"} + same + Words{"/bin/false"});
    EXPECT_THAT(ended(second), exits(1, Not(HasSubstr("its error"))));
}

TEST_F(ErrorFile, ErrorFileIsReportedOnTheOtherNodesToo) {
    Rendezvous rendezvous;
    const auto start = [&](unsigned number) {
        return run(node(number, "2", rendezvous.endpoint()) +
                       Words{"--log-dir=logs", "/bin/sh", "-c",
                             "if [ $RANK = 1 ]; then printf %s \"$ERROR\" > "
                             "\"$TORCHELASTIC_ERROR_FILE\"; exit 3; fi; exec sleep 100"},
                   {std::string("ERROR=") + kTraceback});
    };
    Program follower = start(1);
    Program culprit = start(2);
    EXPECT_EQ(culprit.wait(), 3) << culprit.output();
    EXPECT_THAT(ended(follower), exits(3, "    ValueError: shard 7\n"));
}

TEST_F(ErrorFile, ErrorFileThatIsNoRegularFileDoesNotBlock) {
    Program job = run({"--standalone", "--log-dir=logs", "/bin/sh", "-c",
                       "mkfifo \"$TORCHELASTIC_ERROR_FILE\"; exit 3"});
    EXPECT_EQ(job.wait(), 3) << job.output();
}

TEST_F(ErrorFile, LauncherThatFailsItselfWritesItsErrorFile) {
    Program job = run_probe(
        {"--nnodes=2", "--rdzv-backend=c10d",
         "--rdzv-endpoint=127.0.0.1:" + std::to_string(unused_port()), "--join-timeout=0.5"},
        {"exit=0"}, {"TORCHELASTIC_ERROR_FILE=" + parent_file()});
    EXPECT_EQ(job.wait(), 3) << job.output();
    EXPECT_THAT(read_file(parent_file()), HasSubstr("no round was formed within"));
}

}  // namespace
}  // namespace regroup::testing
