// SPDX-License-Identifier: Apache-2.0
#include "agent/process/fork_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "agent/process/fork_server_source.h"
#include "agent/process/process_tree.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/text.h"
#include "rendezvous/files/own_file.h"

namespace regroup::agent {
namespace {

/// A module may be read from a slow file system.
constexpr Duration kImportLimit = std::chrono::minutes(10);
/// Without any new worker while some are wanted. One takes some ten milliseconds.
constexpr Duration kForkLimit = std::chrono::seconds(10);
/// Then something kills the server again and again, such as the kernel for lack of memory.
constexpr int kDeathsMax = 3;
constexpr std::size_t kMessageBytesMax = 4096;

using Descriptors = std::array<int, 5>;  ///< See the protocol in the header.

/// The two ends of a connection. The second one is for another process.
Result<std::pair<UniqueFd, UniqueFd>> connection() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        return system_failure("a socket for the fork server", errno);
    }
    return std::pair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// Strings that end in a zero byte: none of them can contain one.
std::string specification_of(const ProcessSpec& spec, std::size_t program_begin) {
    std::vector<std::string> words{
        std::to_string(spec.arguments.size()) + " " + std::to_string(program_begin),
        spec.working_directory, joined(spec.cpus, " "), joined(spec.memory_nodes, " ")};
    words.insert(words.end(), spec.arguments.begin(), spec.arguments.end());
    words.insert(words.end(), spec.environment.begin(), spec.environment.end());
    std::string text;
    for (const std::string& word : words) {
        text += word;
        text += '\0';
    }
    return text;
}

Result<UniqueFd> file_with(const std::string& text) {
    UniqueFd file(::memfd_create("regroup-worker", MFD_CLOEXEC));
    if (!file || !files::write_all(file.get(), text)) {
        return system_failure("a file for the fork server", errno);
    }
    return file;
}

bool send_descriptors(int socket, const Descriptors& descriptors) {
    char byte = 'f';
    iovec content{&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof descriptors)> room{};
    msghdr message{};
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    cmsghdr* const rider = CMSG_FIRSTHDR(&message);
    rider->cmsg_level = SOL_SOCKET;
    rider->cmsg_type = SCM_RIGHTS;
    rider->cmsg_len = CMSG_LEN(sizeof descriptors);
    std::memcpy(CMSG_DATA(rider), descriptors.data(), sizeof descriptors);
    return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

struct Message {
    std::string text;
    pid_t sender = 0;  ///< Zero if the socket does not pass it.
};

/// The next message; an empty one at the end of the connection; nothing if none is there.
std::optional<Message> receive(int socket) {
    std::array<char, kMessageBytesMax> bytes{};
    iovec content{bytes.data(), bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> room{};
    msghdr header{};
    header.msg_iov = &content;
    header.msg_iovlen = 1;
    header.msg_control = room.data();
    header.msg_controllen = room.size();
    ssize_t count = -1;
    do {
        count = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (count < 0 && errno == EINTR);
    if (count < 0) {
        return errno == EAGAIN ? std::nullopt : std::optional<Message>(Message{});
    }
    Message message{{bytes.data(), static_cast<std::size_t>(count)}};
    const cmsghdr* const rider = CMSG_FIRSTHDR(&header);
    if (rider != nullptr && rider->cmsg_type == SCM_CREDENTIALS) {
        ucred sender{};
        std::memcpy(&sender, CMSG_DATA(rider), sizeof sender);
        message.sender = sender.pid;
    }
    return message;
}

}  // namespace

/// A worker that is being started.
struct ForkServer::Launch {
    Launch(boost::asio::io_context& io, const ProcessSpec& spec_in, std::size_t program_begin_in)
        : spec(spec_in), program_begin(program_begin_in), timer(io) {}

    const ProcessSpec& spec;
    std::size_t program_begin;
    Started started;
    std::optional<ReadableWatch> worker;  ///< None before the request.
    pid_t pid = 0;                        ///< Known from its hello.
    UniqueFd pidfd;
    boost::asio::steady_timer timer;
};

ForkServer::ForkServer(boost::asio::io_context& io, LinuxLauncher& launcher,
                       ForkServerOptions options, std::function<void(const std::string&)> say)
    : io_(io),
      launcher_(launcher),
      options_(std::move(options)),
      say_(std::move(say)),
      timer_(io) {}

ForkServer::~ForkServer() {
    stop();
}

void ForkServer::start() {
    start_process();
}

void ForkServer::start_process() {
    state_ = State::importing;
    if (!pidfds_are_allowed()) {
        give_up("the system call pidfd_open or pidfd_send_signal is refused (see regroup health)");
        return;
    }
    auto ends = connection();
    if (!ends) {
        give_up(ends.error().detail);
        return;
    }
    ProcessSpec spec;
    spec.executable = options_.interpreter;
    spec.arguments = options_.options;
    spec.arguments.insert(spec.arguments.end(), {"-c", kForkServerSource});
    spec.arguments.insert(spec.arguments.end(), options_.program.begin(), options_.program.end());
    spec.arguments.push_back((options_.in_background ? "~" : "") + joined(options_.modules, ","));
    spec.environment = options_.environment;
    const bool blas_is_set =
        std::any_of(spec.environment.begin(), spec.environment.end(),
                    [](const std::string& v) { return v.starts_with("OPENBLAS_NUM_THREADS="); });
    if (!blas_is_set) {
        spec.environment.emplace_back("OPENBLAS_NUM_THREADS=1");  // It starts threads as it loads.
    }
    spec.stdin_fd = ends->second.get();
    Result<ChildProcess> child = launcher_.launch(spec);
    ends->second.reset();
    if (!child) {
        give_up(child.error().detail);
        return;
    }
    auto control = ReadableWatch::open(io_, std::move(ends->first), [this] { hear(); });
    if (!control) {
        give_up(control.error().detail);
        return;
    }
    process_.emplace(std::move(*child));
    process_->async_wait([this](ExitStatus status) { ended(status); });
    control_.emplace(*std::move(control));
    control_->arm();
    timer_.expires_after(kImportLimit);
    timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) {
            give_up("the imports take longer than 10 minutes");
        }
    });
}

void ForkServer::hear() {
    while (control_) {
        const std::optional<Message> message = receive(control_->fd());
        if (!message) {
            control_->arm();
            return;
        }
        const std::vector<std::string_view> words = split(message->text, '\0');
        if (words.size() != 3) {
            return;  // The end of the process is an event of its own.
        }
        if (words[0] == "refused") {
            give_up("module " + std::string(words[1]) + ": " + std::string(words[2]));
        } else {
            ready(parse_number<std::uint64_t>(words[1]).value_or(0),
                  parse_number<std::uint64_t>(words[2]).value_or(0));
        }
    }
}

void ForkServer::ready(std::uint64_t import_ms, std::uint64_t memory_kib) {
    timer_.cancel();
    state_ = State::ready;
    const std::string what =
        options_.in_background ? "the program's packages" : joined(options_.modules, ",");
    say_("the fork server, pid " + std::to_string(process_->pid()) + ", has imported " + what +
         " in " + format_duration(std::chrono::milliseconds(import_ms)) + "; " +
         (options_.in_background ? "workers that take another's place" : "the workers") +
         " share its " + std::to_string(memory_kib / 1024) + " MiB" +
         (options_.in_background ? " and start at once (--preload=none turns this off)" : ""));
    std::vector<std::uint64_t> waiting;
    for (const auto& [id, launch] : launches_) {
        waiting.push_back(id);
    }
    for (const std::uint64_t id : waiting) {
        if (const auto found = launches_.find(id); found != launches_.end()) {
            request(id, found->second);
        }
    }
}

void ForkServer::ended(ExitStatus status) {
    hear();  // It may have refused.
    if (state_ == State::off) {
        return;
    }
    const std::string end =
        "the fork server, pid " + std::to_string(process_->pid()) + ", " + status.describe();
    if (state_ == State::importing || ++deaths_ == kDeathsMax) {
        give_up(end + (state_ == State::importing ? " while it imported the modules" : ""));
        return;
    }
    say_(end + "; it is started again");
    process_.reset();
    control_.reset();
    start_process();
    fail_all(Failure(Errc::system, end), true);
}

void ForkServer::give_up(const std::string& reason) {
    stop_process();
    say_((options_.in_background ? "no fork server is prepared on this node: "
                                 : "--preload has no effect on this node: ") +
         reason);
    fail_all(Failure(Errc::system, reason), false);
}

// Launches that the server has not seen yet can stay, if it is started again.
void ForkServer::fail_all(const Failure& why, bool stay_unseen) {
    std::vector<std::uint64_t> failed;
    for (const auto& [id, launch] : launches_) {
        if (launch.worker || !stay_unseen) {
            failed.push_back(id);
        }
    }
    for (const std::uint64_t id : failed) {
        finish(id, why);
    }
}

void ForkServer::stop_process() {
    state_ = State::off;
    timer_.cancel();
    control_.reset();
    process_.reset();
}

void ForkServer::stop() {
    stop_process();
    while (!launches_.empty()) {
        cancel(launches_.begin()->first);
    }
}

// ---- Launches.

void ForkServer::launch(std::uint64_t id, const ProcessSpec& spec, std::size_t program_begin,
                        Started started) {
    ENSURE(serves());
    Launch& launch = launches_.try_emplace(id, io_, spec, program_begin).first->second;
    launch.started = std::move(started);
    if (state_ == State::ready) {
        request(id, launch);
    }
}

// A launch whose request cannot be sent fails, too, from the event loop.
void ForkServer::request(std::uint64_t id, Launch& launch) {
    const ProcessSpec& spec = launch.spec;
    const Result<UniqueFd> file = file_with(specification_of(spec, launch.program_begin));
    auto ends = connection();
    if (file && ends) {
        constexpr int kOn = 1;
        ::setsockopt(ends->first.get(), SOL_SOCKET, SO_PASSCRED, &kOn, sizeof kOn);
        const bool sent = send_descriptors(
            control_->fd(),
            {file->get(), ends->second.get(), spec.stdin_fd < 0 ? 0 : spec.stdin_fd,
             spec.stdout_fd < 0 ? 1 : spec.stdout_fd, spec.stderr_fd < 0 ? 2 : spec.stderr_fd});
        auto worker =
            ReadableWatch::open(io_, std::move(ends->first), [this, id] { hear_worker(id); });
        if (sent && worker) {
            launch.worker.emplace(*std::move(worker));
            launch.worker->arm();
        }
    }
    limit(id, launch);
}

void ForkServer::limit(std::uint64_t id, Launch& launch) {
    launch.timer.expires_after(launch.worker ? kForkLimit : Duration::zero());
    launch.timer.async_wait([this, id](const boost::system::error_code& error) {
        if (error) {
            return;
        }
        const auto found = launches_.find(id);
        if (found != launches_.end() && found->second.worker && process_) {
            process_->signal(SIGKILL);  // It is stuck. Its end is an event of its own.
        }
        finish(id, Failure(Errc::system, "the fork server does not answer"));
    });
}

void ForkServer::hear_worker(std::uint64_t id) {
    Launch& launch = launches_.at(id);
    const std::optional<Message> message = receive(launch.worker->fd());
    if (!message) {
        launch.worker->arm();
        return;
    }
    // It waits for our byte, so the pid is still its own if that can be sent.
    const bool is_hello = message->text == "hello" && launch.pid == 0;
    if (is_hello) {
        launch.pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, message->sender, 0)));
    }
    const bool is_child = message->text == "child" && launch.pid != 0;
    if ((!is_hello && !is_child) || !launch.pidfd ||
        ::send(launch.worker->fd(), "g", 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) {
        finish(id, Failure(Errc::system, "the forked process ended before the program began"));
    } else if (is_child) {
        finish(id, launcher_.adopt(std::exchange(launch.pid, 0), std::move(launch.pidfd)));
    } else {
        launch.pid = message->sender;
        launcher_.expect(launch.pid);
        launch.worker->arm();
        for (auto& [other, waiting] : launches_) {
            if (waiting.worker) {
                limit(other, waiting);  // The server is at work, for one worker after the other.
            }
        }
    }
}

void ForkServer::finish(std::uint64_t id, Result<ChildProcess> result) {
    auto ended = launches_.extract(id);
    if (ended.empty()) {
        return;
    }
    release(ended.mapped());
    ended.mapped().started(std::move(result));
}

void ForkServer::cancel(std::uint64_t id) {
    if (auto ended = launches_.extract(id); !ended.empty()) {
        release(ended.mapped());
    }
}

// A process that is not to become a worker.
void ForkServer::release(Launch& launch) {
    if (launch.pid != 0) {
        launcher_.expect_no_more(launch.pid);
        ::syscall(SYS_pidfd_send_signal, launch.pidfd.get(), SIGKILL, nullptr, 0);
        siginfo_t info{};  // If it has ended already, no signal comes for it any more.
        ::waitid(P_PIDFD, static_cast<id_t>(launch.pidfd.get()), &info, WEXITED | WNOHANG);
    }
}

}  // namespace regroup::agent
