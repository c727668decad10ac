// SPDX-License-Identifier: Apache-2.0
//
// A worker with the SDK that does what its arguments say, one after the other:
//
//     attach         takes up its link to the agent
//     memory=N       holds N megabytes from then on, which take the kernel a while to free
//     garble         says something else to the agent, over a connection of its own
//     fork           has a child that exits with 9 at once, and waits for it
//     fork_exit      the same, but the child exits in order, and takes a look at the link before
//     system         has a shell that exits with 9
//     again          has a child that says that it is the worker, and dies by SIGKILL
//     session        has a child in a session of its own, and says "session PID"
//     ready          says so on stderr, behind what a sanitizer may have to say of a forked child
//     exec           begins again as another program, with the arguments that follow
//     fatal          leaves an error file of 20 KB, and says in two lines, not all UTF-8, why it
//     ends exit=N, _exit=N, return=N, raise=N, hold
#include <regroup/regroup.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

// As they were at the start: the SDK takes them away, lest children take them for theirs.
std::string agent_socket;
std::string worker_id;

void garble() {
    const std::string& name = agent_socket;
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, name.size() - 1, 1);
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    if (::connect(socket, reinterpret_cast<sockaddr*>(&address), bytes) != 0) {
        std::_Exit(99);
    }
    const std::string rubbish = "what is this";
    std::string answer(16, '\0');
    if (::send(socket, rubbish.data(), rubbish.size(), 0) < 0 ||
        ::recv(socket, answer.data(), answer.size(), 0) > 0) {
        std::_Exit(98);  // It should have hung up.
    }
    ::close(socket);
}

void set_variables() {
    ::setenv("REGROUP_AGENT_SOCKET", agent_socket.c_str(), 1);
    ::setenv("REGROUP_WORKER_ID", worker_id.c_str(), 1);
}

/// A child that does `work` and is to end with `expected`.
template <class Work>
void fork_and_wait(int expected, const Work& work) {
    const pid_t child = ::fork();
    if (child == 0) {
        work();
        ::_exit(97);
    }
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != expected) {
        std::_Exit(96);
    }
}

constexpr int kExited9 = 9 << 8;

}  // namespace

int main(int count, char** values) {
    ::alarm(100);
    const auto variable = [](const char* name) {
        const char* value = std::getenv(name);
        return std::string(value != nullptr ? value : "");
    };
    agent_socket = variable("REGROUP_AGENT_SOCKET");
    worker_id = variable("REGROUP_WORKER_ID");
    std::vector<char> memory;
    for (int i = 1; i < count; ++i) {
        const std::string word = values[i];
        const std::string what = word.substr(0, word.find('='));
        const int number = what.size() < word.size() ? std::stoi(word.substr(what.size() + 1)) : 0;
        if (what == "attach") {
            (void)regroup::Context::from_environment();
        } else if (what == "memory") {
            ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);  // Small pages: many to free.
            memory.assign(static_cast<std::size_t>(number) << 20U, 'x');
        } else if (what == "garble") {
            garble();
        } else if (what == "fork") {
            fork_and_wait(kExited9, [] { ::_exit(9); });
        } else if (what == "fork_exit") {
            fork_and_wait(kExited9, [] {
                (void)regroup::Context::from_environment();
                std::exit(9);
            });
        } else if (what == "system") {
            if (std::system("exit 9") != kExited9) {
                std::_Exit(95);
            }
        } else if (what == "again") {
            fork_and_wait(SIGKILL, [&] {
                set_variables();
                ::execl(values[0], values[0], "attach", "raise=9", nullptr);
            });
        } else if (what == "session") {
            const pid_t child = ::fork();
            if (child == 0) {
                ::setsid();
                for (;;) {
                    ::pause();
                }
            }
            std::cerr << "session " << child << std::endl;
        } else if (what == "ready") {
            std::cerr << "ready" << std::endl;
        } else if (what == "exec") {
            set_variables();
            values[i] = values[0];
            ::execv(values[0], values + i);
        } else if (what == "fatal") {
            std::ofstream(variable("TORCHELASTIC_ERROR_FILE"))
                << R"({"message": ")" << std::string(20'000, 'e') << R"( at its end"})";
            regroup::report_fatal(regroup::FatalKind::user_error,
                                  "the caf\xe9 is closed\n" + std::string(4'000, 'x'));
        } else if (what == "exit") {
            std::exit(number);
        } else if (what == "_exit") {
            ::_exit(number);
        } else if (what == "return") {
            return number;
        } else if (what == "raise") {
            const rlimit no_core{0, 0};
            ::setrlimit(RLIMIT_CORE, &no_core);
            std::signal(number, SIG_DFL);
            ::raise(number);
        } else if (what == "hold") {
            for (;;) {
                ::pause();
            }
        }
    }
    return 0;
}
