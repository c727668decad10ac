// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

namespace regroup::bench {

/// One operation as a client sends it, and how long the answer is.
struct Exchange {
    std::string request;
    std::size_t reply_bytes = 0;
};

/// The requests of clients to one server.
struct Speech {
    Exchange greeting;  ///< First on each connection; may be empty.
    Exchange prepare;   ///< Once, so that there is a value to get.
    Exchange operation;
};

struct LoadResult {
    double operations_per_second = 0;
    double p99_us = 0;
    /// CPU time of all threads of the server.
    double server_us_per_operation = 0;
};

/// Clients of one server on this host, in this thread. A client sends its next request after its
/// answer. `in_flight` clients are active at a time, in turn; the others are silent.
class StoreLoad {
   public:
    struct Target {
        std::uint16_t port = 0;
        pid_t pid = -1;
    };

    /// Connects, greets and prepares. A system error ends the program with a message.
    StoreLoad(const Target& target, Speech speech, std::size_t clients_count);
    ~StoreLoad();
    StoreLoad(const StoreLoad&) = delete;
    StoreLoad& operator=(const StoreLoad&) = delete;

    /// False if the server has not answered all greetings in time, or after a wrong answer, which
    /// is printed.
    [[nodiscard]] bool is_ready() const { return is_ready_; }
    /// Requires `is_ready`.
    LoadResult run(std::size_t in_flight, std::chrono::milliseconds time);

   private:
    struct Client {
        int fd = -1;
        std::size_t missing_bytes = 0;
        std::chrono::steady_clock::time_point sent_at;
    };

    [[nodiscard]] bool exchange(int fd, const Exchange& exchange);
    void send_next();
    /// Operations that ended within `time`.
    std::size_t drive(std::chrono::milliseconds time);

    pid_t server_;
    Speech speech_;
    int epoll_;
    bool is_ready_ = true;
    std::vector<Client> clients_;
    std::size_t next_ = 0;
    std::size_t in_flight_ = 0;
    std::vector<float> latencies_us_;
};

/// CPU time of all threads of a process, in nanoseconds.
[[nodiscard]] std::uint64_t processor_time(pid_t pid);

}  // namespace regroup::bench
