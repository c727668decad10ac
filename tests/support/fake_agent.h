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

/// An agent that does what a test tells it: workers attach to it over the real socket, get a real
/// page, and their messages can be waited for. One thread of its own.
class FakeAgent {
   public:
    FakeAgent();
    ~FakeAgent();
    FakeAgent(const FakeAgent&) = delete;
    FakeAgent& operator=(const FakeAgent&) = delete;

    /// For REGROUP_AGENT_SOCKET.
    [[nodiscard]] const std::string& socket() const noexcept { return socket_name_; }

    // Each waits for the worker to do what it asks for, far longer than that takes, and fails the
    // test after that by throwing std::runtime_error.

    [[nodiscard]] worker_link::WorkerPage& page(const std::string& worker);
    void send(const std::string& worker, const worker_link::ToWorker& message);
    /// Takes the next message of this kind from the worker, and drops what came before it.
    template <class Message>
    [[nodiscard]] Message await(const std::string& worker) {
        return std::get<Message>(await_kind(worker, worker_link::FromWorker(Message{}).index()));
    }
    /// Waits for the end of the worker's connection; whether a message of this kind came that was
    /// not taken.
    template <class Message>
    [[nodiscard]] bool has_said(const std::string& worker) {
        return has_said_kind(worker, worker_link::FromWorker(Message{}).index());
    }
    /// Waits until the kernel says that the worker's control thread is gone, as the watcher of an
    /// agent does.
    void await_death(const std::string& worker);
    /// Hangs up, as if this agent had died.
    void hang_up(const std::string& worker);
    [[nodiscard]] bool has_attached(const std::string& worker);

    void end_round(const std::string& worker, std::uint64_t round, const std::string& reason);
    void pause(const std::string& worker, std::uint64_t round, bool leave);
    /// Who is suspended leaves, too.
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
    std::vector<int> visitors_;  // the thread's: connected, not yet introduced

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, Worker> workers_;  // guarded by mutex_

    std::thread thread_;
};

/// The rounds of a job whose workers are all with one FakeAgent. Each round has a store of its own.
class FakeRounds {
   public:
    explicit FakeRounds(FakeAgent& agent) : agent_(agent) {}

    /// What `workers[rank]` is in the next round; makes its store. The round begins with that.
    [[nodiscard]] std::vector<worker_link::AssignWorker> begin(std::size_t world_size,
                                                               const std::string& reason = "test");
    /// The same, and tells the workers.
    void assign(const std::vector<std::string>& workers);
    /// Ends the round for these, and waits until they have suspended.
    void end(const std::vector<std::string>& workers, const std::string& reason = "test");
    [[nodiscard]] std::uint64_t round() const noexcept { return round_; }

   private:
    FakeAgent& agent_;
    std::uint64_t round_ = 0;
    std::vector<std::unique_ptr<StoreService>> stores_;
};

}  // namespace regroup::testing
