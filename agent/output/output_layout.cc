// SPDX-License-Identifier: Apache-2.0
#include "agent/output/output_layout.h"

#include "agent/output/template_text.h"
#include "rendezvous/base/printable.h"

namespace regroup::agent {

namespace {

constexpr const char* kRankPrefix = "[${node}:${rank}] ";
constexpr const char* kTorchrunPrefix = "[${role_name}${local_rank}]:";

/// Replaces round_N or attempt_N for a worker that was started ahead of its round.
constexpr const char* kAheadFolder = "ahead";

std::filesystem::path attempt_folder(const OutputOptions& options, const WorkerIdentity& worker) {
    return options.folder /
           (worker.ahead ? kAheadFolder : "attempt_" + std::to_string(worker.place.restart_count));
}

// rank00012; for a worker without a rank, NODE-local00003.
std::string file_name(const WorkerIdentity& worker, const std::string& node) {
    const std::string digits =
        std::to_string(worker.ahead ? worker.place.local_rank : worker.place.rank);
    return (worker.ahead ? node + "-local" : "rank") +
           std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
}

std::string rank_text(const WorkerIdentity& worker) {
    return worker.ahead ? "standby" + std::to_string(worker.place.local_rank)
                        : std::to_string(worker.place.rank);
}

// A worker that was started ahead has no rank yet.
bool reads_stdin(const StdinReader& reader, const WorkerIdentity& worker) {
    return reader.who == StdinReader::Who::all ||
           (reader.who == StdinReader::Who::rank && !worker.ahead &&
            worker.place.rank == reader.rank);
}

}  // namespace

bool StreamSpec::has(std::uint32_t local_rank, std::uint8_t stream) const {
    const auto listed = by_local_rank.find(local_rank);
    return ((listed != by_local_rank.end() ? listed->second : all) & stream) != 0;
}

std::filesystem::path worker_folder(const OutputOptions& options, const WorkerIdentity& worker) {
    if (options.folder.empty()) {
        return {};
    }
    if (options.layout == OutputLayout::torchrun) {
        return attempt_folder(options, worker) / std::to_string(worker.place.local_rank);
    }
    return options.folder /
           (worker.ahead ? kAheadFolder : "round_" + std::to_string(worker.place.round));
}

WorkerOutput plan_output(const OutputOptions& options, const WorkerIdentity& worker,
                         const std::string& node, const std::string& host) {
    const bool torchrun = options.layout == OutputLayout::torchrun;
    // As in torchrun, the filter does not apply without files: output would be lost.
    const bool on_console = !options.console_ranks ||
                            options.console_ranks->contains(worker.place.local_rank) ||
                            (torchrun && options.folder.empty());
    const std::string& prefix = !options.line_prefix.empty() ? options.line_prefix
                                : torchrun                   ? kTorchrunPrefix
                                                             : kRankPrefix;
    const std::map<std::string, std::string> values{
        {"role_name", printable(worker.role)},
        {"local_rank", std::to_string(worker.place.local_rank)},
        {"rank", rank_text(worker)},
        {"hostname", printable(host)},
        {"node", printable(node)}};
    const std::filesystem::path folder = worker_folder(options, worker);
    WorkerOutput output;
    output.reads_stdin = reads_stdin(options.stdin_reader, worker);
    const auto stream = [&](std::uint8_t which, const char* torchrun_name, const char* suffix,
                            const std::vector<std::string>& needles) {
        StreamPlan plan;
        plan.prefix = substitute(prefix, values);
        plan.shown = on_console;
        plan.shows_partial = options.dialogue && output.reads_stdin;
        plan.file_bytes_max = options.file_bytes_max;
        plan.launch_line = options.launch_line;
        if (!torchrun) {
            plan.path =
                folder.empty() ? "" : (folder / (file_name(worker, node) + suffix)).string();
            return plan;
        }
        const bool teed = options.tee.has(worker.place.local_rank, which);
        // As in torchrun, nothing is redirected without a folder.
        if (!folder.empty() && (teed || options.redirects.has(worker.place.local_rank, which))) {
            plan.path = (folder / torchrun_name).string();
            plan.shown = on_console && teed;
            if (plan.shown && !needles.empty()) {
                plan.filter_path =
                    (folder.parent_path() / ("filtered_" + std::string(torchrun_name))).string();
                plan.needles = needles;
            }
        } else if (options.bare_console) {
            plan.way = on_console ? StreamPlan::Way::inherited : StreamPlan::Way::discarded;
        } else {
            plan.prefix = substitute(options.line_prefix.empty() ? kRankPrefix : prefix, values);
        }
        return plan;
    };
    output.out = stream(StreamSpec::kOut, "stdout.log", ".out", options.stdout_needles);
    output.err = stream(StreamSpec::kErr, "stderr.log", ".err", options.stderr_needles);
    if (!folder.empty()) {
        output.error_file =
            (folder / (torchrun ? "error.json" : file_name(worker, node) + ".error.json")).string();
    }
    return output;
}

}  // namespace regroup::agent
