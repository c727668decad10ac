// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/process/stream_plan.h"
#include "agent/worker_environment.h"

namespace regroup::agent {

/// Streams of each local rank, as torchrun's --redirects and --tee name them.
struct StreamSpec {
    static constexpr std::uint8_t kOut = 1;
    static constexpr std::uint8_t kErr = 2;

    std::uint8_t all = 0;                                 ///< Of every local rank, unless listed.
    std::map<std::uint32_t, std::uint8_t> by_local_rank;  ///< When not empty, others have none.

    [[nodiscard]] bool has(std::uint32_t local_rank, std::uint8_t stream) const;
    [[nodiscard]] bool any() const noexcept { return all != 0 || !by_local_rank.empty(); }

    friend bool operator==(const StreamSpec&, const StreamSpec&) = default;
};

/// How files and folders are called under OutputOptions::folder.
enum class OutputLayout : std::uint8_t {
    /// round_N/rank00012.{out,err,error.json}, appended to; every line is shown too. A worker that
    /// lives on goes on in the next round's files; one that was started ahead of a round begins in
    /// ahead/NODE-local00003.*.
    by_rank,
    /// attempt_N/LOCAL_RANK/{stdout.log,stderr.log,error.json}, for the streams that were
    /// redirected or teed; N counts restarts.
    torchrun,
};

/// How the output of this node's workers is kept and shown.
struct OutputOptions {
    std::filesystem::path folder;  ///< Of this run; exists. Empty: no file is written.
    OutputLayout layout = OutputLayout::by_rank;
    /// Streams without a file (layout torchrun) are inherited as they are: no prefix, no copy.
    bool bare_console = false;
    StreamSpec redirects;  ///< To files only. Layout torchrun; so is the next.
    StreamSpec tee;        ///< To files and, with a prefix, to the console.
    /// Local ranks that are shown on the console; none: all.
    std::optional<std::set<std::uint32_t>> console_ranks;
    /// Before each line shown: ${role_name}, ${local_rank}, ${rank}, ${hostname} and ${node} are
    /// filled in. Empty: the layout's own.
    std::string line_prefix;
    /// Lines of teed streams with any of these in them go to filtered_stdout.log, too.
    std::vector<std::string> stdout_needles;
    std::vector<std::string> stderr_needles;
    /// A file that would grow beyond this begins anew; what was there is kept as FILE.1. 0: never.
    std::uint64_t file_bytes_max = 0;
};

/// Where one worker's output goes in one round.
struct WorkerOutput {
    StreamPlan out;
    StreamPlan err;
    std::string error_file;  ///< Where the worker may describe its error; empty for nowhere.
};

/// `host` is the short host name. What it names need not exist yet.
[[nodiscard]] WorkerOutput plan_output(const OutputOptions& options, const WorkerIdentity& worker,
                                       const std::string& node, const std::string& host);

/// The folder that plan_output() puts the worker's files into; empty without files.
[[nodiscard]] std::filesystem::path worker_folder(const OutputOptions& options,
                                                  const WorkerIdentity& worker);

}  // namespace regroup::agent
