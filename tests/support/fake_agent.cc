// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_agent.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <linux/futex.h>
#include <new>
#include <poll.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <climits>

#include "rendezvous/worker_link/packet.h"
#include "tests/support/patience.h"

namespace regroup::testing {
namespace {

using worker_link::WorkerPage;

[[noreturn]] void fail(const std::string& what) {
    throw std::runtime_error("fake agent: " + what);
}

/// Errors are ignored: in some tests the worker has died meanwhile.
void post(int socket, const worker_link::ToWorker& message, int descriptor = -1) {
    static_cast<void>(worker_link::send_packet(socket, worker_link::encode(message),
                                               worker_link::WhenFull::wait, descriptor));
}

/// Empty at the end of the connection.
std::string receive_packet(int socket) {
    std::string packet(worker_link::kMessageLimit, '\0');
    ssize_t count = 0;
    do {
        // ECONNRESET: the worker ended with unread messages. Its earlier messages are still there.
        count = ::recv(socket, packet.data(), packet.size(), 0);
    } while (count < 0 && errno == ECONNRESET);
    packet.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return packet;
}

}  // namespace

FakeAgent::FakeAgent() {
    static std::atomic<int> count = 0;
    socket_name_ = "@regroup-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket_name_.copy(address.sun_path, socket_name_.size());
    address.sun_path[0] = '\0';
    const auto bytes =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_name_.size());
    listener_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    stop_ = ::eventfd(0, EFD_CLOEXEC);
    if (listener_ < 0 ||
        ::bind(listener_, reinterpret_cast<const sockaddr*>(&address), bytes) != 0 ||
        ::listen(listener_, 64) != 0) {
        fail("cannot listen");
    }
    thread_ = std::thread([this] { run(); });
}

FakeAgent::~FakeAgent() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_, &one, sizeof one);
    thread_.join();
    for (const int visitor : visitors_) {
        ::close(visitor);
    }
    for (auto& [name, worker] : workers_) {
        if (worker.socket >= 0) {
            ::close(worker.socket);
        }
        ::munmap(worker.page, sizeof(WorkerPage));
    }
    ::close(listener_);
    ::close(stop_);
}

void FakeAgent::run() {
    while (true) {
        std::vector<pollfd> entries{{.fd = stop_, .events = POLLIN, .revents = 0},
                                    {.fd = listener_, .events = POLLIN, .revents = 0}};
        for (const int visitor : visitors_) {
            entries.push_back({.fd = visitor, .events = POLLIN, .revents = 0});
        }
        {
            const std::lock_guard lock(mutex_);
            for (const auto& [name, worker] : workers_) {
                if (worker.socket >= 0) {
                    entries.push_back({.fd = worker.socket, .events = POLLIN, .revents = 0});
                }
            }
        }
        // With a time limit, since other threads may close connections.
        ::poll(entries.data(), entries.size(), 100);
        if (entries[0].revents != 0) {
            return;
        }
        if (entries[1].revents != 0) {
            visitors_.push_back(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
        }
        for (std::size_t i = 2; i < entries.size(); ++i) {
            if (entries[i].revents != 0) {
                take(entries[i].fd, receive_packet(entries[i].fd));
            }
        }
    }
}

void FakeAgent::greet_with(worker_link::Welcome welcome) {
    const std::lock_guard lock(mutex_);
    welcome_ = std::move(welcome);
}

void FakeAgent::admit(int socket, const std::string& packet) {
    std::erase(visitors_, socket);
    const auto message = worker_link::decode_from_worker(packet);
    const auto* const hello = message ? std::get_if<worker_link::Hello>(&*message) : nullptr;
    const std::lock_guard lock(mutex_);
    if (hello == nullptr || workers_.contains(hello->worker_id)) {
        ::close(socket);
        return;
    }
    const int file = ::memfd_create("fake-agent", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, sizeof(WorkerPage)) != 0) {
        fail("no page");
    }
    void* const address =
        ::mmap(nullptr, sizeof(WorkerPage), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    Worker& worker = workers_[hello->worker_id];
    worker.socket = socket;
    worker.page = new (address) WorkerPage();
    worker.said.emplace_back(*hello);
    post(socket, welcome_, file);
    ::close(file);
    changed_.notify_all();
}

void FakeAgent::take(int socket, const std::string& packet) {
    for (const int visitor : visitors_) {
        if (visitor == socket) {
            return admit(socket, packet);
        }
    }
    const std::lock_guard lock(mutex_);
    for (auto& [name, worker] : workers_) {
        if (worker.socket != socket) {
            continue;
        }
        if (packet.empty()) {
            ::close(worker.socket);
            worker.socket = -1;
        } else if (auto message = worker_link::decode_from_worker(packet)) {
            worker.said.push_back(std::move(*message));
        }
    }
    changed_.notify_all();
}

FakeAgent::Worker& FakeAgent::attached(std::unique_lock<std::mutex>& lock,
                                       const std::string& worker) {
    if (!changed_.wait_for(lock, kPatience, [&] { return workers_.contains(worker); })) {
        fail(worker + " has not attached");
    }
    return workers_[worker];
}

bool FakeAgent::has_attached(const std::string& worker) {
    const std::lock_guard lock(mutex_);
    return workers_.contains(worker);
}

WorkerPage& FakeAgent::page(const std::string& worker) {
    std::unique_lock lock(mutex_);
    return *attached(lock, worker).page;
}

void FakeAgent::send(const std::string& worker, const worker_link::ToWorker& message) {
    std::unique_lock lock(mutex_);
    const int socket = attached(lock, worker).socket;
    if (socket >= 0) {
        post(socket, message);
    }
}

worker_link::FromWorker FakeAgent::await_kind(const std::string& worker, std::size_t kind) {
    std::unique_lock lock(mutex_);
    std::deque<worker_link::FromWorker>& said = attached(lock, worker).said;
    const auto found = [&] {
        while (!said.empty() && said.front().index() != kind) {
            said.pop_front();
        }
        return !said.empty();
    };
    if (!changed_.wait_for(lock, kPatience, found)) {
        fail(worker + " has not sent message " + std::to_string(kind));
    }
    worker_link::FromWorker message = std::move(said.front());
    said.pop_front();
    return message;
}

bool FakeAgent::has_said_kind(const std::string& worker, std::size_t kind) {
    std::unique_lock lock(mutex_);
    const Worker& its = attached(lock, worker);
    if (!changed_.wait_for(lock, kPatience, [&] { return its.socket < 0; })) {
        fail(worker + " has not hung up");
    }
    return std::any_of(its.said.begin(), its.said.end(),
                       [&](const auto& message) { return message.index() == kind; });
}

void FakeAgent::await_death(const std::string& worker) {
    std::atomic<std::uint32_t>& alive = page(worker).alive;
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
        std::uint32_t seen = alive.load();
        if ((seen & FUTEX_OWNER_DIED) != 0) {
            return;
        }
        if (seen == 0 || (seen & FUTEX_WAITERS) != 0 ||
            alive.compare_exchange_strong(seen, seen | FUTEX_WAITERS)) {
            const timespec limit{.tv_sec = 1, .tv_nsec = 0};
            ::syscall(SYS_futex, &alive, FUTEX_WAIT, seen == 0 ? 0 : seen | FUTEX_WAITERS, &limit,
                      nullptr, 0);
        }
    }
    fail(worker + " has not died");
}

void FakeAgent::hang_up(const std::string& worker) {
    std::unique_lock lock(mutex_);
    ::shutdown(attached(lock, worker).socket, SHUT_RDWR);
}

void FakeAgent::end_round(const std::string& worker, std::uint64_t round,
                          const std::string& reason) {
    page(worker).ended_round.store(round);
    send(worker, worker_link::EndRound{.round = round, .reason = reason});
}

void FakeAgent::pause(const std::string& worker, std::uint64_t round, bool leave) {
    WorkerPage& its = page(worker);
    its.leaving.store(leave ? worker_link::Leaving::at_boundary : worker_link::Leaving::no);
    its.pause_round.store(round);
    send(worker,
         worker_link::Pause{.round = round, .leave = leave, .limit_ms = 5000, .reason = "a drain"});
}

void FakeAgent::let_leave(const std::string& worker, std::uint64_t round) {
    WorkerPage& its = page(worker);
    its.leaving.store(worker_link::Leaving::at_once);
    its.pause_round.store(round);
    send(worker,
         worker_link::Pause{.round = round, .leave = true, .limit_ms = 5000, .reason = "a drain"});
}

std::vector<worker_link::AssignWorker> FakeRounds::begin(std::size_t world_size,
                                                         const std::string& reason) {
    ++round_;
    const std::string key(64, static_cast<char>('0' + round_ % 10));
    agent_.greet_with({round_, key});
    stores_.push_back(std::make_unique<StoreService>("127.0.0.1", 0, store::Limits()));
    std::vector<worker_link::AssignWorker> places;
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
        places.push_back({.place = {.round = round_,
                                    .job = "test",
                                    .rank = rank,
                                    .world_size = static_cast<std::uint32_t>(world_size),
                                    .local_rank = rank,
                                    .local_world_size = static_cast<std::uint32_t>(world_size),
                                    .master_addr = "127.0.0.1",
                                    .master_port = stores_.back()->port()},
                          .round_key = key,
                          .reason = reason});
    }
    return places;
}

void FakeRounds::assign(const std::vector<std::string>& workers) {
    const auto places = begin(workers.size());
    for (std::size_t rank = 0; rank < workers.size(); ++rank) {
        agent_.send(workers[rank], places[rank]);
    }
}

void FakeRounds::end(const std::vector<std::string>& workers, const std::string& reason) {
    for (const std::string& worker : workers) {
        agent_.end_round(worker, round_, reason);
    }
    for (const std::string& worker : workers) {
        while (agent_.await<worker_link::Suspended>(worker).round != round_) {
        }
    }
}

}  // namespace regroup::testing
