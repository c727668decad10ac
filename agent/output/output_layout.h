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
#include "agent/workers/worker_environment.h"

namespace regroup::agent {

/// The streams of each local rank, in the notation of torchrun's --redirects and --tee.
struct StreamSpec {
    static constexpr std::uint8_t kOut = 1;
    static constexpr std::uint8_t kErr = 2;

    std::uint8_t all = 0;                                 ///< For local ranks that are not listed.
    std::map<std::uint32_t, std::uint8_t> by_local_rank;  ///< If not empty, other ranks have none.

    [[nodiscard]] bool has(std::uint32_t local_rank, std::uint8_t stream) const;
    [[nodiscard]] bool any() const noexcept { return all != 0 || !by_local_rank.empty(); }

    friend bool operator==(const StreamSpec&, const StreamSpec&) = default;
};

/// The worker that reads the launcher's standard input (--stdin). Others read /dev/null.
struct StdinReader {
    enum class Who : std::uint8_t {
        rank,  ///< The one with `rank` when it starts, on its own node.
        all,   ///< All of this node, as they come.
        none,
    };
    Who who = Who::rank;
    std::uint32_t rank = 0;

    friend bool operator==(const StdinReader&, const StdinReader&) = default;
};

/// The names of files and folders in OutputOptions::folder.
enum class OutputLayout : std::uint8_t {
    /// round_N/rank00012.{out,err,error.json}, appended to. Every line is shown, too. An elastic
    /// worker continues in the files of the next round. A worker that was started ahead of a round
    /// begins in ahead/NODE-local00003.*.
    by_rank,
    /// attempt_N/LOCAL_RANK/{stdout.log,stderr.log,error.json}, for redirected and teed streams.
    /// N counts restarts.
    torchrun,
};

/// Where the output of the workers goes, and how it is shown.
struct OutputOptions {
    std::filesystem::path folder;  ///< Folder of this run, which exists. Empty: no files.
    OutputLayout layout = OutputLayout::by_rank;
    /// Streams without a file (layout torchrun) are inherited as they are: no prefix, no copy.
    bool bare_console = false;
    StreamSpec redirects;  ///< To files only. For the layout torchrun.
    StreamSpec tee;        ///< To files, and with a prefix to the console. For the layout torchrun.
    /// Local ranks that are shown on the console. Without a value, all.
    std::optional<std::set<std::uint32_t>> console_ranks;
    /// Before each line shown: ${role_name}, ${local_rank}, ${rank}, ${hostname} and ${node} are
    /// replaced. Empty: the prefix of the layout.
    std::string line_prefix;
    /// Lines of teed streams that contain one of these are copied to filtered_stdout.log.
    std::vector<std::string> stdout_needles;
    std::vector<std::string> stderr_needles;
    /// Written into a file of the layout by_rank that has output of another launch already.
    std::string launch_line;
    /// Largest size of a file. A full file is renamed to FILE.1, and FILE begins anew. 0: no limit.
    std::uint64_t file_bytes_max = 0;
    StdinReader stdin_reader;
    /// Standard input is a terminal: the worker that reads it may ask in the middle of a line.
    bool dialogue = false;
};

/// The streams of one worker in one round.
struct WorkerOutput {
    StreamPlan out;
    StreamPlan err;
    std::string error_file;  ///< TORCHELASTIC_ERROR_FILE of the worker; may be empty.
    bool reads_stdin = false;
};

/// `host` is the short host name. The files and folders need not exist yet.
[[nodiscard]] WorkerOutput plan_output(const OutputOptions& options, const WorkerIdentity& worker,
                                       const std::string& node, const std::string& host);

/// The folder of the worker's files in plan_output(). Empty without files.
[[nodiscard]] std::filesystem::path worker_folder(const OutputOptions& options,
                                                  const WorkerIdentity& worker);

}  // namespace regroup::agent
