// SPDX-License-Identifier: Apache-2.0
#include "launcher/run_flags.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <initializer_list>

#include "launcher/completion.h"
#include "launcher/flag_values.h"
#include "launcher/run_flag_table.h"
#include "rendezvous/base/text.h"

namespace regroup::launcher {

namespace {

constexpr const char* kIntroduction =
    "Start the workers of a distributed job on this node: meet the other nodes, give each worker\n"
    "its rank, watch the workers, start a new round when one fails, and report the first failure.\n"
    "Run the same line on every node.";

constexpr const char* kFooter =
    "Examples:\n"
    "  regroup run --nproc-per-node=8 ./train --epochs 5           one node, eight workers\n"
    "  regroup run --nnodes=2:4 --nproc-per-node=8 --max-restarts=3 \\\n"
    "      --rdzv-endpoint=host0:29400 --rdzv-backend=c10d ./train   2 to 4 nodes, elastic\n"
    "  regroup run --nnodes=2 --node-rank=0 --master-addr=host0 \\\n"
    "      --master-port=29500 train.py                             fixed ranks, Python\n"
    "\n"
    "Flags can be written with dashes or underscores, and shortened if they stay unambiguous.\n"
    "The text in square brackets is the default. An environment variable PET_<NAME>\n"
    "(PET_NNODES, PET_MAX_RESTARTS, ...) changes it, except where \"no variable\" stands.\n"
    "PROGRAM is executed directly, a .py file by `python3 -u` (PYTHON_EXEC names another\n"
    "interpreter). In its arguments, ${local_rank} is replaced by the local rank; under the name\n"
    "torchrun, $local_rank is replaced, too, and $$ becomes $.\n"
    "\n"
    "Exit code: 0 if the job succeeded; the exit code of the first failing rank (128 + signal)\n"
    "if one failed; 1 if the job ended and no rank is to blame; 2 for a mistake on the command\n"
    "line, or another job of the same name; 3 if this node took part in no round; 4 if restarts\n"
    "made no progress; 75 if the node left with its state saved: start the job again; 76 if the\n"
    "node is not healthy; 124 for --finish-timeout. Under the name torchrun: 0, 1, 2.";

std::string is_host_into(std::optional<bool>& out, const std::string& given) {
    const std::string text = lower(given);
    static const std::set<std::string> kYes{"1", "true", "t", "yes", "y"};
    static const std::set<std::string> kNo{"0", "false", "f", "no", "n"};
    if (!kYes.contains(text) && !kNo.contains(text)) {
        return "must be 0 or 1, not " + in_quotes(text);
    }
    out = kYes.contains(text);
    return "";
}

// torchrun's words for --heartbeat-timeout: its parts.
bool has_keep_alive(const std::map<std::string, std::string>& conf) {
    return conf.contains("keep_alive_interval") || conf.contains("keep_alive_max_attempt");
}

// Applies the settings of --rdzv-conf. A flag for the same setting takes precedence.
Result<void> apply_conf(const FlagTable& flags, const std::map<std::string, std::string>& conf,
                        RunFlags& out) {
    std::uint32_t interval = 5;
    std::uint32_t attempts = 3;
    Duration heartbeat{};
    rendezvous::JobPolicy& policy = out.agent.core.policy;
    Duration last_call = policy.last_call;
    Duration join = out.agent.core.join_timeout;
    const auto positive = [](std::uint32_t& number) {
        constexpr auto kMax =
            std::chrono::duration_cast<std::chrono::seconds>(rendezvous::kWaitMax);
        return number_into<std::uint32_t>(number, 1, static_cast<std::uint32_t>(kMax.count()));
    };
    for (const auto& [key, value] : conf) {
        std::string wrong;
        std::uint32_t seconds = 0;
        if (key == "join_timeout" || (key == "timeout" && out.rendezvous.backend == "static")) {
            wrong = positive(seconds)(value);
            join = std::chrono::seconds(seconds);
        } else if (key == "last_call_timeout") {
            wrong = positive(seconds)(value);
            last_call = std::chrono::seconds(seconds);
        } else if (key == "keep_alive_interval") {
            wrong = number_into<std::uint32_t>(interval, 1, 86400)(value);
        } else if (key == "keep_alive_max_attempt") {
            wrong = number_into<std::uint32_t>(attempts, 1, 1000)(value);
        } else if (key == "is_host") {
            wrong = is_host_into(out.rendezvous.is_host, value);
        } else if (key == "store_type" && value == "file") {
            wrong = "=file is not available: nodes meet at a daemon, not in a file";
        } else if (key != "store_type" && key != "rank") {
            out.rendezvous.unused_conf.push_back(key);
        }
        if (!wrong.empty()) {
            return invalid_argument("--rdzv-conf: " + key + " " + wrong);
        }
    }
    if (has_keep_alive(conf)) {
        heartbeat = std::chrono::seconds(interval) * attempts;
    }
    if (heartbeat > rendezvous::kHeartbeatTimeoutMax) {
        return invalid_argument(
            "--rdzv-conf: keep_alive_interval times keep_alive_max_attempt must be at most " +
            seconds_text(rendezvous::kHeartbeatTimeoutMax) + ", not " + seconds_text(heartbeat));
    }
    if (heartbeat != Duration::zero() && !flags.was_given("--heartbeat-timeout")) {
        policy.heartbeat_timeout = heartbeat;
    }
    if (!flags.was_given("--last-call")) {
        policy.last_call = last_call;
    }
    if (!flags.was_given("--join-timeout")) {
        out.agent.core.join_timeout = join;
    }
    return {};
}

// By default, agents of large jobs report less often. Called when the number of nodes is known.
void apply_heartbeat(const FlagTable& flags, const std::map<std::string, std::string>& conf,
                     rendezvous::JobPolicy& policy) {
    if (!flags.was_set("--heartbeat-timeout") && !has_keep_alive(conf)) {
        policy.heartbeat_timeout = rendezvous::usual_heartbeat_timeout(policy.nodes_min);
    }
}

// The scheduler's word for what the command line leaves open. A command line that says where the
// nodes meet, or that asks for a job of one node, needs none of it.
Result<void> apply_allocation(const FlagTable& flags, RunFlags& out) {
    rendezvous::JobPolicy& policy = out.agent.core.policy;
    const bool says_where = std::ranges::any_of(
        std::initializer_list<const char*>{"--standalone", "--rdzv-backend", "--rdzv-endpoint",
                                           "--node-rank", "--master-addr", "--master-port"},
        [&](const char* flag) { return flags.was_set(flag); });
    const bool one_node = flags.was_set("--nnodes") && policy.nodes_max == 1;
    if (out.front == Front::torchrun || says_where || one_node) {
        return {};
    }
    Result<std::optional<Allocation>> found = find_allocation(process_environment());
    if (!found) {
        return found.error();
    }
    if (!*found || ((*found)->nodes == 0 && !flags.was_set("--nnodes"))) {
        return {};
    }
    if (!flags.was_set("--nproc-per-node") && !(*found)->workers.empty()) {
        out.workers = (*found)->workers;
    }
    if ((*found)->nodes == 1) {
        return {};
    }
    RendezvousFlags& rendezvous = out.rendezvous;
    rendezvous.allocation = *std::move(found);
    const Allocation& allocation = *rendezvous.allocation;
    if (allocation.head.empty()) {
        return invalid_argument("--nnodes asks for several nodes, and " + allocation.scheduler +
                                " does not say where they meet: " +
                                allocation.head_is_unknown_because + ", or give --rdzv-endpoint");
    }
    rendezvous.backend = "regroup";
    std::string& job = out.agent.core.job;
    if (job.empty()) {
        job = allocation.job;
    }
    // The head does not wait until name servers know its name.
    const bool by_address = allocation.is_head && !allocation.address.empty();
    rendezvous.endpoint = host_and_port(by_address ? allocation.address : allocation.head,
                                        allocation.port != 0 ? allocation.port : port_of_job(job));
    if (!rendezvous.is_host) {
        rendezvous.is_host = allocation.is_head;
    }
    if (!flags.was_set("--nnodes")) {
        policy.nodes_min = policy.nodes_max = allocation.nodes;
    }
    if (std::string& address = out.agent.core.offer.address; address.empty()) {
        address = allocation.address;
    }
    return {};
}

Result<void> check_together(const RunFlags& flags) {
    const ProgramFlags& program = flags.program;
    if (program.module && program.no_python) {
        return invalid_argument("--module and --no-python exclude each other");
    }
    if (flags.front == Front::launch && program.no_python && !program.use_env) {
        return invalid_argument(
            "--no-python needs --use-env: without it, --local-rank=N is passed to a "
            "Python script");
    }
    const agent::OutputOptions& output = flags.agent.group.output;
    const bool files = flags.log_dir != "/dev/null";
    const bool needles = !output.stdout_needles.empty() || !output.stderr_needles.empty();
    if (flags.front != Front::torchrun && needles && (!output.tee.any() || !files)) {
        return invalid_argument(
            "--duplicate-stdout-filters and --duplicate-stderr-filters copy lines of "
            "teed streams: give --tee and a --log-dir, too");
    }
    if (flags.front != Front::torchrun && !files && (output.tee.any() || output.redirects.any())) {
        return invalid_argument(
            "--log-dir /dev/null leaves --redirects and --tee no file to write to");
    }
    return {};
}

const char* name_of(Front front) {
    switch (front) {
        case Front::run:
            return "regroup run";
        case Front::torchrun:
            return "torchrun";
        case Front::launch:
            return "regroup launch";
    }
    return "regroup";
}

}  // namespace

Result<std::variant<RunFlags, ShowText>> parse_run_flags(Front front,
                                                         std::span<const std::string> arguments) {
    using Parsed = std::variant<RunFlags, ShowText>;
    RunFlags out;
    out.front = front;
    SpecialFlags special;
    FlagTable flags(name_of(front), /*has_torchrun=*/true);
    flags.usage = std::string(name_of(front)) + " [FLAGS] PROGRAM [ARGUMENTS...]";
    flags.first_word_is_program = true;
    flags.introduction = kIntroduction;
    flags.footer = kFooter;
    declare_run_flags(flags, out, special);

    auto parsed = flags.parse(arguments);
    if (!parsed) {
        return parsed.error();
    }
    if (auto* show = std::get_if<ShowText>(&*parsed)) {
        return Parsed(std::move(*show));
    }
    if (!special.shell.empty()) {
        return Parsed(ShowText{completion(name_of(front), flags.names(), special.shell)});
    }
    if (!special.logs_specs.empty() && special.logs_specs != "default") {
        return invalid_argument("--logs-specs " + special.logs_specs +
                                ": plug-ins of torchrun are Python, and only \"default\" is "
                                "known; use --log-dir, --redirects, --tee");
    }
    if (const char* text = std::getenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
        text != nullptr && !flags.was_given("--shutdown-timeout") &&
        std::getenv("PET_SHUTDOWN_TIMEOUT") == nullptr) {
        const std::string wrong = seconds_into(out.agent.core.policy.shutdown_timeout)(text);
        if (!wrong.empty()) {
            return invalid_argument("TORCH_ELASTIC_SHUTDOWN_TIMEOUT " + wrong);
        }
    }
    if (const Result<void> applied = apply_conf(flags, special.conf, out); !applied) {
        return applied.error();
    }
    if (const Result<void> applied = apply_allocation(flags, out); !applied) {
        return applied.error();
    }
    apply_heartbeat(flags, special.conf, out.agent.core.policy);
    const auto& rest = std::get<std::vector<std::string>>(*parsed);
    if (rest.empty()) {
        return invalid_argument("no program given (usage: " + flags.usage + ")");
    }
    out.notes = flags.misspelled_variables();
    out.program.program = rest.front();
    out.program.arguments.assign(rest.begin() + 1, rest.end());
    if (const Result<void> together = check_together(out); !together) {
        return together.error();
    }
    return Parsed(std::move(out));
}

}  // namespace regroup::launcher
