// SPDX-License-Identifier: Apache-2.0
//
// The reasons for changes to a job, as values. The state machines decide by these values and put
// them into effects. rendezvous/text turns them into sentences; nothing parses those sentences.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/base/boxed.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/core/partial_finish.h"
#include "rendezvous/core/rank_set.h"
#include "rendezvous/core/round_id.h"
#include "rendezvous/core/worker_failure.h"

namespace regroup::rendezvous {

/// How a node went away.
struct Departure {
    enum class Kind : std::uint8_t {
        left,            ///< The node said that it leaves, for `reason`.
        killed,          ///< Its agent died; another process reported that, with `reason`.
        silent,          ///< The daemon heard nothing from it for `limit`.
        disconnected,    ///< Its connection broke and it did not reconnect within `limit`.
        absent,          ///< It did not come back within `limit` after `restarts` of the daemon.
        launcher_ended,  ///< It ran in one process with the previous daemon.
        stuck,           ///< It did not confirm in time that its workers have ended.
    };
    Kind kind = Kind::left;
    Duration limit{};
    std::uint32_t restarts = 1;
    std::string reason{};

    /// The node did not leave by itself.
    [[nodiscard]] bool is_loss() const noexcept { return kind != Kind::left; }
    /// The departure is charged to the budget of lost nodes.
    [[nodiscard]] bool is_charged() const noexcept {
        return is_loss() && kind != Kind::launcher_ended;
    }
    friend bool operator==(const Departure&, const Departure&) = default;
};

/// A request that a node leaves, from the node itself or from an operator.
struct LeaveWish {
    std::string said{};    ///< The node's own words, "stopped by SIGTERM"; empty: an operator's.
    std::string author{};  ///< The operator.
    std::string reason{};  ///< The operator's.

    friend bool operator==(const LeaveWish&, const LeaveWish&) = default;
};

/// A collective in which ranks wait, as a sentence tells it.
struct CollectiveWait {
    std::string collective{};  ///< "all_reduce 1042 of nccl group tp0 (4096 float32)"
    RankSummary waiting{};     ///< Have entered it.
    RankSummary missing{};     ///< Have not.
    std::string called{};      ///< If the culprit has called something else: that.

    friend bool operator==(const CollectiveWait&, const CollectiveWait&) = default;
};

/// The rank that a hanging round waits for.
struct HangCulprit {
    enum class Kind : std::uint8_t {
        behind,    ///< It is behind, and not in the collective in which the others wait for it.
        mismatch,  ///< It is behind and waits in a collective; the others have issued more.
        stopped,   ///< Its process is stopped, by a signal or by a debugger.
        silent,    ///< Nothing is known of any rank; this one has been silent longest.
        finished,  ///< It ended with success, and the others do not go on.
        reported,  ///< Its agent reports it, in `text`.
        /// The others wait in `wait`, which it has not entered, or has entered with other
        /// arguments.
        awaited,
    };
    Kind kind = Kind::reported;
    std::uint32_t rank = 0;
    std::string node{};   ///< The node of `rank`, for a rank of which nothing else is known.
    std::string doing{};  ///< The collective or section that the rank is in.
    std::uint64_t step = 0;
    std::uint64_t operations = 0;
    bool others_wait = false;
    Duration silent{};
    std::string text{};
    std::string activity{};  ///< Of its process: "stopped by a signal".
    std::optional<CollectiveWait> wait{};

    HangCulprit() = default;
    explicit(false) HangCulprit(std::string words) : text(std::move(words)) {}
    explicit(false) HangCulprit(const char* words) : text(words) {}
    /// False: the rank was chosen only because it has been silent longest, or has finished.
    [[nodiscard]] bool proven() const noexcept {
        return kind != Kind::silent && kind != Kind::finished;
    }
    friend bool operator==(const HangCulprit&, const HangCulprit&) = default;
};

namespace causes {

/// Text read from a message, or typed by an operator.
struct Told {
    std::string text{};
    friend bool operator==(const Told&, const Told&) = default;
};
/// The first nodes of a job (no names), or nodes that were admitted to a round.
struct Joined {
    std::size_t count = 0;
    std::vector<std::string> names{};
    friend bool operator==(const Joined&, const Joined&) = default;
};
struct Failed {
    Boxed<WorkerFailure> failure{};
    friend bool operator==(const Failed&, const Failed&) = default;
};
struct NodeGone {
    std::string node{};
    Departure how{};
    friend bool operator==(const NodeGone&, const NodeGone&) = default;
};
struct Gone {
    std::size_t count = 0;
    std::vector<NodeGone> nodes{};  ///< The first of them: each node of the next round is told.
    friend bool operator==(const Gone&, const Gone&) = default;
};
/// A connection broke between two workers that are alive as far as the daemon knows.
struct LinkBroke {
    std::uint32_t rank = 0;
    std::string node{};
    std::uint32_t peer = 0;
    std::string peer_node{};
    bool mutual = false;  ///< Both ends report it.
    std::string text{};   ///< The predicate of a sentence about the peer: "closed the connection".
    friend bool operator==(const LinkBroke&, const LinkBroke&) = default;
};
/// A node stopped its part of the round without an order.
struct Abandoned {
    std::string node{};
    bool store_spent = false;  ///< The node could no longer serve the round's store.
    friend bool operator==(const Abandoned&, const Abandoned&) = default;
};
struct Hung {
    RoundId round = RoundId::none;
    std::string text{};  ///< The agent's report.
    std::optional<HangCulprit> culprit{};
    bool all_wait = false;   ///< All ranks wait for each other.
    RankSummary finished{};  ///< Ranks of the round that had ended with success by then.
    friend bool operator==(const Hung&, const Hung&) = default;
};
struct Leaving {
    std::string node{};
    LeaveWish wish{};
    bool hands_over = false;  ///< It leaves only after a waiting node has its state.
    friend bool operator==(const Leaving&, const Leaving&) = default;
};
/// A node leaves, and all other nodes must leave with it.
struct JobDrain {
    enum class Why : std::uint8_t { nobody_stays, too_few_stay, rendezvous_goes };
    Leaving leaving{};
    Why why = Why::nobody_stays;
    std::size_t stay = 0;
    std::uint32_t needed = 0;
    friend bool operator==(const JobDrain&, const JobDrain&) = default;
};
/// A member has taken part in a later round of another daemon.
struct Superseded {
    std::string node{};
    RoundId round = RoundId::none;
    friend bool operator==(const Superseded&, const Superseded&) = default;
};
/// The round began without a waiting node that holds a later step.
struct BegunBehind {
    std::string node{};
    std::uint64_t step = 0;
    std::uint64_t began_at = 0;
    friend bool operator==(const BegunBehind&, const BegunBehind&) = default;
};
/// Sent to a node that runs a round of which it is no longer a member.
struct Over {
    RoundId round = RoundId::none;
    friend bool operator==(const Over&, const Over&) = default;
};
/// Sent to a node that the daemon has given up.
struct GivenUp {
    friend bool operator==(const GivenUp&, const GivenUp&) = default;
};

}  // namespace causes

/// Why a round was formed, changes or ended. Also sent to nodes.
struct Cause {
    using Told = causes::Told;
    using Joined = causes::Joined;
    using Failed = causes::Failed;
    using NodeGone = causes::NodeGone;
    using Gone = causes::Gone;
    using LinkBroke = causes::LinkBroke;
    using Abandoned = causes::Abandoned;
    using Hung = causes::Hung;
    using Leaving = causes::Leaving;
    using JobDrain = causes::JobDrain;
    using Superseded = causes::Superseded;
    using BegunBehind = causes::BegunBehind;
    using Over = causes::Over;
    using GivenUp = causes::GivenUp;
    using What = std::variant<Told, Joined, Failed, Gone, LinkBroke, Abandoned, Hung, Leaving,
                              JobDrain, Superseded, BegunBehind, Over, GivenUp>;

    Cause() = default;
    explicit(false) Cause(std::string text) : what(Told{std::move(text)}) {}
    explicit(false) Cause(const char* text) : what(Told{text}) {}
    template <class Alternative>
        requires std::is_constructible_v<What, Alternative> &&
                 (!std::is_convertible_v<Alternative, std::string>) &&
                 (!std::is_same_v<std::decay_t<Alternative>, Cause>)
    explicit(false) Cause(Alternative alternative) : what(std::move(alternative)) {}

    template <class Alternative>
    [[nodiscard]] const Alternative* as() const noexcept {
        return std::get_if<Alternative>(&what);
    }
    [[nodiscard]] bool is_known() const noexcept { return *this != Cause(); }
    friend bool operator==(const Cause&, const Cause&) = default;

    What what{};
    /// A planned change whose step boundary was not reached in time.
    bool boundary_missed = false;
};

/// How the nodes of a new round follow those of the previous round.
struct Succession {
    struct Arrival {
        enum class Kind : std::uint8_t { returned, standby, joined };
        Kind kind = Kind::joined;
        std::string node{};
        std::size_t slot = 0;
        friend bool operator==(const Arrival&, const Arrival&) = default;
    };
    static constexpr std::size_t kArrivalsNamed = 4;

    std::size_t nodes = 0;
    std::size_t nodes_before = 0;
    std::vector<Arrival> arrivals{};  ///< The first `kArrivalsNamed` of them.
    std::size_t arrivals_count = 0;
    std::string restarted_on{};  ///< If the same nodes continue: the node of the failed worker.
    std::string told{};          ///< If decoded from a message: the sentence; other fields unset.

    Succession() = default;
    explicit(false) Succession(std::string words) : told(std::move(words)) {}
    explicit(false) Succession(const char* words) : told(words) {}
    friend bool operator==(const Succession&, const Succession&) = default;
};

/// The author of a job's verdict.
struct Author {
    enum class Kind : std::uint8_t { told, workers, rendezvous, node };
    Kind kind = Kind::told;
    std::string name{};  ///< The node's name, or text from an operator or a message.

    Author() = default;
    explicit(false) Author(Kind kind_in, std::string name_in = {})
        : kind(kind_in), name(std::move(name_in)) {}
    explicit(false) Author(std::string words) : name(std::move(words)) {}
    explicit(false) Author(const char* words) : name(words) {}
    friend bool operator==(const Author&, const Author&) = default;
};

/// Why a node is kept out of rounds for a while.
struct Quarantine {
    Cause cause{};               ///< The last failure.
    bool asked = false;          ///< A worker asked for another node.
    std::uint32_t failures = 0;  ///< Otherwise: rounds that ended because of the node,
    Duration window{};           ///< within this time.

    friend bool operator==(const Quarantine&, const Quarantine&) = default;
};
struct QuarantinedNode {
    std::string node{};
    Quarantine why{};
    Duration left{};

    friend bool operator==(const QuarantinedNode&, const QuarantinedNode&) = default;
};

/// Why a job ended.
struct JobEnding {
    enum class Kind : std::uint8_t {
        told,               ///< `cause` has the text.
        finished,           ///< All workers finished.
        restarts_used,      ///< All `allowed` restarts are used.
        hangs_used,         ///< All `allowed` hangs are used.
        losses_used,        ///< All `allowed` losses of nodes are used.
        worker_said_final,  ///< The worker said that a restart cannot help.
        exit_code_final,    ///< The policy maps `exit_code` to Reaction::fail.
        no_progress,        ///< `rounds` in a row ended without a step after `step`.
        no_other_node,      ///< The worker asks for another node, and no other node can join.
        nobody_came,        ///< No other node came within `waited`; `quarantined` are kept out.
        too_few_left,       ///< `names` have finished and left, so that too few nodes remain.
        drained,            ///< All nodes saved their state and left; see also `meanwhile`.
        unfinished,         ///< See `partial_finish`: the others did not finish in `waited`.
    };
    Kind kind = Kind::told;
    Cause cause{};
    std::uint32_t allowed = 0;
    int exit_code = 0;
    std::uint32_t rounds = 0;
    std::uint64_t step = 0;
    Duration waited{};
    std::vector<std::string> names{};
    std::vector<QuarantinedNode> quarantined{};
    Boxed<WorkerFailure> meanwhile{};  ///< A failure during the drain, if any.
    PartialFinish partial_finish{};

    JobEnding() = default;
    explicit(false) JobEnding(Kind kind_in, Cause cause_in = {})
        : kind(kind_in), cause(std::move(cause_in)) {}
    explicit(false) JobEnding(std::string words) : cause(std::move(words)) {}
    explicit(false) JobEnding(const char* words) : cause(words) {}
    friend bool operator==(const JobEnding&, const JobEnding&) = default;
};

}  // namespace regroup::rendezvous
