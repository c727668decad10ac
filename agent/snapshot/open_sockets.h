// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>
#include <set>

#include "rendezvous/base/clock.h"

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
    /// Waits until `stop`, at most for `limit`. False: it was not called.
    [[nodiscard]] bool await_stop(Duration limit) const;

   private:
    void shut_down_locked();

    mutable std::mutex mutex_;
    mutable std::condition_variable stopping_;
    std::multiset<int> fds_;
    bool stopped_ = false;
};

}  // namespace regroup::agent
