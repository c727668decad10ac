// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <set>

namespace regroup::agent {

/// Sockets on which threads wait. `stop` ends all these waits. Any thread.
class OpenSockets {
   public:
    /// Lets `stop` reach the socket as long as this object lives, which must be before the socket
    /// is closed.
    class Entry {
       public:
        Entry(OpenSockets& sockets, int fd);
        ~Entry();
        Entry(const Entry&) = delete;
        Entry& operator=(const Entry&) = delete;

       private:
        OpenSockets& sockets_;
        int fd_;
    };

    /// Shuts down all sockets.
    void interrupt();
    /// Shuts down all sockets, and each that comes later at once.
    void stop();
    [[nodiscard]] bool is_stopped() const;

   private:
    void shut_down_locked();

    mutable std::mutex mutex_;
    std::multiset<int> fds_;
    bool stopped_ = false;
};

}  // namespace regroup::agent
