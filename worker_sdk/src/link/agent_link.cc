// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/link/agent_link.h"

#include <regroup/error.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <future>
#include <limits>
#include <memory>
#include <unistd.h>
#include <utility>

#include "rendezvous/base/printable.h"
#include "rendezvous/worker_link/packet.h"
#include "worker_sdk/src/base/flight_recorder.h"
#include "worker_sdk/src/base/helper_thread.h"
#include "worker_sdk/src/link/agent_socket.h"
#include "worker_sdk/src/link/robust_hold.h"

namespace regroup::link {
namespace {

/// How long to wait for the agent, which is on the same machine but may be busy.
constexpr Duration kAttachLimit = std::chrono::seconds(10);

constexpr const char* kGone = "the agent that started this worker is gone";

bool post(const UniqueFd& socket, const FromWorker& message) noexcept {
    return worker_link::send_packet(socket.get(), worker_link::encode(message),
                                    worker_link::WhenFull::wait);
}

/// Wakes up the reader of an eventfd, if there is one.
void add_to(int bell) noexcept {
    const std::uint64_t one = 1;
    if (bell >= 0) {
        // Fails only when the counter is full; its reader wakes up then.
        [[maybe_unused]] const ssize_t written = ::write(bell, &one, sizeof one);
    }
}

}  // namespace

Result<std::shared_ptr<AgentLink>> AgentLink::attach(const std::string& path,
                                                     const std::string& worker_id) {
    Result<UniqueFd> dialled = dial_agent(path);
    if (!dialled) {
        return dialled.error();
    }
    net::Pollable socket{.fd = std::move(*dialled), .readable = false};
    worker_link::Hello hello;
    hello.worker_id = worker_id;
    if (!post(socket.fd, hello)) {
        return Failure(Errc::disconnected, "the agent hung up before this worker's hello");
    }
    const Instant deadline = after(now(), kAttachLimit);
    for (net::PollSet poll; !socket.readable; poll.wait(deadline)) {
        if (now() >= deadline) {
            return Failure(Errc::deadline_exceeded,
                           "the agent has not answered within " + format_duration(kAttachLimit));
        }
        poll.want_read(socket);
    }
    socket.readable = false;
    const Packet packet = receive_packet(socket.fd);
    const auto message = worker_link::decode_to_worker(packet.text);
    if (packet.text.empty() || !message ||
        !std::holds_alternative<worker_link::Welcome>(*message) || !packet.descriptor) {
        return Failure(Errc::disconnected, "the agent does not accept this process");
    }
    auto page = MappedPage::map(packet.descriptor);
    if (!page) {
        return page.error();
    }
    return std::shared_ptr<AgentLink>(new AgentLink(std::move(socket), std::move(*page), worker_id,
                                                    std::get<worker_link::Welcome>(*message)));
}

AgentLink::AgentLink(net::Pollable socket, std::unique_ptr<MappedPage> page, std::string worker_id,
                     worker_link::Welcome welcome)
    : worker_id_(std::move(worker_id)),
      first_round_(std::move(welcome)),
      socket_(std::move(socket)),
      guard_(socket_.fd.get()),
      page_(std::move(page)),
      sigterm_(peer_pid(socket_.fd)) {
    const auto holds = std::make_shared<std::promise<void>>();
    thread_ = start_helper_thread("regroup-link", [this, holds] {
        const RobustHold hold((*page_)->alive);
        holds->set_value();
        receive_until_stopped();
    });
    holds->get_future().wait();
}

AgentLink::~AgentLink() {
    page().exiting.store(1);
    stop_.ring();
    thread_.join();
    if (records_.thread.joinable()) {
        records_.thread.join();
    }
}

/// Ends when the link is destroyed, and not with the agent, since the thread must keep holding
/// `alive`.
void AgentLink::receive_until_stopped() {
    net::PollSet poll;
    for (bool agent_is_there = true; !stop_.drain();) {
        sigterm_.decide(agent_is_there, leaving() || page().draining.load() != 0);
        stop_.watch(poll);
        sigterm_.watch(poll);
        if (agent_is_there) {
            poll.want_read(socket_);
        }
        try {
            poll.wait(sigterm_.deadline());
        } catch (const Error&) {
            return note_gone();
        }
        if (!agent_is_there || !std::exchange(socket_.readable, false)) {
            continue;
        }
        Packet packet = receive_packet(socket_.fd);
        if (packet.text.empty()) {
            agent_is_there = false;
            note_gone();
        } else if (const auto message = worker_link::decode_to_worker(packet.text)) {
            take(*message, std::move(packet.descriptor));
        } else {
            std::fprintf(stderr, "regroup: this worker's agent: %s\n",
                         printable(message.error().detail).c_str());
        }
    }
}

void AgentLink::take(const worker_link::ToWorker& message, UniqueFd descriptor) {
    if (const auto* const place = std::get_if<AssignWorker>(&message)) {
        const std::lock_guard lock(mutex_);
        if (!place_ || place->place.round > place_->place.round) {
            place_ = *place;
        }
    } else if (const auto* const pause = std::get_if<worker_link::Pause>(&message)) {
        const std::lock_guard lock(mutex_);
        pause_.last = *pause;
        add_to(pause_.bell);
    } else if (const auto* const over = std::get_if<worker_link::EndRound>(&message)) {
        interrupt_guarded(over->round,
                          "round " + std::to_string(over->round) + " is over: " + over->reason);
    } else if (const auto* const save = std::get_if<worker_link::SaveRecords>(&message)) {
        save_records(save->prefix);
    } else if (const auto* const opened = std::get_if<worker_link::SnapshotsOpened>(&message)) {
        snapshot_door_.answer(std::move(descriptor), opened->error);
    }
    changed_.notify_all();
}

/// If the guarded round is `round` or an earlier one.
void AgentLink::interrupt_guarded(std::uint64_t round, const std::string& reason) {
    std::shared_ptr<RoundScope> over;
    {
        const std::lock_guard lock(mutex_);
        if (guarded_.round <= round) {
            over = std::exchange(guarded_.scope, nullptr);
        }
    }
    // Without the lock, since interrupted threads may call this link.
    if (over) {
        over->interrupt(reason);
    }
}

void AgentLink::note_gone() {
    {
        const std::lock_guard lock(mutex_);
        gone_ = true;
    }
    changed_.notify_all();
    snapshot_door_.close();
    interrupt_guarded(std::numeric_limits<std::uint64_t>::max(), kGone);
}

void AgentLink::save_records(const std::string& prefix) {
    if (records_.is_busy.exchange(true)) {
        return;
    }
    if (records_.thread.joinable()) {
        records_.thread.join();
    }
    const auto answer = [this](const worker_link::RecordsSaved& saved) {
        records_.is_busy = false;  // First: an agent with the answer may ask again.
        send(saved);
    };
    worker_link::RecordsSaved refused;
    try {
        records_.thread = start_helper_thread("regroup-record", [answer, prefix] {
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

void AgentLink::send(const FromWorker& message) noexcept {
    static_cast<void>(post(socket_.fd, message));
}

void AgentLink::declare_elastic(bool elastic) noexcept {
    worker_link::Hello hello;
    hello.worker_id = worker_id_;
    hello.elastic = elastic;
    send(hello);
}

void AgentLink::declare_stops(int bell) noexcept {
    {
        const std::lock_guard lock(mutex_);
        pause_.bell = bell;
        if (pause_.last) {
            add_to(bell);
        }
    }
    worker_link::Hello hello;
    hello.worker_id = worker_id_;
    hello.stops = true;
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
        guarded_ = {round, scope};
        gone = gone_;
    }
    // Checked after the scope is guarded, since the message about the end follows the page.
    if (ended(round)) {
        scope->interrupt("round " + std::to_string(round) + " is over");
    } else if (gone) {
        scope->interrupt(kGone);
    }
}

void AgentLink::unguard() noexcept {
    const std::lock_guard lock(mutex_);
    guarded_.scope.reset();
}

std::optional<worker_link::Pause> AgentLink::await_pause(Instant deadline) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [&] { return pause_.last.has_value() || gone_; });
    return pause_.last;
}

AgentLink::Place AgentLink::await_place(std::uint64_t round) {
    std::unique_lock lock(mutex_);
    const auto leaves = [&] { return page().leaving.load() == worker_link::Leaving::at_once; };
    changed_.wait(lock,
                  [&] { return gone_ || leaves() || (place_ && place_->place.round > round); });
    if (place_ && place_->place.round > round) {
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
