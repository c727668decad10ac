// SPDX-License-Identifier: Apache-2.0
#include "agent/process/proc_files.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <dirent.h>
#include <fcntl.h>
#include <limits>
#include <memory>
#include <sstream>
#include <string_view>
#include <sys/wait.h>

#include "rendezvous/base/text.h"
#include "rendezvous/files/own_file.h"

namespace regroup::agent {

std::optional<std::string> read_proc_file(const std::string& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) {
        return std::nullopt;
    }
    const Result<std::string> text =
        files::read_all(fd.get(), std::numeric_limits<std::size_t>::max());
    // It fails if the process has ended while its file was open.
    return text ? std::optional(*text) : std::nullopt;
}

std::vector<pid_t> numbers_in(const std::string& folder) {
    std::vector<pid_t> numbers;
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(folder.c_str()), ::closedir);
    while (directory != nullptr) {
        const dirent* entry = ::readdir(directory.get());
        if (entry == nullptr) {
            break;
        }
        if (const auto number = parse_number<pid_t>(entry->d_name)) {
            numbers.push_back(*number);
        }
    }
    return numbers;
}

namespace {

/// The fields of FOLDER/stat, from the command on, each at the index that proc(5) gives it. Empty
/// if there is no such file.
constexpr std::size_t kCommand = 2;
constexpr std::size_t kState = 3;
constexpr std::size_t kParent = 4;
std::vector<std::string> read_stat(const std::string& folder) {
    const auto text = read_proc_file(folder + "/stat");
    // "pid (command) state parent ...", where the command may hold blanks and parentheses.
    const std::size_t open = text ? text->find('(') : std::string::npos;
    const std::size_t close = text ? text->rfind(')') : std::string::npos;
    if (open == std::string::npos || close == std::string::npos || close < open) {
        return {};
    }
    std::vector<std::string> fields(kState);
    fields[kCommand] = text->substr(open + 1, close - open - 1);
    std::istringstream rest(text->substr(close + 1));
    for (std::string field; rest >> field;) {
        fields.push_back(field);
    }
    return fields;
}

}  // namespace

std::optional<ProcessEntry> read_process(pid_t pid) {
    const std::vector<std::string> fields = read_stat("/proc/" + std::to_string(pid));
    const auto parent =
        fields.size() > kParent ? parse_number<pid_t>(fields[kParent]) : std::nullopt;
    return parent
               ? std::optional(ProcessEntry{pid, *parent, fields[kState].front(), fields[kCommand]})
               : std::nullopt;
}

std::optional<ExitStatus> read_exit(pid_t pid) {
    constexpr int kExitCodeField = 52;
    const std::vector<std::string> fields = read_stat("/proc/" + std::to_string(pid));
    // For a stopped process this field is the signal that stopped it.
    if (fields.size() <= kExitCodeField || fields[kState] == "T" || fields[kState] == "t") {
        return std::nullopt;
    }
    const int status = parse_number<int>(fields[kExitCodeField]).value_or(0);
    if (status == 0) {
        return std::nullopt;
    }
    return WIFEXITED(status) ? ExitStatus::exited(WEXITSTATUS(status))
                             : ExitStatus::signalled(WTERMSIG(status), WCOREDUMP(status));
}

bool runs_no_more(pid_t pid) {
    constexpr int kFlagsField = 9;
    constexpr unsigned kExiting = 4;  // PF_EXITING, since Linux 2.6 and before.
    const std::string folder = "/proc/" + std::to_string(pid) + "/task";
    for (const pid_t thread : numbers_in(folder)) {
        const std::vector<std::string> fields = read_stat(folder + "/" + std::to_string(thread));
        if (fields.size() <= kFlagsField || fields[kState] == "Z" || fields[kState] == "X") {
            continue;
        }
        const unsigned flags = parse_number<unsigned>(fields[kFlagsField]).value_or(0);
        if ((flags & kExiting) == 0) {
            return false;
        }
    }
    return true;
}

bool has_ended(pid_t pid) {
    const std::string folder = "/proc/" + std::to_string(pid) + "/task";
    const std::vector<pid_t> threads = numbers_in(folder);
    return std::all_of(threads.begin(), threads.end(), [&folder](pid_t thread) {
        const std::vector<std::string> fields = read_stat(folder + "/" + std::to_string(thread));
        return fields.size() <= kState || fields[kState] == "Z" || fields[kState] == "X";
    });
}

bool has_default(pid_t pid, int signal) {
    constexpr int kHexadecimal = 16;
    const auto text = read_proc_file("/proc/" + std::to_string(pid) + "/status");
    if (!text || text->find("\nSigCgt:") == std::string::npos) {
        return false;
    }
    for (const std::string_view mask : {"\nSigBlk:", "\nSigIgn:", "\nSigCgt:"}) {
        const std::size_t at = text->find(mask);
        std::uint64_t bits = 0;
        if (at != std::string::npos) {
            const char* const digits = text->data() + at + mask.size() + 1;  // After a tabulator.
            std::from_chars(digits, text->data() + text->size(), bits, kHexadecimal);
        }
        if ((bits >> static_cast<unsigned>(signal - 1) & 1U) != 0) {
            return false;
        }
    }
    return true;
}

bool waits_for_child(pid_t pid) {
    return read_proc_file("/proc/" + std::to_string(pid) + "/wchan") == "do_wait";
}

bool maps_file(pid_t pid, const std::string& part) {
    const auto maps = read_proc_file("/proc/" + std::to_string(pid) + "/maps");
    return maps && maps->find(part) != std::string::npos;
}

std::optional<std::vector<pid_t>> read_children(pid_t pid) {
    // Each thread has a list of the children that it started.
    const std::string tasks = "/proc/" + std::to_string(pid) + "/task/";
    std::vector<pid_t> children;
    bool listed = false;
    for (const pid_t thread : numbers_in(tasks)) {
        const auto text = read_proc_file(tasks + std::to_string(thread) + "/children");
        if (!text) {
            continue;
        }
        listed = true;
        std::istringstream numbers(*text);
        for (pid_t child = 0; numbers >> child;) {
            children.push_back(child);
        }
    }
    if (!listed) {
        return std::nullopt;
    }
    return children;
}

std::vector<ProcessEntry> read_all_processes() {
    std::vector<ProcessEntry> processes;
    for (const pid_t pid : numbers_in("/proc")) {
        if (auto entry = read_process(pid)) {
            processes.push_back(*std::move(entry));
        }
    }
    return processes;
}

}  // namespace regroup::agent
