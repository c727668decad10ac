// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "rendezvous/base/clock.h"

namespace regroup::simulation {

enum class EventKind : std::uint8_t {
    connected,      ///< A host's connection attempt ends. `subject` host, `tag` attempt.
    packet,         ///< Something arrives over a connection. `subject` packet.
    agent_timer,    ///< `subject` host, `tag` incarnation.
    daemon_timer,   ///< `subject` daemon, `tag` its life.
    daemon_duty,    ///< It renews or seeks its lease. `subject` daemon, `tag` its life.
    daemon_sweep,   ///< It writes deferred records. As daemon_timer.
    daemon_read,    ///< It has read its records. `subject` daemon, `tag` which read.
    daemon_return,  ///< It is started again. `subject` daemon.
    etcd_call,      ///< A call reaches etcd. `subject` call.
    etcd_answer,    ///< An answer reaches the daemon. `subject` call.
    worker_end,     ///< A worker's life ends. `subject` host, `tag` names worker and cause.
    worker_word,    ///< An agent receives a worker's event. `subject` word.
    worker_ready,   ///< It can say Hello. `subject` host, `tag` names worker; the same for the next
                    ///< two.
    worker_suspends,
    worker_apply,      ///< It learns the result of a vote.
    group_formed,      ///< `subject` group; the same for the next three.
    group_vote,        ///< All its ranks vote on the step.
    group_standstill,  ///< The hang limit is over.
    group_severed,     ///< One of its connections breaks.
    worker_bereft,     ///< A worker notices a broken connection. As worker_ready.
    store_offer,    ///< A new socket for the next round's store. `subject` host, `tag` incarnation.
    spawn,          ///< An agent is started. `subject` host.
    last_word,      ///< A warden reports its agent's death. `subject` host.
    host_lingers,   ///< The daemon outlives its agent. `tag` until when.
    second_signal,  ///< A person presses Ctrl-C again. `subject` host, `tag` incarnation.
    heal,           ///< A fault's end. `subject` host, `tag` which.
    fault,          ///< The next fault is chosen.
    new_job,        ///< The old job has ended; all nodes start again.
    tick,           ///< Checkers look at the whole state.
};

/// A scheduled event. Trivially copyable, so that the heap moves only bytes.
struct Happening {
    Instant at{};
    std::uint64_t order = 0;  ///< At equal times, the event scheduled first comes first.
    std::uint64_t tag = 0;
    std::uint32_t subject = 0;
    EventKind kind = EventKind::tick;
};

/// Scheduled events, earliest first. An event cannot be cancelled.
class EventQueue {
   public:
    void push(Instant at, EventKind kind, std::uint32_t subject = 0, std::uint64_t tag = 0) {
        events_.push_back({at, next_order_++, tag, subject, kind});
        std::push_heap(events_.begin(), events_.end(), later);
    }
    [[nodiscard]] bool empty() const noexcept { return events_.empty(); }
    [[nodiscard]] std::size_t size() const noexcept { return events_.size(); }
    [[nodiscard]] Instant next_at() const { return events_.front().at; }
    Happening pop() {
        std::pop_heap(events_.begin(), events_.end(), later);
        const Happening event = events_.back();
        events_.pop_back();
        return event;
    }

   private:
    static bool later(const Happening& a, const Happening& b) noexcept {
        return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
    std::vector<Happening> events_;
    std::uint64_t next_order_ = 0;
};

}  // namespace regroup::simulation
