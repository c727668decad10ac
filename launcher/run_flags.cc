// SPDX-License-Identifier: Apache-2.0
#include "launcher/run_flags.h"

#include <algorithm>
#include <cstdlib>

#include "launcher/flag_values.h"
#include "launcher/recovery_flags.h"

namespace regroup::launcher {

namespace {

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

void declare_rendezvous(FlagTable& flags, RunOptions& options,
                        std::map<std::string, std::string>& conf) {
    flags.group("Rendezvous");
    flags.toggle(
        {"--standalone", "", "", "A job of this node alone, with a rendezvous of its own", ""},
        options.standalone);
    flags.value({"--rdzv-backend", "NAME", "static",
                 "static: ranks by --node-rank, master at the endpoint. c10d, regroup: ranks by "
                 "agreement at the endpoint. etcd, etcd-v2: as c10d; no etcd is asked",
                 "--rdzv-backend=c10d"},
                word_into(options.rdzv_backend, {"static", "c10d", "etcd", "etcd-v2", "regroup"}));
    flags.value({"--rdzv-endpoint", "HOST[:PORT],...", "port 29400",
                 "Where the rendezvous daemon is; on the node that it names it is started. With "
                 "several, daemons of which one leads (regroup serve); none is started then",
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
    flags.value(
        {"--state", "DIR|etcd://HOST:PORT[,...]|none", "none",
         "On the node that the endpoint names: where its daemon keeps the job. If that node "
         "is lost, the others go on; started again by the same line, it takes the job up",
         "--state=/var/lib/regroup", "", true},
        [&options](const std::string& text) {
            return text.empty() ? "must be a directory, etcd://HOST:PORT or none"
                                : text_into(options.state)(text);
        });
    flags.value(store_dialect_flag(""), dialect_into(options.store_dialect));
}

// Continues the group of times.
void declare_hangs(FlagTable& flags, RunOptions& options) {
    flags.value({"--hang-timeout", "S", "0",
                 "A round hangs when none of its workers has written anything for so long; in an "
                 "ElasticLoop, when one has made no progress for so long, whatever it took before. "
                 "0: no such limit, and of programs without ElasticLoop no hang is found",
                 "--hang-timeout=600", "", true},
                seconds_into(options.hang_timeout));
    flags.value(
        {"--hang-factor", "N", "5",
         "In an ElasticLoop, a round hangs when a step or a section takes N times as long as "
         "it ever did",
         "--hang-factor=10", "", true},
        [&options](const std::string& text) -> std::string {
            char* end = nullptr;
            options.hang_factor = std::strtod(text.c_str(), &end);
            const bool valid = !text.empty() && *end == '\0' && options.hang_factor >= 1 &&
                               options.hang_factor <= 1e6;
            return valid ? "" : "must be a number from 1, not " + in_quotes(text);
        });
    flags.value({"--hang-floor", "S", "10", "But not before so long", "--hang-floor=60", "", true},
                [&options](const std::string& text) -> std::string {
                    const std::string wrong = seconds_into(options.hang_floor)(text);
                    return wrong.empty() && options.hang_floor == Duration::zero()
                               ? "must be above 0"
                               : wrong;
                });
}

void declare_time(FlagTable& flags, RunOptions& options) {
    flags.group("Time, in seconds");
    flags.value({"--join-timeout", "S", "600", "Give up when no round was formed by then",
                 "--join-timeout=60", "", true},
                seconds_into(options.join_timeout));
    flags.value({"--last-call", "S", "3",
                 "Wait for more nodes once MIN of MIN:MAX are there (first round, or all lost)",
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
                 "--shutdown-timeout. SIGUSR1 and SIGUSR2 are passed on to the workers otherwise, "
                 "unless these have the SDK's loop and would only die of it: then they end the run",
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
    declare_hangs(flags, options);
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

// A number of what each worker gets, or auto.
FlagTable::Take share_into(std::string& out, const std::string& what) {
    return [&out, what](const std::string& text) -> std::string {
        const auto number = parse_number<std::uint32_t>(text);
        if (text != "auto" && (!number || *number == 0)) {
            return "must be a number of " + what + " from 1, or auto, not " + in_quotes(text);
        }
        out = text;
        return "";
    };
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
                share_into(options.cpus_per_rank, "cores"));
    flags.value({"--gpus-per-rank", "N|auto", "",
                 "Show each worker GPUs of its own only (CUDA_VISIBLE_DEVICES), out of those that "
                 "can be seen here, in order; auto divides them. Without it every worker sees all, "
                 "and takes the one with the number of its LOCAL_RANK",
                 "--gpus-per-rank=1", "", true},
                share_into(options.gpus_per_rank, "GPUs"));
    flags.toggle(
        {"--report-bindings", "", "", "Say which CPUs and threads each worker gets", "", "", true},
        options.report_bindings);
    flags.toggle({"--virtual-local-rank", "", "",
                  "Every worker gets LOCAL_RANK=0 and sees only its own GPU, or those of "
                  "--gpus-per-rank",
                  ""},
                 options.virtual_local_rank);
}

void declare_program(FlagTable& flags, RunOptions& options, SpecialFlags& special) {
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
        word_into(special.start_method, {"spawn", "fork", "forkserver"}));
    flags.value({"--logs-specs", "NAME", "", "A Python plug-in of torchrun; not available here",
                 "--logs-specs=default", "-"},
                text_into(special.logs_specs));
    flags.value({"--print-completion", "SHELL", "", "Print the completion for bash, zsh or tcsh",
                 "--print-completion=bash", "-"},
                word_into(special.shell, {"bash", "zsh", "tcsh"}));
}

}  // namespace

void declare_run_flags(FlagTable& flags, RunOptions& options, SpecialFlags& special) {
    declare_job(flags, options);
    declare_rendezvous(flags, options, special.conf);
    declare_time(flags, options);
    declare_recovery(flags, options);
    declare_output(flags, options);
    declare_placement(flags, options);
    declare_program(flags, options, special);
}

}  // namespace regroup::launcher
