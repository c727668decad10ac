// SPDX-License-Identifier: Apache-2.0
#include "launcher/run_options.h"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>

#include "launcher/completion.h"
#include "launcher/flag_values.h"

namespace regroup::launcher {

namespace {

constexpr const char* kDefaultSignals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";

using Conf = std::map<std::string, std::string>;

constexpr const char* kIntroduction =
    "Start a distributed job's workers on this node: rendezvous with the other nodes, give every\n"
    "worker its rank, watch them, restart the job when one fails, and say who failed first.\n"
    "Run the same line on every node.";

constexpr const char* kFooter =
    "Examples:\n"
    "  regroup run --nproc-per-node=8 ./train --epochs 5           one node, eight workers\n"
    "  regroup run --nnodes=2:4 --nproc-per-node=8 --max-restarts=3 \\\n"
    "      --rdzv-endpoint=host0:29400 --rdzv-backend=c10d ./train   2 to 4 nodes, elastic\n"
    "  regroup run --nnodes=2 --node-rank=0 --master-addr=host0 \\\n"
    "      --master-port=29500 train.py                             fixed ranks, Python\n"
    "\n"
    "Flags may be written with dashes or underscores and shortened while they stay unambiguous.\n"
    "Each has its default in PET_<NAME> (PET_NNODES, PET_MAX_RESTARTS, ...), unless it says\n"
    "otherwise. PROGRAM runs as it is, a .py file by `python3 -u` (PYTHON_EXEC\n"
    "names another interpreter); $local_rank in its arguments is filled in. Exit code: 0 when the "
    "job succeeded; the first failing rank's own code (128 + signal)\n"
    "when one failed; 1 when no rank is to blame; 2 for a mistake on the command line; 3 when no\n"
    "rendezvous was reached. Called as torchrun: 0, 1 and 2.";

void declare_job(FlagTable& flags, RunOptions& options) {
    flags.group("Job");
    flags.value({"--nnodes", "N|MIN:MAX", "1:1", "Nodes in the job; with MIN:MAX it is elastic",
                 "--nnodes=2:4"},
                node_range_into(options.nodes_min, options.nodes_max));
    flags.value({"--nproc-per-node", "N|cpu|gpu|auto", "1",
                 "Workers on this node: a number, one per CPU, one per GPU, or auto (GPUs if "
                 "there are any, else CPUs)",
                 "--nproc-per-node=8"},
                [&options](const std::string& text) -> std::string {
                    const auto number = parse_number<std::uint32_t>(text);
                    if (text == "xpu") {
                        return "cannot count Intel GPUs (xpu): give their number";
                    }
                    const bool word = text == "cpu" || text == "gpu" || text == "auto";
                    if (!word && (!number || *number == 0 || *number > 65536)) {
                        return "must be a number of workers from 1, cpu, gpu or auto, not " +
                               in_quotes(text);
                    }
                    options.workers = text;
                    return "";
                });
    flags.value(
        {"--max-restarts", "N", "0",
         "Worker failures that the job survives, counted for the whole job", "--max-restarts=3"},
        number_into<std::uint32_t>(options.max_restarts, 0, 1000000));
    flags.value({"--role", "NAME", "default", "Role of this node's workers", "--role=trainer"},
                [&options](const std::string& text) {
                    return text.empty() ? "must not be empty" : name_into(options.role)(text);
                });
}

void declare_rendezvous(FlagTable& flags, RunOptions& options, Conf& conf) {
    flags.group("Rendezvous");
    flags.toggle(
        {"--standalone", "", "", "A job of this node alone, with a rendezvous of its own", ""},
        options.standalone);
    flags.value({"--rdzv-backend", "NAME", "static",
                 "static: ranks by --node-rank, master at the endpoint. c10d, regroup: ranks by "
                 "agreement at the endpoint. etcd, etcd-v2: as c10d; no etcd is asked",
                 "--rdzv-backend=c10d"},
                word_into(options.rdzv_backend, {"static", "c10d", "etcd", "etcd-v2", "regroup"}));
    flags.value({"--rdzv-endpoint", "HOST[:PORT]", "port 29400",
                 "Where the rendezvous daemon is; on the node that it names it is started",
                 "--rdzv-endpoint=host0:29400"},
                text_into(options.rdzv_endpoint));
    flags.value({"--rdzv-id", "ID", "none", "Name of the job, the same on all its nodes",
                 "--rdzv-id=nightly-42"},
                name_into(options.rdzv_id));
    flags.value(
        {"--rdzv-conf", "KEY=VALUE,...", "",
         "torchrun's further settings: join_timeout, last_call_timeout, "
         "keep_alive_interval, keep_alive_max_attempt, timeout, is_host; others are named "
         "in a note",
         "--rdzv-conf=last_call_timeout=5"},
        [&conf](const std::string& text) -> std::string {
            conf.clear();
            std::size_t begin = 0;
            const auto trim = [](const std::string& part) {
                const std::size_t first = part.find_first_not_of(" \n\r\x09");
                return first == part.npos
                           ? ""
                           : part.substr(first, part.find_last_not_of(" \n\r\x09") + 1 - first);
            };
            while (!trim(text).empty() && begin <= text.size()) {
                const std::size_t end = std::min(text.find(',', begin), text.size());
                const std::string pair = trim(text.substr(begin, end - begin));
                const std::size_t equals = pair.find('=');
                const std::string key = trim(pair.substr(0, equals));
                const std::string value = equals == pair.npos ? "" : trim(pair.substr(equals + 1));
                if (key.empty() || value.empty()) {
                    return "must be KEY=VALUE,..., not " + in_quotes(pair);
                }
                if (conf.contains(key)) {
                    return "gives " + key + " twice";
                }
                conf[key] = value;
                begin = end + 1;
            }
            return "";
        });
    flags.value({"--node-rank", "N", "0",
                 "Rank of this node. With c10d, the place that it asks for; left out, a place is "
                 "given to it",
                 "--node-rank=1"},
                [&options](const std::string& text) {
                    options.node_rank = 0;
                    return number_into<std::uint32_t>(*options.node_rank, 0, 1000000)(text);
                });
    flags.value({"--master-addr", "ADDR", "127.0.0.1",
                 "Node 0's address (static back end without endpoint)", "--master-addr=host0"},
                text_into(options.master_addr));
    flags.value(
        {"--master-port", "PORT", "29500", "Node 0's port, likewise", "--master-port=29501"},
        [&options](const std::string& text) {
            options.master_port = 0;
            return number_into<std::uint16_t>(*options.master_port, 1, 65535)(text);
        });
    flags.value({"--local-addr", "ADDR", "as the daemon sees it",
                 "Address by which other nodes reach this one", "--local-addr=10.0.0.7"},
                name_into(options.local_addr));
}

void declare_time(FlagTable& flags, RunOptions& options) {
    flags.group("Time, in seconds");
    flags.value({"--join-timeout", "S", "600", "Give up when no round was formed by then",
                 "--join-timeout=60", "", true},
                seconds_into(options.join_timeout));
    flags.value({"--last-call", "S", "3",
                 "Wait for more nodes once MIN of MIN:MAX are there (first round only)",
                 "--last-call=30", "", true},
                seconds_into(options.last_call));
    flags.value({"--heartbeat-timeout", "S", "3", "A node silent for this long is lost",
                 "--heartbeat-timeout=10", "", true},
                seconds_into(options.heartbeat_timeout));
    flags.value({"--shutdown-timeout", "S", "30",
                 "From SIGTERM to SIGKILL, on every path [TORCH_ELASTIC_SHUTDOWN_TIMEOUT, "
                 "PET_SHUTDOWN_TIMEOUT]",
                 "--shutdown-timeout=120"},
                seconds_into(options.shutdown_timeout));
    flags.value(
        {"--grow-after", "S", "5", "Stop a running round to let a new node in once it is this old",
         "--grow-after=60", "", true},
        seconds_into(options.grow_after));
    flags.value({"--signals-to-handle", "NAMES", kDefaultSignals,
                 "Signals that end the run here: workers get the same one, and the time of "
                 "--shutdown-timeout. SIGUSR1 and SIGUSR2 are passed on to the workers otherwise",
                 "--signals-to-handle=SIGTERM,SIGINT"},
                signals_into(options.signals, options.signal_names));
    flags.value({"--monitor-interval", "S", "0.1",
                 "Accepted for compatibility; workers are watched by event, without polling",
                 "--monitor-interval=1"},
                [&options](const std::string& text) -> std::string {
                    Duration interval{};
                    const std::string complaint = seconds_into(interval)(text);
                    options.monitor_interval = std::chrono::duration<double>(interval).count();
                    return complaint.empty() && interval == Duration::zero() ? "must be above 0"
                                                                             : complaint;
                });
}

void declare_output(FlagTable& flags, RunOptions& options) {
    flags.group("Output");
    flags.value({"--log-dir", "DIR", "./regroup-runs",
                 "One file for each rank and round goes under DIR/ID; /dev/null for none",
                 "--log-dir=runs"},
                [&options](const std::string& text) -> std::string {
                    options.log_dir = text;
                    return text.empty() ? "must not be empty" : "";
                });
    flags.value({"-r,--redirects", "STREAMS", "0",
                 "Write streams to files only: 1 stdout, 2 stderr, 3 both, or by local rank. "
                 "Files are then called as by torchrun: DIR/ID_RANDOM/attempt_N/LOCAL_RANK/"
                 "stdout.log, stderr.log",
                 "--redirects=0:1,1:3"},
                streams_into(options.redirects));
    flags.value({"-t,--tee", "STREAMS", "0",
                 "The same, and show them, after [ROLE LOCAL_RANK]:", "--tee=3"},
                streams_into(options.tee));
    flags.value({"--local-ranks-filter", "RANKS", "all",
                 "Show only these local ranks; files are complete", "--local-ranks-filter=0"},
                local_ranks_into(options.local_ranks_filter));
    flags.value({"--log-line-prefix-template", "TEXT", "",
                 "Before each line shown: ${role_name}, ${local_rank}, ${rank}, ${hostname} are "
                 "filled in",
                 "--log-line-prefix-template='${rank}: '"},
                text_into(options.log_line_prefix));
    flags.value({"--duplicate-stdout-filters", "TEXTS", "",
                 "Copy teed lines with any of these in them to filtered_stdout.log (,, is a comma)",
                 "--duplicate-stdout-filters=loss,acc"},
                needles_into(options.stdout_needles));
    flags.value({"--duplicate-stderr-filters", "TEXTS", "", "Likewise to filtered_stderr.log",
                 "--duplicate-stderr-filters=Error"},
                needles_into(options.stderr_needles));
    flags.value({"--log-file-size", "BYTES", "no limit",
                 "A file that would grow beyond this begins anew; the full one is kept as FILE.1",
                 "--log-file-size=100M", "", true},
                bytes_into(options.log_file_bytes_max));
    flags.value({"--event-log-handler", "null|console", "null",
                 "console: one JSON object a line to stderr for each worker's start and end",
                 "--event-log-handler=console"},
                [&options](const std::string& text) -> std::string {
                    std::string word;
                    const std::string wrong = word_into(word, {"null", "console"})(text);
                    options.console_events = word == "console";
                    return wrong;
                });
}

void declare_placement(FlagTable& flags, RunOptions& options) {
    flags.group("CPUs and GPUs");
    flags.value({"--numa-binding", "MODE", "",
                 "Bind each worker to the CPUs near its GPU: node, socket, exclusive (cores "
                 "divided among the GPUs of a node) or core-complex",
                 "--numa-binding=node", "-"},
                word_into(options.numa_binding, {"node", "socket", "exclusive", "core-complex"}));
    flags.value({"--cpus-per-rank", "N|auto", "",
                 "Bind each worker to cores of its own, and set OMP_NUM_THREADS to match; auto "
                 "divides this machine's cores",
                 "--cpus-per-rank=auto", "", true},
                [&options](const std::string& text) -> std::string {
                    const auto number = parse_number<std::uint32_t>(text);
                    if (text != "auto" && (!number || *number == 0)) {
                        return "must be a number of cores from 1, or auto, not " + in_quotes(text);
                    }
                    options.cpus_per_rank = text;
                    return "";
                });
    flags.toggle(
        {"--report-bindings", "", "", "Say which CPUs and threads each worker gets", "", "", true},
        options.report_bindings);
    flags.toggle({"--virtual-local-rank", "", "",
                  "Every worker gets LOCAL_RANK=0 and sees only its own GPU", ""},
                 options.virtual_local_rank);
}

void declare_program(FlagTable& flags, RunOptions& options, std::string& start_method,
                     std::string& logs_specs, std::string& shell) {
    flags.group("Program");
    flags.toggle({"-m,--module", "", "", "PROGRAM is a Python module (python3 -u -m PROGRAM)",
                  "-m package.train"},
                 options.module);
    flags.toggle({"--no-python", "", "", "Run PROGRAM itself even if it is a .py file", ""},
                 options.no_python);
    flags.toggle(
        {"--run-path", "", "",
         "Run PROGRAM by Python's runpy, which records an exception in the error file", ""},
        options.run_path);
    if (options.front == Front::launch) {
        flags.toggle(
            {"--use-env", "", "", "Do not pass --local-rank=N to the script", "--use-env", "-"},
            options.use_env);
    }
    flags.value(
        {"--start-method", "METHOD", "spawn",
         "Accepted for compatibility; workers are always started afresh", "--start-method=spawn"},
        word_into(start_method, {"spawn", "fork", "forkserver"}));
    flags.value({"--logs-specs", "NAME", "", "A Python plug-in of torchrun; not available here",
                 "--logs-specs=default", "-"},
                text_into(logs_specs));
    flags.value({"--print-completion", "SHELL", "", "Print the completion for bash, zsh or tcsh",
                 "--print-completion=bash", "-"},
                word_into(shell, {"bash", "zsh", "tcsh"}));
}

std::string is_host_into(std::optional<bool>& out, std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    static const std::set<std::string> kYes{"1", "true", "t", "yes", "y"};
    static const std::set<std::string> kNo{"0", "false", "f", "no", "n"};
    if (!kYes.contains(text) && !kNo.contains(text)) {
        return "must be 0 or 1, not " + in_quotes(text);
    }
    out = kYes.contains(text);
    return "";
}

// torchrun's settings in our terms. What has a flag of its own is overruled by it.
Result<void> apply_conf(const FlagTable& flags, const Conf& conf, RunOptions& options) {
    std::uint32_t interval = 5;
    std::uint32_t attempts = 3;
    Duration heartbeat{};
    Duration last_call = options.last_call;
    Duration join = options.join_timeout;
    const auto positive = [](std::uint32_t& out) {
        return number_into<std::uint32_t>(out, 1, 1000000000);
    };
    for (const auto& [key, value] : conf) {
        std::string wrong;
        std::uint32_t seconds = 0;
        if (key == "join_timeout" || (key == "timeout" && options.rdzv_backend == "static")) {
            wrong = positive(seconds)(value);
            join = std::chrono::seconds(seconds);
        } else if (key == "last_call_timeout") {
            wrong = positive(seconds)(value);
            last_call = std::chrono::seconds(seconds);
        } else if (key == "keep_alive_interval") {
            wrong = positive(interval)(value);
        } else if (key == "keep_alive_max_attempt") {
            wrong = positive(attempts)(value);
        } else if (key == "is_host") {
            wrong = is_host_into(options.is_host, value);
        } else if (key == "store_type" && value == "file") {
            wrong = "=file is not available: nodes meet at a daemon, not in a file";
        } else if (key != "store_type" && key != "rank") {
            options.unused_conf.push_back(key);
        }
        if (!wrong.empty()) {
            return Failure(Errc::invalid_argument, "--rdzv-conf: " + key + " " + wrong);
        }
    }
    if (conf.contains("keep_alive_interval") || conf.contains("keep_alive_max_attempt")) {
        heartbeat = std::chrono::seconds(interval) * attempts;
    }
    if (heartbeat != Duration::zero() && !flags.was_given("--heartbeat-timeout")) {
        options.heartbeat_timeout = heartbeat;
    }
    if (!flags.was_given("--last-call")) {
        options.last_call = last_call;
    }
    if (!flags.was_given("--join-timeout")) {
        options.join_timeout = join;
    }
    return {};
}

Result<void> check_together(const RunOptions& options) {
    const auto usage = [](const char* sentence) {
        return Failure(Errc::invalid_argument, sentence);
    };
    if (options.module && options.no_python) {
        return usage("--module and --no-python exclude each other");
    }
    if (options.front == Front::launch && options.no_python && !options.use_env) {
        return usage(
            "--no-python needs --use-env: without it, --local-rank=N is passed to a "
            "Python script");
    }
    const bool files = options.log_dir != "/dev/null";
    const bool needles = !options.stdout_needles.empty() || !options.stderr_needles.empty();
    if (options.front != Front::torchrun && needles && (!options.tee.any() || !files)) {
        return usage(
            "--duplicate-stdout-filters and --duplicate-stderr-filters copy lines of "
            "teed streams: give --tee and a --log-dir, too");
    }
    if (options.front != Front::torchrun && !files &&
        (options.tee.any() || options.redirects.any())) {
        return usage("--log-dir /dev/null leaves --redirects and --tee no file to write to");
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

Result<std::variant<RunOptions, ShowText>> parse_run_options(
    Front front, std::span<const std::string> arguments) {
    using Parsed = std::variant<RunOptions, ShowText>;
    RunOptions options;
    options.front = front;
    Conf conf;
    std::string start_method;
    std::string logs_specs;
    std::string shell;
    FlagTable flags(name_of(front));
    flags.usage = std::string(name_of(front)) + " [FLAGS] PROGRAM [ARGUMENTS...]";
    flags.introduction = kIntroduction;
    flags.footer = kFooter;
    declare_job(flags, options);
    declare_rendezvous(flags, options, conf);
    declare_time(flags, options);
    declare_output(flags, options);
    declare_placement(flags, options);
    declare_program(flags, options, start_method, logs_specs, shell);
    signals_into(options.signals, options.signal_names)(kDefaultSignals);

    if (const char* text = std::getenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT")) {
        const std::string wrong = seconds_into(options.shutdown_timeout)(text);
        if (!wrong.empty()) {
            return Failure(Errc::invalid_argument, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT " + wrong);
        }
    }
    auto parsed = flags.parse(arguments);
    if (!parsed) {
        return parsed.error();
    }
    if (auto* show = std::get_if<ShowText>(&*parsed)) {
        return Parsed(std::move(*show));
    }
    if (!shell.empty()) {
        return Parsed(ShowText{completion(name_of(front), flags.names(), shell)});
    }
    if (!logs_specs.empty()) {
        return Failure(Errc::invalid_argument,
                       "--logs-specs " + logs_specs +
                           ": plug-ins of torchrun are Python; use --log-dir, --redirects, --tee");
    }
    if (const Result<void> applied = apply_conf(flags, conf, options); !applied) {
        return applied.error();
    }
    auto& rest = std::get<std::vector<std::string>>(*parsed);
    if (rest.empty()) {
        return Failure(Errc::invalid_argument, "no program given (usage: " + flags.usage + ")");
    }
    options.program = rest.front();
    options.arguments.assign(rest.begin() + 1, rest.end());
    if (const Result<void> together = check_together(options); !together) {
        return together.error();
    }
    return Parsed(std::move(options));
}

}  // namespace regroup::launcher
