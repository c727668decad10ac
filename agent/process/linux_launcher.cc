// SPDX-License-Identifier: Apache-2.0
// Launches by clone(VM, VFORK, PIDFD). The launchers of Boost.Process v2 fork, which takes time in
// proportion to our memory and runs Asio's fork handlers in the child (a lock of another thread
// makes it hang). If the program cannot be executed, they leave a zombie and run our atexit
// functions. They also leave descriptors open.
#include "agent/process/linux_launcher.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "agent/process/own_limits.h"
#include "agent/process/resolve_program.h"
#include "agent/process/start_failure.h"
#include "rendezvous/base/text.h"
#include "rendezvous/files/background.h"

/// clone(2) by the name that the thread sanitizer does not intercept. Its interceptor repairs the
/// sanitizer's state in the child as after fork(), and our child shares that state with us.
extern "C" int __clone(int (*function)(void*), void* stack, int flags, void* argument,  // NOLINT
                       ...) noexcept;

/// The child runs on our memory and our thread's storage while this thread is suspended. Calls of a
/// sanitizer in the child would change our own bookkeeping.
#if defined(__clang__)
#define REGROUP_UNSANITIZED __attribute__((disable_sanitizer_instrumentation, noinline))
#else
#define REGROUP_UNSANITIZED __attribute__((no_sanitize("address,thread,undefined"), noinline))
#endif

namespace regroup::agent {
namespace {

constexpr std::size_t kStackBytes = std::size_t{32} << 10;
constexpr int kExitStartFailed = 127;

/// The steps of a child, for errors.
constexpr const char* kSession = "setsid";
constexpr const char* kParentDeathSignal = "prctl(PR_SET_PDEATHSIG)";
constexpr const char* kStandardFds = "dup3 of its input or output";
constexpr const char* kWorkingDirectory = "chdir";
constexpr const char* kCpus = "sched_setaffinity";
constexpr const char* kMemoryNodes = "set_mempolicy";
constexpr const char* kExec = "execve";

/// A set of numbers in the kernel's format. It may be longer than the kernel's own sets.
using BitMask = std::vector<unsigned long>;
constexpr std::size_t kMaskWordBits = sizeof(unsigned long) * 8;

/// The task of the child, and its result. Shared by parent and child.
struct Plan {
    const char* executable = nullptr;
    char* const* arguments = nullptr;
    char* const* environment = nullptr;
    const char* working_directory = nullptr;
    const unsigned long* cpu_mask = nullptr;
    std::size_t cpu_mask_bytes = 0;
    const unsigned long* node_mask = nullptr;
    std::size_t node_mask_bits = 0;
    int stdin_fd = -1;
    int stdout_fd = -1;
    int stderr_fd = -1;
    pid_t parent = 0;
    const rlimit* descriptors = nullptr;
    unsigned long own_ignored = 0;  ///< The signals that only we ignore, a bit each.

    const char* failed_step = nullptr;
    int error = 0;
};

// In the child only system calls are made, by number: libc's functions may lock, allocate, or
// remember things, such as signal handlers, in memory that is still ours.

REGROUP_UNSANITIZED void reset_signals(const Plan& plan) {
    // The kernel's struct sigaction, with room to spare: the handler is its first word.
    using Action = unsigned long[8];
    constexpr int kSignalMax = 64;
    constexpr int kMaskBytes = 8;
    const Action by_default = {};
    for (int number = 1; number <= kSignalMax; ++number) {
        Action now = {};
        ::syscall(SYS_rt_sigaction, number, nullptr, now, kMaskBytes);
        const bool handled = now[0] > 1;  // Neither SIG_DFL nor SIG_IGN.
        // The agent passes signals on, so the worker must not inherit that SIGINT is ignored. In a
        // session of its own it gets none from the keyboard.
        const bool passed_on = number == SIGINT || number == SIGQUIT;
        const bool ours =
            number < kSignalMax && (plan.own_ignored >> static_cast<unsigned>(number) & 1U) != 0;
        if (handled || passed_on || ours) {
            ::syscall(SYS_rt_sigaction, number, by_default, nullptr, kMaskBytes);
        }
    }
    const unsigned long nothing_blocked = 0;
    ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &nothing_blocked, nullptr, kMaskBytes);
}

REGROUP_UNSANITIZED void close_from_3() {
    if (::syscall(SYS_close_range, 3U, ~0U, 0U) == 0) {
        return;
    }
    // A kernel before 5.9, or a sandbox that does not know the call.
    constexpr rlim_t kFdsMax = rlim_t{1} << 20;  // The limit itself may be "unlimited".
    rlimit limit{};
    ::syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, nullptr, &limit);
    for (rlim_t fd = 3; fd < limit.rlim_cur && fd < kFdsMax; ++fd) {
        ::syscall(SYS_close, fd);
    }
}

/// True if the preference is set, or if the kernel does not support it.
REGROUP_UNSANITIZED bool prefer_memory(const Plan& plan) {
    // From linux/mempolicy.h. The C library has no names for them.
    constexpr int kPreferred = 1;
    constexpr int kLocal = 4;
    constexpr int kPreferredMany = 5;  // Since Linux 5.15.
    // The kernel reads one bit less than it is told.
    const std::size_t bits = plan.node_mask_bits + 1;
    if (::syscall(SYS_set_mempolicy, kPreferredMany, plan.node_mask, bits) == 0) {
        return true;
    }
    if (errno == EINVAL && ::syscall(SYS_set_mempolicy, kPreferred, plan.node_mask, bits) == 0) {
        // The nodes exist, so the kernel is older and can prefer only one node. Then the node of
        // the CPU that allocates is the better choice.
        ::syscall(SYS_set_mempolicy, kLocal, nullptr, 0);
        return true;
    }
    // EINVAL: none of the nodes has memory that our cpuset lets us use.
    return errno == ENOSYS || errno == EPERM || errno == EINVAL;
}

REGROUP_UNSANITIZED const char* run_until_failure(const Plan& plan) {
    if (::syscall(SYS_setsid) < 0) {
        return kSession;
    }
    if (::syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0) {
        return kParentDeathSignal;
    }
    // If the parent died before, no signal comes. Compare with its pid, not 1: there may be a
    // subreaper.
    if (::syscall(SYS_getppid) != plan.parent) {
        ::syscall(SYS_exit_group, kExitStartFailed);
    }
    // Yama lets only ancestors debug a process. Allow our tools to do so, for the stacks of a
    // hanging worker. Without Yama this call fails, which does not matter.
    ::syscall(SYS_prctl, PR_SET_PTRACER, plan.parent, 0, 0, 0);
    if ((plan.stdin_fd >= 0 && ::syscall(SYS_dup3, plan.stdin_fd, 0, 0) < 0) ||
        (plan.stdout_fd >= 0 && ::syscall(SYS_dup3, plan.stdout_fd, 1, 0) < 0) ||
        (plan.stderr_fd >= 0 && ::syscall(SYS_dup3, plan.stderr_fd, 2, 0) < 0)) {
        return kStandardFds;
    }
    if (plan.working_directory != nullptr && ::syscall(SYS_chdir, plan.working_directory) < 0) {
        return kWorkingDirectory;
    }
    if (plan.cpu_mask != nullptr &&
        ::syscall(SYS_sched_setaffinity, 0, plan.cpu_mask_bytes, plan.cpu_mask) < 0) {
        return kCpus;
    }
    if (plan.node_mask != nullptr && !prefer_memory(plan)) {
        return kMemoryNodes;
    }
    close_from_3();
    if (plan.descriptors != nullptr) {
        ::syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, plan.descriptors, nullptr);  // It only lowers.
    }
    reset_signals(plan);
    ::syscall(SYS_execve, plan.executable, plan.arguments, plan.environment);
    return kExec;
}

REGROUP_UNSANITIZED int run_child(void* argument) {
    Plan& plan = *static_cast<Plan*>(argument);
    const char* const failed = run_until_failure(plan);
    plan.error = errno;
    plan.failed_step = failed;
    ::syscall(SYS_exit_group, kExitStartFailed);
    return 0;
}

#undef REGROUP_UNSANITIZED

/// For execve: null-terminated. Points into `texts`, which execve does not write to.
std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    pointers.reserve(texts.size() + 1);
    for (const std::string& text : texts) {
        pointers.push_back(const_cast<char*>(text.c_str()));
    }
    pointers.push_back(nullptr);
    return pointers;
}

BitMask mask_of(const std::vector<int>& numbers, int limit) {
    BitMask mask;
    for (const int number : numbers) {
        ENSURE(number >= 0 && number < limit);
        const auto bit = static_cast<std::size_t>(number);
        mask.resize(std::max(mask.size(), bit / kMaskWordBits + 1));
        mask[bit / kMaskWordBits] |= 1UL << (bit % kMaskWordBits);
    }
    return mask;
}

unsigned long bit_of(int signal) {
    return 1UL << static_cast<unsigned>(signal);
}

// Empty: the text of the error says it.
std::string explain_exec(const ProcessSpec& spec, int error) {
    if (error == ENOEXEC) {
        return "it is neither a program of this machine nor a script that begins with #!";
    }
    if (error == ENOENT && ::access(spec.executable.c_str(), F_OK) == 0) {
        return missing_interpreter(spec.executable);
    }
    if (error == E2BIG) {
        return "its arguments and environment are too long";
    }
    return "";
}

Failure failure_of(const ProcessSpec& spec, const Plan& plan) {
    const std::string start = "cannot start '" + spec.executable + "': ";
    if (plan.failed_step == nullptr) {
        return {Errc::overloaded, start + "the child was lost before it could be started"};
    }
    const std::string_view step = plan.failed_step;
    Failure failure = start_failure(
        start + plan.failed_step +
            (step == kWorkingDirectory ? " to '" + spec.working_directory + "'"
             : step == kCpus           ? " to CPUs " + joined(spec.cpus, ",")
             : step == kMemoryNodes    ? " to NUMA nodes " + joined(spec.memory_nodes, ",")
                                       : ""),
        plan.error);
    const std::string reason = step == kExec ? explain_exec(spec, plan.error) : "";
    failure.detail = reason.empty() ? failure.detail : start + reason;
    return failure;
}

}  // namespace

std::vector<std::string> own_environment() {
    std::vector<std::string> variables;
    for (char** variable = environ; *variable != nullptr; ++variable) {
        variables.emplace_back(*variable);
    }
    return variables;
}

LinuxLauncher::LinuxLauncher(boost::asio::io_context& io)
    : io_(io),
      stack_(std::make_unique_for_overwrite<std::byte[]>(kStackBytes)),
      children_(std::make_shared<std::set<pid_t>>()) {
    struct sigaction now{};
    ::sigaction(SIGCHLD, nullptr, &now);
    if (now.sa_handler == SIG_IGN) {
        ::signal(SIGCHLD, SIG_DFL);
    }
}

Result<ChildProcess> LinuxLauncher::launch(const ProcessSpec& spec) {
    ENSURE(spec.executable.starts_with('/'));
    ENSURE(spec.stdin_fd == -1 || spec.stdin_fd > 2);
    ENSURE(spec.stdout_fd == -1 || spec.stdout_fd > 2);
    ENSURE(spec.stderr_fd == -1 || spec.stderr_fd > 2);
    ENSURE(!spec.arguments.empty());
    const std::vector<char*> arguments = pointers_to(spec.arguments);
    const std::vector<char*> environment = pointers_to(spec.environment);
    const BitMask cpu_mask = mask_of(spec.cpus, ProcessSpec::kCpusMax);
    const BitMask node_mask = mask_of(spec.memory_nodes, ProcessSpec::kNumaNodesMax);

    Plan plan;
    plan.executable = spec.executable.c_str();
    plan.arguments = arguments.data();
    plan.environment = environment.data();
    plan.working_directory =
        spec.working_directory.empty() ? nullptr : spec.working_directory.c_str();
    plan.cpu_mask = cpu_mask.empty() ? nullptr : cpu_mask.data();
    plan.cpu_mask_bytes = cpu_mask.size() * sizeof(unsigned long);
    plan.node_mask = node_mask.empty() ? nullptr : node_mask.data();
    plan.node_mask_bits = node_mask.size() * kMaskWordBits;
    plan.stdin_fd = spec.stdin_fd;
    plan.stdout_fd = spec.stdout_fd;
    plan.stderr_fd = spec.stderr_fd;
    plan.parent = ::getpid();
    const std::optional<rlimit> descriptors = descriptor_limit_of_programs();
    plan.descriptors = descriptors ? &*descriptors : nullptr;
    plan.own_ignored = bit_of(SIGPIPE) | bit_of(SIGTTOU);
    for (const int number : ignored_limit_signals()) {
        plan.own_ignored |= bit_of(number);
    }

    int pidfd = -1;
    pid_t pid = -1;
    int clone_error = 0;
    {
        const files::AllSignalsBlocked guard;  // Our handlers must not run in the child.
        std::byte* const stack = stack_.get() + kStackBytes;
        constexpr int kFlags = CLONE_VM | CLONE_VFORK | SIGCHLD;
        // Suspends this thread until the child has executed the program or ended.
        pid = __clone(run_child, stack, kFlags | CLONE_PIDFD, &plan, &pidfd);
        if (pid < 0 && errno == EINVAL) {
            // QEMU, where it runs programs for another processor, knows the call without the flag.
            // There the child has a copy of `plan`, so its failure is only known by its exit code.
            pid = __clone(run_child, stack, kFlags, &plan);
            pidfd = pid < 0 ? -1 : static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
        }
        clone_error = errno;
    }
    if (pid < 0) {
        return start_failure("cannot start '" + spec.executable + "': clone", clone_error);
    }
    UniqueFd owned(pidfd);
    if (plan.failed_step != nullptr) {
        while (::waitid(P_PID, static_cast<id_t>(pid), nullptr, WEXITED) < 0 && errno == EINTR) {
        }
        return failure_of(spec, plan);
    }
    return adopt(pid, std::move(owned));
}

Result<ChildProcess> LinuxLauncher::adopt(pid_t pid, UniqueFd pidfd) {
    return ChildProcess::adopt(io_, pid, std::move(pidfd), children_);
}

}  // namespace regroup::agent
