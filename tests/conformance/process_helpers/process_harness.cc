// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/process_helpers/process_harness.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <sstream>
#include <unistd.h>

#include "agent/process/proc_files.h"

namespace regroup::agent {

using SteadyTime = std::chrono::steady_clock;

bool wait_until(const std::function<bool()>& condition) {
    const auto deadline = SteadyTime::now() + kTestLimit;
    while (!condition()) {
        if (SteadyTime::now() > deadline) {
            return false;
        }
        ::poll(nullptr, 0, 2);
    }
    return true;
}

bool run_until(boost::asio::io_context& io, const std::function<bool()>& condition) {
    const auto deadline = SteadyTime::now() + kTestLimit;
    while (!condition()) {
        if (SteadyTime::now() > deadline) {
            return false;
        }
        io.restart();
        io.run_one_for(std::chrono::milliseconds(5));
    }
    return true;
}

ProcessSpec make_spec(const std::string& program, const std::vector<std::string>& arguments) {
    ProcessSpec spec;
    spec.executable = program;
    spec.arguments = {program};
    spec.arguments.insert(spec.arguments.end(), arguments.begin(), arguments.end());
    for (char** entry = ::environ; *entry != nullptr; ++entry) {
        spec.environment.emplace_back(*entry);
    }
    return spec;
}

ProcessSpec helper_spec(const std::vector<std::string>& arguments) {
    return make_spec(PROCESS_HELPER, arguments);
}

ProcessSpec shell_spec(const std::string& script) {
    return make_spec("/bin/sh", {"-c", script});
}

std::pair<UniqueFd, UniqueFd> make_pipe() {
    std::array<int, 2> ends{};
    ENSURE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::string read_all(int fd) {
    return read_until(fd, std::string(1, '\0'));
}

std::string read_until(int fd, const std::string& text) {
    std::string all;
    std::array<char, 4096> buffer{};
    while (all.find(text) == std::string::npos) {
        const ssize_t count = ::read(fd, buffer.data(), buffer.size());
        if (count == 0 || (count < 0 && errno != EINTR)) {
            break;
        }
        all.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    }
    return all;
}

std::string field(const std::string& report, const std::string& name) {
    std::istringstream lines(report);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(name + "=")) {
            return line.substr(name.size() + 1);
        }
    }
    return "no field " + name + " in: " + report;
}

bool is_gone(pid_t pid) {
    const auto entry = read_process(pid);
    return !entry || entry->state == 'Z' || entry->state == 'X';
}

std::size_t open_fd_count() {
    const std::filesystem::directory_iterator folder("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(folder), end(folder)));
}

std::string read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

TemporaryFolder::TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "regroup-XXXXXX").string();
    ENSURE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

pid_t TemporaryFolder::pid(const std::string& name) const {
    pid_t pid = 0;
    wait_until([&] { return static_cast<bool>(std::ifstream(path_ / name) >> pid); });
    return pid;
}

}  // namespace regroup::agent
