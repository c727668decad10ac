// SPDX-License-Identifier: Apache-2.0
// The program that the process tests start: a worker that reports how it was started, hostile
// workers, and a small agent below a warden. The first argument says which.
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <random>
#include <string>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/process/linux_launcher.h"
#include "agent/process/process_tree.h"
#include "agent/process/quit_signals.h"
#include "agent/process/warden.h"

namespace {

using namespace regroup;         // NOLINT
using namespace regroup::agent;  // NOLINT

/// No test leaves a process behind for longer than this, even if the code under test fails.
constexpr unsigned kLifeSeconds = 120;

[[noreturn]] void live_on() {
    ::alarm(kLifeSeconds);
    for (;;) {
        ::pause();
    }
}

void ignore_all_signals() {
    for (int number = 1; number < NSIG; ++number) {
        if (number != SIGALRM && number != SIGCHLD) {
            ::signal(number, SIG_IGN);
        }
    }
}

/// Signal numbers for which `matches`, as "1,15,".
template <class Predicate>
std::string list_signals(const Predicate& matches) {
    std::string text;
    for (int number = 1; number < NSIG; ++number) {
        if (matches(number)) {
            text += std::to_string(number) + ",";
        }
    }
    return text;
}

/// How this process was started, one "name=value" a line.
int report(const std::vector<std::string>& arguments) {
    sigset_t blocked;
    ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
    int death_signal = 0;
    ::prctl(PR_GET_PDEATHSIG, &death_signal);
    std::string fds;
    for (int fd = 0; fd < 4096; ++fd) {
        if (::fcntl(fd, F_GETFD) >= 0) {
            fds += std::to_string(fd) + ",";
        }
    }
    std::vector<char> folder(4096);
    std::cout << "pid=" << ::getpid() << "\ngroup=" << ::getpgid(0) << "\nsession=" << ::getsid(0)
              << "\nparent=" << ::getppid() << "\ndeath_signal=" << death_signal << "\nfds=" << fds
              << "\nblocked="
              << list_signals([&](int number) { return sigismember(&blocked, number) == 1; })
              << "\nignored=" << list_signals([](int number) { return is_ignored(number); })
              << "\nfolder=" << ::getcwd(folder.data(), folder.size()) << "\narguments=";
    for (const std::string& argument : arguments) {
        std::cout << argument << ",";
    }
    std::cout << "\nenvironment=";
    for (char** entry = ::environ; *entry != nullptr; ++entry) {
        std::cout << *entry << ",";
    }
    std::cout << std::endl;
    return 0;
}

void write_pid(const std::string& folder, const std::string& name) {
    std::ofstream(folder + "/" + name + ".part") << ::getpid() << std::flush;
    std::rename((folder + "/" + name + ".part").c_str(), (folder + "/" + name).c_str());
}

/// Forks, exits, and goes on in the child, so that its pid never stays the same for long.
[[noreturn]] void hop() {
    constexpr int kHopsMax = 100000;
    for (int count = 0; count < kHopsMax; ++count) {
        const pid_t child = ::fork();
        if (child != 0) {
            ::_exit(0);
        }
    }
    ::_exit(0);
}

/// A worker with everything that makes a tree hard to end. Each member leaves its pid in `folder`.
int hostile_tree(const std::string& folder, bool hopping) {
    ignore_all_signals();
    if (::fork() == 0) {
        write_pid(folder, "child");
        live_on();
    }
    if (::fork() == 0) {
        ::setsid();
        write_pid(folder, "session");
        if (::fork() == 0) {
            write_pid(folder, "below_session");
            live_on();
        }
        live_on();
    }
    if (::fork() == 0) {
        ::setsid();
        if (::fork() == 0) {
            ::prctl(PR_SET_NAME, "a (strange) na", 0, 0, 0);
            write_pid(folder, "daemon");
            live_on();
        }
        ::_exit(0);
    }
    if (hopping && ::fork() == 0) {
        hop();
    }
    write_pid(folder, "worker");
    live_on();
}

/// Numbered lines of random length in pieces of random length; the last has no line end.
int babble(unsigned seed, int line_count) {
    std::mt19937 random(seed);
    std::string text;
    for (int line = 0; line < line_count; ++line) {
        text += std::to_string(line) + " " + std::string(random() % 300, 'x') + "\n";
    }
    text += "end";
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t piece = std::min<std::size_t>(1 + random() % 700, text.size() - at);
        const ssize_t count = ::write(STDOUT_FILENO, text.data() + at, piece);
        if (count < 0) {
            return 1;
        }
        at += static_cast<std::size_t>(count);
    }
    return 0;
}

/// Makes close_range(2) unknown to this process, as an old kernel does.
bool forbid_close_range() {
    std::vector<sock_filter> filter = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{.len = static_cast<unsigned short>(filter.size()),
                             .filter = filter.data()};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

ProcessSpec helper_spec(const std::vector<std::string>& arguments) {
    ProcessSpec spec;
    spec.executable = std::filesystem::read_symlink("/proc/self/exe");
    spec.arguments = {"process_helper"};
    spec.arguments.insert(spec.arguments.end(), arguments.begin(), arguments.end());
    for (char** entry = ::environ; *entry != nullptr; ++entry) {
        spec.environment.emplace_back(*entry);
    }
    return spec;
}

/// Attaches to a process as a debugger does, says so, and never lets go of it.
int attach(pid_t pid) {
    if (::ptrace(PTRACE_ATTACH, pid, nullptr, nullptr) != 0 ||
        ::waitpid(pid, nullptr, __WALL) != pid) {
        return 1;
    }
    std::cout << "attached" << std::endl;
    live_on();
}

/// Launches `report` with stray descriptors open, on a kernel that knows no close_range.
int launch_without_close_range() {
    if (!forbid_close_range()) {
        return 1;
    }
    for (int fd = 10; fd < 20; ++fd) {
        ::dup2(2, fd);
    }
    boost::asio::io_context io;
    LinuxLauncher launcher(io);
    auto child = launcher.launch(helper_spec({"report"}));
    if (!child) {
        return 1;
    }
    int code = 1;
    child->async_wait([&](ExitStatus status) { code = status.exit_code; });
    io.run();
    return code;
}

/// As if a shell with a background job had executed us.
void start_background_job(const std::string& folder) {
    if (::fork() == 0) {
        write_pid(folder, "job");
        live_on();
    }
}

/// Makes the terminal at `path` ours, as a login does, and has it stop background processes that
/// write to it.
void take_terminal(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDWR);
    if (fd < 0) {
        std::exit(97);
    }
    termios settings{};
    ::tcgetattr(fd, &settings);
    settings.c_lflag |= TOSTOP;
    ::tcsetattr(fd, TCSANOW, &settings);
    ::dup2(fd, 2);
}

/// An agent below a warden. Prints "pid N" and "ready", then what happens to it.
int run_agent(const std::vector<std::string>& arguments) {
    const std::string& mode = arguments.at(0);
    if (mode == "beside_job") {
        start_background_job(arguments.at(1));
    }
    if (mode == "terminal" || mode == "background") {
        take_terminal(arguments.at(1));
    }
    if (mode == "background") {
        // As a shell without job control starts it.
        ::signal(SIGINT, SIG_IGN);
        ::signal(SIGQUIT, SIG_IGN);
    }
    auto warden = Warden::split(kAgentSignals, [](const Warden::LastWord&) {}, [] {});
    if (!warden) {
        return 99;
    }
    std::cout << "pid " << ::getpid() << std::endl;
    if (mode == "exit") {
        warden->say_goodbye();
        return std::stoi(arguments.at(1));
    }
    if (mode == "end_by") {
        warden->say_goodbye();
        end_like(ExitStatus::signalled(std::stoi(arguments.at(1)), false));
    }
    if (mode == "report") {
        warden->say_goodbye();
        return report({});
    }
    boost::asio::io_context io;
    LinuxLauncher launcher(io);
    auto signals = QuitSignals::listen(io, warden->fd(), kAgentSignals,
                                       {.on_signal =
                                            [&](int number) {
                                                std::cout << "signal " << number << std::endl;
                                                std::cerr << "seen " << number << std::endl;
                                                if (number == SIGUSR2) {
                                                    warden->say_goodbye();
                                                    ::_exit(0);
                                                }
                                            },
                                        .on_warden_gone = [] { end_without_warden([] {}); }});
    if (!signals) {
        return 98;
    }
    std::optional<Result<ChildProcess>> worker;
    if (mode == "tree" || mode == "leave_tree") {
        const std::string& folder = arguments.at(1);
        worker.emplace(launcher.launch(helper_spec({"tree", folder})));
        for (const char* name : {"child", "session", "below_session", "daemon", "worker"}) {
            while (::access((folder + "/" + name).c_str(), F_OK) != 0) {
                ::poll(nullptr, 0, 5);
            }
        }
    }
    if (mode == "leave_tree") {
        ::_exit(std::stoi(arguments.at(2)));
    }
    std::cout << "ready" << std::endl;
    ::alarm(kLifeSeconds);
    io.run();
    return 0;
}

}  // namespace

int main(int count, char** values) {
    const std::vector<std::string> all(values, values + count);
    const std::string& what = all.at(1);
    const std::vector<std::string> arguments(all.begin() + 2, all.end());
    if (what == "report") {
        return report(all);
    }
    if (what == "stubborn") {
        ignore_all_signals();
        std::cout << "ready" << std::endl;
        live_on();
    }
    if (what == "attach") {
        return attach(std::stoi(arguments.at(0)));
    }
    if (what == "tree") {
        return hostile_tree(arguments.at(0), arguments.size() > 1);
    }
    if (what == "babble") {
        return babble(static_cast<unsigned>(std::stoi(arguments.at(0))),
                      std::stoi(arguments.at(1)));
    }
    if (what == "without_close_range") {
        return launch_without_close_range();
    }
    if (what == "agent") {
        return run_agent(arguments);
    }
    return 2;
}
