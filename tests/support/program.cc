// SPDX-License-Identifier: Apache-2.0
#include "tests/support/program.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace regroup::testing {

namespace {

constexpr std::chrono::milliseconds kPoll(5);

std::string make_directory() {
    std::string path = std::filesystem::temp_directory_path() / "regroup-test-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) {
        throw std::runtime_error("mkdtemp failed");
    }
    return path;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& text : texts) {
        result.push_back(text.data());
    }
    result.push_back(nullptr);
    return result;
}

std::vector<std::string> merged_environment(const std::vector<std::string>& over) {
    std::vector<std::string> result;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string text = *entry;
        const std::string name = text.substr(0, text.find('=') + 1);
        bool replaced = false;
        for (const std::string& other : over) {
            replaced = replaced || other.starts_with(name);
        }
        if (!replaced) {
            result.push_back(text);
        }
    }
    result.insert(result.end(), over.begin(), over.end());
    return result;
}

}  // namespace

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > deadline) {
            return false;
        }
        std::this_thread::sleep_for(kPoll);
    }
    return true;
}

Program::Program(const ProgramSpec& spec)
    : directory_(spec.directory.empty() ? make_directory() : spec.directory),
      owns_directory_(spec.directory.empty()) {
    // One file for each program of a test, even when several share the directory.
    std::string output = directory_ + "/output-XXXXXX";
    const int fd = ::mkstemp(output.data());
    output_file_ = output;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 1);
    posix_spawn_file_actions_adddup2(&actions, fd, 2);
    posix_spawn_file_actions_addclose(&actions, fd);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addchdir_np(&actions, directory_.c_str());
    std::vector<std::string> command = spec.command;
    std::vector<std::string> environment = merged_environment(spec.environment);
    const int error = ::posix_spawn(&pid_, command.front().c_str(), &actions, nullptr,
                                    pointers(command).data(), pointers(environment).data());
    posix_spawn_file_actions_destroy(&actions);
    ::close(fd);
    if (error != 0) {
        throw std::runtime_error("cannot start " + command.front());
    }
}

Program::~Program() {
    if (!status_) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    if (owns_directory_) {
        std::error_code ignored;
        std::filesystem::remove_all(directory_, ignored);
    }
}

std::string Program::output() const { return read_file(output_file_); }

void Program::signal(int number) const { ::kill(pid_, number); }

bool Program::prints(const std::string& text, std::chrono::milliseconds limit) {
    bool found = false;
    eventually(
        [&] {
            const bool over = wait(std::chrono::milliseconds(0)).has_value();
            found = output().find(text) != std::string::npos;
            return found || over;
        },
        limit);
    return found;
}

std::optional<int> Program::wait(std::chrono::milliseconds limit) {
    eventually(
        [&] {
            int status = 0;
            if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
                status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            }
            return status_.has_value();
        },
        limit);
    return status_;
}

TemporaryDirectory::TemporaryDirectory() : path_(make_directory()) {}

TemporaryDirectory::~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

std::uint16_t unused_port() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    ::bind(fd, reinterpret_cast<sockaddr*>(&address), bytes);
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes);
    ::close(fd);
    return ntohs(address.sin_port);
}

std::vector<pid_t> pids_with_variable(const std::string& name, const std::string& value) {
    std::vector<pid_t> result;
    const std::string wanted = std::string(1, '\0') + name + "=" + value + std::string(1, '\0');
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
        const pid_t pid = std::atoi(entry.path().filename().c_str());
        if (pid > 0 && ('\0' + read_file(entry.path() / "environ") + '\0').find(wanted) !=
                           std::string::npos) {
            result.push_back(pid);
        }
    }
    return result;
}

}  // namespace regroup::testing
