// SPDX-License-Identifier: Apache-2.0
//
// What an agent and a worker that links the SDK say to each other over a local socket
// (SOCK_SEQPACKET, so that a packet is a message): the events that need a thread to wake up. What
// is merely looked at is in the page (page.h).
//
// The agent listens at REGROUP_AGENT_SOCKET (a leading @ means the abstract namespace, which needs
// no file and ends with the agent). The worker's first message is Hello, with REGROUP_WORKER_ID, a
// secret that the agent gave to this very process; the answer is Welcome, which carries the page's
// descriptor. A worker without those variables has no agent, and all of this is absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "rendezvous/base/result.h"

namespace regroup::worker_link {

inline constexpr const char* kSocketVariable = "REGROUP_AGENT_SOCKET";
inline constexpr const char* kWorkerIdVariable = "REGROUP_WORKER_ID";
/// "1" for a process that was started ahead of its round: its rank and the rest come with Assign.
inline constexpr const char* kPrestartedVariable = "REGROUP_PRESTARTED";

/// What both speak: grows with each message and each value of a field that the other side has to
/// know, and with the page. A program carries its SDK within it, and the agent comes with the
/// launcher, so they may be of different builds. The agent must not be the older one: it serves
/// its own version and those before it down to `kOldestLinkVersion`, turns all others away at their
/// Hello, and says what to do about it. Who is turned away goes on as a program without the SDK.
///
/// A field that an agent or a worker can go on without needs no new version.
inline constexpr std::uint32_t kLinkVersion = 3;
inline constexpr std::uint32_t kOldestLinkVersion = 3;

/// Longest message; whatever is longer is refused. Texts are cut to fit.
inline constexpr std::size_t kMessageLimit = 16384;

// ---- From the worker.

/// First. `elastic`: it takes part in several rounds (ElasticLoop) and is to be suspended, not
/// ended, when a round is over. Sent again with `elastic` set when the loop begins, and without
/// when its training is finished.
struct Hello {
    std::string worker_id;
    std::uint32_t version = kLinkVersion;
    bool elastic = false;

    friend bool operator==(const Hello&, const Hello&) = default;
};
/// It has left `round` (0: had none yet), holds no communicator, and waits for Assign.
struct Suspended {
    std::uint64_t round = 0;
    std::uint64_t step = 0;  ///< Steps committed, of which it has the state; 0 without a whole one.
    /// All ranks have suspended after this step, as they had agreed; false: the round broke.
    bool at_boundary = false;

    friend bool operator==(const Suspended&, const Suspended&) = default;
};
/// The first step of a new round is committed; what the way there took on this worker.
struct Resumed {
    std::uint64_t round = 0;
    std::uint64_t step = 0;
    double communicator_ms = 0;
    double state_ms = 0;
    double first_step_ms = 0;

    friend bool operator==(const Resumed&, const Resumed&) = default;
};
enum class FatalKind : std::uint8_t {
    user_error,
    retry,
    bad_node,
    error,  ///< No more is known than how it ends.
};
[[nodiscard]] std::string_view to_string(FatalKind kind) noexcept;
/// It is about to end, and why; for a reason of its own, not because its peers are gone. The first
/// one counts, but an `error` only until more is said.
struct Fatal {
    FatalKind kind = FatalKind::user_error;
    std::string text;

    friend bool operator==(const Fatal&, const Fatal&) = default;
};
/// A sentence for the operator: a slow rank, replicas that differ.
struct Remark {
    std::string text;

    friend bool operator==(const Remark&, const Remark&) = default;
};
/// Its connection to another worker broke, in `round`; that one may be dead, or only out of reach.
struct PeerLost {
    std::uint64_t round = 0;
    std::uint32_t peer = 0;  ///< Its rank.
    std::string text;        ///< The rest of a sentence about it: "closed the connection".

    friend bool operator==(const PeerLost&, const PeerLost&) = default;
};
using FromWorker = std::variant<Hello, Suspended, Resumed, Fatal, Remark, PeerLost>;

// ---- From the agent.

struct Welcome {  // With the descriptor of the page.
    friend bool operator==(const Welcome&, const Welcome&) = default;
};
/// The worker's identity in the next round: what its environment would say.
struct AssignWorker {
    std::uint64_t round = 0;
    std::string job;
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    std::uint32_t local_rank = 0;
    std::uint32_t local_world_size = 1;
    std::uint32_t group_rank = 0;
    std::uint32_t group_world_size = 1;
    std::uint32_t role_rank = 0;
    std::uint32_t role_world_size = 1;
    std::uint32_t restart_count = 0;
    std::uint32_t max_restarts = 0;
    std::string master_addr;
    std::uint16_t master_port = 0;
    std::string reason;

    friend bool operator==(const AssignWorker&, const AssignWorker&) = default;
};
/// `round` is over (the page says so too): abandon its communicators, then Suspended.
struct EndRound {
    std::uint64_t round = 0;
    std::string reason;

    friend bool operator==(const EndRound&, const EndRound&) = default;
};
/// Suspend at the next step boundary; with `leave`, save the state there within `limit_ms` and end,
/// or where WorkerPage::leaving says. Sent again when that has changed.
struct Pause {
    std::uint64_t round = 0;
    bool leave = false;
    std::uint64_t limit_ms = 0;
    std::string reason;

    friend bool operator==(const Pause&, const Pause&) = default;
};
using ToWorker = std::variant<Welcome, AssignWorker, EndRound, Pause>;

/// One message as a packet: its name and then one "field=value" per line, with backslash escapes.
/// Unknown fields are ignored.
[[nodiscard]] std::string encode(const FromWorker& message);
[[nodiscard]] std::string encode(const ToWorker& message);
/// Errors: invalid_argument, naming the message or field that is wrong.
[[nodiscard]] Result<FromWorker> decode_from_worker(std::string_view packet);
[[nodiscard]] Result<ToWorker> decode_to_worker(std::string_view packet);

}  // namespace regroup::worker_link
