// SPDX-License-Identifier: Apache-2.0
#include "launcher/run_flag_table.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sstream>

#include "launcher/etcd_flags.h"
#include "launcher/flag_values.h"
#include "launcher/rank_key.h"
#include "launcher/trust.h"

namespace regroup::launcher {

namespace {

void declare_job(FlagTable& flags, RunFlags& out) {
    flags.group("Job");
    flags.value({"--nnodes", "N|MIN:MAX", "1:1",
                 "Nodes of the job. With MIN:MAX the job is elastic: it runs with any "
                 "number of nodes from MIN to MAX",
                 "--nnodes=2:4"},
                node_range_into(out.agent.core.policy.nodes_min, out.agent.core.policy.nodes_max));
    flags.value({"--nproc-per-node", "N|cpu|gpu|auto", "1",
                 "Workers on this node: a number, cpu (one per CPU), gpu (one per GPU), or auto "
                 "(one per GPU if there are any, else one per CPU). The CPUs are those of the "
                 "affinity mask, and no more than the quota of the cgroup",
                 "--nproc-per-node=8"},
                [&out](const std::string& text) -> std::string {
                    const auto number = parse_number<std::uint32_t>(text);
                    if (text == "xpu") {
                        return "cannot count Intel GPUs (xpu): give their number";
                    }
                    const bool word = text == "cpu" || text == "gpu" || text == "auto";
                    if (!word && (!number || *number == 0 || *number > 65536)) {
                        return "must be a number of workers from 1, cpu, gpu or auto, not " +
                               in_quotes(text);
                    }
                    out.workers = text;
                    return "";
                });
    flags.value(
        {"--max-restarts", "N", "0",
         "Worker failures that the whole job survives. The next one ends it", "--max-restarts=3"},
        number_into<std::uint32_t>(out.agent.core.policy.restarts_max, 0, 1000000));
    flags.value({"--role", "NAME", "default", "Role of the workers of this node", "--role=trainer"},
                [&out](const std::string& text) {
                    return text.empty() ? "must not be empty"
                                        : name_into(out.agent.core.offer.role)(text);
                });
}

void declare_rendezvous(FlagTable& flags, RunFlags& out, std::map<std::string, std::string>& conf) {
    flags.group("Rendezvous");
    flags.toggle({"--standalone", "", "",
                  "Run a job of this node alone, with its own daemon on a free port", ""},
                 out.rendezvous.standalone);
    flags.value(
        {"--rdzv-backend", "NAME", "static",
         "static: --node-rank gives the rank of each node, and the endpoint is node 0. "
         "c10d, regroup: the daemon at the endpoint gives the ranks. etcd, etcd-v2: the "
         "same as c10d; no etcd server is used",
         "--rdzv-backend=c10d"},
        word_into(out.rendezvous.backend, {"static", "c10d", "etcd", "etcd-v2", "regroup"}));
    flags.value(
        {"--rdzv-endpoint", "HOST[:PORT],...", "port 29400",
         "Address of the daemon. The launcher on that host starts it. With several addresses "
         "no launcher starts one: start the daemons by regroup serve; one of them leads",
         "--rdzv-endpoint=host0:29400"},
        text_into(out.rendezvous.endpoint));
    flags.value(
        {"--rdzv-id", "ID", "none",
         "Name of the job. All its nodes must give the same one. A standalone job gets a new name",
         "--rdzv-id=nightly-42"},
        name_into(out.agent.core.job));
    flags.value(
        {"--rdzv-conf", "KEY=VALUE,...", "",
         "Further settings of torchrun: join_timeout, last_call_timeout, keep_alive_interval, "
         "keep_alive_max_attempt, timeout, is_host. A note names those that have no effect here",
         "--rdzv-conf=last_call_timeout=5"},
        [&conf](const std::string& text) -> std::string {
            conf.clear();
            if (trimmed(text).empty()) {
                return "";
            }
            for (const std::string_view pair : split(text, ',')) {
                const std::size_t equals = pair.find('=');
                const std::string key(trimmed(pair.substr(0, equals)));
                const std::string value(equals == pair.npos ? ""
                                                            : trimmed(pair.substr(equals + 1)));
                if (key.empty() || value.empty()) {
                    return "must be KEY=VALUE,..., not " + in_quotes(trimmed(pair));
                }
                if (!conf.emplace(key, value).second) {
                    return "gives " + key + " twice";
                }
            }
            return "";
        });
    flags.value({"--node-rank", "N", "0",
                 "Rank of this node. With c10d, the place that this node asks for; without the "
                 "flag the daemon chooses the place",
                 "--node-rank=1"},
                [&out](const std::string& text) {
                    out.agent.core.offer.slot = 0;
                    return number_into<std::uint32_t>(*out.agent.core.offer.slot, 0, 1000000)(text);
                });
    flags.value(
        {"--rank-order", "ORDER", "auto",
         "How new nodes get their ranks. name: node7 before node66. joined: in the order of "
         "joining. scheduler: in Slurm's or Kubernetes' order of nodes. topology: nodes of "
         "one switch side by side, by SLURM_TOPOLOGY_ADDR. file:PATH: in the order of a "
         "host file; after a host, switch=s0.s4 says that it is below switch s4, and that "
         "below s0. auto: topology if Slurm has one, else scheduler; without a scheduler, or "
         "with --rdzv-endpoint, name. A node keeps its rank while others come and go",
         "--rank-order=topology", "", true},
        rank_order_into(out.agent.core.policy.rank_order, out.rendezvous.rank_file));
    flags.value({"--master-addr", "ADDR", "127.0.0.1",
                 "Address of node 0. Used by the static back end if there is no --rdzv-endpoint",
                 "--master-addr=host0"},
                text_into(out.rendezvous.master_addr));
    flags.value({"--master-port", "PORT", "29500",
                 "Port of node 0. Used by the static back end if there is no --rdzv-endpoint",
                 "--master-port=29501"},
                [&out](const std::string& text) {
                    out.rendezvous.master_port = 0;
                    return number_into<std::uint16_t>(*out.rendezvous.master_port, 1, 65535)(text);
                });
    flags.value({"--local-addr", "ADDR", "the address that the daemon sees",
                 "Address by which the other nodes reach this node", "--local-addr=10.0.0.7"},
                name_into(out.agent.core.offer.address));
    flags.value({"--probe-port", "PORT", "none",
                 "Answer the probes of Kubernetes at this port: /healthz while the agent runs, "
                 "/readyz while the node is in a round or waits as a standby",
                 "--probe-port=29401"},
                [&out](const std::string& text) {
                    out.probe_port = 0;
                    return number_into<std::uint16_t>(*out.probe_port, 1, 65535)(text);
                });
    flags.value({"--state", "DIR|etcd://HOST:PORT[,...]|none", "none",
                 "Where the daemon in this launcher keeps its jobs. Give it on the node that the "
                 "endpoint names. If that node is lost, the others go on; start its launcher again "
                 "by the same line, and it takes the job up",
                 "--state=/var/lib/regroup", "", true},
                [&out](const std::string& text) {
                    return text.empty() ? "must be a directory, etcd://HOST:PORT or none"
                                        : text_into(out.state.where)(text);
                });
    add_etcd_flags(flags, out.state.access);
    flags.value(store_dialect_flag(), dialect_into(out.agent.store.dialect));
}

void declare_hangs(FlagTable& flags, agent::HangLimits& limits) {
    flags.value(
        {"--hang-timeout", "SECONDS", "0",
         "End a rank for which the others have waited for so long in a collective; and one of a "
         "round whose workers have all written nothing for so long. In an ElasticLoop: the longest "
         "time without progress, even if steps took longer before. 0: no such limit. A rank that "
         "lets others wait is then named, and only elastic workers are ended",
         "--hang-timeout=600", "", true},
        [&limits](const std::string& text) -> std::string {
            Duration most{};
            std::string wrong = seconds_into(most)(text);
            limits.most = most > Duration::zero() ? std::optional(most) : std::nullopt;
            return wrong;
        });
    flags.value(
        {"--hang-factor", "N", "5",
         "A collective, or in an ElasticLoop a step or a section, may take N times as long as "
         "the longest one before",
         "--hang-factor=10", "", true},
        [&limits](const std::string& text) -> std::string {
            char* end = nullptr;
            limits.factor = std::strtod(text.c_str(), &end);
            const bool valid =
                !text.empty() && *end == '\0' && limits.factor >= 1 && limits.factor <= 1e6;
            return valid ? "" : "must be a number from 1, not " + in_quotes(text);
        });
    flags.value({"--hang-floor", "SECONDS", "10", "Shortest limit that --hang-factor can give",
                 "--hang-floor=60", "", true},
                [&limits](const std::string& text) -> std::string {
                    const std::string wrong = seconds_into(limits.floor)(text);
                    return wrong.empty() && limits.floor == Duration::zero() ? "must be above 0"
                                                                             : wrong;
                });
}

void declare_time(FlagTable& flags, RunFlags& out) {
    flags.group("Time");
    rendezvous::JobPolicy& policy = out.agent.core.policy;
    const FlagTable::Take handled =
        signals_into(out.signals, out.agent.group.command.signals_to_handle);
    handled(kDefaultSignals);
    flags.value({"--join-timeout", "SECONDS", "600",
                 "Longest time to wait for the daemon, and for a round. Then the launcher gives up "
                 "with exit code 3",
                 "--join-timeout=60", "", true},
                seconds_into(out.agent.core.join_timeout));
    flags.value({"--last-call", "SECONDS", "3",
                 "How long to wait for more nodes when MIN of MIN:MAX are there. Applies to the "
                 "first round, and when all nodes were lost",
                 "--last-call=30", "", true},
                seconds_into(policy.last_call));
    flags.value(
        {"--heartbeat-timeout", "SECONDS", "3",
         "A node that is silent for so long is lost. If MIN of --nnodes is above 1,000, the "
         "default is 3 s for each 1,000",
         "--heartbeat-timeout=10", "", true},
        seconds_into(policy.heartbeat_timeout, rendezvous::kHeartbeatTimeoutMax));
    flags.value({"--shutdown-timeout", "SECONDS", "30",
                 "Time that a worker has to end after SIGTERM. Then it gets SIGKILL "
                 "[TORCH_ELASTIC_SHUTDOWN_TIMEOUT, PET_SHUTDOWN_TIMEOUT]",
                 "--shutdown-timeout=120"},
                seconds_into(policy.shutdown_timeout));
    flags.value({"--grow-after", "SECONDS", "5",
                 "Minimum age of a round before a new node may join", "--grow-after=60", "", true},
                seconds_into(policy.grow_after));
    flags.value({"--signals-to-handle", "NAMES", kDefaultSignals,
                 "Signals that end the run on this node. The workers get the same signal and have "
                 "--shutdown-timeout to end. SIGUSR1 and SIGUSR2 are passed on to the workers if "
                 "they are not in the list; if all workers are in an ElasticLoop and do not handle "
                 "such a signal, it ends the run, too",
                 "--signals-to-handle=SIGTERM,SIGINT"},
                handled);
    flags.value(
        {"--monitor-interval", "SECONDS", "0.1",
         "Accepted for compatibility, without effect: the agent waits for events and does not poll",
         "--monitor-interval=1"},
        [](const std::string& text) -> std::string {
            Duration interval{};
            const std::string wrong = seconds_into(interval)(text);
            return wrong.empty() && interval == Duration::zero() ? "must be above 0" : wrong;
        });
    declare_hangs(flags, out.agent.watch.limits);
}

FlagTable::Take stdin_reader_into(agent::StdinReader& out) {
    return [&out](const std::string& text) -> std::string {
        using Who = agent::StdinReader::Who;
        const auto rank = parse_number<std::uint32_t>(text);
        if (!rank && text != "all" && text != "none") {
            return "must be a rank of the job, all or none, not " + in_quotes(text);
        }
        out = agent::StdinReader{.who = rank            ? Who::rank
                                        : text == "all" ? Who::all
                                                        : Who::none,
                                 .rank = rank.value_or(0)};
        return "";
    };
}

void declare_output(FlagTable& flags, RunFlags& out) {
    flags.group("Input and output");
    agent::OutputOptions& output = out.agent.group.output;
    // As in mpirun, and under its own name as in torchrun.
    output.stdin_reader.who =
        out.front == Front::torchrun ? agent::StdinReader::Who::all : agent::StdinReader::Who::rank;
    flags.value({"--stdin", "RANK|all|none", out.front == Front::torchrun ? "all" : "0",
                 "The worker that reads the standard input of the launcher on its node. The others "
                 "read /dev/null. all: the workers of a node share it. On a terminal this "
                 "worker's questions are shown before their line ends",
                 "--stdin=1", "", true},
                stdin_reader_into(output.stdin_reader));
    flags.value({"--log-dir", "DIR", "./regroup-runs",
                 "Folder for the output of the workers: one file for each rank and round, in "
                 "DIR/ID. /dev/null: no files",
                 "--log-dir=runs"},
                [&out](const std::string& text) -> std::string {
                    out.log_dir = text;
                    return text.empty() ? "must not be empty" : "";
                });
    flags.value({"-r,--redirects", "STREAMS", "0",
                 "Write these streams to files only: 0 none, 1 stdout, 2 stderr, 3 both, or a list "
                 "by local rank. The files have the names of torchrun: "
                 "DIR/ID_RANDOM/attempt_N/LOCAL_RANK/stdout.log, stderr.log",
                 "--redirects=0:1,1:3"},
                streams_into(output.redirects));
    flags.value({"-t,--tee", "STREAMS", "0",
                 "Write these streams to the same files and show them, too, each line after [ROLE "
                 "LOCAL_RANK]:",
                 "--tee=3"},
                streams_into(output.tee));
    flags.value({"--local-ranks-filter", "RANKS", "all",
                 "Show only the output of these local ranks. The files have the output of all",
                 "--local-ranks-filter=0"},
                local_ranks_into(output.console_ranks));
    flags.value({"--log-line-prefix-template", "TEXT", "",
                 "Text before each line that is shown. ${role_name}, ${local_rank}, ${rank} and "
                 "${hostname} are filled in",
                 "--log-line-prefix-template='${rank}: '"},
                text_into(output.line_prefix));
    flags.value({"--duplicate-stdout-filters", "TEXTS", "",
                 "Copy lines of teed stdout to filtered_stdout.log if they contain one of these "
                 "texts. Write ,, for a comma",
                 "--duplicate-stdout-filters=loss,acc"},
                needles_into(output.stdout_needles));
    flags.value({"--duplicate-stderr-filters", "TEXTS", "",
                 "The same for stderr and filtered_stderr.log", "--duplicate-stderr-filters=Error"},
                needles_into(output.stderr_needles));
    flags.value({"--log-file-size", "BYTES", "no limit",
                 "Largest size of an output file. A full file is renamed to FILE.1, and FILE "
                 "begins anew. Units: k, M, G",
                 "--log-file-size=100M", "", true},
                bytes_into(output.file_bytes_max));
    flags.value(
        {"--event-log-handler", "null|console", "null",
         "console: write a JSON object, on one line of stderr, for each start and end of a worker",
         "--event-log-handler=console"},
        [&out](const std::string& text) -> std::string {
            std::string word;
            const std::string wrong = word_into(word, {"null", "console"})(text);
            out.console_events = word == "console";
            return wrong;
        });
    add_event_log_flags(flags, out.event_log);
}

// "auto" is 0.
FlagTable::Take share_into(std::function<void(int)> out, const std::string& what) {
    return [out = std::move(out), what](const std::string& text) -> std::string {
        const auto number = parse_number<int>(text);
        if (text != "auto" && (!number || *number < 1)) {
            return "must be a number of " + what + " from 1, or auto, not " + in_quotes(text);
        }
        out(number.value_or(0));
        return "";
    };
}

void declare_placement(FlagTable& flags, RunFlags& out) {
    flags.group("CPUs and GPUs");
    flags.value({"--numa-binding", "MODE", "",
                 "Bind each worker to the CPUs next to its GPU: node, socket, exclusive (the cores "
                 "of a NUMA node, divided among its GPUs) or core-complex",
                 "--numa-binding=node", "-"},
                [&binding = out.placement.request.numa_binding](const std::string& text) {
                    std::string word;
                    std::string wrong =
                        word_into(word, {"node", "socket", "exclusive", "core-complex"})(text);
                    binding = agent::numa_binding_named(word).value_or(binding);
                    return wrong;
                });
    flags.value(
        {"--cpus-per-rank", "N|auto", "",
         "Bind each worker to N cores of its own, and set OMP_NUM_THREADS to match. auto: "
         "divide the cores of this machine, or as many as the quota of the cgroup allows, "
         "among the workers",
         "--cpus-per-rank=auto", "", true},
        share_into([&out](int count) { out.placement.request.cpus_per_rank = {count}; }, "cores"));
    flags.value(
        {"--gpus-per-rank", "N|auto", "",
         "Give each worker N GPUs of its own, in order, by CUDA_VISIBLE_DEVICES. auto: "
         "divide all visible GPUs. Without the flag every worker sees all GPUs, and uses "
         "the one with the number LOCAL_RANK",
         "--gpus-per-rank=1", "", true},
        share_into(
            [&out](int count) { out.placement.gpus_per_rank = static_cast<std::uint32_t>(count); },
            "GPUs"));
    flags.toggle({"--report-bindings", "", "", "Print the CPUs, GPUs and threads of each worker",
                  "", "", true},
                 out.placement.report_bindings);
    flags.toggle(
        {"--virtual-local-rank", "", "",
         "Each worker gets LOCAL_RANK=0 and sees only its own GPU, or those of --gpus-per-rank",
         ""},
        out.agent.group.command.virtual_local_rank);
}

FlagTable::Take modules_into(agent::WorkerCommand& command) {
    return [&command](const std::string& text) -> std::string {
        std::vector<std::string>& out = command.preload;
        out.clear();
        command.prepares = text != "none";
        if (!command.prepares) {
            return "";
        }
        std::istringstream words(text);
        for (std::string word; std::getline(words, word, ',');) {
            const bool valid = !word.empty() && word.front() != '.' && word.back() != '.' &&
                               std::all_of(word.begin(), word.end(), [](unsigned char c) {
                                   return std::isalnum(c) != 0 || c == '_' || c == '.' || c > 127;
                               });
            if (!valid) {
                return "must be names of Python modules with commas between, not " +
                       in_quotes(text);
            }
            out.push_back(word);
        }
        return "";
    };
}

void declare_program(FlagTable& flags, RunFlags& out, SpecialFlags& special) {
    flags.group("Program");
    flags.toggle({"-m,--module", "", "", "PROGRAM is a Python module: run python3 -u -m PROGRAM",
                  "-m package.train"},
                 out.program.module);
    flags.toggle({"--no-python", "", "", "Run PROGRAM itself, even if it is a .py file", ""},
                 out.program.no_python);
    flags.toggle({"--run-path", "", "",
                  "Run PROGRAM by Python's runpy. An exception is recorded in the error file", ""},
                 out.program.run_path);
    if (out.front == Front::launch) {
        flags.toggle(
            {"--use-env", "", "", "Do not pass --local-rank=N to the script", "--use-env", "-"},
            out.program.use_env);
    }
    flags.value(
        {"--preload", "MODULE,...", "",
         "Import these Python modules once on this node, in a process that then forks the "
         "workers. A worker so starts in milliseconds, also after a failure, and the "
         "workers share the memory of the modules. The imports must start no threads and "
         "use no GPU. No effect on a program that is not run by Python. Without it, the agent "
         "prepares such a process while an elastic program trains, with the packages that "
         "the program has imported, if 4 GiB of memory are left; \"none\" prevents that",
         "--preload=torch,numpy", "", true},
        modules_into(out.agent.group.command));
    flags.value({"--start-method", "METHOD", "spawn",
                 "Accepted for compatibility, without effect: each worker is a new process",
                 "--start-method=spawn"},
                word_into(special.start_method, {"spawn", "fork", "forkserver"}));
    flags.value({"--logs-specs", "NAME", "default",
                 "A Python plug-in of torchrun. Only \"default\" is accepted, without effect",
                 "--logs-specs=default", "-"},
                text_into(special.logs_specs));
    flags.value(
        {"--print-completion", "SHELL", "", "Print the completion script for bash, zsh or tcsh",
         "--print-completion=bash", "-"},
        word_into(special.shell, {"bash", "zsh", "tcsh"}));
}

}  // namespace

void declare_run_flags(FlagTable& flags, RunFlags& out, SpecialFlags& special) {
    declare_job(flags, out);
    declare_rendezvous(flags, out, special.conf);
    add_trust_flags(flags, out.trust);
    declare_time(flags, out);
    declare_recovery(flags, out);
    declare_snapshots(flags, out);
    declare_output(flags, out);
    declare_placement(flags, out);
    declare_program(flags, out, special);
}

}  // namespace regroup::launcher
