// SPDX-License-Identifier: Apache-2.0
#include <regroup/spawn.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <poll.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/signal_name.h"
#include "worker_sdk/src/base/process_mark.h"
#include "worker_sdk/src/link/process_link.h"
#include "worker_sdk/src/spawn/cuda_driver.h"
#include "worker_sdk/src/spawn/spawned_process.h"
#include "worker_sdk/src/store/store_service.h"

namespace regroup {
namespace {

using spawning::ProcessEnd;
using spawning::SpawnedProcess;

constexpr std::int64_t kPollMsMax = 60'000;
/// A thread that was joined may take a moment to leave the kernel's list.
constexpr Duration kThreadsLeaveLimit = std::chrono::seconds(1);

#if defined(__SANITIZE_THREAD__)
constexpr std::ptrdiff_t kThreadsMax = 2;  // The sanitizer has a thread.
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr std::ptrdiff_t kThreadsMax = 2;
#else
constexpr std::ptrdiff_t kThreadsMax = 1;
#endif
#else
constexpr std::ptrdiff_t kThreadsMax = 1;
#endif

/// 0 if it cannot be known.
std::ptrdiff_t thread_count() {
    std::error_code error;
    const std::filesystem::directory_iterator tasks("/proc/self/task", error);
    return error ? 0 : std::distance(begin(tasks), end(tasks));
}

void require_one_thread() {
    const Instant deadline = after(SteadyClock().now(), kThreadsLeaveLimit);
    // The link's thread holds no lock that a child would miss.
    const std::ptrdiff_t count_max = kThreadsMax + (link::process_link() ? 1 : 0);
    std::ptrdiff_t count = thread_count();
    while (count > count_max) {
        if (SteadyClock().now() >= deadline) {
            throw Error(Errc::invalid_argument,
                        "spawn: this process has " + std::to_string(count) +
                            " threads, and a fork would copy only one of them; spawn before "
                            "forming a process group, and before a library starts its threads");
        }
        ::poll(nullptr, 0, 1);
        count = thread_count();
    }
}

void require_no_cuda() {
    if (spawning::has_initialised_cuda()) {
        throw Error(Errc::invalid_argument,
                    "spawn: this process has initialised CUDA, which then works in no fork of it; "
                    "spawn before the first call of CUDA (cuda::availability() and "
                    "cuda::device_of() may come before)");
    }
}

/// The end of a process.
struct FailedProcess {
    SpawnError::Process process;
    std::optional<spawning::Thrown> thrown;

    /// Whether the failure of another process may be the cause.
    [[nodiscard]] bool is_consequence() const {
        return thrown && (thrown->code == Errc::disconnected || thrown->code == Errc::fenced ||
                          thrown->code == Errc::deadline_exceeded);
    }

    [[nodiscard]] SpawnError error() const {
        std::string detail = "spawned process " + std::to_string(process.index) + " (pid " +
                             std::to_string(process.pid) + ") ";
        if (thrown) {
            detail += "threw: " + thrown->sentence;
        } else if (process.signal != 0) {
            detail += "was ended by " + signal_name(process.signal);
        } else if (process.exit_code == ProcessEnd::kUnknown) {
            detail += "ended early, with a status that this program ignores (SIGCHLD)";
        } else {
            detail += "exited with code " + std::to_string(process.exit_code);
        }
        return {thrown && thrown->code ? *thrown->code : Errc::closed, detail, process};
    }
};

}  // namespace

struct SpawnedProcesses::State {
    explicit State(const SpawnOptions& options_in) : options(options_in) {}
    ~State() {
        terminate();
        (void)wait_until(Instant::max());
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    /// When the others must end because one has failed.
    [[nodiscard]] Instant terminate_at() const;
    void terminate();
    /// True once all have ended.
    bool wait_until(Instant deadline);
    void wait_for_some(Instant deadline) const;
    void take_end(std::uint32_t index);

    const SpawnOptions options;
    std::vector<SpawnedProcess> processes;
    std::vector<bool> is_running;  // by index
    std::size_t running_count = 0;
    std::optional<StoreService> store;
    std::optional<FailedProcess> failure;
    Instant failed_at;               // When `failure` became known.
    std::optional<Instant> kill_at;  // Set when SIGTERM was sent.
    bool killed = false;
};

Instant SpawnedProcesses::State::terminate_at() const {
    if (!failure || kill_at) {
        return Instant::max();
    }
    return failure->is_consequence() ? after(failed_at, options.cause_wait) : failed_at;
}

void SpawnedProcesses::State::terminate() {
    if (!kill_at) {
        kill_at = after(SteadyClock().now(), options.grace);
        for (std::size_t i = 0; i < processes.size(); ++i) {
            // A process that has reported its end exits with its own code.
            if (is_running[i] && !processes[i].has_reported()) {
                processes[i].signal(SIGTERM);
            }
        }
    }
}

void SpawnedProcesses::State::wait_for_some(Instant deadline) const {
    std::vector<pollfd> ends;
    for (std::size_t i = 0; i < processes.size(); ++i) {
        // poll() ignores negative descriptors.
        ends.push_back({is_running[i] ? processes[i].pidfd() : -1, POLLIN, 0});
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock().now());
    const auto limit = std::clamp<std::int64_t>(left.count(), 0, kPollMsMax);
    ::poll(ends.data(), ends.size(), static_cast<int>(limit));
}

bool SpawnedProcesses::State::wait_until(Instant deadline) {
    while (running_count > 0) {
        const Instant now = SteadyClock().now();
        if (kill_at && !killed && now >= *kill_at) {
            killed = true;
            for (std::size_t i = 0; i < processes.size(); ++i) {
                if (is_running[i]) {
                    processes[i].signal(SIGKILL);
                }
            }
        }
        const Instant act_at = kill_at && !killed ? *kill_at : terminate_at();
        wait_for_some(std::min(deadline, act_at));
        for (std::uint32_t i = 0; i < processes.size(); ++i) {
            take_end(i);
        }
        if (running_count > 0 && SteadyClock().now() >= terminate_at()) {
            terminate();
        }
        if (running_count > 0 && SteadyClock().now() >= deadline) {
            return false;
        }
    }
    store.reset();
    return true;
}

void SpawnedProcesses::State::take_end(std::uint32_t index) {
    if (!is_running[index]) {
        return;
    }
    SpawnedProcess& process = processes[index];
    pollfd end{process.pidfd(), POLLIN, 0};
    if (::poll(&end, 1, 0) != 1) {
        return;
    }
    ProcessEnd ending = process.reap();
    is_running[index] = false;
    --running_count;
    // After SIGTERM from here, a process ends by that signal or exits with any code.
    const bool by_us =
        kill_at && !ending.thrown &&
        (ending.signal == 0 || ending.signal == SIGTERM || (killed && ending.signal == SIGKILL));
    if (by_us || (ending.exit_code == 0 && ending.signal == 0)) {
        return;
    }
    FailedProcess found{{index, process.pid(), ending.exit_code, ending.signal},
                        std::move(ending.thrown)};
    if (!failure || (failure->is_consequence() && !found.is_consequence())) {
        failure = std::move(found);
        failed_at = SteadyClock().now();
    }
}

SpawnedProcesses::SpawnedProcesses(std::shared_ptr<State> state) noexcept
    : state_(std::move(state)) {}
SpawnedProcesses::SpawnedProcesses(SpawnedProcesses&& other) noexcept = default;
SpawnedProcesses& SpawnedProcesses::operator=(SpawnedProcesses&& other) noexcept = default;
SpawnedProcesses::~SpawnedProcesses() = default;

std::vector<int> SpawnedProcesses::pids() const {
    std::vector<int> pids;
    for (const SpawnedProcess& process : state_->processes) {
        pids.push_back(process.pid());
    }
    return pids;
}

void SpawnedProcesses::join() {
    while (!join_for(Duration::max())) {
    }
}

bool SpawnedProcesses::join_for(std::chrono::nanoseconds limit) {
    const bool ended = state_->wait_until(after(SteadyClock().now(), limit));
    if (ended && state_->failure) {
        throw state_->failure->error();
    }
    return ended;
}

SpawnedProcesses start_processes(const SpawnFunction& function, std::uint32_t nprocs,
                                 const SpawnOptions& options) {
    if (nprocs == 0) {
        throw Error(Errc::invalid_argument, "spawn: nprocs is 0; it is at least 1");
    }
    // First, since CUDA also starts threads.
    require_no_cuda();
    require_one_thread();
    std::shared_ptr<SpawnedProcesses::State> state(new SpawnedProcesses::State(options),
                                                   OwnerDeleter());
    state->processes.reserve(nprocs);
    for (std::uint32_t index = 0; index < nprocs; ++index) {
        state->processes.emplace_back(index, function, nprocs, options.set_environment,
                                      state->processes);
        state->is_running.push_back(true);
        ++state->running_count;
    }
    if (options.set_environment) {
        // Its thread begins only now that all forks are done.
        state->store.emplace("127.0.0.1", std::uint16_t{0}, StoreService::limits_of(nprocs));
        for (const SpawnedProcess& process : state->processes) {
            process.tell_port(state->store->port());
        }
    }
    return SpawnedProcesses(std::move(state));
}

void spawn(const SpawnFunction& function, std::uint32_t nprocs, const SpawnOptions& options) {
    start_processes(function, nprocs, options).join();
}

}  // namespace regroup
