// SPDX-License-Identifier: Apache-2.0

#include "launcher/cluster/sbatch_script.h"
#include "tests/support/matchers.h"

namespace regroup::launcher {
namespace {

std::string script_of(const SbatchJob& job) {
    const Result<std::string> script = sbatch_script(job);
    if (!script) {
        ADD_FAILURE() << script.error().detail;
        return "";
    }
    return *script;
}

TEST(SbatchScript, ElasticJobGoesOnWithoutANodeAndIsStartedAgainWhenItHasSaved) {
    SbatchJob job;
    job.name = "train";
    job.nodes_min = 2;
    job.nodes_max = 4;
    job.time = "4:00:00";
    job.partition = "gpu";
    job.account = "nlp";
    job.gpus_per_node = "a100:8";
    job.options = {"--qos=high"};
    job.run = {"--max-restarts=3", "./train", "--name", "it's me"};
    EXPECT_EQ(script_of(job), R"(#!/bin/sh
#SBATCH --job-name=train
#SBATCH --nodes=2-4
#SBATCH --gpus-per-node=a100:8
#SBATCH --exclusive
#SBATCH --time=4:00:00
#SBATCH --partition=gpu
#SBATCH --account=nlp
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --no-kill
#SBATCH --qos=high

# When Slurm loses the first node, this script is gone, and the other nodes would stay allocated
# until the time limit. A step on the second node has the job start again then.
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    srun --overlap --nodes=1 --ntasks=1 --relative=1 --export=ALL --no-kill sh -c '
        while sleep 60; do
            job=$(squeue --noheader --jobs="$SLURM_JOB_ID" --nodelist="$0") && [ -z "$job" ] &&
                scontrol requeue "$SLURM_JOB_ID"
        done' "$SLURMD_NODENAME" >/dev/null 2>&1 &
fi

# Slurm sends SIGTERM to this script, too, when it ends the job by itself. Without a trap the shell
# would end at once, and the launchers with it.
trap 'ended_by_slurm=yes' TERM

# One launcher on each node; Slurm's variables tell it where the others are.
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
    --cpu-bind=none --export=ALL --kill-on-bad-exit=0 --wait=0 --no-kill \
    regroup run --nnodes=2:"$SLURM_JOB_NUM_NODES" --max-restarts=3 ./train --name 'it'\''s me'
code=$?

# 75: the state is saved, and the job can go on. A job that was cancelled must not.
if [ "$code" -eq 75 ] && [ -z "$ended_by_slurm" ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
)");
}

TEST(SbatchScript, JobThatNeedsAllItsNodesIsLeftToSlurmWhenOneFails) {
    SbatchJob job;
    job.nodes_min = job.nodes_max = 4;
    EXPECT_THAT(script_of(job), saying("#SBATCH --nodes=4\n", Not(HasSubstr("--no-kill"))));
}

TEST(SbatchScript, CpusOfANodeAreThoseOfItsOneTask) {
    SbatchJob job;
    job.cpus_per_node = 32;
    EXPECT_THAT(script_of(job), saying("#SBATCH --cpus-per-task=32\n",
                                       "--ntasks-per-node=1 "
                                       "--cpus-per-task=32 \\",
                                       Not(HasSubstr("--exclusive"))));
}

TEST(SbatchScript, WorkersAreTheGpusWhereTheJobMayHaveOneNode) {
    SbatchJob job;
    job.gpus_per_node = "8";
    job.nodes_max = 2;
    job.run = {"./train"};
    EXPECT_THAT(script_of(job),
                HasSubstr("\"$SLURM_JOB_NUM_NODES\" --nproc-per-node=\"${SLURM_GPUS_ON_NODE:-1}\" "
                          "./train\n"));
}

TEST(SbatchScript, OptionIsOneWordForSbatch) {
    SbatchJob job;
    job.name = "a # \"b\" \\ c";
    EXPECT_THAT(script_of(job), HasSubstr("#SBATCH \"--job-name=a # \\\"b\\\" \\\\ c\"\n"));
}

TEST(SbatchScript, LineBreakInAnOptionIsRefused) {
    SbatchJob job;
    job.options = {"--comment=a\nrm -rf /"};
    const Result<std::string> script = sbatch_script(job);
    ASSERT_FALSE(script);
    EXPECT_EQ(script.error().code, Errc::invalid_argument);
    EXPECT_EQ(script.error().detail,
              "--comment: the value has a line break or another control character");
}

TEST(ShellWord, SafeWordsAreUnchangedAndOthersQuoted) {
    EXPECT_EQ(shell_word("--lr=1e-4,./x:y@z%_"), "--lr=1e-4,./x:y@z%_");
    EXPECT_EQ(shell_word(""), "''");
    EXPECT_EQ(shell_word("$HOME"), "'$HOME'");
    EXPECT_EQ(shell_word("~"), "'~'");
    EXPECT_EQ(shell_word("a'b"), "'a'\\''b'");
    EXPECT_EQ(shell_word("a\nb"), "'a\nb'");
}

}  // namespace
}  // namespace regroup::launcher
