// SPDX-License-Identifier: Apache-2.0
#include "launcher/output_plan.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <unistd.h>

#include "launcher/host.h"
#include "rendezvous/base/time_text.h"
#include "rendezvous/files/own_file.h"

namespace regroup::launcher {

namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultLogDir = "regroup-runs";

// The job id as one component of a path, another one for each id.
std::string folder_name(const std::string& job) {
    std::string name;
    for (const char c : job) {
        const bool is_hidden = c == '.' && name.empty();
        name += c == '/' ? "%2F" : c == '%' ? "%25" : is_hidden ? "%2E" : std::string(1, c);
    }
    return name;
}

// Says which launch the output below it is of.
std::string launch_line() {
    return "regroup: below is output of the launch with pid " + std::to_string(::getpid()) +
           " on " + short_host_name() + ", started " + universal_time_text(std::time(nullptr));
}

// Makes a new folder for this user alone: `stem` and eight characters.
Result<fs::path> make_fresh(const fs::path& stem) {
    // mkdtemp(3) chooses six of the eight.
    std::string path = stem.string() + "_" + std::to_string(::getpid() % 90 + 10) + "XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) {
        return system_failure("cannot make the folder " + path, errno);
    }
    return fs::path(path);
}

Result<fs::path> make_writable(const fs::path& folder) {
    const Result<void> made = files::make_own_folder(folder);
    if (!made || ::access(folder.c_str(), W_OK | X_OK) != 0) {
        return Failure(Errc::invalid_argument,
                       "--log-dir: cannot write to " + folder.string() + ": " +
                           (made ? std::string(std::strerror(errno)) : made.error().detail));
    }
    return folder;
}

fs::path temporary_folder() {
    const char* set = std::getenv("TMPDIR");
    return set != nullptr && *set != '\0' ? set : "/tmp";
}

Result<fs::path> make_folder(const RunOptions& options, bool torchrun, const std::string& job,
                             fs::path& temporary) {
    std::error_code ignored;
    fs::path base = options.log_dir.value_or(kDefaultLogDir);
    if (options.front == Front::torchrun && !options.log_dir) {
        Result<fs::path> fresh = make_fresh(temporary_folder() / "torchelastic");
        if (!fresh) {
            return fresh;
        }
        base = *fresh;
        if (!options.redirects.any() && !options.tee.any()) {
            temporary = base;
        }
    }
    base = fs::absolute(base, ignored);
    const Result<fs::path> made = make_writable(base);
    if (!made) {
        return made;
    }
    return torchrun ? make_fresh(base / folder_name(job)) : make_writable(base / folder_name(job));
}

}  // namespace

Result<OutputPlan> make_output_plan(const RunOptions& options, const std::string& job,
                                    std::vector<std::string>& notes) {
    OutputPlan plan;
    agent::OutputOptions& output = plan.options;
    const bool torchrun =
        options.front == Front::torchrun || options.redirects.any() || options.tee.any();
    output.layout = torchrun ? agent::OutputLayout::torchrun : agent::OutputLayout::by_rank;
    output.bare_console = options.front == Front::torchrun;
    output.redirects = options.redirects;
    output.tee = options.tee;
    output.console_ranks = options.local_ranks_filter;
    output.line_prefix = options.log_line_prefix;
    if (const char* text = std::getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
        text != nullptr && output.line_prefix.empty()) {
        output.line_prefix = text;
    }
    // As in mpirun, and under its own name as in torchrun.
    const agent::StdinReader usual{.who = options.front == Front::torchrun
                                              ? agent::StdinReader::Who::all
                                              : agent::StdinReader::Who::rank};
    output.stdin_reader = options.stdin_reader.value_or(usual);
    output.dialogue = ::isatty(STDIN_FILENO) == 1;
    output.stdout_needles = options.stdout_needles;
    output.stderr_needles = options.stderr_needles;
    output.file_bytes_max = options.log_file_bytes_max;
    output.launch_line = torchrun ? "" : launch_line();
    if (options.log_dir == "/dev/null") {
        return plan;
    }
    Result<fs::path> folder = make_folder(options, torchrun, job, plan.temporary);
    if (folder) {
        output.folder = std::move(*folder);
    } else if (options.log_dir || options.redirects.any() || options.tee.any()) {
        return folder.error();
    } else {
        notes.push_back(folder.error().detail + "; output is only shown here");
    }
    return plan;
}

void remove_temporary(const OutputPlan& plan) noexcept {
    std::error_code ignored;
    if (!plan.temporary.empty()) {
        fs::remove_all(plan.temporary, ignored);
    }
}

}  // namespace regroup::launcher
