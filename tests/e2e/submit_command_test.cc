// SPDX-License-Identifier: Apache-2.0
//
// `regroup submit slurm` with stand-ins for sbatch, srun and scontrol, which write down what they
// get.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

namespace fs = std::filesystem;

class SubmitCommand : public EndToEnd {
   protected:
    struct Answer {
        int code = -1;
        std::string output;
    };

    void SetUp() override { fs::create_directory(folder() + "/bin"); }

    /// A program in the PATH of all commands of the test.
    void stand_in(const std::string& name, const std::string& body) const {
        const std::string path = folder() + "/bin/" + name;
        std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
        fs::permissions(path, fs::perms::owner_all);
    }

    [[nodiscard]] Answer execute(const Words& command, const Words& environment = {}) const {
        const char* path = std::getenv("PATH");
        const Words surroundings = {
            "PATH=" + folder() + "/bin:" + (path != nullptr ? path : "/usr/bin:/bin"),
            "XDG_STATE_HOME=" + folder() + "/state"};
        Program program({command, environment + surroundings, folder()});  // The first one counts.
        const std::optional<int> code = program.wait();
        EXPECT_TRUE(code) << "does not end";
        return {code.value_or(-1), program.output()};
    }

    [[nodiscard]] Answer submit(const Words& words, const Words& environment = {}) const {
        return execute(Words{regroup_program(), "submit", "slurm"} + words, environment);
    }

    /// Slurm's part: a script on the first node of a job.
    [[nodiscard]] Answer start(const std::string& script) const {
        std::ofstream(folder() + "/script") << script;
        return execute({"/bin/sh", "script"}, {"SLURM_JOB_ID=4711", "SLURM_JOB_NUM_NODES=3",
                                               "SLURM_GPUS_ON_NODE=8", "SLURMD_NODENAME=n1"});
    }

    [[nodiscard]] std::string token_file() const { return folder() + "/state/regroup/token"; }

    /// The words that a stand-in has written, one behind the other.
    [[nodiscard]] Words words_of(const std::string& file) const {
        Words words;
        std::string rest = read_file(folder() + "/" + file);
        for (std::size_t end = rest.find('\0'); end != rest.npos; end = rest.find('\0')) {
            words.push_back(rest.substr(0, end));
            rest.erase(0, end + 1);
        }
        return words;
    }
};

/// Not those of the step that watches the first node.
constexpr const char* kSaveWords =
    R"([ "$1" = --overlap ] || printf '%s\0' "$@" >"$(basename "$0").words")";

TEST_F(SubmitCommand, ScriptIsGivenToSbatchWhoseAnswerIsTheAnswer) {
    stand_in("sbatch", "cat >script.got\necho Submitted batch job 4711\nexit 7");
    const Answer answer = submit({"--nodes=2:4", "--time=10", "/bin/true"});
    EXPECT_EQ(answer.code, 7);
    EXPECT_THAT(answer.output, HasSubstr("Submitted batch job 4711\n"));
    EXPECT_EQ(read_file(folder() + "/script.got"),
              submit({"--nodes=2:4", "--time=10", "--dry-run", "/bin/true"}).output);
}

TEST_F(SubmitCommand, DryRunPrintsTheScriptAndLeavesNothingBehind) {
    stand_in("sbatch", "touch submitted");
    const Answer answer = submit({"--nodes=2", "--dry-run", "/bin/true"});
    EXPECT_EQ(answer.code, 0);
    EXPECT_THAT(answer.output, AllOf(HasSubstr("there is no token"), HasSubstr("#!/bin/sh\n"),
                                     HasSubstr("#SBATCH --job-name=true\n#SBATCH --nodes=2\n")));
    EXPECT_FALSE(fs::exists(folder() + "/submitted"));
    EXPECT_FALSE(fs::exists(token_file()));
}

TEST_F(SubmitCommand, OnlyADryRunNeedsNoPlaceForAToken) {
    stand_in("sbatch", "touch submitted");
    const Words nowhere = {"XDG_STATE_HOME="};
    EXPECT_EQ(submit({"--nodes=2", "--dry-run", "/bin/true"}, nowhere).code, 0);
    const Answer answer = submit({"--nodes=2", "/bin/true"}, nowhere);
    EXPECT_EQ(answer.code, 2);
    EXPECT_THAT(answer.output, HasSubstr("regroup token --generate"));
    EXPECT_FALSE(fs::exists(folder() + "/submitted"));
}

TEST_F(SubmitCommand, WordsArriveAtTheProgramAsTheyWere) {
    stand_in("srun", kSaveWords);
    const Words nasty = {"",
                         " ",
                         "a b",
                         "it's",
                         "\"",
                         "\\",
                         "$HOME",
                         "`id`",
                         "$(id)",
                         "a\nb",
                         "*",
                         "~",
                         "#",
                         "!!",
                         "&& false",
                         "--",
                         "-x",
                         "\xff",
                         "#SBATCH --nodes=9\n#SBATCH --hold"};
    const Answer script =
        submit(Words{"--dry-run", "--nodes=2:4", "--", "--max-restarts=3", "/bin/true"} + nasty);
    ASSERT_EQ(script.code, 0);
    ASSERT_EQ(start(script.output.substr(script.output.find("#!"))).code, 0);
    const Words words = words_of("srun.words");
    const auto run = std::find(words.begin(), words.end(), "run");
    ASSERT_NE(run, words.end());
    EXPECT_EQ(*(run - 1), fs::canonical(regroup_program()));
    EXPECT_EQ(Words(run + 1, words.end()),
              (Words{"--nnodes=2:3", "--max-restarts=3", "/bin/true"} + nasty));
    EXPECT_EQ(Words(words.begin(), words.begin() + 3),
              (Words{"--nodes=3", "--ntasks=3", "--ntasks-per-node=1"}));
}

TEST_F(SubmitCommand, JobIsRequeuedOnlyWhenItHasSavedItsState) {
    stand_in("scontrol", kSaveWords);
    const std::string script = submit({"--dry-run", "/bin/true"}).output;
    for (const int code : {0, 1, 137}) {
        stand_in("srun", "exit " + std::to_string(code));
        EXPECT_EQ(start(script).code, code);
        EXPECT_THAT(words_of("scontrol.words"), IsEmpty()) << code;
    }
    stand_in("srun", "exit 75");
    EXPECT_EQ(start(script).code, 75);
    EXPECT_THAT(words_of("scontrol.words"), ElementsAre("requeue", "4711"));
}

TEST_F(SubmitCommand, CancelledJobIsNotRequeued) {
    stand_in("scontrol", kSaveWords);
    stand_in("srun", "kill -TERM $PPID\nexit 75");
    EXPECT_EQ(start(submit({"--dry-run", "/bin/true"}).output).code, 75);
    EXPECT_THAT(words_of("scontrol.words"), IsEmpty());
}

// The stand-in of srun executes the step that watches the first node, and squeue first knows that
// node, then it does not.
TEST_F(SubmitCommand, JobOfWhichTheFirstNodeIsLostIsRequeuedByAnotherNode) {
    stand_in("sleep", "exit 0");
    stand_in("squeue",
             "printf '%s\\0' \"$@\" >squeue.words\n[ -e asked ] || echo 4711\ntouch asked");
    stand_in("scontrol", std::string(kSaveWords) + "\ntouch requeued\nkill $PPID");
    stand_in("srun",
             "if [ \"$1\" = --overlap ]; then\n"
             "    while [ \"${1#-}\" != \"$1\" ]; do shift; done\n"
             "    exec \"$@\"\n"
             "fi\n"
             "until [ -e requeued ]; do /bin/sleep 0.01; done");
    const std::string script = submit({"--dry-run", "--nodes=2:3", "/bin/true"}).output;
    EXPECT_EQ(start(script.substr(script.find("#!"))).code, 0);
    EXPECT_THAT(words_of("squeue.words"),
                ElementsAre("--noheader", "--jobs=4711", "--nodelist=n1"));
    EXPECT_THAT(words_of("scontrol.words"), ElementsAre("requeue", "4711"));
}

TEST_F(SubmitCommand, OneNodeHasAWorkerForEachGpu) {
    stand_in("srun", kSaveWords);
    const Answer script = submit({"--dry-run", "--gpus-per-node=8", "/bin/true"});
    ASSERT_EQ(start(script.output).code, 0);
    EXPECT_THAT(words_of("srun.words"), ::testing::Contains("--nproc-per-node=8"));
}

TEST_F(SubmitCommand, TokenIsMadeOnceForSeveralNodes) {
    stand_in("sbatch", "cat >/dev/null");
    EXPECT_THAT(submit({"/bin/true"}).output, IsEmpty());
    EXPECT_FALSE(fs::exists(token_file()));

    EXPECT_THAT(submit({"--nodes=2", "/bin/true"}).output,
                AllOf(HasSubstr("wrote token"), HasSubstr(token_file()), HasSubstr("a copy")));
    struct stat status{};
    ASSERT_EQ(::stat(token_file().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U);
    const std::string token = read_file(token_file());

    EXPECT_THAT(submit({"--nodes=2", "/bin/true"}).output, IsEmpty());
    EXPECT_EQ(read_file(token_file()), token);
}

TEST_F(SubmitCommand, UnusableTokenIsReportedBeforeTheJobWaitsInTheQueue) {
    stand_in("sbatch", "touch submitted");
    fs::create_directories(folder() + "/state/regroup");
    std::ofstream(token_file()) << "no token\n";
    const Answer answer = submit({"--nodes=2", "/bin/true"});
    EXPECT_EQ(answer.code, 2);
    EXPECT_THAT(answer.output, HasSubstr(token_file()));
    EXPECT_FALSE(fs::exists(folder() + "/submitted"));
}

TEST_F(SubmitCommand, JobWithoutATokenBecauseItTrustsTheNetworkGetsNone) {
    stand_in("sbatch", "cat >/dev/null");
    EXPECT_THAT(submit({"--nodes=2", "--", "--insecure", "/bin/true"}).output, IsEmpty());
    EXPECT_FALSE(fs::exists(token_file()));
}

TEST_F(SubmitCommand, HostWithoutSbatchIsNamedAsTheMistake) {
    const Answer answer = submit({"/bin/true"}, {"PATH=" + folder() + "/bin"});
    EXPECT_EQ(answer.code, 1);
    EXPECT_THAT(answer.output, AllOf(StartsWith("regroup submit slurm: cannot start sbatch"),
                                     HasSubstr("--dry-run")));
}

TEST_F(SubmitCommand, ProgramThatIsNotThereIsToldAtOnce) {
    EXPECT_THAT(submit({"--dry-run", "./nothing"}).output, HasSubstr("there is no ./nothing here"));
    EXPECT_THAT(submit({"--dry-run", "nothing"}).output, StartsWith("#!"));
}

TEST_F(SubmitCommand, MistakesAreFoundBeforeTheJobWaitsInTheQueue) {
    stand_in("sbatch", "touch submitted");
    const std::vector<std::pair<Words, std::string>> mistakes = {
        {{"--nodes=4:2", "/bin/true"}, "exceeds"},
        {{"--nodes=2"}, "no program given"},
        {{"--nodes=2", "--", "--max-retarts=3", "/bin/true"}, "did you mean --max-restarts?"},
        {{"--sbatch=qos=high", "/bin/true"}, "--sbatch"},
        {{"--sbatch=--comment=a\nb", "/bin/true"}, "--comment: the value has a line break"},
        {{"--job-name=a\nb", "/bin/true"}, "--job-name"},
        {{"--cpus-per-task=0", "/bin/true"}, "--cpus-per-task"},
        {{"--save-time=0", "/bin/true"}, "--save-time"},
    };
    for (const auto& [words, text] : mistakes) {
        const Answer answer = submit(words);
        EXPECT_EQ(answer.code, 2) << text;
        EXPECT_THAT(answer.output, AllOf(StartsWith("regroup submit slurm: "), HasSubstr(text)));
        EXPECT_THAT(lines_of(answer.output), ::testing::SizeIs(1));
    }
    EXPECT_FALSE(fs::exists(folder() + "/submitted"));
}

TEST_F(SubmitCommand, SchedulerMustBeNamed) {
    const Answer none = execute({regroup_program(), "submit"});
    EXPECT_EQ(none.code, 2);
    EXPECT_THAT(none.output, HasSubstr("regroup submit slurm"));
    const Answer other = execute({regroup_program(), "submit", "pbs", "/bin/true"});
    EXPECT_EQ(other.code, 2);
    EXPECT_THAT(other.output, HasSubstr("'pbs'"));
    const Answer help = execute({regroup_program(), "submit", "--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_THAT(help.output, AllOf(HasSubstr("--nodes"), Not(HasSubstr("PET_"))));
}

}  // namespace
}  // namespace regroup::testing
