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
    daemon_duty,    ///< It keeps or seeks its lease. `subject` daemon, `tag` its life.
    daemon_sweep,   ///< It records what may wait for a moment. As daemon_timer.
    daemon_read,    ///< It knows what was recorded. `subject` daemon, `tag` which reading.
    daemon_return,  ///< It is started again. `subject` daemon.
    etcd_call,      ///< Reaches etcd. `subject` call.
    etcd_answer,    ///< Reaches the daemon. `subject` call.
    worker_end,     ///< A worker's life ends. `subject` host, `tag` names worker and cause.
    worker_word,    ///< An agent learns something of a worker. `subject` word.
    worker_ready,   ///< It can say Hello. `subject` host, `tag` names worker; so for the next two.
    worker_suspends,
    worker_apply,      ///< It learns the outcome of a vote.
    group_formed,      ///< `subject` group; so for the next three.
    group_vote,        ///< All its ranks vote whether the step counts.
    group_standstill,  ///< For too long.
    group_severed,     ///< A connection in it breaks, which has not been mended since the last one.
    worker_bereft,     ///< A worker notices that a connection of its has broken. As worker_ready.
    store_offer,    ///< A new socket for the next round's store. `subject` host, `tag` incarnation.
    spawn,          ///< An agent is started. `subject` host.
    last_word,      ///< A warden tells of its agent's death. `subject` host.
    host_lingers,   ///< The rendezvous outlives the agent beside it. `tag` until when.
    second_signal,  ///< A person presses Ctrl-C again. `subject` host, `tag` incarnation.
    heal,           ///< A fault's end. `subject` host, `tag` which.
    fault,          ///< The next fault is chosen.
    new_job,        ///< The old job is over; all start again.
    tick,           ///< Checkers look at the whole.
};

/// Something that will happen. Trivially copyable, so that the heap moves nothing but bytes.
struct Happening {
    Instant at{};
    std::uint64_t order = 0;  ///< Of equal instants, the earlier scheduled comes first.
    std::uint64_t tag = 0;
    std::uint32_t subject = 0;
    EventKind kind = EventKind::tick;
};

/// The future, soonest first. Not a queue of messages: whatever is scheduled happens.
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
