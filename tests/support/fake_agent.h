// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "rendezvous/worker_link/messages.h"
#include "rendezvous/worker_link/page.h"
#include "worker_sdk/src/store/store_service.h"

namespace regroup::testing {

/// An agent that a test controls. Workers attach over the real socket and get a real page, and a
/// test can wait for their messages. It has its own thread.
class FakeAgent {
   public:
    FakeAgent();
    ~FakeAgent();
    FakeAgent(const FakeAgent&) = delete;
    FakeAgent& operator=(const FakeAgent&) = delete;

    /// For REGROUP_AGENT_SOCKET.
    [[nodiscard]] const std::string& socket() const noexcept { return socket_name_; }

    /// Sets the first message to workers that connect from now on. From any thread.
    void greet_with(worker_link::Welcome welcome);

    // Each of these waits for an action of the worker. After a long time-out it throws
    // std::runtime_error, which fails the test.

    [[nodiscard]] worker_link::WorkerPage& page(const std::string& worker);
    void send(const std::string& worker, const worker_link::ToWorker& message);
    /// Takes the next message of this kind from the worker, and drops earlier ones.
    template <class Message>
    [[nodiscard]] Message await(const std::string& worker) {
        return std::get<Message>(await_kind(worker, worker_link::FromWorker(Message{}).index()));
    }
    /// Waits for the end of the worker's connection. True if a message of this kind was left.
    template <class Message>
    [[nodiscard]] bool has_said(const std::string& worker) {
        return has_said_kind(worker, worker_link::FromWorker(Message{}).index());
    }
    /// Waits until the kernel reports the end of the worker's control thread, as an agent does.
    void await_death(const std::string& worker);
    /// Closes the connection, as if this agent had died.
    void hang_up(const std::string& worker);
    [[nodiscard]] bool has_attached(const std::string& worker);

    void end_round(const std::string& worker, std::uint64_t round, const std::string& reason);
    void pause(const std::string& worker, std::uint64_t round, bool leave);
    /// Lets a worker leave, suspended or not.
    void let_leave(const std::string& worker, std::uint64_t round);

   private:
    struct Worker {
        int socket = -1;
        worker_link::WorkerPage* page = nullptr;
        std::deque<worker_link::FromWorker> said;
    };

    void run();
    void admit(int socket, const std::string& packet);
    void take(int socket, const std::string& packet);
    [[nodiscard]] Worker& attached(std::unique_lock<std::mutex>& lock, const std::string& worker);
    [[nodiscard]] bool has_said_kind(const std::string& worker, std::size_t kind);
    [[nodiscard]] worker_link::FromWorker await_kind(const std::string& worker, std::size_t kind);

    std::string socket_name_;
    int listener_ = -1;
    int stop_ = -1;
    std::vector<int> visitors_;  // Used by the thread only: connected, no Hello yet.

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, Worker> workers_;  // guarded by mutex_
    worker_link::Welcome welcome_;           // guarded by mutex_

    std::thread thread_;
};

/// The rounds of a job with one FakeAgent. Each round has its own store.
class FakeRounds {
   public:
    explicit FakeRounds(FakeAgent& agent) : agent_(agent) {}

    /// Begins the next round with a new store. Returns the assignments, by rank.
    [[nodiscard]] std::vector<worker_link::AssignWorker> begin(std::size_t world_size,
                                                               const std::string& reason = "test");
    /// Begins the next round and sends the workers their assignments.
    void assign(const std::vector<std::string>& workers);
    /// Ends the round for these workers, and waits until they have suspended.
    void end(const std::vector<std::string>& workers, const std::string& reason = "test");
    [[nodiscard]] std::uint64_t round() const noexcept { return round_; }

   private:
    FakeAgent& agent_;
    std::uint64_t round_ = 0;
    std::vector<std::unique_ptr<StoreService>> stores_;
};

}  // namespace regroup::testing
