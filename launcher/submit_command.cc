// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <sys/mman.h>
#include <unistd.h>
#include <variant>

#include "launcher/cluster/sbatch_script.h"
#include "launcher/commands.h"
#include "launcher/flag_table.h"
#include "launcher/flag_values.h"
#include "launcher/run_flags.h"
#include "launcher/say.h"
#include "launcher/trust.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/security/token.h"

namespace regroup::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCommand = "regroup submit slurm";
constexpr std::uint32_t kSignalTimeMax = 65535;  // Slurm's own limit.
constexpr std::uint32_t kCpusMax = 65535;

struct SubmitOptions {
    SbatchJob job;
    bool dry_run = false;
};

FlagTable::Take option_into(std::vector<std::string>& out) {
    return [&out](const std::string& text) -> std::string {
        if (!text.starts_with("-")) {
            return "must be an option of sbatch, such as --qos=high, not " + in_quotes(text);
        }
        out.push_back(text);
        return "";
    };
}

void describe(FlagTable& flags, SubmitOptions& options) {
    SbatchJob& job = options.job;
    flags.usage = "regroup submit slurm [FLAGS] [--] [FLAGS OF regroup run] PROGRAM [ARGUMENTS...]";
    flags.introduction =
        "Write a batch script that runs PROGRAM under `regroup run` on each node, and submit it\n"
        "by sbatch. Before the time limit and at preemption the workers save their state; then\n"
        "Slurm starts the job again. With --nodes=MIN:MAX the job goes on without a lost node.";
    flags.footer =
        "Examples:\n"
        "  regroup submit slurm --nodes=4 --gpus-per-node=8 --time=4:00:00 ./train --epochs 5\n"
        "  regroup submit slurm --nodes=2:4 --sbatch=--qos=high -- --max-restarts=3 ./train\n"
        "Words behind -- go to `regroup run` as they are; the first that is no flag is PROGRAM.\n"
        "Exit code: that of sbatch; 1 if it cannot be started; 2 for a mistake on the command "
        "line.";
    flags.group("Flags");
    flags.value({"--nodes", "N|MIN:MAX", "1", "Nodes of the job. Slurm starts it with MIN at least",
                 "--nodes=2:4"},
                node_range_into(job.nodes_min, job.nodes_max));
    flags.value({"--time", "TIME", "the partition's",
                 "Time limit, in minutes or as HH:MM:SS or D-HH. It begins anew with each start",
                 "--time=4:00:00"},
                name_into(job.time));
    flags.value({"--gpus-per-node", "[TYPE:]N", "none",
                 "GPUs of each node. Each gets a worker, unless --nproc-per-node behind -- says "
                 "otherwise",
                 "--gpus-per-node=8"},
                name_into(job.gpus_per_node));
    flags.value({"--cpus-per-task", "N", "all of whole nodes (--exclusive)", "CPUs of each node",
                 "--cpus-per-task=32"},
                number_into<std::uint32_t>(job.cpus_per_node, 1, kCpusMax));
    flags.value({"--partition", "NAME", "the cluster's", "Partition", "--partition=gpu"},
                name_into(job.partition));
    flags.value({"--account", "NAME", "yours", "Account that is charged", "--account=nlp"},
                name_into(job.account));
    flags.value({"--job-name", "NAME", "the program's", "Name in squeue", "--job-name=nightly"},
                name_into(job.name));
    flags.value({"--save-time", "SECONDS", "120",
                 "How long before the time limit the workers save and leave. Slurm may tell them "
                 "60 s earlier",
                 "--save-time=300"},
                number_into<std::uint32_t>(job.save_seconds, 1, kSignalTimeMax));
    flags.value({"--sbatch", "OPTION", "",
                 "Another option of sbatch. May be given more than once, and wins over the flags "
                 "above",
                 "--sbatch=--qos=high"},
                option_into(job.options));
    flags.toggle({"--dry-run", "", "", "Print the script, and submit nothing"}, options.dry_run);
}

// The nodes may have another regroup in their PATH, or none.
std::string own_path() {
    std::error_code error;
    const fs::path path = fs::read_symlink("/proc/self/exe", error);
    return error ? "regroup" : path.string();
}

// Mistakes are found now, and not after hours in the queue.
Result<std::variant<RunFlags, ShowText>> check_run(const SbatchJob& job) {
    const std::string nodes = std::to_string(job.nodes_min) + ":" + std::to_string(job.nodes_max);
    std::vector<std::string> words{"--nnodes=" + nodes};
    words.insert(words.end(), job.run.begin(), job.run.end());
    return parse_run_flags(Front::run, words);
}

// A job of several nodes needs a token. One that exists is never replaced.
Result<void> ensure_token(const SubmitOptions& options, const RunFlags& run) {
    const Result<security::Credentials> credentials = read_credentials(run.trust);
    if (!credentials) {
        return credentials.error();
    }
    if (options.job.nodes_max == 1 || credentials->can_prove() || credentials->insecure) {
        return {};
    }
    if (options.dry_run) {
        complain(kCommand,
                 "there is no token by which the nodes trust each other; without "
                 "--dry-run this command writes one");
        return {};
    }
    const std::string file = usual_token_file();
    if (file.empty()) {
        return no_credentials("a job of several nodes");
    }
    const security::Token token = security::Token::generate();
    if (const Result<void> written = security::write_token(file, token); !written) {
        return written.error();
    }
    complain(kCommand, "wrote token " + token.id() + ", by which the nodes trust each other, to " +
                           file + "; nodes without this home folder need a copy");
    return {};
}

// Replaces this process by sbatch, which reads the script from its standard input.
Failure start_sbatch(const std::string& script) {
    const int file = ::memfd_create("script", 0);
    if (file < 0 ||
        ::write(file, script.data(), script.size()) != static_cast<ssize_t>(script.size()) ||
        ::lseek(file, 0, SEEK_SET) != 0 || ::dup2(file, STDIN_FILENO) < 0) {
        return system_failure("cannot write the script", errno);
    }
    ::close(file);
    std::fflush(nullptr);
    ::execlp("sbatch", "sbatch", static_cast<char*>(nullptr));
    return {Errc::system,
            system_failure("cannot start sbatch", errno).detail +
                "; submit on a host of the cluster, or print the script with --dry-run"};
}

Result<CommandEnd> submit(SubmitOptions& options) {
    const auto parsed = check_run(options.job);
    if (!parsed) {
        return parsed.error();
    }
    if (const auto* show = std::get_if<ShowText>(&*parsed)) {
        std::fputs(show->text.c_str(), stdout);
        return CommandEnd{};
    }
    const auto& run = std::get<RunFlags>(*parsed);
    if (options.job.name.empty()) {
        options.job.name = fs::path(run.program.program).filename();
    }
    options.job.regroup = own_path();
    const Result<std::string> script = sbatch_script(options.job);
    if (!script) {
        return script.error();
    }
    if (const Result<void> trusted = ensure_token(options, run); !trusted) {
        return trusted.error();
    }
    std::error_code ignored;
    if (run.program.program.find('/') != run.program.program.npos &&
        !fs::exists(run.program.program, ignored)) {
        complain(kCommand,
                 "there is no " + run.program.program + " here, where the job will start");
    }
    if (options.dry_run) {
        std::fputs(script->c_str(), stdout);
        return CommandEnd{};
    }
    complain(kCommand, start_sbatch(*script).detail);
    return CommandEnd{kExitJobFailed};
}

}  // namespace

CommandEnd submit_command(std::span<const std::string> arguments) {
    SubmitOptions options;
    FlagTable flags(kCommand);
    flags.first_word_is_program = true;
    describe(flags, options);
    const bool asks_help = !arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h");
    if (!asks_help && (arguments.empty() || arguments[0] != "slurm")) {
        return usage_error("regroup submit", arguments.empty()
                                                 ? "name the scheduler: regroup submit slurm ..."
                                                 : "knows no scheduler '" + arguments[0] +
                                                       "'; write regroup submit slurm ...");
    }
    return run_with(flags, arguments.subspan(asks_help ? 0 : 1), [&](const Words& words) {
        options.job.run = words;
        return submit(options);
    });
}

}  // namespace regroup::launcher
