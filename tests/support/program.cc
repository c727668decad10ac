// SPDX-License-Identifier: Apache-2.0
#include "tests/support/program.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <random>
#include <signal.h>
#include <spawn.h>
#include <sstream>
#include <stdexcept>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace regroup::testing {

namespace {

constexpr std::chrono::milliseconds kPoll(5);
// How long the descendants of a program may take to end after SIGKILL.
constexpr std::chrono::seconds kKillLimit(10);
constexpr const char* kMarkName = "REGROUP_TEST_PROGRAM";
// Below the kernel's own choices (32768 and up) and above what services use.
constexpr std::uint16_t kPortFirst = 20000;
constexpr std::uint16_t kPortLast = 32000;

std::string make_mark() {
    static int count = 0;
    return std::to_string(::getpid()) + "-" + std::to_string(++count) + "-" +
           std::to_string(std::random_device()());
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& text : texts) {
        result.push_back(text.data());
    }
    result.push_back(nullptr);
    return result;
}

std::vector<std::string> make_environment(const std::vector<std::string>& over,
                                          const std::string& mark) {
    std::vector<std::string> result = over;
    result.push_back(std::string(kMarkName) + "=" + mark);
    for (const char* name : {"PATH", "TMPDIR", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "LSAN_OPTIONS",
                             "TSAN_OPTIONS", "UBSAN_OPTIONS"}) {
        const std::string start = std::string(name) + "=";
        const bool replaced = std::any_of(over.begin(), over.end(), [&](const std::string& entry) {
            return entry.starts_with(start);
        });
        if (const char* value = std::getenv(name); value != nullptr && !replaced) {
            result.push_back(start + value);
        }
    }
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
    : directory_(spec.directory.empty() ? own_directory_.emplace().path() : spec.directory),
      mark_(make_mark()) {
    // One file for each program, since several may share the directory.
    output_file_ = directory_ + "/output-XXXXXX";
    // O_APPEND, so that writers with other descriptors overwrite nothing.
    const int fd = ::mkostemp(output_file_.data(), O_APPEND | O_CLOEXEC);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 1);
    posix_spawn_file_actions_adddup2(&actions, fd, 2);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addchdir_np(&actions, directory_.c_str());
    std::vector<std::string> command = spec.command;
    std::vector<std::string> environment = make_environment(spec.environment, mark_);
    const int error = ::posix_spawn(&pid_, command.front().c_str(), &actions, nullptr,
                                    pointers(command).data(), pointers(environment).data());
    posix_spawn_file_actions_destroy(&actions);
    ::close(fd);
    if (error != 0) {
        throw std::runtime_error("cannot start " + command.front());
    }
}

Program::~Program() {
    const auto kill_all = [&] {
        const std::vector<pid_t> living = family();
        for (const pid_t pid : living) {
            ::kill(pid, SIGKILL);
        }
        return living.empty();
    };
    eventually(kill_all, kKillLimit);
    if (!status_) {
        ::waitpid(pid_, nullptr, 0);
    }
}

std::string Program::output() const {
    return read_file(output_file_);
}

std::vector<pid_t> Program::family() const {
    std::vector<pid_t> living = pids_with_variable(kMarkName, mark_);
    std::erase_if(living, [](pid_t pid) { return !is_alive(pid); });
    return living;
}

void Program::signal(int number) const {
    // After waitpid, the pid may be reused.
    if (!status_) {
        ::kill(pid_, number);
    }
}

bool Program::stop() const {
    signal(SIGSTOP);
    return eventually([&] {
        siginfo_t info{};
        return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG) == 0 &&
               info.si_pid == pid_;
    });
}

bool Program::prints_behind(std::size_t begin, const std::string& text,
                            std::chrono::milliseconds limit) {
    bool found = false;
    eventually(
        [&] {
            const bool over = !running();
            found = output().find(text, begin) != std::string::npos;
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
                signal_ = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
                status_ = signal_ != 0 ? 128 + signal_ : WEXITSTATUS(status);
            }
            return status_.has_value();
        },
        limit);
    return status_;
}

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(line);
    }
    return lines;
}

std::uint16_t unused_port() {
    static std::mt19937 random(std::random_device{}());
    std::uniform_int_distribution<std::uint16_t> choice(kPortFirst, kPortLast);
    for (;;) {
        const std::uint16_t port = choice(random);
        const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            throw std::runtime_error("no socket could be opened");
        }
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        const bool is_free = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
        ::close(fd);
        if (is_free) {
            return port;
        }
    }
}

bool is_alive(pid_t pid) {
    // The state follows the name in parentheses, which may contain any character.
    const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
    const std::size_t end = stat.rfind(')');
    return end != std::string::npos && end + 2 < stat.size() && stat[end + 2] != 'Z' &&
           stat[end + 2] != 'X';
}

std::vector<pid_t> children_of(pid_t pid) {
    const std::string text = std::to_string(pid);
    std::istringstream list(read_file("/proc/" + text + "/task/" + text + "/children"));
    std::vector<pid_t> result;
    for (pid_t child = 0; list >> child;) {
        result.push_back(child);
    }
    return result;
}

std::vector<pid_t> pids_with_variable(const std::string& name, const std::string& value) {
    std::vector<pid_t> result;
    const std::string wanted = std::string(1, '\0') + name + "=" + value + std::string(1, '\0');
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
        const pid_t pid = std::atoi(entry.path().filename().c_str());
        if (pid > 0 &&
            ('\0' + read_file(entry.path() / "environ") + '\0').find(wanted) != std::string::npos) {
            result.push_back(pid);
        }
    }
    return result;
}

}  // namespace regroup::testing
