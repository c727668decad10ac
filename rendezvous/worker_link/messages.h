// SPDX-License-Identifier: Apache-2.0
//
// The messages between an agent and a worker that links the SDK, over a local socket
// (SOCK_SEQPACKET, so that a packet is a message). Messages are for events that must wake up a
// thread. Values that are only read are in the shared page (page.h).
//
// The agent listens at REGROUP_AGENT_SOCKET (a leading @ means the abstract namespace, which needs
// no file and ends with the agent). The worker's first message is Hello, with REGROUP_WORKER_ID, a
// secret that the agent gave to this process. The answer is Welcome, which carries the descriptor
// of the page. A worker without those variables has no agent and does not use this link.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "rendezvous/base/result.h"
#include "rendezvous/worker_link/worker_place.h"

namespace regroup::worker_link {

inline constexpr const char* kSocketVariable = "REGROUP_AGENT_SOCKET";
inline constexpr const char* kWorkerIdVariable = "REGROUP_WORKER_ID";
/// "1" for a process that was started ahead of its round: its rank and the rest come with Assign.
inline constexpr const char* kPrestartedVariable = "REGROUP_PRESTARTED";

/// The version of this protocol. It increases with each message or field value that the other side
/// must know, and with the page. A program contains its SDK, and the agent comes with the launcher,
/// so they may be of different builds. The agent must not be the older one: it serves its own
/// version and older ones down to `kOldestLinkVersion`, and refuses all others at their Hello with
/// advice. A refused worker continues as a program without the SDK.
///
/// A new field that both sides can do without needs no new version.
inline constexpr std::uint32_t kLinkVersion = 7;
inline constexpr std::uint32_t kOldestLinkVersion = 7;

/// The longest message; a longer one is refused. Texts are cut to fit.
inline constexpr std::size_t kMessageLimit = 16384;
inline constexpr std::size_t kModulesBytesMax = 12000;

// ---- From the worker.

/// The first message. `elastic`: the worker takes part in several rounds (ElasticLoop), so the
/// agent suspends it at the end of a round instead of ending it. Sent again with `elastic` set when
/// the loop begins, and without it when the training is finished. `stops`: a worker that is not
/// elastic asks in each step whether to stop (stop_requested), so Pause makes all ranks end with
/// success at the same step; sent again with `stops` when it has asked first.
struct Hello {
    static constexpr std::string_view kName = "hello";
    std::string worker_id;
    std::uint32_t version = kLinkVersion;
    bool elastic = false;
    bool stops = false;

    friend bool operator==(const Hello&, const Hello&) = default;
};
/// The worker has left `round` (0: it had none yet), holds no communicator, and waits for
/// AssignWorker.
struct Suspended {
    static constexpr std::string_view kName = "suspended";
    std::uint64_t round = 0;
    std::uint64_t step = 0;  ///< The committed step whose state it has; 0: no complete state.
    /// True: all ranks suspended after this step, as agreed. False: the round broke.
    bool at_boundary = false;

    friend bool operator==(const Suspended&, const Suspended&) = default;
};
/// The first step of a new round is committed, with the durations that this worker measured.
struct Resumed {
    static constexpr std::string_view kName = "resumed";
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
    error,  ///< Nothing more is known than the error.
};
[[nodiscard]] std::string_view to_string(FatalKind kind) noexcept;
/// The worker is about to end for its own reason, not because of lost peers. The first Fatal
/// counts, but an `error` is replaced by a later message of another kind.
struct Fatal {
    static constexpr std::string_view kName = "fatal";
    FatalKind kind = FatalKind::user_error;
    std::string text;

    friend bool operator==(const Fatal&, const Fatal&) = default;
};
/// A sentence for the operator: a slow rank, replicas that differ.
struct Remark {
    static constexpr std::string_view kName = "remark";
    std::string text;

    friend bool operator==(const Remark&, const Remark&) = default;
};
/// The worker's connection to another worker broke in `round`. The other one may be dead, or only
/// out of reach.
struct PeerLost {
    static constexpr std::string_view kName = "peer_lost";
    std::uint64_t round = 0;
    std::uint32_t peer = 0;  ///< The rank of the other worker.
    std::string text;        ///< The predicate of a sentence about it: "closed the connection".

    friend bool operator==(const PeerLost&, const PeerLost&) = default;
};
/// The answer to SaveRecords: the worker has tried to write what it has.
struct RecordsSaved {
    static constexpr std::string_view kName = "records_saved";
    std::uint32_t files = 0;
    std::string complaint;  ///< An error, in a sentence; or empty.

    friend bool operator==(const RecordsSaved&, const RecordsSaved&) = default;
};
/// The modules of installed packages that the worker, an elastic Python program, has imported. Its
/// successor will import them, too.
struct Imports {
    static constexpr std::string_view kName = "imports";
    std::string modules;  ///< Names with commas between, as many as fit kModulesBytesMax.

    friend bool operator==(const Imports&, const Imports&) = default;
};
/// The worker wants to speak about snapshots; see rendezvous/snapshot/channel.h. One answer:
/// SnapshotsOpened.
struct OpenSnapshots {
    static constexpr std::string_view kName = "open_snapshots";

    friend bool operator==(const OpenSnapshots&, const OpenSnapshots&) = default;
};
using FromWorker = std::variant<Hello, Suspended, Resumed, Fatal, Remark, PeerLost, RecordsSaved,
                                Imports, OpenSnapshots>;

// ---- From the agent.

/// With the descriptor of the page. A process that was started for a round gets what its
/// environment must not hold.
struct Welcome {
    static constexpr std::string_view kName = "welcome";
    std::uint64_t round = 0;  ///< 0: it has none yet.
    std::string key{};        ///< As AssignWorker::round_key.

    friend bool operator==(const Welcome&, const Welcome&) = default;
};
/// The worker's place in the next round, as its environment would give it.
struct AssignWorker {
    static constexpr std::string_view kName = "assign";
    WorkerPlace place{};
    /// Secret: only the workers of the round know it. 64 hexadecimal digits, or empty: there is
    /// none.
    std::string round_key{};
    std::string reason{};

    friend bool operator==(const AssignWorker&, const AssignWorker&) = default;
};
/// `round` is over (see also WorkerPage::ended_round): the worker abandons the communicators of the
/// round, then sends Suspended.
struct EndRound {
    static constexpr std::string_view kName = "end_round";
    std::uint64_t round = 0;
    std::string reason;

    friend bool operator==(const EndRound&, const EndRound&) = default;
};
/// The worker suspends at the next step boundary; one that `stops` ends there. With `leave` it
/// saves the state within `limit_ms` and ends, at the place that WorkerPage::leaving gives. Sent
/// again when that place has changed.
struct Pause {
    static constexpr std::string_view kName = "pause";
    std::uint64_t round = 0;
    bool leave = false;
    std::uint64_t limit_ms = 0;
    std::string reason;

    friend bool operator==(const Pause&, const Pause&) = default;
};
/// The round hangs: the worker writes its flight records, that of the SDK to PREFIX.regroup.json
/// and those of PyTorch to PREFIX.BACKEND.json, and sends RecordsSaved. A request that comes before
/// the last one is done is ignored.
struct SaveRecords {
    static constexpr std::string_view kName = "save_records";
    std::string prefix;  ///< An absolute path.

    friend bool operator==(const SaveRecords&, const SaveRecords&) = default;
};
/// With the descriptor of a socket for messages about snapshots; without it, `error` says why there
/// is none.
struct SnapshotsOpened {
    static constexpr std::string_view kName = "snapshots_opened";
    std::string error;

    friend bool operator==(const SnapshotsOpened&, const SnapshotsOpened&) = default;
};
using ToWorker = std::variant<Welcome, AssignWorker, EndRound, Pause, SaveRecords, SnapshotsOpened>;

/// One message as a packet: its name (`kName`) and then one "field=value" per line, with backslash
/// escapes. Unknown fields are ignored.
[[nodiscard]] std::string encode(const FromWorker& message);
[[nodiscard]] std::string encode(const ToWorker& message);
/// Errors: invalid_argument, naming the message or field that is wrong.
[[nodiscard]] Result<FromWorker> decode_from_worker(std::string_view packet);
[[nodiscard]] Result<ToWorker> decode_to_worker(std::string_view packet);

}  // namespace regroup::worker_link
