// SPDX-License-Identifier: Apache-2.0
#include "agent/process/warden.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <new>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "agent/process/exit_status.h"
#include "agent/process/process_tree.h"
#include "rendezvous/base/printable.h"

namespace regroup::agent {
namespace {

constexpr Duration kSweepLimit = std::chrono::seconds(5);

/// Opens closed standard descriptors: else a later descriptor would take the place of one.
void open_standard_fds() {
    for (int fd = 0; fd <= 2; ++fd) {
        if (::fcntl(fd, F_GETFD) < 0) {
            (void)::open("/dev/null", O_RDWR);  // Takes the lowest free number: this one.
        }
    }
}

/// Closes all inherited descriptors but stderr and the bond: other processes may wait for their
/// end.
UniqueFd close_all_but(UniqueFd bond) {
    if (const UniqueFd null_fd(::open("/dev/null", O_RDWR | O_CLOEXEC)); null_fd) {
        ::dup2(null_fd.get(), 0);
        ::dup2(null_fd.get(), 1);
    }
    constexpr int kKept = 3;
    if (bond.get() != kKept) {
        ::dup2(bond.get(), kKept);
    }
    (void)bond.release();
    if (::syscall(SYS_close_range, kKept + 1U, ~0U, 0U) != 0) {
        constexpr int kFdsMax = 1024;  // For old kernels: the usual limit.
        for (int fd = kKept + 1; fd < kFdsMax; ++fd) {
            ::close(fd);
        }
    }
    return UniqueFd(kKept);
}

/// The children of the warden.
struct Family {
    pid_t agent = 0;
    /// Children from before the agent, such as background jobs of a shell that executed us. They
    /// are spared.
    std::set<pid_t> inherited;
};

/// True for a signal that a shell without job control lets its background jobs ignore, so that
/// Ctrl-C ends only the foreground job. A process that sends it to such a job means it.
bool is_ignored_for_keyboard(int number) noexcept {
    return (number == SIGINT || number == SIGQUIT) && is_ignored(number);
}

/// The exit status of the agent, if it has ended. Reaps all other ended children.
std::optional<ExitStatus> reap(Family& family) {
    std::optional<ExitStatus> status;
    siginfo_t info{};
    while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0) {
        family.inherited.erase(info.si_pid);  // The pid may be reused by a descendant.
        if (info.si_pid == family.agent) {
            status = ExitStatus::from_siginfo(info);
        }
        info.si_pid = 0;
    }
    return status;
}

/// Prints a line on stderr, unless that would block.
void say(const std::string& line) {
    ::signal(SIGPIPE, SIG_IGN);
    pollfd entry{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    if (::poll(&entry, 1, 0) > 0) {
        const std::string text = "regroup: " + printable(line) + "\n";
        (void)!::write(STDERR_FILENO, text.data(), text.size());
    }
}

void say_survivors(const TreeKill& swept) {
    if (!swept.survivors.empty()) {
        say("SIGKILL has not ended " + describe(swept.survivors));
    }
}

void sweep(const Family& family, const ExitStatus& status) {
    const SteadyClock clock;
    const TreeKill swept = kill_descendants(clock, clock.now() + kSweepLimit, {}, family.inherited);
    const std::string who =
        "the agent (pid " + std::to_string(family.agent) + ") " + status.describe();
    if (status.signal != 0) {
        say(who + "; its workers were killed");
    } else if (!swept.killed.empty()) {
        say(who + " and left " + std::to_string(swept.killed.size()) +
            " processes, which were killed");
    }
    say_survivors(swept);
}

}  // namespace

// ---- The last word.

/// Written by the agent, read by the warden after the death of the agent. Of the two places,
/// `present` names the complete one.
struct Warden::LastWords {
    static constexpr std::size_t kNameBytesMax = 256;

    template <std::size_t Max>
    struct Text {
        std::size_t size = 0;
        std::array<char, Max> text{};

        void set(const std::string& from) noexcept {
            size = from.size() <= Max ? from.copy(text.data(), from.size()) : 0;
        }
        [[nodiscard]] std::string get() const { return {text.data(), std::min(size, Max)}; }
    };
    struct Word {
        Text<kNameBytesMax> address;
        std::uint16_t port = 0;
        Text<kNameBytesMax> name;
        Text<kLastWordBytesMax> bytes;
    };

    std::array<Word, 2> words{};
    std::atomic<unsigned> present{0};
};

void Warden::Unmap::operator()(LastWords* words) const noexcept {
    ::munmap(words, sizeof(LastWords));
}

void Warden::set_last_word(const LastWord& word) noexcept {
    if (!words_) {
        return;
    }
    const unsigned other = 1 - words_->present.load();
    LastWords::Word& place = words_->words[other];
    place.address.set(word.address);
    place.port = word.port;
    place.name.set(word.name);
    place.bytes.set(word.bytes);
    words_->present.store(other);
}

void Warden::send_last_word(const LastWords* words, const Deliver& deliver) {
    if (words == nullptr) {
        return;
    }
    const LastWords::Word& word = words->words[words->present.load() & 1U];
    if (word.bytes.size > 0 && word.address.size > 0) {
        deliver({word.address.get(), word.port, word.name.get(), word.bytes.get()});
    }
}

/// The main function of the warden. `watched`: SIGCHLD and the signals to pass on, all blocked.
void Warden::stand_guard(const LastWords* words, const Deliver& deliver, const CleanUp& clean_up,
                         pid_t agent, std::set<pid_t> inherited, UniqueFd own_end,
                         const sigset_t& watched) {
    Family family{.agent = agent, .inherited = std::move(inherited)};
    const UniqueFd bond = close_all_but(std::move(own_end));
    ::prctl(PR_SET_NAME, "regroup-warden", 0, 0, 0);
    std::optional<ExitStatus> status;
    while (!(status = reap(family))) {
        siginfo_t info{};
        const int number = ::sigwaitinfo(&watched, &info);
        // The kernel sends a signal of the keyboard, which is not for a background job.
        const bool for_others = number > 0 && is_ignored(number) && info.si_code > 0;
        if (number > 0 && number != SIGCHLD && !for_others) {
            const auto byte = static_cast<unsigned char>(number);
            ::send(bond.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        }
    }
    char goodbye = 0;
    if (::recv(bond.get(), &goodbye, 1, MSG_DONTWAIT) != 1) {
        // Send this first: the workers die with their parent anyway, and the daemon waits for it.
        send_last_word(words, deliver);
        sweep(family, *status);
        clean_up();
    }
    end_like(*status);
}

// ---- The agent's side.

void end_without_warden(const std::function<void()>& clean_up) noexcept {
    const SteadyClock clock;
    const TreeKill swept = kill_descendants(clock, clock.now() + kSweepLimit, {});
    clean_up();
    say("the launcher was killed; its agent (pid " + std::to_string(::getpid()) +
        ") has killed the workers and ends");
    say_survivors(swept);
    ::_exit(1);
}

bool is_ignored(int number) noexcept {
    struct sigaction now{};
    ::sigaction(number, nullptr, &now);
    return now.sa_handler == SIG_IGN;
}

Result<Warden> Warden::split(const std::vector<int>& signals, const Deliver& deliver,
                             const CleanUp& clean_up) {
    open_standard_fds();
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) < 0) {
        return system_failure("open the bond of agent and warden", errno);
    }
    UniqueFd wardens_end(ends[0]);
    UniqueFd agents_end(ends[1]);

    ::signal(SIGCHLD, SIG_DFL);
    sigset_t watched;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    for (const int number : signals) {
        // A blocked signal is kept for sigwaitinfo() even if it is ignored.
        if (!is_ignored(number) || is_ignored_for_keyboard(number)) {
            sigaddset(&watched, number);
        }
    }
    // Before the fork, so that no signal falls between the two.
    sigset_t before;
    ::sigprocmask(SIG_BLOCK, &watched, &before);
    become_subreaper();
    // Mostly there is no child, and this check is much cheaper than a list.
    const bool has_child = ::waitid(P_ALL, 0, nullptr, WEXITED | WNOHANG | WNOWAIT) == 0;
    const auto children = has_child ? read_children(::getpid()) : std::nullopt;
    void* const shared = ::mmap(nullptr, sizeof(LastWords), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    // Without this memory the daemon learns of our death a little later.
    std::unique_ptr<LastWords, Unmap> words(shared != MAP_FAILED ? new (shared) LastWords
                                                                 : nullptr);
    const pid_t child = ::fork();
    if (child < 0) {
        const int error = errno;
        ::sigprocmask(SIG_SETMASK, &before, nullptr);
        return system_failure("start the agent", error);
    }
    if (child > 0) {
        agents_end.reset();
        std::set<pid_t> inherited;
        if (children) {
            inherited.insert(children->begin(), children->end());
        }
        stand_guard(words.get(), deliver, clean_up, child, std::move(inherited),
                    std::move(wardens_end), watched);
    }
    wardens_end.reset();
    ::setpgid(0, 0);
    // The agent's group is in the background; it must not be stopped when it writes to the
    // terminal.
    ::signal(SIGTTOU, SIG_IGN);
    become_subreaper();
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    return Warden(std::move(agents_end), std::move(words));
}

void Warden::say_goodbye() noexcept {
    const char byte = 'g';
    ::send(fd_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace regroup::agent
