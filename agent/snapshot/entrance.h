// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <list>
#include <mutex>

#include "rendezvous/files/unique_fd.h"

namespace regroup::agent {

/// Connections whose peers have yet to prove who they are. There is place for some; a new one shuts
/// down the oldest of them. So strangers who say nothing do not keep others out. Any thread.
class Entrance {
   public:
    explicit Entrance(std::size_t most) : most_(most) {}

    /// A connection is in the entrance while this object lives. The socket may be closed before.
    class Visit {
       public:
        Visit(Entrance& entrance, int socket);
        ~Visit();
        Visit(const Visit&) = delete;
        Visit& operator=(const Visit&) = delete;

       private:
        Entrance& entrance_;
        std::list<UniqueFd>::iterator place_;
    };

   private:
    const std::size_t most_;
    std::mutex mutex_;
    std::list<UniqueFd> sockets_;  ///< Guarded by the mutex. Copies; the oldest first.
};

}  // namespace regroup::agent
