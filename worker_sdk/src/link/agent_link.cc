// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/link/agent_link.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "rendezvous/base/printable.h"
#include "rendezvous/worker_link/packet.h"
#include "worker_sdk/src/base/flight_recorder.h"
#include "worker_sdk/src/base/helper_thread.h"
#include "worker_sdk/src/link/robust_hold.h"
#include "worker_sdk/src/link/sigterm.h"

namespace regroup::link {
namespace {

using net::Descriptor;

/// How long to wait for the agent, which is on the same machine but may be busy.
constexpr Duration kAttachLimit = std::chrono::seconds(10);

/// How long the agent may take after a SIGTERM to the whole node to agree with the daemon that the
/// node leaves.
constexpr Duration kSigtermLimit = std::chrono::seconds(2);

/// A message and the descriptor that came with it.
struct Packet {
    std::string text;
    Descriptor descriptor;
};

/// One packet; empty text at the end of the connection.
Packet receive_packet(int socket) {
    Packet packet{.text = std::string(worker_link::kMessageLimit, '\0'),
                  .descriptor = Descriptor()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
    iovec part{packet.text.data(), packet.text.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    ssize_t count = 0;
    do {
        count = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
        // ECONNRESET: the agent ended with unread messages. Its earlier messages are still there.
    } while (count < 0 && (errno == EINTR || errno == ECONNRESET));
    packet.text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    for (cmsghdr* rider = CMSG_FIRSTHDR(&header); count > 0 && rider != nullptr;
         rider = CMSG_NXTHDR(&header, rider)) {
        if (rider->cmsg_level == SOL_SOCKET && rider->cmsg_type == SCM_RIGHTS) {
            int descriptor = -1;
            std::memcpy(&descriptor, CMSG_DATA(rider), sizeof descriptor);
            packet.descriptor = Descriptor(descriptor);
        }
    }
    return packet;
}

Result<Descriptor> dial(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof address.sun_path) {
        std::string problem = worker_link::kSocketVariable;
        problem.append("=\"").append(path).append("\" is no path of a local socket");
        return Failure(Errc::invalid_argument, problem);
    }
    path.copy(address.sun_path, path.size());
    // In the abstract namespace every byte counts, so the name ends where its last letter does.
    auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    if (path.front() == '@') {
        address.sun_path[0] = '\0';
    } else {
        ++bytes;
    }
    Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) {
        return system_failure("socket to the agent", errno);
    }
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
        return Failure(Errc::disconnected,
                       system_failure("no agent listens at " + path, errno).detail);
    }
    return socket;
}

/// For poll().
int milliseconds_until(Instant deadline) {
    const Duration left = deadline - SteadyClock().now();
    const auto limit = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    return static_cast<int>(std::max<std::int64_t>(limit, 0));
}

bool await_input(int socket, Instant deadline) {
    while (true) {
        const int limit = milliseconds_until(deadline);
        pollfd entry{.fd = socket, .events = POLLIN, .revents = 0};
        const int ready = ::poll(&entry, 1, limit);
        if (ready != 0 && !(ready < 0 && errno == EINTR)) {
            return ready > 0;
        }
        if (ready == 0 && limit == 0) {
            return false;
        }
    }
}

Result<WorkerPage*> map_page(const Descriptor& file) {
    struct stat facts{};
    if (::fstat(file.get(), &facts) != 0 ||
        static_cast<std::size_t>(facts.st_size) < sizeof(WorkerPage)) {
        return Failure(Errc::invalid_argument,
                       "the agent's page is too short: it is of another "
                       "build of regroup than this program's SDK");
    }
    void* const address =
        ::mmap(nullptr, sizeof(WorkerPage), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (address == MAP_FAILED) {
        return system_failure("mapping the agent's page", errno);
    }
    auto* const page = static_cast<WorkerPage*>(address);
    if (page->version != worker_link::kPageVersion) {
        const std::string theirs = std::to_string(page->version);
        ::munmap(address, sizeof(WorkerPage));
        return Failure(Errc::invalid_argument, "the agent's page has version " + theirs +
                                                   ", this program's SDK knows " +
                                                   std::to_string(worker_link::kPageVersion));
    }
    return page;
}

/// The process at the other end. The pid is 0 if it is in a namespace that is not visible from
/// here.
std::optional<ucred> peer_of(int socket) {
    ucred peer{};
    socklen_t bytes = sizeof peer;
    return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 ? std::optional(peer)
                                                                             : std::nullopt;
}

bool post(int socket, const FromWorker& message) noexcept {
    return worker_link::send_packet(socket, worker_link::encode(message),
                                    worker_link::WhenFull::wait);
}

}  // namespace

Result<std::shared_ptr<AgentLink>> AgentLink::attach(const std::string& socket,
                                                     const std::string& worker_id) {
    Result<Descriptor> dialled = dial(socket);
    if (!dialled) {
        return dialled.error();
    }
    const int fd = dialled->get();
    // Anyone can listen at the name of an agent that has ended.
    if (const auto peer = peer_of(fd); !peer || peer->uid != ::geteuid()) {
        return Failure(Errc::disconnected,
                       "the process that listens at " + socket + " is not of this user");
    }
    worker_link::Hello hello;
    hello.worker_id = worker_id;
    if (!post(fd, hello)) {
        return Failure(Errc::disconnected, "the agent hung up before this worker's hello");
    }
    if (!await_input(fd, after(SteadyClock().now(), kAttachLimit))) {
        return Failure(Errc::deadline_exceeded,
                       "the agent has not answered within " + format_duration(kAttachLimit));
    }
    Packet packet = receive_packet(fd);
    const auto message = worker_link::decode_to_worker(packet.text);
    if (packet.text.empty() || !message ||
        !std::holds_alternative<worker_link::Welcome>(*message) || !packet.descriptor.is_open()) {
        return Failure(Errc::disconnected, "the agent does not accept this process");
    }
    const Result<WorkerPage*> page = map_page(packet.descriptor);
    if (!page) {
        return page.error();
    }
    return std::shared_ptr<AgentLink>(new AgentLink(std::move(*dialled),
                                                    std::move(packet.descriptor), *page, worker_id,
                                                    std::get<worker_link::Welcome>(*message)));
}

AgentLink::AgentLink(Descriptor socket, Descriptor page_file, WorkerPage* page,
                     std::string worker_id, worker_link::Welcome welcome)
    : worker_id_(std::move(worker_id)),
      first_round_(std::move(welcome)),
      socket_(std::move(socket)),
      page_file_(std::move(page_file)),
      guard_(socket_.get()),
      page_(page),
      stop_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      sigterm_bell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      agent_pid_(peer_of(socket_.get()).value_or(ucred{}).pid) {
    page_guard_.emplace(page_, sizeof(WorkerPage));
    thread_ = start_helper_thread("regroup-link", [this] { run(); });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return holding_; });
}

AgentLink::~AgentLink() {
    mark_exiting();
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
    if (record_thread_.joinable()) {
        record_thread_.join();
    }
    page_guard_.reset();
    ::munmap(page_, sizeof(WorkerPage));
}

void AgentLink::run() {
    const RobustHold hold(page_->alive);
    {
        const std::lock_guard lock(mutex_);
        holding_ = true;
    }
    changed_.notify_all();
    receive_until_closed();
}

/// Ends when the link is destroyed, and not with the agent, since the thread must keep holding
/// `alive`.
void AgentLink::receive_until_closed() {
    std::array<pollfd, 3> entries{
        pollfd{.fd = stop_.get(), .events = POLLIN, .revents = 0},
        pollfd{.fd = socket_.get(), .events = POLLIN, .revents = 0},
        pollfd{.fd = sigterm_bell_.get(), .events = POLLIN, .revents = 0}};
    while (true) {
        decide_on_sigterm(entries[1].fd >= 0);
        const int limit = sigterm_until_ ? milliseconds_until(*sigterm_until_) : -1;
        if (::poll(entries.data(), entries.size(), limit) < 0 && errno != EINTR) {
            return note_gone();
        }
        if (entries[0].revents != 0) {
            return;
        }
        if (entries[2].revents != 0) {
            hear_sigterm();
        }
        if (entries[1].revents == 0) {
            continue;
        }
        const Packet packet = receive_packet(socket_.get());
        if (packet.text.empty()) {
            entries[1].fd = -1;
            entries[1].revents = 0;
            note_gone();
            continue;
        }
        if (const auto message = worker_link::decode_to_worker(packet.text)) {
            take(*message);
        } else {
            std::fprintf(stderr, "regroup: this worker's agent: %s\n",
                         printable(message.error().detail).c_str());
        }
    }
}

void AgentLink::hear_sigterm() {
    std::uint64_t rings = 0;
    [[maybe_unused]] const ssize_t got = ::read(sigterm_bell_.get(), &rings, sizeof rings);
    if (!sigterm_until_) {
        sigterm_until_ = after(SteadyClock().now(), kSigtermLimit);
    }
}

void AgentLink::decide_on_sigterm(bool agent_is_there) {
    if (sigterm_until_ && (leaving() || page_->draining.load() != 0)) {
        sigterm_until_.reset();
    } else if (sigterm_until_ && (!agent_is_there || SteadyClock().now() >= *sigterm_until_)) {
        sigterm_until_.reset();
        deliver_sigterm();
    }
}

void AgentLink::take(const worker_link::ToWorker& message) {
    std::visit([this](const auto& news) { take(news); }, message);
    changed_.notify_all();
}

void AgentLink::take(const worker_link::Welcome& /*message*/) {}

void AgentLink::take(const worker_link::AssignWorker& message) {
    const std::lock_guard lock(mutex_);
    if (!place_ || message.round > place_->round) {
        place_ = message;
    }
}

void AgentLink::take(const worker_link::EndRound& message) {
    std::shared_ptr<RoundScope> over;
    {
        const std::lock_guard lock(mutex_);
        if (guarded_round_ <= message.round) {
            over = std::exchange(guarded_, nullptr);
        }
    }
    // Without the lock, since interrupted threads may call this link.
    if (over) {
        over->interrupt("round " + std::to_string(message.round) + " is over: " + message.reason);
    }
}

void AgentLink::take(const worker_link::Pause& message) {
    const std::lock_guard lock(mutex_);
    pause_ = message;
}

void AgentLink::take(const worker_link::SaveRecords& message) {
    if (saves_records_.exchange(true)) {
        return;
    }
    if (record_thread_.joinable()) {
        record_thread_.join();
    }
    const auto answer = [this](const worker_link::RecordsSaved& saved) {
        saves_records_ = false;  // First: an agent with the answer may ask again.
        send(saved);
    };
    worker_link::RecordsSaved refused;
    try {
        record_thread_ = start_helper_thread("regroup-record", [answer, prefix = message.prefix] {
            worker_link::RecordsSaved saved;
            try {
                saved.files = write_all_records(prefix);
            } catch (const std::exception& error) {
                saved.complaint = error.what();
            }
            answer(saved);
        });
        return;
    } catch (const Error& error) {  // At the limit of threads.
        refused.complaint = error.what();
    }
    answer(refused);
}

void AgentLink::note_gone() {
    std::shared_ptr<RoundScope> over;
    {
        const std::lock_guard lock(mutex_);
        gone_ = true;
        over = std::exchange(guarded_, nullptr);
    }
    changed_.notify_all();
    if (over) {
        over->interrupt("the agent that started this worker is gone");
    }
}

void AgentLink::send(const FromWorker& message) noexcept {
    static_cast<void>(post(socket_.get(), message));
}

void AgentLink::declare_elastic(bool elastic) noexcept {
    worker_link::Hello hello;
    hello.worker_id = worker_id_;
    hello.elastic = elastic;
    send(hello);
}

bool AgentLink::await_end(std::uint64_t round, Instant deadline) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [&] { return ended(round) || gone_; });
}

void AgentLink::guard(std::uint64_t round, const std::shared_ptr<RoundScope>& scope) {
    bool gone = false;
    {
        const std::lock_guard lock(mutex_);
        guarded_round_ = round;
        guarded_ = scope;
        gone = gone_;
    }
    // Checked after the scope is guarded, since the message about the end follows the page.
    if (ended(round)) {
        scope->interrupt("round " + std::to_string(round) + " is over");
    } else if (gone) {
        scope->interrupt("the agent that started this worker is gone");
    }
}

void AgentLink::unguard() noexcept {
    const std::lock_guard lock(mutex_);
    guarded_.reset();
}

std::optional<worker_link::Pause> AgentLink::await_pause(Instant deadline) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [&] { return pause_.has_value() || gone_; });
    return pause_;
}

AgentLink::Place AgentLink::await_place(std::uint64_t round) {
    std::unique_lock lock(mutex_);
    const auto leaves = [&] { return page_->leaving.load() == worker_link::Leaving::at_once; };
    changed_.wait(lock, [&] { return gone_ || leaves() || (place_ && place_->round > round); });
    if (place_ && place_->round > round) {
        return *place_;
    }
    if (leaves()) {
        return Leave{};
    }
    return Gone{};
}

std::optional<AssignWorker> AgentLink::place() const {
    const std::lock_guard lock(mutex_);
    return place_;
}

}  // namespace regroup::link
