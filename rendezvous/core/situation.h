// SPDX-License-Identifier: Apache-2.0
//
// Values that state the activity of a job, the reason why it waits, and why a node may not join it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/core/cause.h"

namespace regroup::rendezvous {

enum class Phase : std::uint8_t {
    forming,   ///< There is no round: nodes join, or come back.
    training,  ///< A round's workers train.
    changing,  ///< The workers train until the next step boundary; there they suspend or leave.
    ending,    ///< The round is over; its workers are being ended or suspended.
    closed,
};
[[nodiscard]] std::string_view to_string(Phase phase) noexcept;

/// Why a node may not take part.
struct Refusal {
    enum class Kind : std::uint8_t {
        told,           ///< Decoded from a message: `told` has the text.
        contradicts,    ///< `other` has another value in `field`.
        workers,        ///< The node offers `here` workers; the limit is `there`.
        slot,           ///< The node claims slot `here`, which is outside `there`.
        slot_taken,     ///< `other` claims slot `here` too.
        round,          ///< The node reports round `here`; no job gets beyond `there`.
        other_job,      ///< The job of one node has `other`; see also `same_command`.
        other_command,  ///< In the job of the usual name, `other` runs another command.
    };
    Kind kind = Kind::told;
    std::string node{};
    std::string other{};  ///< A name; the same as `node` for two launchers of one host; empty: the
                          ///< job itself.
    std::string field{};  ///< The flag, or "the program".
    std::string here{};
    std::string there{};
    bool same_command = false;       ///< As far as is known.
    bool may_begin_another = false;  ///< Its launcher has the job's journal and could start anew.
    std::string told{};

    Refusal() = default;
    explicit(false) Refusal(std::string words) : told(std::move(words)) {}
    explicit(false) Refusal(const char* words) : told(words) {}
    friend bool operator==(const Refusal&, const Refusal&) = default;
};

/// The activity of a job, or the reason why the job waits.
struct Situation {
    enum class Kind : std::uint8_t {
        told,         ///< Decoded from a message: `told` has the text.
        gathering,    ///< Fewer nodes than the minimum are ready.
        last_call,    ///< Enough nodes are ready; others have `left` to come.
        awaiting,     ///< Enough nodes are ready; `awaited` may hold later state and have `left`.
        backing_off,  ///< The next round begins in `left`, since the last ones ended too soon.
        training,
        hanging,   ///< The round hangs; stacks are saved, and `culprit` is named or ended.
        changing,  ///< See Phase. `awaited` have `left` for it.
        ending,    ///< `awaited` have `left` to end their workers.
        closed,
        quarantined,  ///< For a single node, the first of `quarantined`.
        refused,      ///< Another node was refused; see `refusal`.
    };
    static constexpr std::size_t kNamesMax = 32;
    static constexpr std::size_t kQuarantinedMax = 3;

    Kind kind = Kind::told;
    RoundId round = RoundId::none;
    std::size_t ready = 0;
    std::size_t members = 0;
    std::uint32_t nodes_min = 1;
    std::uint32_t nodes_max = 1;
    Cause cause{};
    std::vector<std::string> awaited{};  ///< Names; `kNamesMax` of them at most.
    bool more_awaited = false;
    bool in_user_code = false;  ///< Some workers of them are in user code, which takes longer.
    Duration left{};
    PartialFinish partial_finish{};  ///< While training, hanging or changing; mostly unknown.
    std::string hang{};              ///< The agent's report.
    std::optional<HangCulprit> culprit{};
    bool culprit_is_ended = false;               ///< Otherwise it is only named.
    std::vector<QuarantinedNode> quarantined{};  ///< `kQuarantinedMax` of them at most.
    std::size_t more_quarantined = 0;
    Author author{};
    Boxed<JobEnding> ending{};
    Boxed<Refusal> refusal{};
    std::string told{};

    Situation() = default;
    explicit(false) Situation(std::string words) : told(std::move(words)) {}
    explicit(false) Situation(const char* words) : told(words) {}
    friend bool operator==(const Situation&, const Situation&) = default;
};

}  // namespace regroup::rendezvous
