// SPDX-License-Identifier: Apache-2.0
//
// Why not Boost.Process's own launchers: they fork, so that each start costs page tables and
// descriptors in proportion to the agent's size, can deadlock in the child of a process with
// threads, hand our sockets to the workers, and leave a zombie behind a failed exec. Here the child
// borrows our memory until it execs (clone with VM and VFORK), which costs the same for any agent.
// Boost.Process v2's waiting half is not used either: it calls a blocking waitpid after a readiness
// that may be stale, and reports exit code 9 and SIGKILL as the same number.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>

#include "agent/process/child_process.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

namespace regroup::agent {

namespace {

namespace asio = boost::asio;

constexpr std::size_t kStackBytes = std::size_t{128} << 10U;
constexpr int kFirstPrivateFd = 3;

/// What parent and child share while the child runs on our memory.
struct Plan {
    const char* executable = nullptr;
    char* const* arguments = nullptr;
    char* const* environment = nullptr;
    int stdout_fd = -1;
    int stderr_fd = -1;
    pid_t parent = 0;
    // The child's message when it could not get as far as exec.
    int error = 0;
    const char* step = nullptr;
};

// Everything below runs on the parent's memory: nothing but system calls, no allocation, no locks.
[[noreturn]] void give_up(Plan& plan, const char* step) noexcept {
    plan.error = errno;
    plan.step = step;
    ::_exit(127);
}

void reset_signals() noexcept {
    struct sigaction action {};
    for (int signal = 1; signal < NSIG; ++signal) {
        // A handler of ours would be reset by exec anyway, but until then it would run on our
        // memory. What was ignored stays ignored (nohup), except SIGPIPE.
        if (::sigaction(signal, nullptr, &action) == 0 &&
            (action.sa_handler != SIG_IGN || signal == SIGPIPE) && action.sa_handler != SIG_DFL) {
            action = {};
            action.sa_handler = SIG_DFL;
            ::sigaction(signal, &action, nullptr);
        }
    }
}

void place(Plan& plan, int fd, int target) noexcept {
    if (fd >= 0 && ::dup2(fd, target) < 0) {
        give_up(plan, "dup2");
    }
}

#if defined(__clang__) || defined(__GNUC__)
__attribute__((no_sanitize("address", "thread", "undefined")))
#endif
int child_main(void* argument) noexcept {
    Plan& plan = *static_cast<Plan*>(argument);
    if (::setsid() < 0) {
        give_up(plan, "setsid");
    }
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        give_up(plan, "prctl(PR_SET_PDEATHSIG)");
    }
    if (::getppid() != plan.parent) {
        ::_exit(127);  // The parent died before the line above could notice.
    }
    reset_signals();
    place(plan, plan.stdout_fd, STDOUT_FILENO);
    place(plan, plan.stderr_fd, STDERR_FILENO);
    if (::syscall(SYS_close_range, kFirstPrivateFd, ~0U, 0) != 0) {
        const long limit = ::sysconf(_SC_OPEN_MAX);
        for (int fd = kFirstPrivateFd; fd < limit; ++fd) {
            ::close(fd);
        }
    }
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::execve(plan.executable, plan.arguments, plan.environment);
    give_up(plan, "exec");
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> result;
    result.reserve(texts.size() + 1);
    for (const std::string& text : texts) {
        result.push_back(const_cast<char*>(text.c_str()));  // execve's signature; it does not write.
    }
    result.push_back(nullptr);
    return result;
}

/// The stack on which the child runs until exec. One at a time, since the parent waits that long.
class ChildStack {
   public:
    ChildStack()
        : base_(::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0)) {}
    ~ChildStack() {
        if (base_ != MAP_FAILED) {
            ::munmap(base_, kStackBytes);
        }
    }
    ChildStack(const ChildStack&) = delete;
    ChildStack& operator=(const ChildStack&) = delete;

    [[nodiscard]] bool valid() const noexcept { return base_ != MAP_FAILED; }
    [[nodiscard]] void* top() const noexcept { return static_cast<char*>(base_) + kStackBytes; }

   private:
    void* base_;
};

std::string what_to_do(int error) {
    switch (error) {
        case ENOEXEC:
            return " (it is neither a binary nor begins with #!)";
        case EACCES:
            return " (is it executable? try chmod +x)";
        case ENOENT:
            return " (or the interpreter in its #! line does not exist)";
        default:
            return "";
    }
}

}  // namespace

Result<ChildProcess> launch(asio::io_context& io, const ProcessSpec& spec) {
    const ChildStack stack;
    if (!stack.valid()) {
        return system_failure("cannot start " + spec.executable + ": mmap", errno);
    }
    const std::vector<char*> arguments = pointers(spec.arguments);
    const std::vector<char*> environment = pointers(spec.environment);
    Plan plan;
    plan.executable = spec.executable.c_str();
    plan.arguments = arguments.data();
    plan.environment = environment.data();
    plan.stdout_fd = spec.stdout_fd;
    plan.stderr_fd = spec.stderr_fd;
    plan.parent = ::getpid();

    // No handler of ours may run in the child while it shares our memory.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    int pid_fd = -1;
    const pid_t pid = ::clone(child_main, stack.top(),
                              CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &plan, &pid_fd);
    const int clone_error = errno;
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (pid < 0) {
        return system_failure("cannot start " + spec.executable + ": clone", clone_error);
    }
    if (plan.error != 0) {
        siginfo_t info{};
        ::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pid_fd), &info, WEXITED);
        ::close(pid_fd);
        Failure failure = system_failure("cannot start " + spec.executable + ": " + plan.step,
                                         plan.error);
        failure.detail += what_to_do(plan.error);
        return failure;
    }
    return ChildProcess(io, pid, pid_fd);
}

struct ChildProcess::Impl {
    Impl(asio::io_context& io, pid_t pid_in, int pid_fd_in)
        : pid(pid_in), pid_fd(io, pid_fd_in) {}

    static void wait(const std::shared_ptr<Impl>& self);

    pid_t pid;
    asio::posix::stream_descriptor pid_fd;
    bool reaped = false;
    std::function<void(ExitStatus)> on_exit;
};

void ChildProcess::Impl::wait(const std::shared_ptr<Impl>& self) {
    self->pid_fd.async_wait(
        asio::posix::stream_descriptor::wait_read, [self](boost::system::error_code error) {
            if (error || !self->on_exit) {
                return;
            }
            // Readiness may be stale: ask without blocking, and wait again if it is not over.
            siginfo_t info{};
            const int result =
                ::waitid(static_cast<idtype_t>(P_PIDFD),
                         static_cast<id_t>(self->pid_fd.native_handle()), &info,
                         WEXITED | WNOHANG);
            if (result != 0 || info.si_pid == 0) {
                wait(self);
                return;
            }
            self->reaped = true;
            self->pid_fd.close();
            std::exchange(self->on_exit, nullptr)(ExitStatus::from(info));
        });
}

ChildProcess::ChildProcess(asio::io_context& io, pid_t pid, int pid_fd)
    : impl_(std::make_shared<Impl>(io, pid, pid_fd)) {}

ChildProcess::~ChildProcess() {
    if (impl_) {
        impl_->on_exit = nullptr;
        boost::system::error_code ignored;
        impl_->pid_fd.close(ignored);
    }
}

ChildProcess::ChildProcess(ChildProcess&&) noexcept = default;

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
    std::swap(impl_, other.impl_);
    return *this;
}

pid_t ChildProcess::pid() const noexcept { return impl_->pid; }

void ChildProcess::wait(std::function<void(ExitStatus)> on_exit) {
    impl_->on_exit = std::move(on_exit);
    Impl::wait(impl_);
}

void ChildProcess::signal_group(int signal) const noexcept {
    if (!impl_->reaped) {
        ::kill(-impl_->pid, signal);
    }
}

}  // namespace regroup::agent
