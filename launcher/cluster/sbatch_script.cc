// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/sbatch_script.h"

#include <algorithm>
#include <string_view>

namespace regroup::launcher {
namespace {

bool is_safe(const std::string& word) {
    constexpr std::string_view kSafe =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
    return !word.empty() && word.find_first_not_of(kSafe) == word.npos;
}

// sbatch ends an option at a blank or a #, and knows quotes and backslashes.
std::string directive(const std::string& option) {
    if (is_safe(option)) {
        return "#SBATCH " + option + "\n";
    }
    std::string line = "#SBATCH \"";
    for (const char c : option) {
        if (c == '"' || c == '\\') {
            line += '\\';
        }
        line += c;
    }
    return line + "\"\n";
}

std::vector<std::string> options_of(const SbatchJob& job) {
    const std::string max = std::to_string(job.nodes_max);
    const std::string nodes =
        job.nodes_min == job.nodes_max ? max : std::to_string(job.nodes_min) + "-" + max;
    // Without --ntasks-per-node: Slurm would give the job the smaller number of nodes only.
    std::vector<std::string> options{"--job-name=" + job.name, "--nodes=" + nodes};
    const auto add = [&](const char* flag, const std::string& value) {
        if (!value.empty()) {
            options.push_back(flag + value);
        }
    };
    add("--gpus-per-node=", job.gpus_per_node);
    // Otherwise the launcher and all its workers would share one CPU.
    options.push_back(job.cpus_per_node == 0
                          ? "--exclusive"
                          : "--cpus-per-task=" + std::to_string(job.cpus_per_node));
    add("--time=", job.time);
    add("--partition=", job.partition);
    add("--account=", job.account);
    options.push_back("--signal=TERM@" + std::to_string(job.save_seconds));
    options.insert(options.end(), {"--requeue", "--open-mode=append"});
    return options;
}

constexpr const char* kGuard = R"(
# When Slurm loses the first node, this script is gone, and the other nodes would stay allocated
# until the time limit. A step on the second node has the job start again then.
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    srun --overlap --nodes=1 --ntasks=1 --relative=1 --export=ALL --no-kill sh -c '
        while sleep 60; do
            job=$(squeue --noheader --jobs="$SLURM_JOB_ID" --nodelist="$0") && [ -z "$job" ] &&
                scontrol requeue "$SLURM_JOB_ID"
        done' "$SLURMD_NODENAME" >/dev/null 2>&1 &
fi
)";

constexpr const char* kBeforeSrun = R"(
# Slurm sends SIGTERM to this script, too, when it ends the job by itself. Without a trap the shell
# would end at once, and the launchers with it.
trap 'ended_by_slurm=yes' TERM

# One launcher on each node; Slurm's variables tell it where the others are.
)";

constexpr const char* kAfterSrun = R"(
code=$?

# 75: the state is saved, and the job can go on. A job that was cancelled must not.
if [ "$code" -eq 75 ] && [ -z "$ended_by_slurm" ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
)";

}  // namespace

std::string shell_word(const std::string& word) {
    if (is_safe(word)) {
        return word;
    }
    std::string quoted = "'";
    for (const char c : word) {
        quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return quoted + "'";
}

Result<std::string> sbatch_script(const SbatchJob& job) {
    // Without a spare node the job cannot go on, and Slurm starts it again at once.
    const bool outlives_nodes = job.nodes_min < job.nodes_max;
    std::vector<std::string> options = options_of(job);
    if (outlives_nodes) {
        options.emplace_back("--no-kill");
    }
    options.insert(options.end(), job.options.begin(), job.options.end());
    std::string script = "#!/bin/sh\n";
    for (const std::string& option : options) {
        if (std::ranges::any_of(option, [](unsigned char c) { return c < ' ' || c == 0x7f; })) {
            return Failure(Errc::invalid_argument,
                           option.substr(0, option.find('=')) +
                               ": the value has a line break or another control character");
        }
        script += directive(option);
    }
    script += outlives_nodes ? kGuard : "";
    script += kBeforeSrun;
    script +=
        "srun --nodes=\"$SLURM_JOB_NUM_NODES\" --ntasks=\"$SLURM_JOB_NUM_NODES\" "
        "--ntasks-per-node=1";
    if (job.cpus_per_node != 0) {
        script += " --cpus-per-task=" + std::to_string(job.cpus_per_node);
    }
    script += " \\\n    --cpu-bind=none --export=ALL --kill-on-bad-exit=0 --wait=0";
    script += outlives_nodes ? " --no-kill" : "";
    script += " \\\n    " + shell_word(job.regroup) + " run";
    script += " --nnodes=" + std::to_string(job.nodes_min) + ":\"$SLURM_JOB_NUM_NODES\"";
    if (job.nodes_min == 1 && !job.gpus_per_node.empty()) {
        script += " --nproc-per-node=\"${SLURM_GPUS_ON_NODE:-1}\"";
    }
    for (const std::string& word : job.run) {
        script += " " + shell_word(word);
    }
    return script + kAfterSrun;
}

}  // namespace regroup::launcher
