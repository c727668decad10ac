// SPDX-License-Identifier: Apache-2.0
//
// Worker output: whole lines with their rank on the screen, every byte in files.
#include <filesystem>
#include <memory>
#include <regex>
#include <unistd.h>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"
#include "tests/support/pseudo_terminal.h"

namespace regroup::testing {
namespace {

std::string numbered_lines(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) {
        text += "line " + std::to_string(i) + " of " + std::to_string(count) + "\n";
    }
    return text;
}

class RunOutput : public EndToEnd {
   protected:
    [[nodiscard]] std::string file(const std::string& name) const {
        return read_file(folder() + "/runs/job/" + name);
    }
    const Words flags_{"--log-dir=runs", "--rdzv-id=job", "--standalone"};
};

TEST_F(RunOutput, EachLineHasItsNodeAndRankAndKeepsItsOrder) {
    const Rendezvous rendezvous;
    const Words flags{"--nproc-per-node=2"};
    Program first = run_probe(node(1, "2", rendezvous.endpoint()) + flags, {"lines=300"});
    Program second = run_probe(node(2, "2", rendezvous.endpoint()) + flags, {"lines=300"});
    EXPECT_EQ(first.wait(), 0) << first.output();
    EXPECT_EQ(second.wait(), 0) << second.output();
    std::map<std::string, std::string> by_label;
    const std::regex worker_line("\\[([^ ]*)\\] (.*)");
    for (const std::string& line : lines_of(first.output() + second.output())) {
        std::smatch match;
        if (std::regex_match(line, match, worker_line)) {
            by_label[match[1]] += match[2].str() + "\n";
        } else {
            EXPECT_THAT(line, ::testing::StartsWith("regroup: "));
        }
    }
    const std::string all = numbered_lines(300);
    EXPECT_EQ(by_label, (std::map<std::string, std::string>{{"127.0.0.2:0", all},
                                                            {"127.0.0.2:1", all},
                                                            {"127.0.0.3:2", all},
                                                            {"127.0.0.3:3", all}}));
}

/// A worker that asks a question on a terminal, and prints the answer that it reads.
constexpr const char* kDialogue =
    "printf 'rank '$RANK' asks: '; if read answer; then echo \"$answer to $RANK\"; "
    "else echo \"nothing to $RANK\"; fi";

TEST_F(RunOutput, QuestionOfTheRankThatReadsStdinIsShownBeforeItsAnswer) {
    for (const std::string reader : {"0", "1"}) {
        Words command{regroup_program(), "run"};
        command = command + flags_ + Words{"--nproc-per-node=2"};
        if (reader != "0") {
            command.push_back("--stdin=" + reader);
        }
        PseudoTerminal terminal(command + Words{"sh", "-c", kDialogue},
                                {"TERM=xterm", "HOME=" + folder()}, 24, 120);
        ASSERT_TRUE(terminal.shows("rank " + reader + " asks:")) << terminal.screen().text();
        terminal.type("yes\r");
        EXPECT_EQ(terminal.wait(), 0) << terminal.screen().text();
        const std::string other = reader == "0" ? "1" : "0";
        EXPECT_THAT(terminal.screen().text(), saying("yes to " + reader, "nothing to " + other));
    }
}

TEST_F(RunOutput, EachRankHasItsFilesInEachRound) {
    Program job = run_probe(
        flags_ + Words{"--nproc-per-node=2", "--max-restarts=1"},
        {"mark=up", "restart=0?say=first life", "restart=1?say=second life",
         "complain=a word of warning", "await=go", "restart=0,rank=1?exit=1", "restart=0?hold"});
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << job.output();
    ASSERT_TRUE(job.prints(":0] first life")) << job.output();
    ASSERT_TRUE(job.prints(":0] a word of warning")) << job.output();
    release("go");
    ASSERT_EQ(job.wait(), 0) << job.output();
    for (const std::string rank : {"rank00000", "rank00001"}) {
        EXPECT_EQ(file("round_1/" + rank + ".out"), "first life\n");
        EXPECT_EQ(file("round_1/" + rank + ".err"), "a word of warning\n");
        EXPECT_EQ(file("round_2/" + rank + ".out"), "second life\n");
        EXPECT_EQ(file("round_2/" + rank + ".err"), "a word of warning\n");
    }
}

TEST_F(RunOutput, OutputOfAKilledWorkerIsComplete) {
    const std::string last(5000, 'x');
    Program job =
        run_probe(flags_, {"lines=5000", "complain=" + last, "complain=and the end", "raise=9"});
    EXPECT_EQ(job.wait(), 128 + 9) << job.output();
    EXPECT_EQ(file("round_1/rank00000.out"), numbered_lines(5000));
    EXPECT_EQ(file("round_1/rank00000.err"), last + "\nand the end\n");
    EXPECT_THAT(job.output(), EndsWith("    and the end\n"));
    EXPECT_THAT(job.output(), HasSubstr("runs/job/round_1/rank00000.err\n"));
}

// While rank 0 writes without a pause, rank 1 is heard.
TEST_F(RunOutput, BurstOfOneWorkerIsCompleteAndInOrderAndBlocksNobody) {
    constexpr int kLines = 500000;
    const std::string script =
        "if [ $RANK = 0 ]; then exec seq -f '%0100.0f' " + std::to_string(kLines) +
        "; else while kill -0 $PPID && [ ! -e over ]; do echo tick; sleep 0.05; done; fi";
    // A file as the screen takes every line.
    const std::string command =
        "exec \"$0\" run --log-dir=runs --rdzv-id=job --standalone --nproc-per-node=2 "
        "/bin/sh -c \"$1\" >screen 2>&1";
    Program job({{"/bin/sh", "-c", command, regroup_program(), script},
                 {"PROBE_DIR=" + folder(), "OMP_NUM_THREADS=1"},
                 folder()});
    std::string all;
    for (int i = 1; i <= kLines; ++i) {
        const std::string number = std::to_string(i);
        all += std::string(100 - number.size(), '0') + number + "\n";
    }
    EXPECT_TRUE(eventually(
        [&] {
            std::error_code error;
            return std::filesystem::file_size(folder() + "/runs/job/round_1/rank00000.out",
                                              error) == all.size();
        },
        std::chrono::seconds(60)));
    release("over");
    ASSERT_EQ(job.wait(), 0) << read_file(folder() + "/screen").substr(0, 1000);
    EXPECT_TRUE(file("round_1/rank00000.out") == all);
    std::string shown;
    bool ticked = false;
    for (const std::string& line : lines_of(read_file(folder() + "/screen"))) {
        const std::size_t mark = line.find("] ");
        if (mark != line.npos && line.find(":0] ") != line.npos) {
            shown += line.substr(mark + 2) + "\n";
        } else if (line.find(":1] tick") != line.npos) {
            ticked = ticked || !shown.empty();
        } else {
            EXPECT_THAT(line, HasSubstr("round 1: ranks 0-1")) << "and no other message";
        }
    }
    EXPECT_TRUE(shown == all);
    EXPECT_TRUE(ticked);
}

TEST_F(RunOutput, OddBytesReachTheFileUnchangedAndTheScreenWithoutMovesOfTheCursor) {
    const std::string odd = R"(nul \000 byte\nbell \a\n\033[2A\033[32mgreen\033[0m\n\377\376\n)";
    Program job = run(flags_ + Words{"/bin/sh", "-c", "printf '" + odd + "'"});
    EXPECT_EQ(job.wait(), 0);
    const std::string nul(1, '\0');
    EXPECT_EQ(file("round_1/rank00000.out"),
              "nul " + nul + " byte\nbell \a\n\033[2A\033[32mgreen\033[0m\n\377\376\n");
    EXPECT_THAT(job.output(), saying(":0] nul " + nul + " byte\n", ":0] \033[32mgreen\033[0m\n",
                                     ":0] \377\376\n"));
}

TEST_F(RunOutput, FolderThatAnotherUserHasPreparedIsNotWrittenTo) {
    namespace fs = std::filesystem;
    fs::permissions(folder(), fs::perms::all | fs::perms::sticky_bit);
    fs::create_directory(folder() + "/regroup-runs");
    if (::lchown((folder() + "/regroup-runs").c_str(), 12345, 12345) != 0) {
        GTEST_SKIP() << "only root can make a folder of another user";
    }
    Program job = run_probe({"--standalone"}, {"say=done"});
    EXPECT_THAT(ended(job),
                exits(0, "belongs to another user (uid 12345)", "output is only shown here"));
    EXPECT_TRUE(fs::is_empty(folder() + "/regroup-runs"));
    Program chosen = run_probe({"--standalone", "--log-dir=regroup-runs"}, {"say=done"});
    EXPECT_EQ(chosen.wait(), 2) << chosen.output();
}

TEST_F(RunOutput, TextsOfTheCommandLineCannotControlTheTerminal) {
    const std::string program = folder() + "/no\x1b[2J\nregroup: job has succeeded";
    Program job = run({"--standalone", "--role=\u202erole\u009b", "--rdzv-id=\u202ejob", program});
    EXPECT_NE(job.wait(), 0) << job.output();
    for (const char* raw : {"\x1b", "\u202e", "\u009b", "\nregroup: job has"}) {
        EXPECT_THAT(job.output(), ::testing::Not(HasSubstr(raw)));
    }
    EXPECT_THAT(job.output(), HasSubstr("no\\x1b[2J\\x0aregroup: job has succeeded"));
}

TEST_F(RunOutput, LineWithoutAnEndIsShownAndKept) {
    Program job = run(flags_ + Words{"/bin/sh", "-c", "printf 'no line end'"});
    EXPECT_THAT(ended(job), exits(0, ":0] no line end\n"));
    EXPECT_EQ(file("round_1/rank00000.out"), "no line end");
}

TEST_F(RunOutput, FilesShowWhereTheOutputOfAnotherLaunchBegins) {
    for (const std::string text : {"one", "two", "three"}) {
        Program job = run_probe(flags_, {"say=" + text});
        ASSERT_EQ(job.wait(), 0) << job.output();
    }
    const std::string mark =
        "\nregroup: below is output of the launch with pid [0-9]+ on [^ ]+, started [-0-9T:]+Z\n";
    EXPECT_TRUE(std::regex_match(file("round_1/rank00000.out"),
                                 std::regex("one\n" + mark + "two\n" + mark + "three\n")))
        << file("round_1/rank00000.out");
}

TEST_F(RunOutput, NoTwoJobsShareAFolder) {
    for (const std::string id : {"a/b", "a_b", "a%2Fb", ".a", "_.a", "%2Ea", "..", "_.."}) {
        Program job =
            run_probe({"--log-dir=runs", "--rdzv-id=" + id, "--standalone"}, {"say=" + id});
        ASSERT_EQ(job.wait(), 0) << job.output();
    }
    std::size_t folders = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder() + "/runs")) {
        ++folders;
        const std::string said = read_file(entry.path().string() + "/round_1/rank00000.out");
        EXPECT_THAT(lines_of(said), SizeIs(1)) << entry.path() << ": " << said;
    }
    EXPECT_EQ(folders, 8U);
}

TEST_F(RunOutput, FiftyJobsAtOnceWithDefaultFlagsAllSucceed) {
    constexpr int kJobs = 50;
    std::vector<std::unique_ptr<Program>> jobs;
    for (int i = 0; i < kJobs; ++i) {
        jobs.push_back(std::make_unique<Program>(ProgramSpec{
            {regroup_program(), "run", probe_program(), "store", "mark=up" + std::to_string(i)},
            {"PROBE_DIR=" + folder()},
            folder()}));
    }
    for (int i = 0; i < kJobs; ++i) {
        EXPECT_EQ(jobs[static_cast<std::size_t>(i)]->wait(), 0)
            << jobs[static_cast<std::size_t>(i)]->output();
        EXPECT_THAT(marks("up" + std::to_string(i))[1], SizeIs(1));
    }
    // Each job has its own job id, and so its own folder.
    int folders = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder() + "/regroup-runs")) {
        folders += entry.is_directory() ? 1 : 0;
    }
    EXPECT_EQ(folders, kJobs);
}

}  // namespace
}  // namespace regroup::testing
