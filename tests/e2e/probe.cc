// SPDX-License-Identifier: Apache-2.0
//
// The worker of the end-to-end tests. It carries out its arguments, the steps, one after the other,
// and exits with 0. Conditions limit a step to some ranks, restarts or rounds:
//
//     probe mark=up rank=5,restart=0?raise=11 barrier
//
// Marks are files in $PROBE_DIR that show a test which step a rank has reached, its environment,
// and as "holders" the processes that hold memory of GPUs then. After `hold_gpu` this process is
// one of them, for as long as the child lives that it has left behind, if there is one.
#include <regroup/regroup.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include "tests/support/gpu_holders.h"

extern char** environ;

namespace {

// A probe ends by itself after this time, even if the code under test fails to end it.
constexpr unsigned kLifeSeconds = 150;
constexpr std::chrono::seconds kGroupLimit(60);

std::vector<std::string> all_arguments;

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

[[noreturn]] void hold() {
    ::alarm(kLifeSeconds);
    for (;;) {
        ::pause();
    }
}

std::string own_file(const std::string& name) {
    return name + "." + variable("REGROUP_ROUND") + "." + variable("RANK");
}

/// $PROBE_DIR/NAME.ROUND.RANK: pid, arguments and environment, one "name=value" a line. The file is
/// written atomically.
void mark(const std::string& name) {
    const std::string path = variable("PROBE_DIR") + "/" + own_file(name);
    const std::string part = path + ".part" + std::to_string(::getpid());
    std::ofstream file(part);
    file << "pid=" << ::getpid() << "\n";
    for (std::size_t i = 0; i < all_arguments.size(); ++i) {
        file << "argument" << i << "=" << all_arguments[i] << "\n";
    }
    for (char** entry = environ; *entry != nullptr; ++entry) {
        file << *entry << "\n";
    }
    file << "holders=" << regroup::testing::holders_now() << "\n";
    file.close();
    std::filesystem::rename(part, path);
}

void await(const std::string& name) {
    ::alarm(kLifeSeconds);
    while (!std::filesystem::exists(variable("PROBE_DIR") + "/" + name)) {
        ::poll(nullptr, 0, 5);
    }
    ::alarm(0);
}

// Ends by the signal's default action. A sanitizer's handler would exit with a code instead.
[[noreturn]] void end_by(int number) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    std::signal(number, SIG_DFL);
    std::fflush(nullptr);
    ::raise(number);
    std::abort();
}

// Makes the worker's process tree hard to end: a child, a new session and a daemon by double fork,
// all of which ignore SIGTERM.
void plant_tree() {
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
        std::signal(number, SIG_IGN);
    }
    if (::fork() == 0) {
        mark("child");
        hold();
    }
    if (::fork() == 0) {
        ::setsid();
        mark("session");
        hold();
    }
    if (::fork() == 0) {
        ::setsid();
        if (::fork() == 0) {
            ::prctl(PR_SET_NAME, "a (strange) na", 0, 0, 0);
            mark("daemon");
            hold();
        }
        ::_exit(0);
    }
}

pid_t leave_child_behind(bool own_session) {
    const pid_t child = ::fork();
    if (child == 0) {
        if (own_session) {
            ::setsid();
        }
        mark("background");
        hold();
    }
    await(own_file("background"));
    return child;
}

volatile std::sig_atomic_t wants_save = 0;
volatile std::sig_atomic_t code_on_term = 0;

// Waits for a signal that asks it to end, and then until the file `disk` is there.
[[noreturn]] void save(const std::string& disk) {
    mark("training");
    while (wants_save == 0) {
        ::poll(nullptr, 0, 5);
    }
    mark("saving");
    await(disk);
    std::cout << "saved in round " << variable("REGROUP_ROUND") << std::endl;
    mark("saved");
    ::_exit(0);
}

std::vector<char*> hoard;

// Each rank writes a key to the round's store and reads its neighbour's key.
void meet_in_store() {
    const regroup::Context context = regroup::Context::from_environment();
    const auto store =
        regroup::connect_store(context.master_addr, context.master_port, kGroupLimit);
    store->set("probe/" + std::to_string(context.rank), "word of " + std::to_string(context.rank));
    const std::uint32_t neighbour = (context.rank + 1) % context.world_size;
    std::cout << "read " << store->get("probe/" + std::to_string(neighbour)) << std::endl;
}

std::shared_ptr<regroup::Store> round_store(std::chrono::milliseconds limit) {
    const regroup::Context context = regroup::Context::from_environment();
    return regroup::connect_store(context.master_addr, context.master_port, limit);
}

// Tries to reach the store of this worker's round, or a store in its place, by a new connection.
void try_store(const std::string& key) {
    try {
        const auto store = round_store(std::chrono::seconds(2));
        store->set("stale", "yes");
        std::cout << "reached " << store->get(key) << std::endl;
        mark("reached");
    } catch (const regroup::Error& error) {
        std::cout << "refused: " << error.what() << std::endl;
        mark("refused");
    }
}

// Tries to use a store at `port` of `host`, with no agent.
void reach(const std::string& place) {
    const std::size_t colon = place.rfind(':');
    try {
        const auto store = regroup::connect_store(
            place.substr(0, colon), static_cast<std::uint16_t>(std::stoi(place.substr(colon + 1))),
            std::chrono::milliseconds(500));
        static_cast<void>(store->add("probe/stranger", 1));
        std::cout << "reached " << place << std::endl;
    } catch (const regroup::Error& error) {
        std::cout << "refused by " << place << ": " << error.what() << std::endl;
    }
}

// Writes to all the memory it allocates, so that the kernel has to provide it.
void use_memory(std::size_t megabytes) {
    constexpr std::size_t kMegabyte = std::size_t{1} << 20U;
    for (std::size_t i = 0; i < megabytes; ++i) {
        auto* const block = new char[kMegabyte];
        std::fill(block, block + kMegabyte, static_cast<char>(i));
        hoard.push_back(block);
    }
}

class Probe {
   public:
    void carry_out(const std::string& step) {
        const std::size_t question = step.find('?');
        if (question != std::string::npos && !applies(step.substr(0, question))) {
            return;
        }
        const std::string action = question == std::string::npos ? step : step.substr(question + 1);
        const std::size_t equals = action.find('=');
        act(action.substr(0, equals), equals == std::string::npos ? "" : action.substr(equals + 1));
    }

   private:
    // "rank=5,restart=0": all must hold.
    static bool applies(const std::string& conditions) {
        static const std::map<std::string, const char*> kNames{
            {"rank", "RANK"},           {"local", "LOCAL_RANK"},
            {"node", "GROUP_RANK"},     {"nodes", "GROUP_WORLD_SIZE"},
            {"round", "REGROUP_ROUND"}, {"restart", "TORCHELASTIC_RESTART_COUNT"}};
        std::istringstream list(conditions);
        for (std::string one; std::getline(list, one, ',');) {
            const std::size_t equals = one.find('=');
            if (variable(kNames.at(one.substr(0, equals))) != one.substr(equals + 1)) {
                return false;
            }
        }
        return true;
    }

    void act(const std::string& what, const std::string& value) {
        if (what == "mark") {
            mark(value);
        } else if (what == "await") {
            await(value);
        } else if (what == "say") {
            std::cout << value << std::endl;
        } else if (what == "complain") {
            std::cerr << value << std::endl;
        } else if (what == "lines") {
            for (int i = 0; i < std::stoi(value); ++i) {
                std::cout << "line " << i << " of " << value << "\n";
            }
            std::cout << std::flush;
        } else if (what == "exit") {
            std::fflush(nullptr);
            std::_Exit(std::stoi(value));
        } else if (what == "fatal") {
            const auto kind = value == "user_error" ? regroup::FatalKind::user_error
                              : value == "retry"    ? regroup::FatalKind::retry
                                                    : regroup::FatalKind::bad_node;
            regroup::report_fatal(kind, "there is no such data set");
        } else if (what == "raise") {
            end_by(std::stoi(value));
        } else if (what == "ignore") {
            std::signal(std::stoi(value), SIG_IGN);
        } else if (what == "exit_on_term") {
            code_on_term = std::stoi(value);
            std::signal(SIGTERM, [](int /*number*/) { ::_exit(code_on_term); });
        } else if (what == "save_on_term") {
            for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
                std::signal(number, [](int /*number*/) { wants_save = 1; });
            }
            save(value);
        } else if (what == "hold") {
            hold();
        } else if (what == "tree") {
            plant_tree();
        } else if (what == "hold_gpu") {
            regroup::testing::show_holder(regroup::testing::holders_file(), ::getpid(), child_);
        } else if (what == "background") {
            child_ = leave_child_behind(value == "session");
        } else if (what == "store") {
            meet_in_store();
        } else if (what == "set") {
            round_store(kGroupLimit)->set(value, value);
        } else if (what == "get") {
            std::cout << "got " << round_store(kGroupLimit)->get(value) << std::endl;
        } else if (what == "try_store") {
            try_store(value);
        } else if (what == "reach") {
            reach(value);
        } else if (what == "memory") {
            use_memory(std::stoul(value));
        } else if (what == "attach") {
            (void)regroup::Context::from_environment();
        } else if (what == "join") {
            regroup::ProcessGroupOptions options;
            options.timeout = kGroupLimit;
            group_ =
                regroup::ProcessGroup::create("cpu", regroup::Context::from_environment(), options);
        } else if (what == "barrier") {
            group_->barrier().wait();
        } else {
            std::cerr << "probe: unknown step " << what << std::endl;
            std::_Exit(2);
        }
    }

    std::unique_ptr<regroup::ProcessGroup> group_;
    pid_t child_ = 0;  ///< That it left behind.
};

}  // namespace

int main(int count, char** values) {
    all_arguments.assign(values + 1, values + count);
    try {
        Probe probe;
        for (const std::string& step : all_arguments) {
            probe.carry_out(step);
        }
    } catch (const std::exception& error) {
        // As a training program without a handler: print the error and abort.
        std::cerr << "probe: " << error.what() << std::endl;
        end_by(SIGABRT);
    }
    return 0;
}
