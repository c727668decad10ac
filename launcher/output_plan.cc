// SPDX-License-Identifier: Apache-2.0
#include "launcher/output_plan.h"

#include <cerrno>
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
    const std::string set = variable("TMPDIR").value_or("");
    return set.empty() ? "/tmp" : set;
}

bool keeps_streams(const agent::OutputOptions& output) {
    return output.redirects.any() || output.tee.any();
}

Result<fs::path> make_folder(const RunFlags& flags, const agent::OutputOptions& output,
                             const std::string& job, fs::path& temporary) {
    std::error_code ignored;
    fs::path base = flags.log_dir.value_or(kDefaultLogDir);
    if (flags.front == Front::torchrun && !flags.log_dir) {
        Result<fs::path> fresh = make_fresh(temporary_folder() / "torchelastic");
        if (!fresh) {
            return fresh;
        }
        base = *fresh;
        if (!keeps_streams(output)) {
            temporary = base;
        }
    }
    base = fs::absolute(base, ignored);
    Result<fs::path> made = make_writable(base);
    if (!made) {
        return made;
    }
    return output.layout == agent::OutputLayout::torchrun ? make_fresh(base / folder_name(job))
                                                          : make_writable(base / folder_name(job));
}

}  // namespace

Result<OutputPlan> make_output_plan(const RunFlags& flags, const std::string& job,
                                    std::vector<std::string>& notes) {
    OutputPlan plan;
    agent::OutputOptions& output = plan.options;
    output = flags.agent.group.output;
    output.bare_console = flags.front == Front::torchrun;
    output.layout = output.bare_console || keeps_streams(output) ? agent::OutputLayout::torchrun
                                                                 : agent::OutputLayout::by_rank;
    if (output.line_prefix.empty()) {
        output.line_prefix = variable("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE").value_or("");
    }
    output.dialogue = ::isatty(STDIN_FILENO) == 1;
    output.launch_line = output.layout == agent::OutputLayout::torchrun ? "" : launch_line();
    if (flags.log_dir == "/dev/null") {
        return plan;
    }
    Result<fs::path> folder = make_folder(flags, output, job, plan.temporary);
    if (folder) {
        output.folder = std::move(*folder);
    } else if (flags.log_dir || keeps_streams(output)) {
        return folder.error();
    } else {
        notes.push_back(folder.error().detail + "; output is only shown here");
    }
    return plan;
}

void remove_temporary(const fs::path& folder) noexcept {
    std::error_code ignored;
    if (!folder.empty()) {
        fs::remove_all(folder, ignored);
    }
}

}  // namespace regroup::launcher
