// SPDX-License-Identifier: Apache-2.0
//
// Mistakes on the command line: one line that names the flag, exit code 2, at once.
#include <arpa/inet.h>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

// The documented limit is one second. A busy machine may be slower.
constexpr std::chrono::seconds kLimit(15);

class RunUsage : public EndToEnd {
   protected:
    // Waits for the command and returns the one line that it prints.
    [[nodiscard]] static std::string refusal_of(Program& program) {
        EXPECT_EQ(program.wait(kLimit), 2) << program.output();
        EXPECT_EQ(program.ended_by(), 0);
        const Words lines = lines_of(program.output());
        EXPECT_THAT(lines, SizeIs(1)) << program.output();
        return lines.empty() ? "" : lines.front();
    }
    [[nodiscard]] std::string refusal(const Words& words, const Words& environment = {}) const {
        Program program({Words{regroup_program()} + words, environment, folder()});
        return refusal_of(program);
    }
};

struct Mistake {
    Words words;
    Words said;
    Words environment;
};

std::ostream& operator<<(std::ostream& out, const Mistake& mistake) {
    for (const std::string& word : mistake.environment + mistake.words) {
        out << word << " ";
    }
    return out;
}

class RunUsageMistake : public RunUsage, public ::testing::WithParamInterface<Mistake> {};

TEST_P(RunUsageMistake, MistakeIsReportedInOneLineThatNamesTheFlag) {
    const Mistake& mistake = GetParam();
    const std::string line = refusal(mistake.words, mistake.environment);
    EXPECT_THAT(line, StartsWith("regroup"));
    for (const std::string& text : mistake.said) {
        EXPECT_THAT(line, HasSubstr(text));
    }
}

INSTANTIATE_TEST_SUITE_P(
    CommandLines, RunUsageMistake,
    ::testing::Values(
        Mistake{{"run", "--nodes=2", "/bin/true"}, {"--nodes", "did you mean --nnodes?"}, {}},
        Mistake{{"run", "--max-retarts", "2", "/bin/true"}, {"did you mean --max-restarts?"}, {}},
        Mistake{{"run", "--nproc=2", "/bin/true"}, {"ambiguous", "--nproc-per-node"}, {}},
        Mistake{
            {"run", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost", "/bin/true"},
            {"--rdzv-endpoint localhost", "127.0.0.1"},
            {}},
        Mistake{{"run", "--local-ranks-filter=1", "/bin/true"}, {"--local-ranks-filter", "1"}, {}},
        Mistake{{"run", "--tee=0:3,2:1", "--nproc-per-node=2", "/bin/true"}, {"--tee", "2"}, {}},
        Mistake{{"run", "--rdzv_endpont=a", "/bin/true"}, {"did you mean --rdzv_endpoint?"}, {}},
        Mistake{{"run", "--colour=blue", "/bin/true"}, {"unknown flag --colour"}, {}},
        Mistake{{"run", "--nnodes=4:2", "/bin/true"}, {"--nnodes", "4", "exceeds", "2"}, {}},
        Mistake{{"run", "--nnodes=0", "/bin/true"}, {"--nnodes", "'0'"}, {}},
        Mistake{{"run", "--nnodes=1:2:3", "/bin/true"}, {"--nnodes", "'1:2:3'"}, {}},
        Mistake{{"run", "--nproc-per-node=many", "/bin/true"}, {"--nproc-per-node", "'many'"}, {}},
        Mistake{{"run", "--nproc-per-node=0", "/bin/true"}, {"--nproc-per-node", "'0'"}, {}},
        Mistake{{"run", "--max-restarts=-1", "/bin/true"}, {"--max-restarts", "'-1'"}, {}},
        Mistake{
            {"run", "--max-restarts=99999999999999999999", "/bin/true"}, {"--max-restarts"}, {}},
        Mistake{{"run", "--join-timeout=soon", "/bin/true"}, {"--join-timeout", "'soon'"}, {}},
        Mistake{{"run", "--shutdown-timeout=-1", "/bin/true"}, {"--shutdown-timeout"}, {}},
        Mistake{{"run", "--monitor-interval=0", "/bin/true"}, {"--monitor-interval"}, {}},
        Mistake{{"run", "--master-port=70000", "/bin/true"}, {"--master-port", "65535"}, {}},
        Mistake{{"run", "--rdzv-backend=magic", "/bin/true"}, {"--rdzv-backend", "'magic'"}, {}},
        Mistake{{"run", "--rdzv-backend=c10d", "--rdzv-endpoint=a:b:c", "/bin/true"},
                {"--rdzv-endpoint", "a:b:c"},
                {}},
        Mistake{{"run", "--rdzv-backend=c10d", "--rdzv-endpoint=a:99999", "/bin/true"},
                {"--rdzv-endpoint", "65535"},
                {}},
        Mistake{
            {"run", "--nnodes=2", "--node-rank=2", "/bin/true"}, {"--node-rank", "--nnodes"}, {}},
        Mistake{
            {"run", "--standalone", "--nnodes=2", "/bin/true"}, {"--standalone", "--nnodes"}, {}},
        Mistake{{"run", "-m", "--no-python", "x"}, {"--module", "--no-python"}, {}},
        Mistake{{"run", "--nproc-per-node=gpu", "/bin/true"},
                {"--nproc-per-node", "GPU"},
                {"CUDA_VISIBLE_DEVICES="}},
        Mistake{{"run"}, {"no program"}, {}}, Mistake{{"run", "--nnodes=2"}, {"no program"}, {}},
        Mistake{{"run", "no-such-program"}, {"no-such-program", "PATH"}, {}},
        Mistake{{"run", "./no-such-program"}, {"./no-such-program", "No such file"}, {}},
        Mistake{{"run", "no_such_script.py"}, {"no_such_script.py"}, {}},
        Mistake{{"run", "/etc/passwd"}, {"/etc/passwd", "not executable"}, {}},
        Mistake{{"run", "/etc"}, {"/etc", "folder"}, {}},
        Mistake{{"run", "script.py"}, {"script.py"}, {"PYTHON_EXEC=/no/such/python"}},
        Mistake{{"run", "--log-dir=/etc/passwd/runs", "/bin/true"},
                {"--log-dir", "/etc/passwd/runs", "Not a directory"},
                {}},
        Mistake{{"run", "--log-dir=/proc/runs", "/bin/true"}, {"--log-dir", "/proc/runs"}, {}},
        Mistake{{"run", "--log-dir=", "/bin/true"}, {"--log-dir"}, {}},
        Mistake{{"run", "/bin/true"}, {"--nnodes", "PET_NNODES", "'all'"}, {"PET_NNODES=all"}},
        Mistake{{"run", "/bin/true"},
                {"--max-restarts", "PET_MAX_RESTARTS", "'1x'"},
                {"PET_MAX_RESTARTS=1x"}},
        Mistake{{"run", "/bin/true"}, {"PET_STANDALONE", "'yes'"}, {"PET_STANDALONE=yes"}},
        Mistake{{"run", "/bin/true"}, {"--log-dir", "/etc/passwd"}, {"PET_LOG_DIR=/etc/passwd"}},
        Mistake{{"rum", "/bin/true"}, {"unknown command 'rum'", "did you mean run?"}, {}},
        Mistake{{"train"}, {"unknown command 'train'"}, {}},
        Mistake{{"serve", "--listen=:no"}, {"--listen", ":no"}, {}},
        Mistake{{"serve", "--listen=nowhere:1"}, {"listen", "nowhere"}, {}},
        Mistake{{"serve", "--port=1"}, {"--port"}, {}}, Mistake{{"serve", "more"}, {"more"}, {}}));

TEST_F(RunUsage, LogDirectoryThatIsAFileIsRefused) {
    std::ofstream(folder() + "/file") << "not a folder\n";
    EXPECT_THAT(refusal({"run", "--log-dir=file", "/bin/true"}),
                saying("--log-dir", folder() + "/file"));
}

TEST_F(RunUsage, TakenPortIsNamedWithItsHolder) {
    const Listener taken;
    const std::string holder = "pid " + std::to_string(::getpid());
    const std::string command = std::filesystem::read_symlink("/proc/self/exe").filename();
    const auto names_holder = AllOf(HasSubstr(taken.port()), HasSubstr(holder), HasSubstr(command));
    EXPECT_THAT(refusal({"run", "--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1",
                         "--master-port=" + taken.port(), "/bin/true"}),
                names_holder);
    EXPECT_THAT(refusal({"serve", "--listen=127.0.0.1:" + taken.port()}), names_holder);
}

TEST_F(RunUsage, SecondNodeWithoutARankIsToldWhichFlagsItNeeds) {
    const Words both{"--nnodes=2", "--rdzv-endpoint=127.0.0.1:" + std::to_string(unused_port())};
    Program first = run_probe(both, {"exit=0"});
    ASSERT_TRUE(first.prints("waiting: ")) << first.output();
    Program second = run_probe(both, {"exit=0"});
    EXPECT_THAT(refusal_of(second), saying("--node-rank=1", "--rdzv-backend=c10d"));
    Program third = run_probe(both + Words{"--node-rank=1"}, {"exit=0"});
    EXPECT_EQ(first.wait(), 0) << first.output();
    EXPECT_EQ(third.wait(), 0) << third.output();
}

TEST_F(RunUsage, HelpAndVersionAreNoMistakes) {
    for (const Words& words :
         {Words{"--help"}, Words{"run", "--help"}, Words{"serve", "--help"}, Words{"version"}}) {
        Program program({Words{regroup_program()} + words, {}, folder()});
        EXPECT_THAT(ended(program), exits(0, "regroup"));
    }
}

/// Flags of a node that contradict those of one that is there, and what the refusal must name.
struct Contradiction {
    Words there;
    Words here;
    std::string field;
};

TEST_F(RunUsage, ContradictoryNodesAreRefusedWithBothNamesAndTheField) {
    const Rendezvous rendezvous;
    int number = 0;
    for (const Contradiction& one : {
             Contradiction{{"--nnodes=2", "/bin/true"}, {"--nnodes=3", "/bin/true"}, "--nnodes"},
             Contradiction{{"/bin/true"}, {"/bin/false"}, "program"},
             Contradiction{{"--max-restarts=1", "/bin/true"}, {"/bin/true"}, "--max-restarts"},
             Contradiction{
                 {"--heartbeat-timeout=9", "/bin/true"}, {"/bin/true"}, "--heartbeat-timeout"},
             Contradiction{
                 {"--shutdown-timeout=9", "/bin/true"}, {"/bin/true"}, "--shutdown-timeout"},
             Contradiction{
                 {"--node-rank=1", "/bin/true"}, {"--node-rank=1", "/bin/true"}, "--node-rank 1"},
         }) {
        SCOPED_TRACE(one.field);
        const auto flags = [&](unsigned node_number) {
            Words words = node(node_number, "2", rendezvous.endpoint());
            words.push_back("--rdzv-id=job" + std::to_string(number));
            return words;
        };
        Program there = run(flags(1) + one.there);
        // The first node has joined once it reports what it waits for.
        ASSERT_TRUE(there.prints("waiting: ")) << there.output();
        Program here = run(flags(2) + one.here);
        EXPECT_THAT(refusal_of(here), saying(one.field, "127.0.0.2", "127.0.0.3"));
        EXPECT_TRUE(there.running()) << there.output();
        ++number;
    }
}

}  // namespace
}  // namespace regroup::testing
