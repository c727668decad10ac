// SPDX-License-Identifier: Apache-2.0
//
// Why things happen to a job, as values. The state machines decide by these and put them into
// effects; rendezvous/text makes sentences of them, and nobody makes values of sentences.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/base/boxed.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/core/round_id.h"
#include "rendezvous/core/worker_failure.h"

namespace regroup::rendezvous {

/// How a node went.
struct Departure {
    enum class Kind : std::uint8_t {
        left,            ///< It said goodbye, for `reason`.
        killed,          ///< Its agent died, and somebody else said so, with `reason`.
        silent,          ///< Nothing was heard of it for `limit`.
        disconnected,    ///< Its connection broke and did not come back within `limit`.
        absent,          ///< It did not come back within `limit` after `restarts` of the daemon.
        launcher_ended,  ///< It was of one process with the daemon before this one.
        stuck,           ///< It did not confirm in time that its workers have ended.
    };
    Kind kind = Kind::left;
    Duration limit{};
    std::uint32_t restarts = 1;
    std::string reason{};

    /// Not of its own will.
    [[nodiscard]] bool is_loss() const noexcept { return kind != Kind::left; }
    /// It is charged to the budget of lost nodes.
    [[nodiscard]] bool is_charged() const noexcept {
        return is_loss() && kind != Kind::launcher_ended;
    }
    friend bool operator==(const Departure&, const Departure&) = default;
};

/// Somebody wants a node to leave.
struct LeaveWish {
    std::string said{};  ///< By the node itself: "stopped by SIGTERM". Else an operator's wish:
    std::string author{};
    std::string reason{};

    friend bool operator==(const LeaveWish&, const LeaveWish&) = default;
};

/// On whom a round hangs.
struct HangCulprit {
    enum class Kind : std::uint8_t {
        behind,    ///< It is behind and not in the collective in which the others wait for it.
        mismatch,  ///< It is behind and waits in a collective, of which the others have done more.
        stopped,   ///< Its process is stopped, by a signal or by a debugger.
        silent,    ///< Nothing is known of any rank; it has been silent longest.
        reported,  ///< Its agent says so: `text`.
    };
    Kind kind = Kind::reported;
    std::uint32_t rank = 0;
    std::string node{};   ///< Of `rank`, for silent and stopped ones of whom nothing else is known.
    std::string doing{};  ///< The collective or section that it is in.
    std::uint64_t step = 0;
    std::uint64_t operations = 0;
    bool others_wait = false;
    Duration silent{};
    std::string text{};

    HangCulprit() = default;
    HangCulprit(std::string words) : text(std::move(words)) {}  // NOLINT(google-explicit-*)
    HangCulprit(const char* words) : text(words) {}             // NOLINT(google-explicit-*)
    /// Else it is only the one that has been silent longest.
    [[nodiscard]] bool proven() const noexcept { return kind != Kind::silent; }
    friend bool operator==(const HangCulprit&, const HangCulprit&) = default;
};

namespace causes {

/// Others' words: read from a message, or typed by an operator.
struct Told {
    std::string text{};
    friend bool operator==(const Told&, const Told&) = default;
};
/// The first nodes of a job (no names), or nodes that were let into a round.
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
    std::vector<NodeGone> nodes{};
    friend bool operator==(const Gone&, const Gone&) = default;
};
/// A connection between two workers, both of whom live as far as is known.
struct LinkBroke {
    std::uint32_t rank = 0;
    std::string node{};
    std::uint32_t peer = 0;
    std::string peer_node{};
    bool mutual = false;  ///< Both ends say so.
    std::string text{};   ///< The rest of a sentence about the peer: "closed the connection".
    friend bool operator==(const LinkBroke&, const LinkBroke&) = default;
};
/// A node ended the round for itself, unasked.
struct Abandoned {
    std::string node{};
    bool store_spent = false;  ///< It could not serve the round's store any more.
    friend bool operator==(const Abandoned&, const Abandoned&) = default;
};
struct Hung {
    RoundId round = RoundId::none;
    std::string text{};  ///< The agent's words.
    std::optional<HangCulprit> culprit{};
    bool all_wait = false;  ///< All ranks wait for each other.
    friend bool operator==(const Hung&, const Hung&) = default;
};
struct Leaving {
    std::string node{};
    LeaveWish wish{};
    bool hands_over = false;  ///< Once a node that waits has its state.
    friend bool operator==(const Leaving&, const Leaving&) = default;
};
/// A node leaves, and all others must leave with it.
struct JobDrain {
    enum class Why : std::uint8_t { nobody_stays, too_few_stay, rendezvous_goes };
    Leaving leaving{};
    Why why = Why::nobody_stays;
    std::size_t stay = 0;
    std::uint32_t needed = 0;
    friend bool operator==(const JobDrain&, const JobDrain&) = default;
};
/// A member has taken part in a later round, of a daemon that is not known here.
struct Superseded {
    std::string node{};
    RoundId round = RoundId::none;
    friend bool operator==(const Superseded&, const Superseded&) = default;
};
/// The round began without a node that waits and has come further.
struct BegunBehind {
    std::string node{};
    std::uint64_t step = 0;
    std::uint64_t began_at = 0;
    friend bool operator==(const BegunBehind&, const BegunBehind&) = default;
};
/// Said to a node that runs a round of which it is no member any more.
struct Over {
    RoundId round = RoundId::none;
    friend bool operator==(const Over&, const Over&) = default;
};
/// Said to a node that was given up.
struct GivenUp {
    friend bool operator==(const GivenUp&, const GivenUp&) = default;
};

}  // namespace causes

/// Why a round was formed, changes or ended; what a node is told of it.
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
    Cause(std::string text) : what(Told{std::move(text)}) {}  // NOLINT(google-explicit-*)
    Cause(const char* text) : what(Told{text}) {}             // NOLINT(google-explicit-*)
    template <class Alternative>
        requires std::is_constructible_v<What, Alternative> &&
                 (!std::is_convertible_v<Alternative, std::string>) &&
                 (!std::is_same_v<std::decay_t<Alternative>, Cause>)
    Cause(Alternative alternative)  // NOLINT(google-explicit-*)
        : what(std::move(alternative)) {}

    template <class Alternative>
    [[nodiscard]] const Alternative* as() const noexcept {
        return std::get_if<Alternative>(&what);
    }
    [[nodiscard]] bool is_known() const noexcept { return *this != Cause(); }
    friend bool operator==(const Cause&, const Cause&) = default;

    What what{};
    /// A change that was to take place at a step boundary, which was not reached in time.
    bool boundary_missed = false;
};

/// The fate of each place of the round before.
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
    std::string restarted_on{};  ///< If the same nodes go on: where the worker had failed.
    std::string told{};          ///< In a message that was read: the sentence, and nothing else.

    Succession() = default;
    Succession(std::string words) : told(std::move(words)) {}  // NOLINT(google-explicit-*)
    Succession(const char* words) : told(words) {}             // NOLINT(google-explicit-*)
    friend bool operator==(const Succession&, const Succession&) = default;
};

/// The author of a job's end.
struct Author {
    enum class Kind : std::uint8_t { told, workers, rendezvous, node };
    Kind kind = Kind::told;
    std::string name{};  ///< Of the node; or the words of an operator or of a message.

    Author() = default;
    Author(Kind kind_in, std::string name_in = {}) : kind(kind_in), name(std::move(name_in)) {}
    Author(std::string words) : name(std::move(words)) {}  // NOLINT(google-explicit-*)
    Author(const char* words) : name(words) {}             // NOLINT(google-explicit-*)
    friend bool operator==(const Author&, const Author&) = default;
};

/// Why a node is kept out of rounds for a while.
struct Quarantine {
    Cause cause{};               ///< What it did last.
    bool asked = false;          ///< A worker asked for another node; else:
    std::uint32_t failures = 0;  ///< So many rounds ended because of the node,
    Duration window{};           ///< within that time.

    friend bool operator==(const Quarantine&, const Quarantine&) = default;
};
struct QuarantinedNode {
    std::string node{};
    Quarantine why{};
    Duration left{};

    friend bool operator==(const QuarantinedNode&, const QuarantinedNode&) = default;
};

/// Why a job ended.
struct Ending {
    enum class Kind : std::uint8_t {
        told,               ///< `cause` has the words.
        finished,           ///< All workers finished.
        restarts_used,      ///< `allowed` are used.
        hangs_used,         ///< `allowed` are used.
        losses_used,        ///< `allowed` are used.
        worker_said_final,  ///< The worker said that trying again cannot help.
        exit_code_final,    ///< The policy says so of `exit_code`.
        no_progress,        ///< `rounds` in a row ended without one more step after `step`.
        no_other_node,      ///< The worker asks for another node, and there can be none.
        nobody_came,        ///< No other node came within `waited`; `quarantined` are kept out.
        too_few_left,       ///< `names` have finished and gone, so that too few remain.
        drained,            ///< All have saved their state and left; meanwhile `failure`.
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
    Boxed<WorkerFailure> meanwhile{};

    Ending() = default;
    Ending(Kind kind_in, Cause cause_in = {}) : kind(kind_in), cause(std::move(cause_in)) {}
    Ending(std::string words) : cause(std::move(words)) {}  // NOLINT(google-explicit-*)
    Ending(const char* words) : cause(words) {}             // NOLINT(google-explicit-*)
    friend bool operator==(const Ending&, const Ending&) = default;
};

}  // namespace regroup::rendezvous
